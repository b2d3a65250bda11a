"""Row groups by size, and the order of rows within a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import IcebergTable
from coldstream.jobs.materialise.open_file import OpenFile
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import TableFiles, TablePartition, TableRule, parse_rules
from coldstream.jobs.materialise.table import Append
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream_devkit.suites.table import COLUMNS, STREAM
from tests.unit.jobs.test_iceberg import catalog
from tests.unit.jobs.test_materialise_run import Site, _bodies, _expected, _maintain

__all__ = ["catalog"]

_DAY_US = 86_400_000_000
_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("who", pa.string()),
        pa.field("tags", pa.map_(pa.string(), pa.string())),
    ]
)
_IDS = count()


class Memory:
    """Keeps files by their path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        self.files[path] = content.read(size)


def _batch(begin: int, who: list[str | None], days: int = 1) -> pa.RecordBatch:
    numbers = range(begin, begin + len(who))
    return pa.RecordBatch.from_pylist(
        [
            {"stream": STREAM, "offset": n, "timestamp": n % days * _DAY_US, "who": each,
             "tags": [("n", str(n))]}
            for n, each in zip(numbers, who, strict=True)
        ],
        _SCHEMA,
    )  # fmt: skip


def _layout(**how: Any) -> FileLayout:
    return FileLayout("s3://t/t", _SCHEMA, TablePartition.DAY, COLUMNS, **how)


def _write(layout: FileLayout, batches: list[pa.RecordBatch]) -> tuple[Memory, list[Any]]:
    memory = Memory()
    with TableWriter(layout, STREAM, memory, lambda: f"{next(_IDS):016x}") as writer:
        told = [file for batch in batches for file in writer.write(batch)]
        told += writer.close()
    return memory, told


def _rows(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return found


@given(
    st.lists(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12), max_size=8),
    st.integers(1, 3),
    st.sampled_from([1, 300, 2**20]),
    st.sampled_from([600, 2**20]),
)
def test_a_file_in_an_order_of_its_own_is_sorted_from_end_to_end_and_lacks_no_row(
    lists: list[list[str | None]], days: int, group_bytes: int, target_bytes: int
) -> None:
    batches, begin = [], 0
    for who in lists:
        batches.append(_batch(begin, who, days))
        begin += len(who)
    layout = _layout(order=("who",), group_bytes=group_bytes, target_bytes=target_bytes)
    memory, told = _write(layout, batches)
    found = []
    for file in told:
        rows = _rows(memory.files[file.path])
        assert (file.in_order, file.rows) == (True, len(rows))
        keys = [(row["who"] is None, row["who"] or "", row["offset"]) for row in rows]
        assert all(one < two for one, two in pairwise(keys))
        assert {row["offset"] % days for row in rows} == {file.time_unit}
        found += rows
    expected = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: row["offset"]) == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff1", b"\xff0", b"\xfe"], pa.binary()).view(pa.string()),
        pa.array([2**62 + 1, 2**62, None], pa.timestamp("us", "UTC")),
        pa.array([1.0, float("nan"), None]),
        pa.array([True, None, False]),
    ],
    ids=["text that is no UTF-8", "a time beyond the year 9999", "no number", "truth"],
)
def test_no_value_of_a_column_of_the_order_stops_a_file_of_several_row_groups(
    column: pa.Array,
) -> None:
    schema = pa.schema([*list(_SCHEMA)[:3], pa.field("who", column.type)])
    batch = pa.RecordBatch.from_arrays([*_batch(0, ["x"] * 3).columns[:3], column], schema=schema)
    layout = FileLayout(
        "s3://t/t", schema, TablePartition.DAY, COLUMNS, order=("who",), group_bytes=1
    )
    memory, (file,) = _write(layout, [batch.slice(n, 1) for n in range(3)])
    found = pq.read_table(io.BytesIO(memory.files[file.path])).column("offset").to_pylist()
    assert sorted(found) == [0, 1, 2]


def test_what_is_held_of_very_many_small_batches_is_counted_with_what_they_cost() -> None:
    layout = _layout(shared=True)
    held = OpenFile(0, layout.schema, 1)
    for n in range(1000):
        rows = _batch(n, ["x"])
        held.hold(rows, rows.column("stream"), rows.column("offset").to_numpy(), part=False)
    batches = len(held._held) + len(held._few)
    assert batches <= 1000 // 16 + 16
    assert held.held_bytes >= 1000 * _batch(0, ["x"]).nbytes + batches * 512 * 5
    held.flush()
    assert (held.held_bytes, held.rows) == (0, 1000)
    held.drop()


