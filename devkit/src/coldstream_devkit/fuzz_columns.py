"""Random chunks through the fast decoder and the plain one until the time is over.

    python -m coldstream_devkit.fuzz_columns --seconds 60 [--seed 1]

`make fuzz-kernel` runs it with a kernel under AddressSanitizer and UndefinedBehaviorSanitizer. The
chunks lie in a buffer of exactly their size, so a read past its end is seen; besides, messages are
decoded that lie in a buffer each, so reading one byte too many of any message is seen, and chunks
are checked whose entries lie. A failure names the seed that gives it again.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
import time
import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from coldstream.columns.assemble import Assembler
from coldstream.columns.decode import Decoder
from coldstream.columns.reference import DECODED, decode_reference, message_columns
from coldstream.columns.schema import COLUMNS, Origin, select
from coldstream.osiris.body import BodyFormat
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, iter_chunks
from coldstream.osiris.headers import CHUNK_DTYPE
from coldstream.soundness.crcs import check_crcs
from coldstream.soundness.entries import count_records
from coldstream_devkit.messages import any_chunks, any_message, cut_values, headers_and_bounds

ORIGIN = Origin("s", "/", "q")


def check(seed: int) -> int:
    """Decode the chunks of one seed both ways; gives the number of messages.

    Raises:
        AssertionError: the two differ.
    """
    rng = random.Random(seed)
    data = any_chunks(rng, rng.randint(1, 6), first=rng.randint(0, 10**6))
    names = tuple(COLUMNS)
    if rng.random() < 0.5:
        names = tuple(rng.sample(names, rng.randint(1, len(names))))
    selection = select(names, rng.choice(list(BodyFormat)))
    decoder = Decoder(
        selection,
        batch_bytes=rng.choice([1, 100, 5000, 2**20]),
        batch_rows=rng.choice([1, 7, 100, 10_000]),
        reuse=rng.random() < 0.5,
        origin=ORIGIN,
    )
    headers, bounds = headers_and_bounds(data)
    tables = []
    exact = memoryview(_exact(data)).cast("B")
    for source in (decoder.decode(exact, headers, bounds), decoder.flush()):
        for batch in source:
            batch.validate(full=True)
            tables.append(_copied(batch))
    found = pa.Table.from_batches(tables, selection.schema).combine_chunks()
    plain = decode_reference(selection, iter_chunks(data), origin=ORIGIN)
    expected = pa.Table.from_batches([plain], selection.schema).combine_chunks()
    assert found.equals(expected), f"seed {seed}: the decoders differ"
    return int(found.num_rows)


def check_alone(seed: int, wires: Sequence[bytes] | None = None) -> int:
    """Decode messages that have a buffer each; gives their number.

    Args:
        seed: of what is random.
        wires: the messages; random ones by default.

    Raises:
        AssertionError: the decoders differ.
    """
    rng = random.Random(seed)
    if wires is None:
        wires = [any_message(rng, damage=0.5) for _ in range(20)]
    buffers = [_exact(wire) for wire in wires]
    selection = select(sorted(DECODED | {"raw"}), rng.choice(list(BodyFormat)))
    # Little room for texts now and then: then their ends are checked, too.
    size = rng.choice([0, 5, 50, 200, 500, sum(map(len, wires))])
    assembler = Assembler(
        selection, batch_bytes=size, batch_rows=len(wires), reuse=False, least_room=0
    )
    columns = assembler.columns(
        np.array([ctypes.addressof(buffer) for buffer in buffers], np.uint64),
        np.array([len(wire) for wire in wires], np.int32),
        lambda row: None,
        False,
    )
    rows = [message_columns(selection, wire) for wire in wires]
    for name, column in columns.items():
        kind = selection.schema.field(name).type
        expected = pa.array([row.get(name) for row in rows], kind)
        assert column.equals(expected), f"seed {seed}: the decoders differ in {name}"
    return len(wires)


def check_crcs_alone(seed: int) -> int:
    """Check one chunk, whose header and entries may lie; gives how many entries were looked at.

    Raises:
        AssertionError: the kernel and numpy differ.
    """
    rng = random.Random(seed)
    entries = [rng.randbytes(rng.choice([0, 3, 3, 40])) for _ in range(rng.randrange(40))]
    section = bytearray(b"".join(len(each).to_bytes(4, "big") + each for each in entries))
    if section and rng.random() < 0.5:
        section[rng.randrange(len(section))] = rng.randrange(256)
    if rng.random() < 0.3:
        section = section[: rng.randrange(len(section) + 1)]
    headers = np.zeros(1, CHUNK_DTYPE)
    headers["data_size"] = len(section)
    headers["entries"] = max(0, len(entries) + rng.choice([0, 0, -1, 1, 1000]))
    headers["crc"] = zlib.crc32(section)
    bounds = np.array([0, CHUNK_HEADER_SIZE + len(section)], np.int64)
    exact = memoryview(_exact(bytes(CHUNK_HEADER_SIZE) + bytes(section))).cast("B")
    found = check_crcs(exact, headers, bounds, entries=True)
    counts = headers["entries"].astype(np.int64)
    begin = np.array([CHUNK_HEADER_SIZE], np.int64)
    if found.simple is not None:
        plain = count_records(exact, begin, bounds[1:], counts)
        quick = count_records(exact, begin, bounds[1:], counts, simple=found.simple)
        assert found.good == 1, f"seed {seed}: the CRC is right"
        assert str(plain) == str(quick), f"seed {seed}: the walks differ: {plain}, {quick}"
    return int(counts[0])


def _exact(data: bytes) -> ctypes.Array[ctypes.c_char]:
    """A copy with nothing behind it; `bytes` have one byte more than they say."""
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that stays when its memory is used again."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def main() -> None:
    """Fuzz until the time is over, then say how much was tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    first = given.seed if given.seed is not None else random.SystemRandom().getrandbits(40)
    end = time.monotonic() + given.seconds
    cut = list(cut_values(random.Random(first)))
    # Each time with other room for texts.
    seeds, messages = 0, sum(check_alone(first + number, cut) for number in range(12))
    while time.monotonic() < end:
        messages += check(first + seeds) + check_alone(first + seeds)
        for number in range(50):
            check_crcs_alone((first + seeds) * 50 + number)
        seeds += 1
    sys.stdout.write(f"seeds {seeds} from {first}, messages {messages}, no difference\n")


if __name__ == "__main__":
    main()
