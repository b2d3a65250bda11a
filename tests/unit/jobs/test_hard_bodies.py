"""Bodies of JSON and functions of the user's that must stop no table, and lose nothing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.kinds import name_of
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition, TableRule
from coldstream.jobs.materialise.schema import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_LEAVES,
    columns_of,
    grown,
)
from coldstream.jobs.materialise.task_result import TaskResult, encode_result, parse_result
from coldstream.jobs.materialise.transform import first_schema
from tests.support.memory_table import MemoryTable
from tests.unit.jobs.test_materialise_run import BILLS, ORDERS, Site, Store

JSON = TableRule(".*", "db.t", body="json")
PLAIN = b'{"n":1}'


class LocalFiles(Store):
    """Files of tasks below a directory."""

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        StoredFiles().save(path, content, size)

    def open(self, path: str, size: int) -> IO[bytes]:
        return StoredFiles().open(path, size)


@dataclass
class IcebergSite(Site):
    """The same with tables of Iceberg."""

    root: Path = field(kw_only=True)
    store: Store = field(default_factory=LocalFiles)

    def table(
        self, name: str, columns: tuple[str, str, str], buckets: Buckets | None = None
    ) -> IcebergTable:
        catalog = SqlCatalog(
            "tests",
            uri=f"sqlite:///{self.root}/catalog.db",
            warehouse=f"file://{self.root}/warehouse",
            **{"py-io-impl": FILE_IO},
        )
        return IcebergTable(
            catalog,
            name,
            location=f"file://{self.root}/warehouse/{name}",
            partition=TablePartition.DAY,
            columns=columns,
            files=StoredFiles(),
            new_id=lambda: f"{next(self.ids):016x}",
            buckets=buckets,
        )


MakeSite = Callable[..., Site]


@pytest.fixture(params=["memory", "iceberg"])
def site_of(request: pytest.FixtureRequest, tmp_path: Path) -> MakeSite:
    def make(*bodies: bytes, rule: TableRule = JSON) -> Site:
        streams: dict[str, list[bytes | None]] = {ORDERS: list(bodies)}
        if request.param == "memory":
            return Site(streams, rule)
        return IcebergSite(streams, rule, root=tmp_path)

    return make


def _rows(site: Site) -> list[dict[str, Any]]:
    names = columns_of(site.rule.body)
    return list(site.rows().sort_by([(name, "ascending") for name in names[:2]]).to_pylist())


def _rescued(site: Site) -> list[dict[str, str]]:
    return [dict(row["_rescued"] or ()) for row in _rows(site)]


def _fields(site: Site) -> list[str]:
    return [name for name in site.rows().schema.names if name not in first_schema("json").names]


def test_a_field_that_begins_with_an_underscore_is_a_column_like_any_other(
    site_of: MakeSite,
) -> None:
    site = site_of(PLAIN, b'{"_id":{"$oid":"5"},"__v":0}')

    site.run()

    assert [row["_id"] for row in _rows(site)] == [None, {"$oid": "5"}]
    assert _rescued(site) == [{}, {}]


@pytest.mark.parametrize(
    "name",
    [
        *("_offset", "_Stream", "_rescued", "_chunk_id", "_file", "_POS"),
        *("_stream_identity", "_timestamp_day", "_Timestamp_hour", "_key_bucket"),
    ],
)
def test_a_field_named_like_something_of_ours_or_of_a_reader_s_is_rescued(
    site_of: MakeSite, name: str
) -> None:
    site = site_of(json.dumps({"n": 1, name: "x"}).encode())

    site.run()
    site.bodies[ORDERS].append(PLAIN)
    site.run()

    assert _fields(site) == ["n"]
    assert _rescued(site) == [{name: '"x"'}, {}]


def test_a_table_that_an_older_release_gave_such_a_column_goes_on(site_of: MakeSite) -> None:
    site = site_of(PLAIN)
    site.run()
    tables = site.tables.rows
    loaded = tables.load(first_schema("json"))
    older = pa.schema([*loaded.schema, pa.field("_id", pa.int64()), pa.field("_file", pa.int64())])
    if isinstance(tables, MemoryTable):
        tables.grow(loaded, older)
    else:
        with loaded.handle.update_schema() as update:
            update.union_by_name(older)

    site.bodies[ORDERS] += [b'{"_id":1,"_file":2}', PLAIN]
    site.bodies[BILLS] = [PLAIN]
    site.run()

    assert [row["_id"] for row in _rows(site)] == [None, None, 1, None]
    assert _rescued(site) == [{}, {}, {"_file": "2"}, {}]


@pytest.mark.parametrize(
    "body",
    [
        b'{"a.b":1,"a":{"b":2}}',
        b'{"a":{"b.c":1,"b":{"c":2}}}',
        b'{"l":[1],"l.element":2}',
        b'{"_application_properties.key":1}',
        b'{"":1}',
        b'{"a\\u0000b":1}',
        b'{"a`b":1}',
        b'{"o":{"a:b":1,"a,b":2,"a<b":3}}',
        b'{"\\ud800":1}',
        b'{"%s":1}' % (b"n" * 256),
        b'{"Id":1,"id":"x","ID":[2]}',
        b'{"o":{"Id":1,"id":"x"}}',
    ],
)
def test_a_name_that_no_catalog_can_take_is_rescued_and_stops_nothing(
    site_of: MakeSite, body: bytes
) -> None:
    site = site_of(PLAIN)
    site.run()
    for _ in range(2):
        site.bodies[ORDERS].append(body)
        site.run()

    _assert_readers_take(site.rows().schema)
    for rescued, row in zip(_rescued(site)[1:], _rows(site)[1:], strict=True):
        for name, value in json.loads(body).items():
            if row.get(name) != value:
                assert json.loads(rescued[name if name != "\ud800" else "\\ud800"]) == value


def _assert_readers_take(fields: Iterable[pa.Field]) -> None:
    """No name with a special meaning, and no two that differ in upper case only, at any depth."""
    names = [each.name for each in fields]
    assert len({name.lower() for name in names}) == len(names)
    assert all(re.fullmatch(r"[\w $@-]{1,255}", name) for name in names), names
    for each in fields:
        if pa.types.is_struct(each.type):
            _assert_readers_take(list(each.type))


def test_of_names_that_differ_in_upper_case_only_the_first_is_the_column(site_of: MakeSite) -> None:
    site = site_of(b'{"Id":1,"id":"x"}', b'{"ID":2,"o":{"A":1}}', b'{"o":{"a":2,"A":3}}')

    site.run()

    assert _fields(site) == ["Id", "o"]
    assert [(row["Id"], row["o"]) for row in _rows(site)] == [
        (1, None),
        (None, {"A": 1}),
        (None, {"A": 3}),
    ]
    assert _rescued(site) == [{"id": '"x"'}, {"ID": "2"}, {"o": '{"a":2,"A":3}'}]


def test_a_field_whose_path_an_older_table_has_as_a_name_is_rescued() -> None:
    older = pa.schema(
        [("a.b", pa.int64()), ("c.d", pa.int64()), ("c", pa.struct([("x", pa.int64())]))]
    )
    found = pa.schema(
        [("a", pa.struct([("b", pa.int64())])), ("c", pa.struct([("d", pa.int64())]))]
    )
    assert grown(older, found).equals(older)


def _nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    return b'{"n":1,"a":' + opening * depth + b"1" + closing * depth + b"}"


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")]
)
def test_a_body_nested_however_deeply_is_a_row_or_a_dead_letter(
    opening: bytes, closing: bytes
) -> None:
    depths = [*range(1, 120, 7), 200, 300, 450, 600, 900, 970, 990, 1100, 30_000, 100_000]
    bodies = [_nested(depth, opening, closing) for depth in depths]
    site = Site({ORDERS: [PLAIN, *bodies]}, JSON)

    site.run()

    rows = _rows(site)
    assert len(rows) + site.rows(dead=True).num_rows == 1 + len(bodies)
    assert len(rows) > 18
    for row in rows[1:]:
        body = bodies[row["_offset"] - 1]
        whole = dict(row["_rescued"] or ()).get("a")
        assert row["n"] == 1
        if whole is not None:
            assert whole.encode() == body.removeprefix(b'{"n":1,"a":')[:-1]
        else:
            # Lists of different depth have text in common; objects have a type inside for each.
            assert _as_far_as_typed(row["a"]) == json.loads(body)["a"]


def _as_far_as_typed(value: Any) -> Any:
    """A value of a table, with what became text in it as the JSON that it is."""
    if isinstance(value, list):
        return [_as_far_as_typed(each) for each in value]
    if isinstance(value, dict):
        return {name: _as_far_as_typed(each) for name, each in value.items()}
    return json.loads(value) if isinstance(value, str) else value


def test_a_value_gets_a_type_down_to_a_depth_and_no_further() -> None:
    at, beyond = _nested(MAX_DEPTH, b"[", b"]"), _nested(MAX_DEPTH + 1, b"[", b"]")
    site = Site({ORDERS: [beyond, at, beyond]}, JSON)
    site.run()
    assert ["a" in rescued for rescued in _rescued(site)] == [True, False, True]


def test_a_table_of_iceberg_takes_deep_bodies(tmp_path: Path) -> None:
    depths = (MAX_DEPTH, MAX_DEPTH + 1, 50, 150)
    bodies: list[bytes | None] = [_nested(depth, b'{"a":', b"}") for depth in depths]
    site = IcebergSite({ORDERS: bodies}, JSON, root=tmp_path)
    site.run()
    assert ["a" in rescued for rescued in _rescued(site)] == [False, True, True, True]


def test_a_result_travels_whatever_types_an_older_table_has() -> None:
    deep: pa.DataType = pa.int64()
    for _ in range(400):
        deep = pa.list_(deep)
    result = TaskResult("s", covered=[(0, 1)])
    result.found = pa.schema([("a", pa.list_(pa.int64()))])
    assert parse_result(encode_result(result)) == result
    result.found = pa.schema([("a", deep)])
    encode_result(result)


def _function(monkeypatch: pytest.MonkeyPatch, **columns: tuple[pa.DataType, Any]) -> None:
    """`mine:f` makes these columns, each of one value."""

    def make(batch: pa.RecordBatch) -> pa.RecordBatch:
        made = [pa.array([value] * batch.num_rows, kind) for kind, value in columns.values()]
        return pa.RecordBatch.from_arrays([batch.column("offset"), *made], ["_offset", *columns])

    make.schema = pa.schema([(n, kind) for n, (kind, _) in columns.items()])  # type: ignore[attr-defined]
    module = ModuleType("mine")
    module.f = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", module)


MINE = TableRule(".*", "db.t", body="mine:f")


def test_a_column_that_a_function_makes_since_lately_is_added(
    site_of: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _function(monkeypatch, a=(pa.int16(), 1), o=(pa.struct([("x", pa.int64())]), {"x": 1}))
    site = site_of(b"1", rule=MINE)
    site.run()
    site.bodies[ORDERS].append(b"2")
    wider = pa.struct([("x", pa.int64()), ("y", pa.string())])
    _function(monkeypatch, a=(pa.int16(), 2), b=(pa.string(), "new"), o=(wider, {"x": 2, "y": "z"}))

    report = site.run()

    assert report.columns_added == ["b"]
    assert [(row["a"], row["b"], row["o"]) for row in _rows(site)] == [
        (1, None, {"x": 1, "y": None}),
        (2, "new", {"x": 2, "y": "z"}),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.date32(), pa.list_(pa.int32())])
def test_a_function_that_changes_a_type_is_refused_by_the_column_s_name(
    site_of: MakeSite, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    _function(monkeypatch, price=(pa.int32(), 1))
    site = site_of(b"1", rule=MINE)
    site.run()
    site.bodies[ORDERS].append(b"2")
    _function(monkeypatch, price=(kind, None))

    with pytest.raises(InvalidInputError, match=r"column price of db\.t is int, and mine:f says"):
        site.run()
    assert len(_rows(site)) == 1


def test_a_function_that_makes_a_wider_type_makes_its_column_wider(
    site_of: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _function(monkeypatch, price=(pa.int32(), 1))
    site = site_of(b"1", rule=MINE)
    site.run()
    site.bodies[ORDERS].append(b"2")
    _function(monkeypatch, price=(pa.int64(), 2**40))
    site.run()
    assert [row["price"] for row in _rows(site)] == [1, 2**40]


def test_a_value_that_its_column_cannot_take_makes_its_message_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _function(monkeypatch, day=(pa.timestamp("s"), 1))
    site = Site({ORDERS: [b"1"]}, MINE)
    site.run()
    site.bodies[ORDERS].append(b"2")
    _function(monkeypatch, day=(pa.timestamp("ns"), 1))
    assert site.run().dead_letters == 1
    assert len(_rows(site)) == 1


def test_numbers_without_a_sign_keep_their_values(
    site_of: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = pa.struct([("n", pa.uint32()), ("at", pa.timestamp("ns", "UTC"))])
    _function(
        monkeypatch,
        byte=(pa.uint8(), 2**8 - 1),
        short=(pa.uint16(), 2**16 - 1),
        word=(pa.uint32(), 2**32 - 1),
        hash=(pa.uint64(), 2**64 - 1),
        all=(pa.large_list(pa.uint32()), [2**32 - 1]),
        one=(inside, {"n": 2**32 - 1, "at": 1_000}),
    )
    site = site_of(b"1", rule=MINE)

    report = site.run()

    assert not report.dead_letters
    (row,) = _rows(site)
    assert (row["byte"], row["short"]) == (2**8 - 1, 2**16 - 1)
    assert (row["word"], row["hash"], row["all"]) == (2**32 - 1, 2**64 - 1, [2**32 - 1])
    assert row["one"]["n"] == 2**32 - 1
    assert row["one"]["at"].microsecond == 1


def test_a_table_of_an_earlier_release_goes_on_with_its_narrower_numbers(
    site_of: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _function(monkeypatch, word=(pa.int32(), 1), hash=(pa.int64(), 1))
    site = site_of(b"1", rule=MINE)
    site.run()
    site.bodies[ORDERS].append(b"2")
    _function(monkeypatch, word=(pa.uint32(), 2**32 - 1), hash=(pa.uint64(), 2))

    assert not site.run().dead_letters
    assert [(row["word"], row["hash"]) for row in _rows(site)] == [(1, 1), (2**32 - 1, 2)]


@pytest.mark.parametrize("names", [["a", "A"], ["a.b"], ["a", "a"], [""]])
def test_a_function_with_columns_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    _function(monkeypatch, a=(pa.int64(), 1))
    sys.modules["mine"].f.schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(InvalidInputError, match="cannot be a column"):
        first_schema("mine:f")


@pytest.mark.parametrize(
    "kind",
    [
        pa.date64(), pa.time32("s"), pa.time64("ns"), pa.duration("s"), pa.decimal256(50, 2),
        pa.null(), pa.month_day_nano_interval(), pa.decimal64(9, 2), pa.list_view(pa.int64()),
        pa.dictionary(pa.int32(), pa.date64()),
        pa.list_(pa.struct([("at", pa.time64("ns"))])), pa.map_(pa.string(), pa.date64()),
    ],
    ids=str,
)  # fmt: skip
def test_a_function_with_a_column_of_a_type_that_no_table_has_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    """It was a traceback out of the Iceberg library."""
    _function(monkeypatch, at=(kind, None))

    with pytest.raises(InvalidInputError, match=r"mine:f: the column at is of .*, which no table"):
        first_schema("mine:f")


@pytest.mark.parametrize(
    ("was", "is_now", "column"),
    [("raw", "json", "_stream"), ("json", "raw", "stream"), ("mine:f", "json", "_rescued")],
)
def test_a_table_that_was_filled_with_another_body_is_refused_and_told_what_to_do(
    site_of: MakeSite, monkeypatch: pytest.MonkeyPatch, was: str, is_now: str, column: str
) -> None:
    _function(monkeypatch, a=(pa.int64(), 1))
    site = site_of(PLAIN, rule=TableRule(".*", "db.t", body=was))
    site.run()
    site.rule = TableRule(".*", "db.t", body=is_now)
    site.bodies[ORDERS].append(PLAIN)

    for dry_run in (True, False):
        with pytest.raises(InvalidInputError, match=rf"no column {column}: .* another name"):
            site.run(dry_run=dry_run)


@dataclass
class Deleted(Site):
    """Of whose streams only the catalog's word is left."""

    gone: bool = False

    def now(self, stream: str) -> StreamNow:
        if not self.gone:
            return super().now(stream)
        end = len(self.bodies[stream])
        return StreamNow(stream, stream, end, end, deleted=True)


