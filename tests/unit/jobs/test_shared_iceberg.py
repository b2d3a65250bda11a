"""Iceberg tables whose streams share files, and those that begin to: rows, statistics, readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.compact import CompactPiece, CompactResult, compact
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import IcebergTable
from coldstream.jobs.materialise.maintain import Kept, Maintainer
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.sweep import SweptTable, sweep
from coldstream.jobs.materialise.table import Append, AppendOutcome
from coldstream.jobs.materialise.write import FileLayout
from coldstream_devkit.suites.table import (
    COLUMNS,
    OTHER,
    SCHEMA,
    STREAM,
    TableSite,
    append_of,
    mixed,
)
from tests.unit.jobs.test_iceberg import catalog

__all__ = ["catalog"]

Catalogs = Callable[[], SqlCatalog]
_IDS = count(10**7)


def _id() -> str:
    return f"{next(_IDS):016x}"


class Tables:
    """One Iceberg table, opened as a rule says."""

    def __init__(self, catalog: Catalogs, place: Path, partition: TablePartition) -> None:
        self.catalog = catalog
        self.place = place
        self.partition = partition
        self.name = f"db.t{_id()}"

    def open(self, shared: bool, columns: tuple[str, str, str] = COLUMNS) -> IcebergTable:
        return IcebergTable(
            self.catalog(), self.name, location=f"file://{self.place}/warehouse/{self.name}",
            partition=self.partition, columns=columns, files=StoredFiles(), new_id=_id,
            shared=shared,
        )  # fmt: skip

    def site(self, shared: bool) -> TableSite:
        return TableSite(lambda _: self.open(shared), StoredFiles(), lambda _: None, shared)  # type: ignore[arg-type, return-value]

    def rows(self) -> list[tuple[str, int]]:
        found = self.catalog().load_table(self.name).scan().to_arrow()
        return sorted((r["stream"], r["offset"]) for r in found.to_pylist())

    def maintain(self, shared: bool, target_bytes: int = 2**28, *, dry_run: bool = False) -> Kept:
        def merged(pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
            return [compact(each, layout, StoredFiles(), _id) for each in pieces]

        return Maintainer(
            self.open(shared), SCHEMA,
            lambda now: FileLayout(
                now.location, now.schema, self.partition, COLUMNS, target_bytes, shared=shared
            ),
            merged, _id,
        ).maintain(
            keep_seconds=None, now_ms=0, target_bytes=target_bytes, dry_run=dry_run
        )  # fmt: skip


@pytest.fixture(params=[TablePartition.DAY, TablePartition.NONE])
def tables(tmp_path: Path, catalog: Catalogs, request: pytest.FixtureRequest) -> Tables:
    return Tables(catalog, tmp_path, request.param)


def _both(spans: dict[str, tuple[int, int]]) -> list[tuple[str, int]]:
    return sorted((stream, n) for stream, span in spans.items() for n in range(*span))


def _days(catalog: Catalogs, place: Path) -> Tables:
    return Tables(catalog, place, TablePartition.DAY)


def _put(table: IcebergTable, append: Append) -> None:
    commit(table, append, first_schema=SCHEMA, pause=lambda _: None)


def test_a_table_of_another_body_is_refused_for_that_and_not_for_how_its_files_are_divided(
    tmp_path: Path, catalog: Catalogs
) -> None:
    tables = _days(catalog, tmp_path)
    shared = tables.open(True)
    _put(shared, append_of(tables.site(True), shared.load(SCHEMA), 0, 50))

    with pytest.raises(InvalidInputError, match="no column _stream: it was filled with another"):
        tables.open(False, ("_stream", "_offset", "_timestamp")).load(SCHEMA)
    with pytest.raises(InvalidInputError, match="is partitioned by day, shared by streams"):
        tables.open(False).load(SCHEMA)


def test_a_table_of_files_by_stream_becomes_one_of_shared_files_and_no_row_changes(
    tmp_path: Path, catalog: Catalogs
) -> None:
    tables = _days(catalog, tmp_path)
    own = tables.open(False)
    for stream in (STREAM, OTHER):
        _put(own, append_of(tables.site(False), own.load(SCHEMA), 0, 50, stream))
    before = tables.catalog().load_table(tables.name)
    shared = tables.open(True)
    peeked = shared.peek()
    assert peeked is not None
    assert {file.stream for file in shared.files(peeked)} == {STREAM, OTHER}
    assert tables.catalog().load_table(tables.name).metadata == before.metadata

    loaded = shared.load(SCHEMA)
    assert loaded.state.of(OTHER).spans == ((0, 50),)
    _put(shared, mixed(tables.site(True), loaded, {STREAM: (50, 70), OTHER: (50, 60)}))
    _put(shared, Append("gone", replaces={OTHER: Ranges.of([(40, 55)])}))
    expected = [
        r
        for r in _both({STREAM: (0, 70), OTHER: (0, 60)})
        if r[1] not in range(40, 55) or r[0] == STREAM
    ]
    assert tables.rows() == expected
    assert tables.maintain(True) == Kept(merged=3, into=1)
    assert tables.rows() == expected
    (file,) = shared.files(shared.load(SCHEMA))
    assert (file.stream, file.low_stream, file.time_unit) == (None, OTHER, 0)
    with pytest.raises(InvalidInputError, match="shared by streams"):
        tables.open(False).load(SCHEMA)


def test_a_dry_run_of_maintenance_makes_no_table_and_shares_no_files(
    tmp_path: Path, catalog: Catalogs
) -> None:
    def opened(bucket: str) -> Any:
        return MemoryObjectStore(), MemoryObjectStore()

    tables = _days(catalog, tmp_path)
    own = tables.open(False)
    assert tables.maintain(True, dry_run=True) == Kept()
    assert sweep(tables.open(True), SCHEMA, opened, before_ms=2**40, dry_run=True) is None
    assert own.peek() is None
    for stream in (STREAM, OTHER):
        _put(own, append_of(tables.site(False), own.load(SCHEMA), 0, 50, stream))
    before = catalog().load_table(tables.name).metadata
    assert tables.maintain(True, dry_run=True) == Kept(merged=2, into=1)
    told = sweep(tables.open(True), SCHEMA, opened, before_ms=2**40, dry_run=True)
    assert told == SweptTable(0, 0, 0)
    assert catalog().load_table(tables.name).metadata == before


def test_a_run_that_began_before_its_table_was_shared_puts_its_rows_in_all_the_same(
    tmp_path: Path, catalog: Catalogs
) -> None:
    tables = _days(catalog, tmp_path)
    own = tables.open(False)
    _put(own, append_of(tables.site(False), own.load(SCHEMA), 0, 10))
    stale = own.load(SCHEMA)
    late = append_of(tables.site(False), stale, 10, 20)
    shared = tables.open(True)
    shared.load(SCHEMA)
    assert own.append(stale, late) is AppendOutcome.LANDED
    _put(shared, mixed(tables.site(True), shared.load(SCHEMA), {OTHER: (0, 10)}))
    assert tables.rows() == _both({STREAM: (0, 20), OTHER: (0, 10)})
    assert [file.stream for file in shared.files(shared.load(SCHEMA))].count(None) == 1
    tables.maintain(True)
    assert tables.rows() == _both({STREAM: (0, 20), OTHER: (0, 10)})


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("column", ["offset", "stream"])
def test_a_table_that_others_have_divided_otherwise_is_refused(
    tmp_path: Path, catalog: Catalogs, column: str, shared: bool
) -> None:
    tables = _days(catalog, tmp_path)
    table = tables.open(shared)
    table.load(SCHEMA)
    with catalog().load_table(tables.name).update_spec() as spec:
        spec.add_field(column, BucketTransform(16), "by_others")
    with pytest.raises(InvalidInputError, match="PARTITION FIELD"):
        table.load(SCHEMA)


def test_a_reader_of_one_stream_opens_no_file_without_it(tmp_path: Path, catalog: Catalogs) -> None:
    tables = _days(catalog, tmp_path)
    table = tables.open(True)
    # Alike in more characters than are told of a column unless it is asked for.
    alike = [STREAM[:-1] + end for end in "1357"]
    for one, two in (alike[:2], alike[2:]):
        _put(table, mixed(tables.site(True), table.load(SCHEMA), {one: (0, 9), two: (0, 9)}))
    found = tables.catalog().load_table(tables.name).scan(f"stream == '{alike[2]}'")
    assert len(list(found.plan_files())) == 1
    assert found.to_arrow().num_rows == 9


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fill"), st.integers(1, 130), st.integers(0, 130)),
        st.tuples(st.just("replace"), st.integers(0, 150), st.integers(1, 60)),
        st.tuples(st.just("drop"), st.integers(0, 150), st.integers(1, 60)),
        st.tuples(st.just("maintain"), st.sampled_from([4000, 2**20]), st.just(0)),
        st.tuples(st.just("share"), st.just(0), st.just(0)),
    ),
    max_size=7,
)


@given(steps=_STEPS, shared=st.booleans())
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_done_to_an_iceberg_table_it_has_the_rows_of_a_dictionary(
    tables: Tables, steps: list[tuple[str, int, int]], shared: bool
) -> None:
    tables = Tables(tables.catalog, tables.place, tables.partition)
    truth: set[tuple[str, int]] = set()
    ends = {STREAM: 0, OTHER: 0}
    tables.open(shared).load(SCHEMA)
    for step, one, two in steps:
        table, site = tables.open(shared), tables.site(shared)
        loaded = table.load(SCHEMA)
        if step == "share":
            shared = True
        elif step == "maintain":
            tables.maintain(shared, one)
        elif step == "fill":
            spans = {
                STREAM: (ends[STREAM], ends[STREAM] + one),
                OTHER: (ends[OTHER], ends[OTHER] + two),
            }
            truth |= set(_both(spans))
            ends = {stream: end for stream, (_, end) in spans.items()}
            for append in (
                [mixed(site, loaded, spans)]
                if shared
                else [
                    append_of(site, loaded, *span, each)
                    for each, span in spans.items()
                    if span[0] < span[1]
                ]
            ):
                _put(table, append)
        else:
            gone = {STREAM: Ranges.of([(one, one + two)]), OTHER: Ranges.of([(0, two)])}
            again = {s: r & loaded.state.of(s) for s, r in gone.items()}
            truth -= {row for row in truth if gone[row[0]].contains(row[1])}
            if step == "drop" or not all(again.values()):
                _put(table, Append(_id(), replaces=gone))
            else:
                files = [
                    file
                    for stream, ranges in again.items()
                    for first, end in ranges
                    for file in append_of(site, loaded, first, end, stream).files
                ]
                _put(table, Append(_id(), files, again, replaces=gone))
                truth |= {(s, n) for s, r in again.items() for a, b in r for n in range(a, b)}
        assert tables.rows() == sorted(truth)
    state = tables.open(shared).load(SCHEMA).state
    assert {s: state.of(s).spans for s in ends} == {
        s: ((0, end),) if end else () for s, end in ends.items()
    }
