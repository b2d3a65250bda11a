"""Rows of several sources become one sequence: none is lost, none is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.jobs.materialise.merge_rows import RowSource, merged_rows

_SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int64()), ("id", pa.int64())])
_Row = tuple[str | None, int | None]
_ROWS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.one_of(st.none(), st.integers(0, 9))),
    max_size=12,
)


class Opened:
    """Counts the sources that are open at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def source(
        self, rows: list[_Row], begin: int, size: int, low: tuple[str, int] | None = None
    ) -> RowSource:
        def batches() -> Iterator[pa.RecordBatch]:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                for at in range(0, len(rows), size):
                    part = rows[at : at + size]
                    columns = [
                        pa.array([s for s, _ in part], pa.string()),
                        pa.array([n for _, n in part], pa.int64()),
                        pa.array(range(begin + at, begin + at + len(part)), pa.int64()),
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
            finally:
                self.now -= 1

        return RowSource(batches, len(rows), low or ())


def _key(row: tuple[str | None, int | None, int]) -> tuple[bool, str, bool, int]:
    return (row[0] is None, row[0] or "", row[1] is None, row[1] or 0)


def _found(sources: list[RowSource]) -> list[tuple[str | None, int | None, int]]:
    return [
        (row["s"], row["n"], row["id"])
        for batch in merged_rows(sources, ["s", "n"])
        for row in batch.to_pylist()
    ]


@given(st.lists(_ROWS, max_size=6), st.integers(1, 5), st.booleans())
def test_every_row_comes_out_once_and_in_order_where_the_sources_are(
    lists: list[list[_Row]], size: int, in_order: bool
) -> None:
    opened, sources, expected, begin = Opened(), [], [], 0
    for rows in lists:
        if in_order:
            rows = sorted(rows, key=lambda row: _key((*row, 0)))
        sources.append(opened.source(rows, begin, size))
        expected += [(*row, begin + at) for at, row in enumerate(rows)]
        begin += len(rows)
    found = _found(sources)
    assert sorted(found, key=lambda row: row[2]) == expected
    if in_order:
        assert all(_key(one) <= _key(two) for one, two in pairwise(found))
    assert opened.now == 0


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9))), max_size=6))
def test_a_source_is_opened_no_sooner_than_its_lowest_key_and_no_later(
    lists: list[list[tuple[str, int]]],
) -> None:
    opened, sources, number = Opened(), [], 0
    for rows in lists:
        rows = sorted(rows)
        low = rows[0] if rows else ("a", 0)
        sources.append(opened.source(list(rows), number, 3, (low[0], 0)))
        number += len(rows)
    found = [(s, n) for s, n, _ in _found(sources)]
    assert found == sorted(row for rows in lists for row in rows)


def test_sources_that_follow_each_other_are_open_one_at_a_time() -> None:
    opened = Opened()
    sources = [
        opened.source([("a", n) for n in range(b, b + 10)], b, 3, ("a", b)) for b in (20, 0, 10)
    ]
    assert [n for _, n, _ in _found(sources)] == list(range(30))
    assert opened.most == 1


def test_what_was_opened_is_closed_when_a_source_fails() -> None:
    opened = Opened()

    def broken() -> Iterator[pa.RecordBatch]:
        yield from opened.source([("a", 1)], 0, 1).open()
        raise OSError("gone")

    sources = [opened.source([("a", n) for n in range(9)], 0, 2), RowSource(broken, 2)]
    with pytest.raises(OSError, match="gone"):
        _found(sources)
    assert opened.now == 0
