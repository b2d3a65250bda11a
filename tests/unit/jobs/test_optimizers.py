"""Table optimisers of AWS Glue, switched on; botocore checks each request by AWS's own model.

The embedded AWS knows no optimisers, so Glue's answers are given here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from coldstream.adapters.place import Place
from coldstream.errors import InvalidInputError, PermissionDeniedError, UnavailableError
from coldstream.jobs.materialise import upkeep
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.iceberg.optimizers import (
    Switched,
    account_of,
    configurations,
    next_step,
    switch_on,
)
from coldstream.jobs.materialise.rules import Maintenance, TableRule
from coldstream.jobs.materialise.upkeep import UpkeepSettings, keep_up
from coldstream.jobs.materialise.window_commit import Tables
from coldstream_devkit.suites.table import SCHEMA, TableSite, append_of
from tests.unit.jobs.test_iceberg import catalog, site

__all__ = ["catalog", "site"]

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/service/optimizers"
KINDS = ("compaction", "retention", "orphan_file_deletion")
WANTED = configurations("s3://b/shop/orders-1", ROLE, 7)


@pytest.fixture
def glue() -> Iterator[tuple[Any, Stubber]]:
    client = boto3.client(
        "glue", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    with Stubber(client) as stub:
        yield client, stub


def _which(kind: str, name: str = "orders") -> dict[str, str]:
    return {"CatalogId": ACCOUNT, "DatabaseName": "shop", "TableName": name, "Type": kind}


def _none_yet(stub: Stubber, kind: str, name: str = "orders") -> None:
    stub.add_client_error(
        "get_table_optimizer",
        "EntityNotFoundException",
        http_status_code=400,
        expected_params=_which(kind, name),
    )


def test_a_table_without_optimisers_gets_all_three(glue: tuple[Any, Stubber]) -> None:
    client, stub = glue
    for kind in KINDS:
        _none_yet(stub, kind)
        stub.add_response(
            "create_table_optimizer",
            {},
            {**_which(kind), "TableOptimizerConfiguration": WANTED[kind]},
        )

    assert switch_on(client, "shop.orders", WANTED, ACCOUNT) == dict.fromkeys(KINDS, "created")
    stub.assert_no_pending_responses()


def test_orphans_are_looked_for_among_data_files_only() -> None:
    """A state object is named by no metadata of Iceberg: without it a table takes nothing more."""
    told = WANTED["orphan_file_deletion"]["orphanFileDeletionConfiguration"]
    assert told["icebergConfiguration"]["location"] == "s3://b/shop/orders-1/data"


def test_what_is_there_stays_and_what_is_otherwise_is_changed(glue: tuple[Any, Stubber]) -> None:
    client, stub = glue
    there = {kind: dict(WANTED[kind]) for kind in KINDS}
    there["retention"] = configurations("s3://b/shop/orders-1", ROLE, 30)["retention"]  # type: ignore[assignment]
    # Somebody's own, or the account's default: it would take the table's state for an orphan.
    there["orphan_file_deletion"] = {"roleArn": ROLE, "enabled": True}
    for kind in KINDS:
        answer = {"TableOptimizer": {"type": kind, "configuration": there[kind]}}
        stub.add_response("get_table_optimizer", answer, _which(kind))
        if kind != "compaction":
            stub.add_response(
                "update_table_optimizer",
                {},
                {**_which(kind), "TableOptimizerConfiguration": WANTED[kind]},
            )

    assert switch_on(client, "shop.orders", WANTED, ACCOUNT) == {
        "compaction": "there", "retention": "changed", "orphan_file_deletion": "changed",
    }  # fmt: skip


def test_what_a_person_has_switched_off_stays_off_but_keeps_away_from_the_state() -> None:
    wanted = WANTED["orphan_file_deletion"]

    off, told = next_step(wanted, {"roleArn": ROLE, "enabled": False})
    assert (off, told) == (Switched.OFF, {**wanted, "enabled": False})
    assert next_step(wanted, told) == (Switched.OFF, None)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDeniedException", 400, PermissionDeniedError),
        ("InternalServiceException", 500, UnavailableError),
        ("ThrottlingException", 400, UnavailableError),
        ("ValidationException", 400, InvalidInputError),
    ],
)
def test_what_glue_answers_is_told_with_table_and_type(
    glue: tuple[Any, Stubber], code: str, status: int, error: type[Exception]
) -> None:
    client, stub = glue
    _none_yet(stub, "compaction")
    stub.add_client_error("create_table_optimizer", code, http_status_code=status)

    with pytest.raises(error, match=r"shop\.orders \(compaction by AWS Glue\)"):
        switch_on(client, "shop.orders", WANTED, ACCOUNT)


@pytest.mark.parametrize(
    "role", ["", "optimizers", f"arn:aws:iam::{ACCOUNT}:user/me", "a:b:c:d:e:f"]
)
def test_only_a_role_is_taken_for_one(role: str) -> None:
    with pytest.raises(InvalidInputError, match="no ARN of a role"):
        account_of(role)
    assert account_of(ROLE) == ACCOUNT


def test_under_glue_nothing_is_merged_or_forgotten_and_old_states_go(
    glue: tuple[Any, Stubber], site: TableSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client, stub = glue
    pair = Tables(site.open("shop.orders"), site.open("shop.orders_dead_letters"))
    for first in (0, 10, 20):
        append = append_of(site, pair.rows.load(SCHEMA), first, first + 10)
        commit(pair.rows, append, first_schema=SCHEMA, pause=lambda _: None)
    before = pair.rows.load(SCHEMA)
    for table in (pair.rows, pair.dead):
        for kind in KINDS:
            name = table.name.partition(".")[2]
            _none_yet(stub, kind, name)
            stub.add_response("create_table_optimizer", {})
    monkeypatch.setattr(upkeep, "client", lambda *_: client)
    monkeypatch.setattr(upkeep, "new_schema", lambda *_: SCHEMA)
    rule = TableRule(".*", "shop.orders", maintenance=Maintenance.GLUE)
    settings = UpkeepSettings(
        asked=False, expire_seconds=None, file_bytes=2**28, role=ROLE, now_ms=0, dry_run=False
    )

    nobody: Any = object()  # there is nothing for workers to do
    done = keep_up(rule, pair, Place("", "", ""), nobody, settings)

    assert done is not None
    assert done["rows"] == {"optimizers": dict.fromkeys(KINDS, "created")}
    assert list(done) == ["rows", "dead_letters"]
    after = pair.rows.load(SCHEMA)
    assert after.handle.metadata.snapshots == before.handle.metadata.snapshots
    assert len(pair.rows.files(after)) == 3
