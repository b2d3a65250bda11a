"""Conformance of a `Table` that materialise fills (`coldstream.jobs.materialise.table`).

A module that runs it defines a fixture `site`: a `TableSite` with a fresh place for tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa
import pytest

from coldstream.errors import ConflictError, UnknownOutcomeError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.erase import erase_rows
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.state import Ticket
from coldstream.jobs.materialise.table import (
    Append,
    AppendOutcome,
    Loaded,
    StoredFile,
    Table,
    Versions,
    WrittenFile,
)
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.osiris.offsets import OffsetSet

COLUMNS = ("stream", "offset", "timestamp")
SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("body", pa.binary()),
    ]
)
STREAM = "__orders_1745252105682952932"
OTHER = "__bills_1745252105682952933"
_DAY_US = 86_400_000_000
_FAR_MS = 2**42
_IDS = count()


@dataclass(frozen=True)
class TableSite:
    """Where the tables of one kind are.

    Attributes:
        open: gives the table of a name; every call a client of its own.
        files: where its files are saved.
        rows: reads all rows of a table by other means than those under test.
        shared: whether streams share files in its tables.
    """

    open: Callable[[str], Table]
    files: Files
    rows: Callable[[str], pa.Table]
    shared: bool = False


def rows(offsets: Iterable[int], stream: str = STREAM) -> pa.RecordBatch:
    """A row for each offset; a hundred offsets a day."""
    numbers = list(offsets)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([stream] * len(numbers)),
            pa.array(numbers, pa.int64()),
            pa.array([n // 100 * _DAY_US + n for n in numbers], pa.timestamp("us", "UTC")),
            pa.array([b"%d" % n for n in numbers]),
        ],
        schema=SCHEMA,
    )


def written(site: TableSite, loaded: Loaded, batch: pa.RecordBatch) -> list[WrittenFile]:
    """The rows as files of the table, not committed."""
    stream = batch.column("stream")[0].as_py()
    layout = FileLayout(
        loaded.location, loaded.schema, TablePartition.DAY, COLUMNS, shared=site.shared
    )
    writer = TableWriter(layout, stream, site.files, lambda: f"{next(_IDS):016x}")
    cast = pa.RecordBatch.from_arrays(batch.columns, schema=loaded.schema)
    return [*writer.write(cast), *writer.close()]


def append_of(
    site: TableSite, loaded: Loaded, first: int, next_offset: int, stream: str = STREAM
) -> Append:
    """An append of the offsets [first, next_offset)."""
    files = written(site, loaded, rows(range(first, next_offset), stream))
    covered = {stream: Ranges.of([(first, next_offset)])}
    return Append(f"append-{next(_IDS)}", files, covered)


def offsets(site: TableSite, name: str) -> list[int]:
    """What is in the table, in order, doubles included."""
    return sorted(site.rows(name).column("offset").to_pylist())


def append_of_grown(site: TableSite, loaded: Loaded) -> Append:
    """An append of one offset to a table with more columns than `SCHEMA`, which are null."""
    batch = rows([0])
    columns = [
        batch.column(each.name) if each.name in SCHEMA.names else pa.nulls(1, each.type)
        for each in loaded.schema
    ]
    wide = pa.RecordBatch.from_arrays(columns, names=loaded.schema.names)
    covered = {STREAM: Ranges.of([(0, 1)])}
    return Append(f"append-{next(_IDS)}", written(site, loaded, wide), covered)


def _with(*fields: pa.Field) -> pa.Schema:
    return pa.schema([*SCHEMA, *fields])


def _commit(table: Table, append: Append) -> Loaded:
    return commit(table, append, first_schema=SCHEMA, pause=lambda _: None)


class TableSuite:
    """What every kind of table does."""

    def test_a_new_table_is_empty_and_knows_no_stream(self, site: TableSite) -> None:
        loaded = site.open("db.t").load(SCHEMA)
        assert loaded.schema.names == SCHEMA.names
        assert not loaded.state.of(STREAM)

    def test_an_append_shows_its_rows_and_its_offsets_together(self, site: TableSite) -> None:
        table = site.open("db.t")
        loaded = table.load(SCHEMA)
        assert table.append(loaded, append_of(site, loaded, 0, 250)) is AppendOutcome.LANDED
        after = site.open("db.t").load(SCHEMA)
        assert after.state.of(STREAM).spans == ((0, 250),)
        found = site.rows("db.t").sort_by("offset")
        assert found.column("offset").to_pylist() == list(range(250))
        assert found.column("body").to_pylist() == [b"%d" % n for n in range(250)]

    def test_files_that_no_append_names_are_in_no_table(self, site: TableSite) -> None:
        table = site.open("db.t")
        loaded = table.load(SCHEMA)
        written(site, loaded, rows(range(100)))
        assert offsets(site, "db.t") == []

    def test_of_two_appends_of_the_same_offsets_one_stays(self, site: TableSite) -> None:
        first, second = site.open("db.t"), site.open("db.t")
        loaded, stale = first.load(SCHEMA), second.load(SCHEMA)
        ours, theirs = append_of(site, loaded, 0, 100), append_of(site, stale, 0, 100)
        assert first.append(loaded, ours) is AppendOutcome.LANDED
        assert second.append(stale, theirs) is AppendOutcome.CONFLICT
        with pytest.raises(ConflictError) as caught:
            _commit(second, theirs)
        assert (caught.value.stream, caught.value.offset) == (STREAM, 0)
        assert offsets(site, "db.t") == list(range(100))

    def test_appends_of_other_offsets_go_in_one_after_the_other(self, site: TableSite) -> None:
        first, second = site.open("db.t"), site.open("db.t")
        loaded, stale = first.load(SCHEMA), second.load(SCHEMA)
        ours = append_of(site, loaded, 0, 100)
        theirs = append_of(site, stale, 0, 50, OTHER)
        _commit(first, ours)
        after = _commit(second, theirs)
        assert after.state.of(STREAM).spans == ((0, 100),)
        assert after.state.of(OTHER).spans == ((0, 50),)
        assert site.rows("db.t").num_rows == 150

    def test_an_append_that_landed_without_an_answer_is_not_done_again(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        append = append_of(site, table.load(SCHEMA), 0, 100)
        lost = _AnswerLost(table)
        after = _commit(lost, append)
        assert lost.appends == 1
        assert append.id in after.appended
        assert offsets(site, "db.t") == list(range(100))

    def test_an_append_without_files_moves_the_offsets_on(self, site: TableSite) -> None:
        table = site.open("db.t")
        nothing = Append("empty-1", (), {STREAM: Ranges.of([(0, 7)])})
        assert _commit(table, nothing).state.of(STREAM).spans == ((0, 7),)
        loaded = table.load(SCHEMA)
        _commit(table, append_of(site, loaded, 7, 10))
        assert offsets(site, "db.t") == [7, 8, 9]

    def test_lost_offsets_stay_known(self, site: TableSite) -> None:
        table = site.open("db.t")
        gone = {STREAM: Ranges.of([(0, 40)])}
        _commit(table, Append("lost-1", (), gone, gone))
        assert table.load(SCHEMA).state.lost[STREAM].spans == ((0, 40),)

    def test_a_ticket_stays_known_through_appends_of_others_until_the_next(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        _commit(table, Append("ticket-1", tickets={STREAM: Ticket(3, open=True)}))
        _commit(table, append_of(site, table.load(SCHEMA), 0, 10, OTHER))
        assert site.open("db.t").load(SCHEMA).state.tickets == {STREAM: Ticket(3, open=True)}
        _commit(table, Append("ticket-2", tickets={STREAM: Ticket(3, open=False)}))
        assert site.open("db.t").load(SCHEMA).state.tickets == {STREAM: Ticket(3, open=False)}

    def test_a_new_column_is_null_in_old_rows(self, site: TableSite) -> None:
        table = site.open("db.t")
        loaded = _commit(table, append_of(site, table.load(SCHEMA), 0, 10))
        grown = table.grow(loaded, pa.schema([*SCHEMA, pa.field("price", pa.float64())]))
        assert grown.schema.names == [*SCHEMA.names, "price"]
        assert grown.state.of(STREAM).spans == ((0, 10),)
        assert site.rows("db.t").column("price").null_count == 10

    def test_two_that_add_different_columns_both_succeed(self, site: TableSite) -> None:
        first, second = site.open("db.t"), site.open("db.t")
        loaded, stale = first.load(SCHEMA), second.load(SCHEMA)
        first.grow(loaded, pa.schema([*SCHEMA, pa.field("a", pa.int64())]))
        after = second.grow(stale, pa.schema([*SCHEMA, pa.field("b", pa.string())]))
        assert set(after.schema.names) == {*SCHEMA.names, "a", "b"}

    def test_a_column_that_another_run_was_quicker_with_keeps_its_type(
        self, site: TableSite
    ) -> None:
        first, second = site.open("db.t"), site.open("db.t")
        loaded, stale = first.load(SCHEMA), second.load(SCHEMA)
        quick = first.grow(loaded, _with(pa.field("x", pa.int64()), pa.field("y", pa.string())))
        late = second.grow(stale, _with(pa.field("x", pa.string()), pa.field("z", pa.bool_())))
        assert set(late.schema.names) == {*SCHEMA.names, "x", "y", "z"}
        for name in ("x", "y"):
            assert late.schema.field(name).type == quick.schema.field(name).type
        assert site.open("db.t").load(SCHEMA).schema.equals(late.schema)

    def test_a_column_becomes_wider_where_iceberg_allows_it_and_never_another_one(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        inner = pa.struct([("n", pa.int32())])
        narrow = (pa.int32(), pa.float32(), pa.decimal128(5, 2), inner, pa.list_(pa.int32()))
        wide = (
            pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.struct([("n", pa.int64())]),
            pa.list_(pa.int64()),
        )  # fmt: skip
        other = (pa.string(), pa.int64(), pa.decimal128(12, 4), pa.string(), inner)

        def columns(kinds: Iterable[pa.DataType]) -> pa.Schema:
            return _with(*(pa.field(f"c{n}", kind) for n, kind in enumerate(kinds)))

        loaded = table.grow(table.load(SCHEMA), columns(narrow))
        assert table.append(loaded, append_of_grown(site, loaded)) is AppendOutcome.LANDED
        stale = table.load(SCHEMA)
        for kinds, expected in ((other, narrow), (wide, wide), (narrow, wide), (other, wide)):
            loaded = table.grow(table.load(SCHEMA), columns(kinds))
            for number, kind in enumerate(expected):
                assert loaded.schema.field(f"c{number}").type == kind
        late = append_of_grown(site, stale)
        assert table.append(table.load(SCHEMA), late) is AppendOutcome.LANDED, "of narrow types"
        assert site.rows("db.t").num_rows == 2

    def test_erased_rows_go_stay_taken_in_and_are_looked_for_again_in_vain(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        loaded = _commit(table, append_of(site, table.load(SCHEMA), 0, 300))
        spans = ((5, 7), (100, 200), (250, 251))
        assert table.count(loaded, STREAM, Ranges.of(spans)) == 103
        assert table.count(loaded, OTHER, Ranges.of(spans)) == 0

        def erase() -> int:
            ids = (f"{next(_IDS):016x}" for _ in count())
            return erase_rows(
                table,
                SCHEMA,
                STREAM,
                OffsetSet.of(spans),
                new_id=lambda: next(ids),
                pause=lambda _: None,
            )

        assert erase() == 103
        left = set(site.rows("db.t").column("offset").to_pylist())
        assert left == set(range(300)) - {5, 6, 250, *range(100, 200)}
        after = table.load(SCHEMA)
        assert after.state.of(STREAM).spans == ((0, 300),)
        assert erase() == 0
        assert table.load(SCHEMA).appended == after.appended, "nothing was committed"

    def test_to_peek_makes_no_table_and_shows_one_that_is_there(self, site: TableSite) -> None:
        assert site.open("db.t").peek() is None
        assert site.open("db.t").peek() is None
        table = site.open("db.t")
        after = _commit(table, append_of(site, table.load(SCHEMA), 0, 10))
        seen = site.open("db.t").peek()
        assert seen is not None
        assert seen.schema.equals(after.schema)
        assert seen.state == after.state

    def test_two_that_add_fields_inside_of_one_object_both_succeed(self, site: TableSite) -> None:
        def inner(*more: tuple[str, pa.DataType]) -> pa.Schema:
            fields = pa.struct([("a", pa.int64()), *more])
            return _with(pa.field("s", fields), pa.field("l", pa.list_(fields)))

        first, second = site.open("db.t"), site.open("db.t")
        first.grow(first.load(SCHEMA), inner())
        loaded, stale = first.load(SCHEMA), second.load(SCHEMA)
        first.grow(loaded, inner(("b", pa.int64()), ("x", pa.int64())))
        late = second.grow(stale, inner(("c", pa.bool_()), ("x", pa.string())))
        expected = {"a": pa.int64(), "b": pa.int64(), "c": pa.bool_(), "x": pa.int64()}
        assert {each.name: each.type for each in late.schema.field("s").type} == expected
        lines = late.schema.field("l").type.value_type
        assert {each.name: each.type for each in lines} == expected

    def test_columns_that_are_there_already_are_not_added_again(self, site: TableSite) -> None:
        table = site.open("db.t")
        wider = _with(pa.field("x", pa.int64()))
        stale = table.load(SCHEMA)
        loaded = table.grow(stale, wider)
        assert site.open("db.t").grow(stale, wider).schema.equals(loaded.schema)
        assert table.append(loaded, append_of_grown(site, loaded)) is AppendOutcome.LANDED

    def test_replaced_offsets_are_there_once(self, site: TableSite) -> None:
        table = site.open("db.t")
        _commit(table, append_of(site, table.load(SCHEMA), 0, 300))
        again = append_of(site, table.load(SCHEMA), 50, 120)
        again = replace(again, replaces=again.covered)
        after = _commit(table, again)
        assert after.state.of(STREAM).spans == ((0, 300),)
        assert offsets(site, "db.t") == list(range(300))

    def test_what_was_replaced_by_nothing_is_gone(self, site: TableSite) -> None:
        table = site.open("db.t")
        _commit(table, append_of(site, table.load(SCHEMA), 0, 30))
        span = {STREAM: Ranges.of([(10, 20)])}
        _commit(table, Append("replace-1", (), span, {}, span))
        assert offsets(site, "db.t") == [*range(10), *range(20, 30)]

    def test_files_can_be_replaced_by_one_with_the_same_rows(self, site: TableSite) -> None:
        table = site.open("db.t")
        for first in (0, 20, 40):
            _commit(table, append_of(site, table.load(SCHEMA), first, first + 20))
        loaded = table.load(SCHEMA)
        old = sorted(table.files(loaded), key=lambda file: file.first_offset)
        assert [(f.stream, f.first_offset, f.rows, f.time_unit) for f in old] == [
            (None if site.shared else STREAM, first, 20, 0) for first in (0, 20, 40)
        ]
        batches = [batch for file in old[:2] for batch in table.rows(loaded, file.path)]
        new = written(site, loaded, pa.concat_batches(batches))
        swap = Append("swap-1", new, removes=[file.path for file in old[:2]])
        after = _commit(table, swap)
        assert after.state.of(STREAM).spans == ((0, 60),)
        assert len(table.files(after)) == 2
        assert offsets(site, "db.t") == list(range(60))
        stale = replace(swap, id="swap-2")
        assert table.append(after, stale) is AppendOutcome.CONFLICT
        assert offsets(site, "db.t") == list(range(60))

    def test_a_file_that_has_none_of_the_replaced_offsets_stays_though_it_spans_them(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        loaded = table.load(SCHEMA)
        even = written(site, loaded, rows(range(0, 20, 2)))
        odd = written(site, loaded, rows(range(1, 20, 2)))
        _commit(table, Append("mixed", [*even, *odd], {STREAM: Ranges.of([(0, 20)])}))
        gone = {STREAM: Ranges.of([(5, 6), (9, 10)])}
        after = _commit(table, Append("replaced", replaces=gone))
        left = {file.path for file in table.files(after)}
        assert (even[0].path in left, odd[0].path in left) == (True, False)
        assert offsets(site, "db.t") == [n for n in range(20) if n not in (5, 9)]

    def test_offsets_that_are_forgotten_may_come_again_in_the_same_step(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        loaded = _commit(table, append_of(site, table.load(SCHEMA), 0, 30))
        gone = {STREAM: Ranges.of([(0, 40)])}
        again = append_of(site, loaded, 5, 10)
        old = [file.path for file in table.files(loaded)]
        after = _commit(table, replace(again, forgets=gone, removes=old))
        assert after.state.of(STREAM).spans == ((5, 10),)
        assert offsets(site, "db.t") == [5, 6, 7, 8, 9]
        _commit(table, append_of(site, after, 10, 12))
        assert offsets(site, "db.t") == [*range(5, 12)]

    def test_a_file_says_when_its_youngest_row_was_written(self, site: TableSite) -> None:
        table = site.open("db.t")
        after = _commit(table, append_of(site, table.load(SCHEMA), 190, 210))
        last = {file.time_unit: file.last_ms for file in table.files(after)}
        assert last == {1: _DAY_US // 1000, 2: 2 * _DAY_US // 1000}

    def test_a_replaced_file_is_needed_until_the_version_that_had_it_is_forgotten(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        loaded = _commit(table, append_of(site, table.load(SCHEMA), 0, 100))
        (old,) = table.files(loaded)
        new = written(site, loaded, rows(range(100)))
        swap = Append(f"append-{next(_IDS)}", new, removes=[old.path])
        assert table.append(loaded, swap) is AppendOutcome.LANDED
        orphan = written(site, loaded, rows(range(100, 200)))

        for before_ms, dry_run, kept in (
            (0, False, True),  # it was replaced later
            (_FAR_MS, True, False),
            (0, False, True),  # nothing had been forgotten
            (_FAR_MS, False, False),
        ):
            versions = table.forget(table.load(SCHEMA), before_ms, dry_run=dry_run)
            assert versions is not None
            assert new[0].path in versions.needed
            assert (old.path in versions.needed) is kept
            assert not {each.path for each in orphan} & set(versions.needed)

        stale = table.load(SCHEMA)
        other = append_of(site, stale, 0, 50, OTHER)
        _commit(site.open("db.t"), other)
        versions = table.forget(stale, 0)
        assert versions is not None
        assert other.files[0].path in versions.needed

        after = site.open("db.t").load(SCHEMA)
        assert after.state.of(STREAM).spans == ((0, 100),)
        _commit(table, append_of(site, after, 100, 150))
        assert offsets(site, "db.t") == sorted([*range(150), *range(50)])


def mixed(site: TableSite, loaded: Loaded, spans: Mapping[str, tuple[int, int]]) -> Append:
    """An append of offsets of several streams in one file a day."""
    batch = pa.concat_batches([rows(range(*span), name) for name, span in sorted(spans.items())])
    covered = {name: Ranges.of([span]) for name, span in spans.items()}
    return Append(f"append-{next(_IDS)}", written(site, loaded, batch), covered)


def _by_stream(site: TableSite, name: str) -> dict[str, list[int]]:
    """Offsets in a table, in order, doubles included."""
    found: dict[str, list[int]] = {}
    for row in site.rows(name).select(["stream", "offset"]).to_pylist():
        found.setdefault(row["stream"], []).append(row["offset"])
    return {stream: sorted(each) for stream, each in found.items()}


class SharedTableSuite(TableSuite):
    """What every kind of table does whose streams share files."""

    def test_rows_of_several_streams_lie_in_one_file_and_each_has_its_own_offsets(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        append = mixed(site, table.load(SCHEMA), {STREAM: (5, 40), OTHER: (0, 90)})
        after = _commit(table, append)
        (file,) = table.files(after)
        assert (file.stream, file.rows, file.first_offset) == (None, 125, 0)
        assert file.low_stream <= min(STREAM, OTHER)
        assert after.state.of(STREAM).spans == ((5, 40),)
        assert after.state.of(OTHER).spans == ((0, 90),)
        assert table.count(after, STREAM, Ranges.of([(0, 10)])) == 5
        assert _by_stream(site, "db.t") == {STREAM: [*range(5, 40)], OTHER: [*range(90)]}

    def test_offsets_of_one_stream_are_replaced_and_the_same_ones_of_another_stay(
        self, site: TableSite
    ) -> None:
        table = site.open("db.t")
        loaded = _commit(table, mixed(site, table.load(SCHEMA), {STREAM: (0, 60), OTHER: (0, 60)}))
        again = append_of(site, loaded, 20, 30)
        after = _commit(table, replace(again, replaces=again.covered))
        assert _by_stream(site, "db.t") == {STREAM: [*range(60)], OTHER: [*range(60)]}
        assert after.state == loaded.state

    def test_rows_of_several_streams_go_out_of_one_file_in_one_step(self, site: TableSite) -> None:
        table = site.open("db.t")
        third = STREAM.replace("orders", "third")
        spans = {STREAM: (0, 30), OTHER: (0, 30), third: (0, 30)}
        _commit(table, mixed(site, table.load(SCHEMA), spans))
        gone = {STREAM: Ranges.of([(0, 10)]), OTHER: Ranges.of([(5, 6), (20, 30)])}
        _commit(table, Append("gone", replaces=gone))
        assert _by_stream(site, "db.t") == {
            STREAM: [*range(10, 30)],
            OTHER: [n for n in range(20) if n != 5],
            third: [*range(30)],
        }

    def test_erased_rows_of_one_stream_leave_those_of_another(self, site: TableSite) -> None:
        table = site.open("db.t")
        _commit(table, mixed(site, table.load(SCHEMA), {STREAM: (0, 30), OTHER: (0, 30)}))
        ids = (f"{next(_IDS):016x}" for _ in count())
        spans = OffsetSet.of([(3, 7), (50, 60)])
        gone = erase_rows(
            table, SCHEMA, OTHER, spans, new_id=lambda: next(ids), pause=lambda _: None
        )
        assert gone == 4
        left = [n for n in range(30) if n not in range(3, 7)]
        assert _by_stream(site, "db.t") == {STREAM: [*range(30)], OTHER: left}


class _AnswerLost:
    """A table whose first append lands, and nobody hears of it."""

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self.appends = 0
        self._table = table

    def load(self, first_schema: pa.Schema) -> Loaded:
        return self._table.load(first_schema)

    def peek(self) -> Loaded | None:
        return self._table.peek()

    def grow(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        return self._table.grow(loaded, schema)

    def append(self, loaded: Loaded, append: Append) -> AppendOutcome:
        self.appends += 1
        outcome = self._table.append(loaded, append)
        if self.appends == 1:
            raise UnknownOutcomeError("the answer was lost")
        return outcome

    def forget(self, loaded: Loaded, before_ms: int, *, dry_run: bool = False) -> Versions | None:
        return self._table.forget(loaded, before_ms, dry_run=dry_run)

    def files(self, loaded: Loaded) -> list[StoredFile]:
        return self._table.files(loaded)

    def count(self, loaded: Loaded, stream: str, ranges: Ranges) -> int:
        return self._table.count(loaded, stream, ranges)

    def rows(self, loaded: Loaded, path: str) -> Iterator[pa.RecordBatch]:
        return self._table.rows(loaded, path)
