"""Random chunks through the fast decoder and the plain one until the time is over.

    python -m coldstream.testing.fuzz_columns --seconds 60 [--seed 1]

`make fuzz-kernel` runs it with a kernel under AddressSanitizer and UndefinedBehaviorSanitizer. The
input lies in a buffer of exactly its size, so a read past its end is seen. A failure names the seed
that gives it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import pyarrow as pa

from coldstream.columns.decode import Decoder
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import COLUMNS, select
from coldstream.osiris.chunk import iter_chunks
from coldstream.testing.messages import any_chunks, headers_and_bounds


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
    selection = select(names)
    decoder = Decoder(
        selection,
        batch_bytes=rng.choice([1, 100, 5000, 2**20]),
        batch_rows=rng.choice([1, 7, 100, 10_000]),
        reuse=rng.random() < 0.5,
        stream="s",
    )
    headers, bounds = headers_and_bounds(data)
    tables = []
    for source in (decoder.decode(data, headers, bounds), decoder.flush()):
        for batch in source:
            batch.validate(full=True)
            tables.append(_copied(batch))
    found = pa.Table.from_batches(tables, selection.schema).combine_chunks()
    plain = decode_reference(selection, iter_chunks(data), stream="s")
    expected = pa.Table.from_batches([plain], selection.schema).combine_chunks()
    assert found.equals(expected), f"seed {seed}: the decoders differ"
    return int(found.num_rows)


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
    seeds = messages = 0
    while time.monotonic() < end:
        messages += check(first + seeds)
        seeds += 1
    sys.stdout.write(f"seeds {seeds} from {first}, messages {messages}, no difference\n")


if __name__ == "__main__":
    main()
