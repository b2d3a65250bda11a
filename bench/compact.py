"""What it costs a worker to merge files of many streams, beside a plain copy of their rows.

    make bench-compact

64 files, each with rows of the same 500 streams and bodies of a kilobyte that shrink to a seventh,
become files in the order of stream and offset. The floor reads them one after the other and writes
their rows again with the same writer, in no order. In turn, median of three rounds after one to
warm up. Each side runs in a process of its own: what is printed of memory is the most that it had
(resident), less what it had before.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import quick, ratio
from coldstream.jobs.materialise.compact import MAX_FILES, CompactPiece, compact
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.rows import batches_of
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import KEY_COLUMNS, raw_schema
from coldstream.jobs.materialise.table import StoredFile, WrittenFile
from coldstream.jobs.materialise.write import FileLayout, TableWriter

STREAMS, ROWS, BODY, ROUNDS = 500, 12, 1000, 3
GOAL = 0.4
_Side = Callable[[CompactPiece, FileLayout], int]


def main() -> None:
    """Measure and print."""
    rows, rounds = (2, 1) if quick(__doc__) else (ROWS, ROUNDS)
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as base, processes.Pool(1, maxtasksperchild=1) as pool:
        layout = FileLayout(
            f"file://{base}/table", raw_schema(), TablePartition.NONE, KEY_COLUMNS, shared=True
        )
        piece = CompactPiece(tuple(pool.map(_written, [(layout, rows)])[0]))
        size = sum(
            pq.read_metadata(each.path[7:]).row_group(0).total_byte_size for each in piece.files
        )
        sys.stdout.write(
            f"{len(piece.files)} files of {piece.size / 1e6:.0f} MB, {size / 1e6:.0f} MB before"
            f" compression, {piece.rows} rows\n"
        )
        times: dict[str, list[float]] = {"copy": [], "merge": []}
        memory: dict[str, int] = {}
        for _ in range(rounds + 1):
            for side, run in (("copy", _copied), ("merge", _merged)):
                seconds, most = pool.map(_measured, [(run, piece, layout)])[0]
                times[side].append(seconds)
                memory[side] = max(memory.get(side, 0), most)
    for side, each in times.items():
        median = statistics.median(each[1:])
        sys.stdout.write(
            f"{side:5s} {piece.rows / median:9.0f} rows/s  {size / 1e6 / median:6.0f} MB/s"
            f"  {memory[side] / 2**20:5.0f} MiB\n"
        )
    medians = {side: statistics.median(each[1:]) for side, each in times.items()}
    ratio("compact-copy", medians["copy"] / medians["merge"], f">= {GOAL:g}")


def _written(given: tuple[FileLayout, int]) -> list[StoredFile]:
    layout, rows = given
    words = [random.Random(n).randbytes(BODY // 8).hex() for n in range(97)]
    schema, stored = layout.schema, []
    for number in range(MAX_FILES):
        with TableWriter(layout, None, StoredFiles(), _id) as writer:
            first = number * rows
            for stream in range(STREAMS):
                writer_rows = pa.RecordBatch.from_pylist(
                    [_row(stream, n, words) for n in range(first, first + rows)], schema
                )
                assert not list(writer.write(writer_rows))
            (file,) = writer.close()
        stored.append(
            StoredFile(file.path, file.size, file.rows, None, None, first, 0, low_stream=_name(0))
        )
    return stored


def _name(stream: int) -> str:
    return f"__bench-{stream:05d}_1745252105682952932"


def _row(stream: int, offset: int, words: list[str]) -> dict[str, object]:
    number = random.Random(stream * 10**6 + offset).randrange(97)
    body = f"{stream} {offset} {words[number]}{words[(number * 7) % 97]}".encode()
    return {
        "stream": _name(stream), "queue": f"bench-{stream}", "vhost": "/", "offset": offset,
        "timestamp": offset * 1000, "body": body * 2, "body_kind": "data",
    }  # fmt: skip


def _measured(given: tuple[_Side, CompactPiece, FileLayout]) -> tuple[float, int]:
    run, piece, layout = given
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    assert run(piece, layout) == piece.rows
    seconds = time.perf_counter() - began
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def _merged(piece: CompactPiece, layout: FileLayout) -> int:
    return sum(each.rows for each in compact(piece, layout, StoredFiles(), _id).files)


def _copied(piece: CompactPiece, layout: FileLayout) -> int:
    files = StoredFiles()
    written: list[WrittenFile] = []
    with TableWriter(layout, None, files, _id) as writer:
        for each in piece.files:
            with files.open(each.path, each.size) as content:
                for batch in batches_of(pq.ParquetFile(content), layout.schema):
                    written += writer.write(batch)
        written += writer.close()
    return sum(each.rows for each in written)


def _id() -> str:
    return f"{random.SystemRandom().randrange(2**64):016x}"


if __name__ == "__main__":
    main()