def test_a_large_batch_is_held_as_it_came_and_the_lesser_part_of_one_does_not_hold_on_to_it() -> (
    None
):
    layout = _layout(shared=True)
    whole = _batch(0, ["x" * 1000] * 4000)
    for rows, part in ((whole, False), (whole.slice(0, 1500), True)):
        held = OpenFile(0, layout.schema, 1)
        held.hold(rows, rows.column("stream"), rows.column("offset").to_numpy(), part=part)
        held._together()
        (found,) = held._held
        assert found.equals(rows)
        mine = found.column("who").buffers()[2].address
        assert (mine == whole.column("who").buffers()[2].address) is not part
        held.drop()


def test_an_older_table_gets_the_column_of_an_order_first_and_then_the_order(
    tmp_path: Path, catalog: Callable[[], SqlCatalog]
) -> None:
    def table(*order: str) -> IcebergTable:
        return IcebergTable(
            catalog(), "db.t", location=f"file://{tmp_path}/w/t", partition=TablePartition.DAY,
            columns=COLUMNS, files=StoredFiles(), new_id=lambda: f"{next(_IDS):016x}", order=order,
        )  # fmt: skip

    table().load(pa.schema(list(_SCHEMA)[:3]))
    new = table("who")
    loaded = new.grow(new.load(_SCHEMA), _SCHEMA)
    assert "who" in loaded.schema.names
    fields = catalog().load_table("db.t").sort_order().fields
    assert len(fields) == 3


def test_small_batches_become_one_row_group_of_the_size_that_is_asked_for() -> None:
    batches = [_batch(n * 500, ["x" * 500] * 500) for n in range(40)]
    size = sum(batch.nbytes for batch in batches)
    for order in ((), ("who",)):
        memory, (file,) = _write(_layout(group_bytes=size // 4, order=order), batches)
        metadata = pq.read_metadata(io.BytesIO(memory.files[file.path]))
        assert 4 <= metadata.num_row_groups <= 5
        assert metadata.num_rows == file.rows == 20_000


def test_memory_that_a_source_uses_again_is_not_what_is_written() -> None:
    data = bytearray(b"aaaa")
    body = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.array([0, 4], pa.int32()).buffers()[1], pa.py_buffer(data)]
    )
    schema = pa.schema([*list(_SCHEMA)[:3], pa.field("body", pa.binary())])
    batch = pa.RecordBatch.from_arrays([*_batch(0, ["x"]).columns[:3], body], schema=schema)
    layout = FileLayout("s3://t/t", schema, TablePartition.DAY, COLUMNS)
    memory = Memory()
    with TableWriter(layout, STREAM, memory, lambda: f"{next(_IDS):016x}") as writer:
        assert list(writer.write(batch)) == []
        data[:] = b"bbbb"
        (file,) = writer.close()
    assert _rows(memory.files[file.path])[0]["body"] == b"aaaa"


