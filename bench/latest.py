"""What it costs to bring a bucket of a table of the latest up to date, beside a plain copy of it.

    make bench-latest

One bucket of a million keys of 36 characters with bodies of 200 bytes, and 100,000 new messages for
it, a tenth of them tombstones. The floor reads the bucket's file and writes it again with the same
writer, and decides nothing. In turn, median of three rounds after one to warm up. How much memory
Arrow had at most while the rows that stay were looked for is printed by key.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import quick, ratio
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.latest.merge import MergePiece, lasting, merge
from coldstream.jobs.materialise.latest.rows import staged_schema
from coldstream.jobs.materialise.rows import batches_of
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import KEY_COLUMNS, raw_schema
from coldstream.jobs.materialise.table import WrittenFile
from coldstream.jobs.materialise.write import FileLayout, TableWriter

KEYS, NEW, BODY, AT_ONCE = 1_000_000, 100_000, 200, 50_000
ROUNDS = 3
GOAL = 0.6
STREAM = "__bench_1"
_IDS = count()


def main() -> None:
    """Measure and print."""
    keys, new, rounds = (20_000, 2_000, 1) if quick(__doc__) else (KEYS, NEW, ROUNDS)
    with tempfile.TemporaryDirectory() as base:
        layout = _layout(Path(base) / "table")
        names = _names(keys)
        present = _written(layout, names, range(keys))
        changed = random.Random(2).sample(names, new)
        staged = _staged(layout, Path(base) / "staged", changed, range(keys, keys + new))
        piece = MergePiece(STREAM, 0, _places(present), _places(staged))
        times: dict[str, list[float]] = {"copy": [], "merge": []}
        for _ in range(rounds + 1):
            for side, run in (("copy", _copied), ("merge", _merged)):
                began = time.perf_counter()
                rows = run(piece, layout)
                times[side].append(time.perf_counter() - began)
                assert rows == keys - (0 if side == "copy" else len(range(0, new, 10)))
        size = sum(each.size for each in present)
        medians = {side: statistics.median(each[1:]) for side, each in times.items()}
        sys.stdout.write(f"a bucket of {size:,} bytes, {keys:,} keys, {new:,} new messages\n")
        for side, seconds in medians.items():
            sys.stdout.write(f"{side:6s} {seconds:.2f} s, {keys / seconds:,.0f} rows a second\n")
        sys.stdout.write(f"memory {_memory(piece, layout) / keys:.0f} bytes a key at most\n")
    ratio("latest-merge-copy", medians["copy"] / medians["merge"], f">= {GOAL:g}")


def _layout(place: Path) -> FileLayout:
    schema = pa.schema([pa.field("key", pa.string()), *raw_schema()])
    return FileLayout(
        f"file://{place}", schema, TablePartition.DAY, KEY_COLUMNS, buckets=Buckets("key", 1)
    )


def _names(keys: int) -> list[str]:
    rng = random.Random(1)
    return [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(keys)]


def _written(layout: FileLayout, names: list[str], offsets: range) -> list[WrittenFile]:
    """Rows with bodies that do not compress; of a staged file every tenth is a tombstone."""
    rng = random.Random(3)
    with TableWriter(layout, STREAM, StoredFiles(), _new_id) as writer:
        files: list[WrittenFile] = []
        for begin in range(0, len(names), AT_ONCE):
            part = names[begin : begin + AT_ONCE]
            own = {
                "key": pa.array(part),
                "stream": pa.array([STREAM] * len(part)),
                "offset": pa.array(offsets[begin : begin + AT_ONCE], pa.int64()),
                "timestamp": pa.array([0] * len(part), pa.timestamp("us", "UTC")),
                "body": pa.array([rng.randbytes(BODY) for _ in part]),
                ":tombstone": pa.array([n % 10 == 0 for n in range(len(part))]),
            }
            columns = [own.get(f.name, pa.nulls(len(part), f.type)) for f in layout.schema]
            files += writer.write(pa.RecordBatch.from_arrays(columns, schema=layout.schema))
        return [*files, *writer.close()]


def _staged(layout: FileLayout, place: Path, names: list[str], offsets: range) -> list[WrittenFile]:
    schema = staged_schema(layout.schema)
    own = FileLayout(
        f"file://{place}", schema, layout.partition, layout.columns, buckets=layout.buckets
    )
    return _written(own, names, offsets)


def _places(files: list[WrittenFile]) -> tuple[tuple[str, int], ...]:
    return tuple((each.path, each.size) for each in files)


def _new_id() -> str:
    return f"{next(_IDS):016x}"


def _copied(piece: MergePiece, layout: FileLayout) -> int:
    def batches() -> Iterator[pa.RecordBatch]:
        for path, size in piece.present:
            with StoredFiles().open(path, size) as content:
                yield from batches_of(pq.ParquetFile(content), layout.schema)

    with TableWriter(layout, piece.stream, StoredFiles(), _new_id) as writer:
        files = [file for batch in batches() for file in writer.write(batch)]
        return sum(file.rows for file in (*files, *writer.close()))


def _merged(piece: MergePiece, layout: FileLayout) -> int:
    return sum(file.rows for file in merge(piece, layout, StoredFiles(), _new_id).files)


def _memory(piece: MergePiece, layout: FileLayout) -> int:
    """Bytes that Arrow had at most, beyond what it has now."""
    pool = pa.system_memory_pool()
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        begin = pool.bytes_allocated()
        lasting(piece, layout, StoredFiles())
        return (pool.max_memory() or 0) - begin
    finally:
        pa.set_memory_pool(before)


if __name__ == "__main__":
    main()
