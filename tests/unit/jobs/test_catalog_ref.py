"""What a rule says of a catalog, and who keeps its tables in shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.catalog_ref import (
    RestCatalogRef,
    TablePlace,
    parse_catalog,
)
from coldstream.jobs.materialise.rules import Maintenance, TableRule, parse_rules
from coldstream.jobs.materialise.upkeep import UpkeepSettings, check_upkeep

S3_TABLES = {
    "uri": "https://s3tables.eu-central-1.amazonaws.com/iceberg",
    "warehouse": "arn:aws:s3tables:eu-central-1:123456789012:bucket/tables",
    "sign": "s3tables",
    "place": "catalog",
}
ROLE = "arn:aws:iam::123456789012:role/optimizers"


def _nothing(_: str) -> str:
    raise AssertionError


def test_a_catalog_is_an_object_json_a_file_or_glue() -> None:
    made = RestCatalogRef(
        S3_TABLES["uri"], S3_TABLES["warehouse"], "s3tables", place=TablePlace.CATALOG
    )

    assert parse_catalog(S3_TABLES, _nothing) == made
    assert parse_catalog(json.dumps(S3_TABLES), _nothing) == made
    assert parse_catalog("s3://b/c.json", lambda _: json.dumps(S3_TABLES)) == made
    assert parse_catalog("glue", _nothing) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "no JSON"),
        ([], "no object"),
        ({}, "'uri' is missing"),
        ({"uri": 5}, "uri is no text"),
        ({"uri": "s3://a/b"}, "http:// or https://"),
        ({"uri": "https:///x"}, "http:// or https://"),
        ({"uri": "https://[a"}, "no URL"),
        ({"uri": "https://me:secret@h/"}, "use secret"),
        ({"uri": "https://h/", "token": "abc"}, "does not stand in a rule"),
        ({"uri": "https://h/", "credential": "a:b"}, "does not stand in a rule"),
        ({"uri": "https://h/", "tokn": "abc"}, "'tokn' is not known"),
        ({"uri": "https://h/", "place": "moon"}, "warehouse or catalog"),
        ({"uri": "https://h/", "sign": "glue", "secret": "s"}, "not both"),
        ({"uri": "https://h/", "token_uri": "ftp://h"}, "token_uri is an http"),
    ],
)
def test_what_is_no_catalog_is_refused_and_no_secret_repeated(value: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        parse_catalog(value, _nothing)
    assert "abc" not in str(caught.value)
    assert "me:secret" not in str(caught.value)


def _rules(*tables: dict[str, Any], **unless_said: Any) -> tuple[TableRule, ...]:
    document = json.dumps({"version": 1, "tables": list(tables)})
    return parse_rules(document, unless_said=unless_said)


def test_a_rule_has_its_own_catalog_and_otherwise_that_of_the_job() -> None:
    first, second = _rules(
        {"streams": "a", "table": "d.a", "catalog": S3_TABLES},
        {"streams": "b", "table": "d.b", "maintenance": "glue"},
        catalog="glue",
        maintenance="own",
    )
    assert first.catalog == parse_catalog(S3_TABLES, _nothing)
    assert (first.maintenance, second.maintenance) == (Maintenance.OWN, Maintenance.GLUE)
    assert second.catalog is None


def test_glue_keeps_no_table_of_another_catalog() -> None:
    with pytest.raises(InvalidInputError, match="rule 1: maintenance: glue"):
        _rules({"streams": "a", "table": "d.a", "catalog": S3_TABLES, "maintenance": "glue"})
    with pytest.raises(InvalidInputError, match="rule 1: maintenance is one of own, glue"):
        _rules({"streams": "a", "table": "d.a", "maintenance": "aws"})


def _settings(**changes: Any) -> UpkeepSettings:
    given = {"asked": False, "expire_seconds": None, "file_bytes": 1, "role": "", "now_ms": 0}
    return UpkeepSettings(**{**given, "dry_run": False, **changes})


def test_what_upkeep_cannot_do_is_refused_before_anything_is_read() -> None:
    plain = TableRule("a", "d.a")
    glue = TableRule("b", "d.b", maintenance=Maintenance.GLUE)
    placed = TableRule("c", "d.c", catalog=parse_catalog(S3_TABLES, _nothing))
    for rules, settings, words in (
        ([glue], _settings(), "no ARN of a role"),
        ([glue], _settings(role="optimizers"), "no ARN of a role"),
        ([plain, glue], _settings(role=ROLE, expire_seconds=9), "--expire belongs to --maintain"),
        ([placed], _settings(asked=True, expire_seconds=9), "leave --expire to the catalog"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            check_upkeep(rules, settings)
    check_upkeep([glue], _settings(role=ROLE, expire_seconds=9))
    check_upkeep([plain], _settings(asked=True, expire_seconds=9))
    check_upkeep([placed], _settings(asked=True))