def test_all_open_files_together_hold_two_row_groups_at_most() -> None:
    batches = [_batch(n * 30, ["x" * 50] * 30, days=3) for n in range(60)]
    size = sum(batch.nbytes for batch in batches)
    memory, told = _write(_layout(group_bytes=size // 4), batches)
    assert len(told) == 3
    groups = [pq.read_metadata(io.BytesIO(each)).num_row_groups for each in memory.files.values()]
    assert max(groups) > 1  # a third of the rows each would have been one and a half
    assert sum(file.rows for file in told) == 1800


@pytest.mark.parametrize("files", list(TableFiles))
def test_a_table_in_an_order_of_its_own_stays_in_it_when_it_is_compacted(files: TableFiles) -> None:
    rule = TableRule(".*", "db.t", order=("body", "epoch"), files=files)
    streams = {f"__s{n}_1745252105682952932": _bodies(30) for n in range(3)}
    site = Site(dict(streams), rule)
    site.run()
    _maintain(site)
    table = site.tables.rows
    loaded = table.load(new_schema(rule))
    stored = table.files(loaded)
    assert len(stored) == (1 if files is TableFiles.SHARED else 3)
    for file in stored:
        rows = [
            (row["body"], row["stream"], row["offset"])
            for batch in table.rows(loaded, file.path)
            for row in batch.select(["body", "stream", "offset"]).to_pylist()
        ]
        assert rows == sorted(rows)
    assert site.content() == _expected(site.bodies)


def test_iceberg_is_told_an_order_that_files_have_and_no_other(
    tmp_path: Path, catalog: Callable[[], SqlCatalog]
) -> None:
    def table(*order: str) -> IcebergTable:
        return IcebergTable(
            catalog(), "db.t", location=f"file://{tmp_path}/w/t", partition=TablePartition.DAY,
            columns=COLUMNS, files=StoredFiles(), new_id=lambda: f"{next(_IDS):016x}", order=order,
        )  # fmt: skip

    def fill(begin: int, *order: str, written_as: tuple[str, ...] | None = None) -> None:
        there = table(*order)
        loaded = there.load(_SCHEMA)
        layout = FileLayout(
            loaded.location, loaded.schema, TablePartition.DAY, COLUMNS,
            order=order if written_as is None else written_as,
        )  # fmt: skip
        batch = _batch(begin, ["b", None, "a"])
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=loaded.schema)
        with TableWriter(layout, STREAM, StoredFiles(), lambda: f"{next(_IDS):016x}") as writer:
            files = [*writer.write(batch), *writer.close()]
        covered = {STREAM: Ranges.of([(begin, begin + 3)])}
        append = Append(f"append-{begin}", files, covered)
        commit(there, append, first_schema=_SCHEMA, pause=lambda _: None)

    def told() -> dict[int, int | None]:
        found = catalog().load_table("db.t")
        offset = found.schema().find_field("offset").field_id
        return {
            int.from_bytes(task.file.lower_bounds[offset], "little"): task.file.sort_order_id
            for task in found.scan().plan_files()
        }

    fill(0)
    fill(3, "who")
    now = catalog().load_table("db.t")
    assert [now.schema().find_column_name(f.source_id) for f in now.sort_order().fields] == [
        "who", "stream", "offset",
    ]  # fmt: skip
    assert str(now.sort_order().fields[0].null_order) == "NULLS LAST"
    fill(6)  # the rule has none any more: the table keeps its order, this file is in the first one
    fill(9, "who")
    assert told() == {0: 1, 3: 2, 6: 1, 9: 2}
    assert len(now.metadata.sort_orders) == 2
    rows = catalog().load_table("db.t").scan().to_arrow()
    assert sorted(rows["offset"].to_pylist()) == list(range(12))


def test_an_order_names_columns_that_the_table_has_from_the_beginning() -> None:
    def rule(**words: Any) -> TableRule:
        import json

        document = {"version": 1, "tables": [{"streams": "a", "table": "d.t", **words}]}
        return parse_rules(json.dumps(document))[0]

    assert rule(order="queue, epoch").order == ("queue", "epoch")
    new_schema(rule(order="queue, epoch"))
    new_schema(rule(order="who,_offset", body="json", schema="who: string"))
    for words in (
        {"order": "who"},
        {"order": "who", "body": "json"},
        {"order": "properties"},
        {"order": "tags", "body": "json", "schema": "tags: list<string>"},
    ):
        with pytest.raises(InvalidInputError, match="order"):
            new_schema(rule(**words))
    with pytest.raises(InvalidInputError, match="twice"):
        rule(order="queue,queue")


def test_small_streams_that_catch_up_on_many_days_have_one_file_a_day() -> None:
    batches = []
    for number in range(3):
        batch = _batch(0, ["x"] * 200, days=100)
        names = pa.array([f"__s{number}_1745252105682952932"] * 200)
        batch = pa.RecordBatch.from_arrays([names, *batch.columns[1:]], schema=_SCHEMA)
        batches.append(batch.take(pa.array(sorted(range(200), key=lambda n: (n % 100, n)))))
    memory, told = _write(_layout(shared=True), batches)
    assert sorted(file.time_unit for file in told) == list(range(100))
    for file in told:
        rows = [(row["stream"], row["offset"]) for row in _rows(memory.files[file.path])]
        assert (len(rows), rows, file.in_order) == (6, sorted(rows), True)