def test_what_a_table_never_had_of_a_deleted_stream_is_told_once_and_fails_nothing() -> None:
    site = Deleted({ORDERS: [b"x"] * 30})
    site.run()
    site.bodies[ORDERS] += [b"x"] * 20
    site.gone = True

    first, second = site.run(), site.run()

    assert (first.deleted, first.lost_offsets) == ({ORDERS: [[30, 50]]}, 20)
    assert (second.deleted, second.lost_offsets) == ({}, 0)
    assert first.streams == 0
    assert site.tables.rows.load(first_schema("raw")).state.lost[ORDERS] == Ranges.of([(30, 50)])
    assert len(site.content()[0]) == 30


def test_a_deleted_stream_that_a_table_never_began_is_none_of_its_business() -> None:
    site = Deleted({ORDERS: [b"x"] * 30}, gone=True)
    assert site.run().deleted == {}
    assert site.content() == ([], [])


def test_a_dry_run_tells_of_a_deleted_stream_too() -> None:
    site = Deleted({ORDERS: [b"x"] * 30})
    site.run(window=BackfillWindow(first=0, next_offset=10))
    site.gone = True
    assert site.run(dry_run=True).deleted == {ORDERS: [[10, 30]]}


def _leaves(kind: pa.DataType) -> int:
    """Fields of a type at all depths."""
    if pa.types.is_struct(kind):
        return sum(1 + _leaves(each.type) for each in kind)
    return _leaves(kind.value_type) if pa.types.is_list(kind) else 0


