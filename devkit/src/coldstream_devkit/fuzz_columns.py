"""Random chunks through the fast decoder and the plain one until the time is over.

    python -m coldstream_devkit.fuzz_columns --seconds 60 [--seed 1]

`make fuzz-kernel` runs it with a kernel under AddressSanitizer and UndefinedBehaviorSanitizer. The
chunks lie in a buffer of exactly their size, so a read past its end is seen; besides, messages are
decoded that lie in a buffer each, so reading one byte too many of any message is seen. A failure
names the seed that gives it again.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from coldstream.columns.assemble import Assembler
from coldstream.columns.decode import Decoder
from coldstream.columns.reference import DECODED, decode_reference, message_columns
from coldstream.columns.schema import COLUMNS, Origin, select
from coldstream.osiris.body import BodyFormat
from coldstream.osiris.chunk import iter_chunks
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
        seeds += 1
    sys.stdout.write(f"seeds {seeds} from {first}, messages {messages}, no difference\n")


if __name__ == "__main__":
    main()
