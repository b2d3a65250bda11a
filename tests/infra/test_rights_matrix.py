"""Every role, and an administrator, tried at everything: the table in docs/security.md, in full.

The table is what is expected. IAM's evaluation of the template's policies and of the bucket's is
what is found, with the condition keys that AWS would send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coldstream import names
from coldstream.names import heartbeat_partition, offsets_partition
from tests.infra.account import (
    FRAGMENT,
    HOLE,
    ITEM,
    NEW,
    OTHERS,
    PREFIX,
    ROLES,
    ROOT,
    RULES,
    STREAM,
    TABLE,
    Account,
)

if TYPE_CHECKING:
    from conftest import Assembly

SECURITY = Path(__file__).resolve().parents[2] / "docs/security.md"
ALL = [*ROLES, *OTHERS, "administrator"]
SECURE = {"aws:SecureTransport": "true"}
#: Another key and another item than those of the cluster.
STRANGE, STRANGER = FRAGMENT.replace(PREFIX, "other/"), ITEM.replace(PREFIX, "other/")


@pytest.fixture(scope="module")
def account(assembly: Assembly) -> Account:
    return Account(assembly)


Tries = Callable[[Account, str], bool]


def _on_key(action: str, key: str) -> Tries:
    return lambda account, role: account.may(role, action, f"<Bucket.Arn>/{key}", **SECURE)


def _put(key: str) -> Tries:
    return lambda account, role: account.may(role, "s3:PutObject", f"<Bucket.Arn>/{key}", **NEW)


def _on_item(action: str, key: str) -> Tries:
    return lambda account, role: account.changes(role, action, key)


#: By the head of the column.
COLUMNS: Mapping[str, Tries] = {
    "GET data": _on_key("s3:GetObject", FRAGMENT),
    "GET root": _on_key("s3:GetObject", ROOT),
    "PUT fragment": _put(FRAGMENT),
    "PUT hole": _put(HOLE),
    "PUT root": _put(ROOT),
    "DELETE": _on_key("s3:DeleteObject", FRAGMENT),
    "DELETE version": _on_key("s3:DeleteObjectVersion", FRAGMENT),
    "get item": _on_item("GetItem", ITEM),
    "get rules": _on_item("GetItem", RULES),
    "put item": _on_item("PutItem", ITEM),
    "put heartbeat": _on_item("PutItem", heartbeat_partition(PREFIX)),
    "store offset": _on_item("UpdateItem", offsets_partition(PREFIX, STREAM)),
    "update item": _on_item("UpdateItem", ITEM),
    "update rules": _on_item("UpdateItem", RULES),
    "delete item": _on_item("DeleteItem", ITEM),
}
STARTS, CALLS = "starts", "calls"


def _machine(name: str) -> str:
    return (
        f"arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:coldstream-{name}"
    )


def _started(account: Account, assembly: Assembly, role: str) -> str:
    """What a role starts; a schedule names its machine by reference, all others by its name."""
    logical = {
        one["Properties"]["StateMachineName"].removeprefix("coldstream-"): f"<{name}>"
        for name, one in assembly.of_type("AWS::StepFunctions::StateMachine").items()
    }
    found = [
        name
        for name in names.WORKFLOWS
        if account.may(role, "states:StartExecution", _machine(name))
        or account.may(role, "states:StartExecution", logical[name])
    ]
    return _shown(found, len(names.WORKFLOWS))


def _called(account: Account, assembly: Assembly, role: str) -> str:
    functions = assembly.of_type("AWS::Lambda::Function").items()
    found = [
        one["Properties"]["Handler"].split(".")[1]
        for name, one in functions
        if account.may(role, "lambda:InvokeFunction", f"<{name}.Arn>")
    ]
    return _shown(sorted(found), len(functions))


def _shown(found: list[str], most: int) -> str:
    return "all" if len(found) == most else ", ".join(found) or "-"


def documented() -> dict[str, dict[str, str]]:
    """The table below "Each role, tried", by role and column."""
    text = SECURITY.read_text().partition("## Each role, tried")[2].partition("\n## ")[0]
    head, _, *rows = [
        [re.sub(r"`", "", cell).strip() for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {role: dict(zip(head[1:], cells, strict=True)) for role, *cells in rows}


def test_the_table_has_every_role_and_every_right() -> None:
    table = documented()

    assert list(table) == ALL
    assert all(list(row) == [*COLUMNS, STARTS, CALLS] for row in table.values())


@pytest.mark.parametrize("role", ALL)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    account: Account, assembly: Assembly, role: str
) -> None:
    found = {head: "x" if may(account, role) else "-" for head, may in COLUMNS.items()}
    found[STARTS] = _started(account, assembly, role)
    found[CALLS] = _called(account, assembly, role)

    print("|", role, "|", " | ".join(found.values()), "|")  # for whoever changes a right
    assert found == documented().get(role)


@pytest.mark.parametrize("role", [*ROLES, *OTHERS])
def test_no_role_reaches_what_lies_below_another_prefix(account: Account, role: str) -> None:
    assert not any(_on_key(each, STRANGE)(account, role) for each in ("s3:GetObject",
                   "s3:DeleteObject", "s3:DeleteObjectVersion"))  # fmt: skip
    assert not _put(STRANGE)(account, role)
    if role == "agent":  # functions and people have the whole table, which is the stack's own
        for action in ("GetItem", "PutItem", "UpdateItem", "DeleteItem"):
            assert not _on_item(action, STRANGER)(account, role)


@pytest.mark.parametrize("role", [*ROLES, *OTHERS])
@pytest.mark.parametrize("action", ["s3:PutBucketPolicy", "s3:PutLifecycleConfiguration",
                                    "s3:PutBucketVersioning", "dynamodb:DeleteTable"])  # fmt: skip
def test_no_role_changes_what_protects_the_data(account: Account, role: str, action: str) -> None:
    assert not account.may(role, action, TABLE if "dynamodb" in action else "<Bucket.Arn>")