def _by_id(depth: int, width: int, prefix: str = "k") -> dict[str, Any]:
    """An object with an id for a name, as many publishers write maps, at each depth."""
    if not depth:
        return {"n": 1}
    return {f"{prefix}{each}": _by_id(depth - 1, width, prefix) for each in range(width)}


@pytest.mark.parametrize(
    "odd",
    [
        {"m": _by_id(2, 60)},
        {"m": [_by_id(2, 60)]},
        {"m": _by_id(1, 400, "a name that is as long as an ARN of AWS or a URL " + "x" * 190)},
    ],
)
def test_objects_whose_names_are_ids_make_no_table_that_nobody_can_open(
    site_of: MakeSite, odd: dict[str, Any]
) -> None:
    bodies = [PLAIN, json.dumps(odd).encode(), b'{"n":2,"later":"x"}']
    site = site_of(*bodies)

    site.run()
    site.bodies[ORDERS].append(b'{"later":"y","o":{"new":1}}')
    site.run()

    assert all(_leaves(each.type) <= MAX_FIELDS for each in site.rows().schema)
    assert all(len(name_of(each.type).encode()) < 131_072 for each in site.rows().schema)
    rows, rescued = _rows(site), _rescued(site)
    assert [(row.get("later"), row.get("o")) for row in rows] == [
        (None, None), (None, None), ("x", None), ("y", {"new": 1})
    ]  # fmt: skip
    for name, value in odd.items():
        assert rows[1].get(name) == value or json.loads(rescued[1][name]) == value


def test_a_table_with_thousands_of_fields_at_all_depths_grows_no_more() -> None:
    small = pa.struct([(f"f{each}", pa.int64()) for each in range(499)])
    schema = grown(pa.schema([]), pa.schema([(f"m{each}", small) for each in range(30)]))
    wider = pa.struct([*small, pa.field("later", pa.string())])

    assert schema.names == [f"m{each}" for each in range(MAX_LEAVES // 500)]
    assert grown(schema, pa.schema([("m0", wider), ("n", pa.int64())])).equals(schema)
    fewer = pa.schema(list(schema)[1:])
    assert grown(fewer, pa.schema([("m1", wider), ("n", pa.int64())])).field("m1").type == wider
