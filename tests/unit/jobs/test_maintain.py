"""Which files become one, and which go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from coldstream.jobs.materialise.compact import plan_compaction
from coldstream.jobs.materialise.maintain import plan_retention
from coldstream.jobs.materialise.rows import kept_of
from coldstream.jobs.materialise.table import StoredFile

_DAY_MS = 86_400_000


def _file(
    first: int, size: int = 10, stream: str = "s", unit: int | None = 0, last_ms: int | None = 0
) -> StoredFile:
    return StoredFile(
        f"{stream}/{unit}/{first}", size, 1, stream, unit, first, last_ms, low_stream=stream
    )


def _groups(files: list[StoredFile], target: int, **how: Any) -> list[tuple[StoredFile, ...]]:
    return [piece.files for piece in plan_compaction(files, target, **how)]


def test_small_neighbours_become_one_file_in_the_order_of_offsets() -> None:
    files = [_file(30), _file(10), _file(20, size=60), _file(40)]
    assert _groups(files, 100) == [(files[1], files[0], files[3])]


def test_files_of_two_streams_or_two_days_stay_apart() -> None:
    files = [_file(1), _file(2, stream="t"), _file(3, unit=1), _file(4, unit=1)]
    assert _groups(files, 100) == [(files[2], files[3])]


def test_a_file_of_which_others_have_deleted_rows_is_left_to_their_own_compaction() -> None:
    files = [_file(1), replace(_file(2), partly=True), _file(3)]
    assert _groups(files, 100) == [(files[0], files[2])]


@given(st.lists(st.integers(0, 5), max_size=6), st.sets(st.integers(0, 40), max_size=10))
def test_rows_at_deleted_positions_are_left_out_whatever_row_groups_they_are_in(
    sizes: list[int], gone: set[int]
) -> None:
    rows, batches, begin = list(range(sum(sizes))), [], 0
    for size in sizes:
        batch = pa.RecordBatch.from_arrays(
            [pa.array(rows[begin : begin + size], pa.int64())], ["n"]
        )
        batches.append(batch)
        begin += size
    found = kept_of(batches, np.array(sorted(gone), np.int64))
    left = [n for batch in found for n in batch.column(0).to_pylist()]
    assert left == [n for n in rows if n not in gone]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 200)), max_size=40))
def test_no_file_is_rewritten_twice_or_grows_beyond_the_target(
    sizes: list[tuple[int, int]],
) -> None:
    files = [_file(n, size=size, unit=unit) for n, (unit, size) in enumerate(sizes)]
    groups = _groups(files, 100)
    chosen = [file.path for group in groups for file in group]
    assert len(chosen) == len(set(chosen))
    for group in groups:
        assert len(group) > 1
        assert sum(file.size for file in group) <= 100
        assert len({file.time_unit for file in group}) == 1


def test_only_files_with_no_row_younger_than_the_limit_go() -> None:
    now = 100 * _DAY_MS
    old, edge, young = _file(1, last_ms=1), _file(2, last_ms=90 * _DAY_MS), _file(3, last_ms=now)
    timeless = _file(4, last_ms=None)
    assert plan_retention([old, edge, young, timeless], 10 * 86_400, now) == (old,)
