"""Columns of a type that no value of JSON has, which somebody else gave a table of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from coldstream.errors import InternalError
from coldstream.jobs.materialise.json_bodies import bodies as json_body
from coldstream.jobs.materialise.json_bodies.bodies import Parsed, parse_bodies
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.task import perform
from coldstream_devkit.suites.table import STREAM
from tests.unit.jobs.test_dead_bytes import _rules as rules_of
from tests.unit.jobs.test_far_values import Source
from tests.unit.jobs.test_hard_bodies import IcebergSite, LocalFiles, _function
from tests.unit.jobs.test_materialise_run import ORDERS

NAME = "db.t"
_ID = NestedField(101, "id", UUIDType(), required=False)
ADDED: dict[str, IcebergType] = {
    "uuid": UUIDType(),
    "struct<uuid>": StructType(_ID),
    "struct<struct<uuid>>": StructType(NestedField(102, "in", StructType(_ID), required=False)),
    "list<uuid>": ListType(103, UUIDType(), element_required=False),
    "list<struct<uuid>>": ListType(103, StructType(_ID), element_required=False),
    "map<string,uuid>": MapType(104, StringType(), 105, UUIDType(), value_required=False),
    "map<uuid,string>": MapType(104, UUIDType(), 105, StringType(), value_required=False),
    "map<long,string>": MapType(104, LongType(), 105, StringType(), value_required=False),
}
_DECLARED = pa.schema([pa.field("n", pa.int64()), pa.field("o", pa.struct([("x", pa.int64())]))])
RULES = {
    "undeclared": TableRule(".*", NAME, body="json"),
    "declared": TableRule(".*", NAME, body="json", schema=_DECLARED),
    "latest": TableRule(".*", NAME, body="json", latest=Latest(LatestKey.parse("body.n"), 1)),
    "raw": TableRule(".*", NAME),
    "function": TableRule(".*", NAME, body="mine:f"),
}


@pytest.fixture
def site_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], IcebergSite]:
    def make(rule: str) -> IcebergSite:
        _function(monkeypatch, n=(pa.int64(), 1), o=(pa.struct([("x", pa.int64())]), {"x": 1}))
        made = IcebergSite({ORDERS: [b'{"n":1,"o":{"x":1}}']}, RULES[rule], root=tmp_path)
        made.run()
        return made

    return make


def _add(site: IcebergSite, *path: str, kind: IcebergType) -> None:
    table = site.tables.rows
    with table.load(pa.schema([])).handle.update_schema() as update:
        update.add_column(path, kind)


def _rows(site: IcebergSite) -> list[dict[str, Any]]:
    offset = "offset" if site.rule.body == "raw" else "_offset"
    return list(site.rows().sort_by(offset).to_pylist())


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("rule", RULES)
def test_a_column_that_somebody_added_makes_no_message_a_dead_letter(
    site_of: Callable[[str], IcebergSite], rule: str, added: str
) -> None:
    site = site_of(rule)
    _add(site, "trace", kind=ADDED[added])
    site.bodies[ORDERS] += [b'{"n":2,"o":{"x":2}}', b'{"n":3,"o":{"x":3},"q":[1.5]}']

    site.run()

    found = _rows(site)
    assert site.rows(dead=True).num_rows == 0
    assert [each["trace"] for each in found] == [None] * 3
    if rule in ("undeclared", "declared", "latest"):
        assert [(each["n"], each["o"]["x"]) for each in found] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("rule", [each for each in RULES if each != "raw"])
def test_a_field_that_somebody_added_inside_of_a_column_leaves_the_others_their_values(
    site_of: Callable[[str], IcebergSite], rule: str, added: str
) -> None:
    site = site_of(rule)
    _add(site, "o", "trace", kind=ADDED[added])
    site.bodies[ORDERS].append(b'{"n":2,"o":{"x":2}}')

    site.run()

    assert site.rows(dead=True).num_rows == 0
    assert [each["o"]["trace"] for each in _rows(site)] == [None] * 2
    assert [each["o"]["x"] for each in _rows(site)] == ([1, 1] if rule == "function" else [1, 2])


_UUID, _INSIDE = pa.uuid(), pa.struct([("id", pa.uuid()), ("n", pa.int64())])


@pytest.mark.parametrize(
    ("kind", "value", "taken"),
    [
        (_UUID, '"0"', None),
        (_INSIDE, '{"id":"0","n":5}', {"id": None, "n": 5}),
        (pa.list_(_UUID), '["0",null]', [None, None]),
        (pa.list_(_INSIDE), '[{"id":"0","n":5}]', [{"id": None, "n": 5}]),
        (pa.map_(pa.string(), _UUID), '{"k":"0"}', [("k", None)]),
        (pa.map_(_UUID, pa.string()), '{"k":"v"}', None),
        (pa.map_(pa.int64(), pa.string()), '{"1":"v"}', None),
        (pa.list_(pa.map_(pa.int64(), pa.string())), '[{"1":"v"}]', [None]),
    ],
)
def test_a_value_for_a_type_that_json_has_not_is_rescued_and_its_message_a_row(
    kind: pa.DataType, value: str, taken: Any
) -> None:
    bodies = pa.array([f'{{"c":{value}}}', "{}"], pa.binary())

    parsed: Parsed = parse_bodies(bodies, pa.schema([("c", kind)]))

    assert parsed.errors == {}
    assert parsed.columns[0].type == kind
    assert parsed.columns[0].to_pylist() == [taken, None]
    assert [dict(each or ()) for each in parsed.rescued.to_pylist()] == [{"c": value}, {}]
    assert json.loads(value)
    assert len(parsed.found) == 0


@pytest.mark.parametrize("survey", [False, True])
@pytest.mark.parametrize(
    ("body", "kind"), [("raw", pa.month_day_nano_interval()), ("json", pa.list_(pa.uuid()))]
)
def test_a_column_that_cannot_be_made_stops_the_table_and_is_no_fault_of_its_messages(
    monkeypatch: pytest.MonkeyPatch, body: str, kind: pa.DataType, survey: bool
) -> None:
    monkeypatch.setattr(json_body, "without_values", lambda kind: kind)
    rules = rules_of(body)
    schema = rules.rows.schema.append(pa.field("trace", kind))
    rules = replace(rules, rows=replace(rules.rows, schema=schema), survey=survey)
    limit = 3 if survey else None

    with pytest.raises(InternalError, match="no row can be written, whatever its message"):
        perform(
            STREAM, Source(1, 2, 3), rules, LocalFiles(), lambda: "1", now_ms=0, row_limit=limit
        )
