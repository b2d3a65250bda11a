"""Columns that a rule asks for beside the usual ones."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.rule_fit import with_rule
from coldstream.jobs.materialise.rules import TableRule, parse_rules
from coldstream.jobs.materialise.schema import EXTRA_COLUMNS
from coldstream.jobs.materialise.spark_engine import SplitSource
from coldstream.jobs.materialise.transform import first_schema, transform
from coldstream.spark.plan import decode_split
from tests.support.tier import Tier, chunk
from tests.unit.columns.test_reference import listed, mapped, section, text
from tests.unit.spark.context import query, remote_of

WIRE = (
    section(0x70, listed(b"\x41"))
    + section(0x74, mapped((text("n"), b"\x54\x05")))
    + section(0x75, b'\xa0\x08{"a": 1}')
)


@pytest.mark.parametrize(("body", "prefix"), [("raw", ""), ("json", "_")])
def test_a_table_has_the_columns_that_its_rule_asks_for(body: str, prefix: str) -> None:
    wanted = "header, application_properties_json"
    rule = {"streams": "s", "table": "db.t", "body": body, "columns": wanted}
    (parsed,) = parse_rules(json.dumps({"version": 1, "tables": [rule]}))
    tier = Tier()
    tier.add("s", [[chunk(0, WIRE)]])
    (work,) = query(tier, stream="s").works
    source = SplitSource(
        work.task.streams[0], decode_split(work.split), remote_of(tier), columns=parsed.columns
    )
    (batch,) = source.batches([], [])
    schema = first_schema(body, None, parsed.columns)

    (row,) = transform(batch, body, schema).rows.to_pylist()

    assert row[f"{prefix}header"]["durable"] is True
    assert json.loads(row[f"{prefix}application_properties_json"]) == {"n": {"int": 5}}
    assert f"{prefix}footer" not in row


@pytest.mark.parametrize("body", ["raw", "json"])
def test_a_table_that_is_there_grows_by_them(body: str) -> None:
    rule = TableRule("s", "db.t", body, columns=("footer",))
    before, after = first_schema(body), first_schema(body, None, rule.columns)

    assert set(with_rule(rule, before, after).names) == set(after.names)


def test_a_column_that_others_have_renamed_is_told_as_that_too() -> None:
    rule = TableRule("s", "db.t", "json")
    first = first_schema("json")
    names = ["saved" if name == "_rescued" else name for name in first.names]
    renamed = pa.schema([each.with_name(name) for each, name in zip(first, names, strict=True)])

    with pytest.raises(InvalidInputError, match=r"no column _rescued: .* or others have renamed"):
        with_rule(rule, renamed, first)


def test_a_field_of_bodies_that_has_the_name_of_one_is_never_mixed_with_it() -> None:
    rule = TableRule("s", "db.t", "json", columns=("footer",))
    before = first_schema("json").append(pa.field("_footer", pa.int64()))

    with pytest.raises(InvalidInputError, match=r"the column _footer of db.t is long, and not map"):
        with_rule(rule, before, first_schema("json", None, rule.columns))


@pytest.mark.parametrize("columns", ["body", "header,header", "body_variant", "colour"])
def test_other_columns_are_refused(columns: str) -> None:
    rule = {"streams": "s", "table": "db.t", "columns": columns}

    with pytest.raises(InvalidInputError, match="is named twice, or none of publishers"):
        parse_rules(json.dumps({"version": 1, "tables": [rule]}))
    assert "body_json" in EXTRA_COLUMNS
