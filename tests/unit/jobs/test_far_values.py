"""No value in any column may stop a table: times beyond every calendar, and what no file takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException, ServerError

from coldstream.columns.reference import MAX_MS as DECODER_MAX_MS
from coldstream.columns.reference import MIN_MS as DECODER_MIN_MS
from coldstream.columns.schema import COLUMNS, select
from coldstream.errors import (
    ColdstreamError,
    InvalidInputError,
    PermissionDeniedError,
    UnknownOutcomeError,
)
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import KEY_COLUMNS, READ_COLUMNS, raw_schema
from coldstream.jobs.materialise.table import Append, AppendOutcome, Loaded, WrittenFile
from coldstream.jobs.materialise.task import perform
from coldstream.jobs.materialise.task_result import TaskResult
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.times import FIRST_US, LAST_US, MAX_MS, MIN_MS, bounded
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.reader.gap import Gap

STREAM = "__orders_1745252105682952932"
WHEN = pa.timestamp("us", "UTC")
#: Each limit of Python, of a calendar and of 64 bits, and what is next to it.
EDGES_US = (
    -(2**63), -(2**63) + 1, FIRST_US - 1, FIRST_US, -1, 0, 1, LAST_US, LAST_US + 1, 2**63 - 1,
)  # fmt: skip
EDGES_MS = (
    DECODER_MIN_MS, MIN_MS - 1, MIN_MS, -1, 0, MAX_MS, MAX_MS + 1, 2**31 * 3_600_000,
    DECODER_MAX_MS,
)  # fmt: skip
_IDS = count()


class Place:
    """Iceberg tables on a catalog in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files = StoredFiles()

    def catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "tests",
            uri=f"sqlite:///{self._path}/catalog.db",
            warehouse=f"file://{self._path}/warehouse",
            **{"py-io-impl": FILE_IO},
        )

    def open(
        self, partition: TablePartition = TablePartition.DAY, catalog: SqlCatalog | None = None
    ) -> IcebergTable:
        return IcebergTable(
            catalog or self.catalog(),
            "db.t",
            location=f"file://{self._path}/warehouse/t",
            partition=partition,
            columns=KEY_COLUMNS,
            files=self.files,
            new_id=lambda: f"{next(_IDS):016x}",
        )

    def rows(self, where: str = "offset >= 0") -> pa.Table:
        return self.catalog().load_table("db.t").scan(row_filter=where).to_arrow()

    def written(
        self, loaded: Loaded, batches: list[pa.RecordBatch], partition: TablePartition
    ) -> list[WrittenFile]:
        layout = FileLayout(loaded.location, loaded.schema, partition, KEY_COLUMNS)
        writer = TableWriter(layout, STREAM, self.files, lambda: f"{next(_IDS):016x}")
        found: list[WrittenFile] = []
        for batch in batches:
            cast = [batch.column(f.name).cast(f.type) for f in loaded.schema]
            found += writer.write(pa.RecordBatch.from_arrays(cast, schema=loaded.schema))
        return [*found, *writer.close()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _batch(schema: pa.Schema, *rows: dict[str, Any]) -> pa.RecordBatch:
    base: dict[str, Any] = {"stream": STREAM, "offset": 0, "timestamp": 0}
    return pa.RecordBatch.from_pylist(
        [base | {"offset": offset} | row for offset, row in enumerate(rows)], schema=schema
    )


KEYS = pa.schema([("stream", pa.string()), ("offset", pa.int64()), ("timestamp", WHEN)])


def _landed(place: Place, schema: pa.Schema, *batches: pa.RecordBatch) -> None:
    table = place.open(TablePartition.NONE)
    loaded = table.load(schema)
    files = place.written(loaded, list(batches), TablePartition.NONE)
    append = Append("a1", files, {STREAM: Ranges.of([(0, 100)])})
    assert table.append(loaded, append) is AppendOutcome.LANDED


@pytest.mark.parametrize("us", EDGES_US)
def test_a_time_that_python_cannot_hold_stops_no_append_and_is_kept(place: Place, us: int) -> None:
    schema = pa.schema([*KEYS, ("seen", WHEN), ("inside", pa.struct([("at", WHEN)]))])
    row = {"seen": pa.scalar(us, WHEN).value, "inside": {"at": us}}
    _landed(place, schema, _batch(schema, {"seen": 5, "inside": {"at": 5}}, row))

    found = place.rows()
    assert found.column("seen").cast(pa.int64()).to_pylist() == [5, us]
    assert found.column("inside").combine_chunks().field("at").cast(pa.int64()).to_pylist() == [
        5,
        us,
    ]
    # What can be told of the file is told, so that readers still skip it.
    (file,) = place.catalog().load_table("db.t").scan().plan_files()
    offset = place.catalog().load_table("db.t").schema().find_field("offset").field_id
    assert offset in file.file.upper_bounds


def test_a_day_beyond_the_year_9999_stops_no_append(place: Place) -> None:
    schema = pa.schema([*KEYS, ("day", pa.date32())])
    days = pa.array([2**31 - 1, -(2**31), 0], pa.int32()).cast(pa.date32())
    batch = _batch(KEYS, {}, {}, {})
    _landed(place, schema, pa.RecordBatch.from_arrays([*batch.columns, days], schema=schema))

    found = place.rows().column("day").cast(pa.int32()).to_pylist()
    assert found == [2**31 - 1, -(2**31), 0]


def test_text_that_is_no_utf8_stops_no_append(place: Place) -> None:
    schema = pa.schema([*KEYS, ("words", pa.string())])
    bad = pa.array([b"\xff\xfe", b"plain"], pa.binary())
    words = pa.StringArray.from_buffers(2, *bad.buffers()[1:])
    batch = _batch(KEYS, {}, {})
    _landed(place, schema, pa.RecordBatch.from_arrays([*batch.columns, words], schema=schema))

    (file,) = place.catalog().load_table("db.t").scan().plan_files()
    assert file.file.record_count == 2


def test_values_too_long_for_bounds_in_one_row_group_are_found_by_a_filter(place: Place) -> None:
    schema = pa.schema([*KEYS, ("words", pa.string())])
    long = "z" * 10_000
    _landed(
        place,
        schema,
        _batch(schema, {"words": "a"}, {"words": "b"}),
        _batch(schema, {"words": long}),
    )

    assert place.rows(f"words == '{long}'").num_rows == 1


def test_a_column_of_one_row_group_without_a_value_keeps_its_bounds(place: Place) -> None:
    schema = pa.schema([*KEYS, ("n", pa.int64())])
    _landed(place, schema, _batch(schema, {"n": 5}), _batch(schema, {"n": None}))

    (file,) = place.catalog().load_table("db.t").scan().plan_files()
    assert place.catalog().load_table("db.t").schema().find_field("n").field_id in (
        file.file.upper_bounds
    )


class Source:
    """Messages of given times."""

    def __init__(self, *times_ms: int) -> None:
        rows = []
        for offset, ms in enumerate(times_ms):
            row: dict[str, Any] = dict.fromkeys(COLUMNS)
            row |= {
                "stream": STREAM, "offset": offset, "timestamp": ms * 1000, "body": b"x",
                "body_kind": "data", "raw": b"x",
                "properties": {"creation_time": ms * 1000, "absolute_expiry_time": None},
            }  # fmt: skip
            rows.append({name: row[name] for name in READ_COLUMNS})
        self._batch = pa.RecordBatch.from_pylist(rows, select(READ_COLUMNS).schema)

    bytes_read = 0

    def raw(self, offsets: pa.Array) -> pa.Array:
        return pa.nulls(len(offsets), pa.binary())

    def batches(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        covered.append((0, self._batch.num_rows))
        yield self._batch


def _filled(place: Place, source: Source, partition: TablePartition) -> TaskResult:
    table = place.open(partition)
    loaded = table.load(raw_schema())
    layout = FileLayout(loaded.location, loaded.schema, partition, KEY_COLUMNS)
    rules = TaskRules("raw", layout, layout)
    result = perform(STREAM, source, rules, place.files, lambda: f"{next(_IDS):016x}", now_ms=0)
    append = Append("a1", result.files, {STREAM: Ranges.of(result.covered)})
    commit(table, append, first_schema=raw_schema(), pause=_never)
    return result


def _never(attempt: int) -> None:
    raise AssertionError(f"attempt {attempt} of a commit got no answer")


@pytest.mark.parametrize("partition", TablePartition)
def test_a_clock_gone_wild_stops_no_table_and_its_rows_have_a_time_that_all_can_read(
    place: Place, partition: TablePartition
) -> None:
    result = _filled(place, Source(*EDGES_MS), partition)

    near = [min(max(ms, MIN_MS), MAX_MS) for ms in EDGES_MS]
    found = place.rows().sort_by("offset")
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [ms * 1000 for ms in near]
    created = found.column("properties").combine_chunks().field("creation_time")
    assert created.cast(pa.int64()).to_pylist() == [ms * 1000 for ms in near]
    assert result.times_moved == 2 * sum(a != b for a, b in zip(EDGES_MS, near, strict=True))
    years = {at.year for at in found.column("timestamp").to_pylist()}
    assert years == {1, 1969, 1970, 9999}
    late = place.rows("timestamp >= '9999-01-01T00:00:00+00:00'")
    assert late.num_rows == sum(ms == MAX_MS for ms in near)
    loaded = place.open(partition).load(raw_schema())
    assert all(file.last_ms is not None for file in place.open(partition).files(loaded))


def test_times_within_the_years_are_left_alone() -> None:
    batch = next(Source(0, MIN_MS, MAX_MS).batches([], []))
    assert bounded(batch) == (batch, 0)
    empty = batch.slice(0, 0)
    assert bounded(empty) == (empty, 0)
    assert datetime.fromtimestamp(MAX_MS / 1000, UTC).year == 9999


def _client_error(code: str, status: int) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "UpdateTable")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (OverflowError("date value out of range"), OverflowError),
        (ValueError("a value"), ValueError),
        (KeyError("a mistake"), KeyError),
        (_client_error("AccessDeniedException", 400), PermissionDeniedError),
        (_client_error("InvalidInputException", 400), InvalidInputError),
        (_client_error("ThrottlingException", 400), UnknownOutcomeError),
        (_client_error("InternalServiceException", 500), UnknownOutcomeError),
        (EndpointConnectionError(endpoint_url="https://glue"), UnknownOutcomeError),
        (ConnectionResetError("gone"), UnknownOutcomeError),
        (ServerError("500"), UnknownOutcomeError),
        (CommitStateUnknownException("504"), UnknownOutcomeError),
    ],
)
def test_only_the_network_and_the_service_leave_an_append_open(
    place: Place, monkeypatch: pytest.MonkeyPatch, wrong: Exception, told: type[Exception]
) -> None:
    catalog = place.catalog()
    table = place.open(catalog=catalog)
    loaded = table.load(KEYS)
    monkeypatch.setattr(catalog, "commit_table", _raising(wrong))

    with pytest.raises(told) as caught:
        table.append(loaded, Append("a1", (), {STREAM: Ranges.of([(0, 5)])}))
    assert type(caught.value) is told
    if isinstance(caught.value, ColdstreamError):
        assert type(wrong).__name__ in caught.value.reason
        assert caught.value.__cause__ is wrong


def _raising(wrong: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise wrong

    return fail


def test_a_commit_that_got_no_answer_to_the_end_says_why(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = place.catalog()
    table = place.open(catalog=catalog)
    table.load(KEYS)
    monkeypatch.setattr(catalog, "commit_table", _raising(ConnectionResetError("by Glue")))

    append = Append("a1", (), {STREAM: Ranges.of([(0, 5)])})
    with pytest.raises(UnknownOutcomeError, match="ConnectionResetError: by Glue"):
        commit(table, append, first_schema=KEYS, pause=lambda _: None)
