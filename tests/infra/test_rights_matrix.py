"""Every role, and an administrator, tried at everything: both tables of docs/security.md, in full.

The tables are what is expected. IAM's evaluation of the template's policies and of the bucket's is
what is found, with the condition keys that AWS would send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coldstream import deployment
from coldstream.names import heartbeat_partition, offsets_partition
from tests.infra.account import (
    BY_SETTING,
    CUSTOMISED,
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
from tests.infra.conftest import KEY

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
    "LIST": lambda account, role: account.lists(role, f"{PREFIX}stream/{STREAM}/data/"),
    "LIST versions": lambda account, role: account.lists(
        role, f"{PREFIX}stream/{STREAM}/data/", "s3:ListBucketVersions"
    ),
    "DELETE": _on_key("s3:DeleteObject", FRAGMENT),
    "DELETE version": _on_key("s3:DeleteObjectVersion", FRAGMENT),
    "get item": _on_item("GetItem", ITEM),
    "get rules": _on_item("GetItem", RULES),
    "walk items": lambda account, role: any(
        account.may(role, f"dynamodb:{action}", TABLE) for action in ("Query", "Scan")
    ),
    "put item": _on_item("PutItem", ITEM),
    "put heartbeat": _on_item("PutItem", heartbeat_partition(PREFIX)),
    "store offset": _on_item("UpdateItem", offsets_partition(PREFIX, STREAM)),
    "update item": _on_item("UpdateItem", ITEM),
    "update rules": _on_item("UpdateItem", RULES),
    "delete item": _on_item("DeleteItem", ITEM),
}
STARTS, CALLS, JOBS = "starts", "calls", "starts jobs"


def _arn(service: str, name: str) -> str:
    return f"arn:<AWS::Partition>:{service}:<AWS::Region>:<AWS::AccountId>:{name}"


def _machine(name: str) -> str:
    return _arn("states", f"stateMachine:coldstream-{name}")


def _on(action: str, kind: str, part: str) -> Tries:
    return lambda account, role: account.may(
        role, action, account.arn(kind, part), **{"aws:SecureTransport": "true"}
    )


QUEUE, GROUP = "AWS::SQS::Queue", "AWS::Logs::LogGroup"
_TABLE_FILE = "<Warehouse.Arn>/materialise/orders/data/1.parquet"
#: Around the streams, by the head of the column.
AROUND: Mapping[str, Tries] = {
    "send": _on("sqs:SendMessage", QUEUE, "CommitQueue5"),
    "receive": _on("sqs:ReceiveMessage", QUEUE, "CommitQueue5"),
    "redrive messages": _on("sqs:StartMessageMoveTask", QUEUE, "CommitQueueDeadLetters"),
    "redrive executions": lambda account, role: account.may(
        role, "states:RedriveExecution", _arn("states", "execution:coldstream-collect:1")
    ),
    "see executions": lambda account, role: account.may(
        role, "states:GetExecutionHistory", _arn("states", "execution:coldstream-collect:1")
    ),
    "see alarms": lambda account, role: account.may(
        role, "cloudwatch:DescribeAlarms", _arn("cloudwatch", "alarm:*")
    ),
    "query logs": _on("logs:StartQuery", GROUP, "CommitRunsLogs"),
    "PUT table file": lambda account, role: account.may(
        role, "s3:PutObject", _TABLE_FILE, **SECURE
    ),
    "change table": lambda account, role: account.may(
        role, "glue:UpdateTable", _arn("glue", "table/coldstream/orders")
    ),
    "publish alarm": _on("sns:Publish", "AWS::SNS::Topic", "Alarms"),
}


def _started(account: Account, assembly: Assembly, role: str) -> str:
    """What a role starts; a schedule names its machine by reference, all others by its name."""
    logical = {
        one["Properties"]["StateMachineName"].removeprefix("coldstream-"): f"<{name}>"
        for name, one in assembly.of_type("AWS::StepFunctions::StateMachine").items()
    }
    found = [
        name
        for name in deployment.WORKFLOWS
        if account.may(role, "states:StartExecution", _machine(name))
        or account.may(role, "states:StartExecution", logical[name])
    ]
    return _shown(found, len(deployment.WORKFLOWS))


def _called(account: Account, assembly: Assembly, role: str) -> str:
    functions = assembly.of_type("AWS::Lambda::Function").items()
    found = [
        one["Properties"]["Handler"].split(".")[1]
        for name, one in functions
        if account.may(role, "lambda:InvokeFunction", f"<{name}.Arn>")
    ]
    return _shown(sorted(found), len(functions))


def _jobs(account: Account, role: str) -> str:
    found = [
        name
        for name in deployment.JOBS
        if account.may(role, "glue:StartJobRun", _arn("glue", f"job/coldstream-{name}"))
    ]
    return _shown(found, len(deployment.JOBS))


def _around(account: Account, role: str) -> dict[str, str]:
    tried = {head: "x" if may(account, role) else "-" for head, may in AROUND.items()}
    return {**tried, JOBS: _jobs(account, role)}


def _shown(found: list[str], most: int) -> str:
    return "all" if len(found) == most else ", ".join(found) or "-"


def documented(heading: str = "Each role, tried") -> dict[str, dict[str, str]]:
    """The table below a heading, by role and column."""
    text = SECURITY.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
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
    around = documented("Around the streams")
    assert set(around) <= {*ALL, *BY_SETTING}
    assert all(list(row) == [*AROUND, JOBS] for row in around.values())


@pytest.mark.parametrize("which", ["assembly", "customised"])
def test_every_role_and_every_policy_of_the_template_has_its_row(
    which: str, request: pytest.FixtureRequest
) -> None:
    """One that somebody adds would be tried by nobody."""
    made: Assembly = request.getfixturevalue(which)
    rows = {part.removesuffix("Role") for part in {**ROLES, **OTHERS, **BY_SETTING}.values()}
    roles = {re.sub(r"Role[0-9A-F]{8}$", "", name) for name in made.of_type("AWS::IAM::Role")}
    policies = {name[:-8] for name in made.of_type("AWS::IAM::ManagedPolicy")}

    assert len(roles) > 25
    assert {each for each in roles if not {each, each.removesuffix("Step")} & rows} == set()
    assert {each.removesuffix("Policy") for each in policies} <= rows


@pytest.mark.parametrize("role", ALL)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    account: Account, assembly: Assembly, role: str
) -> None:
    found = {head: "x" if may(account, role) else "-" for head, may in COLUMNS.items()}
    found[STARTS] = _started(account, assembly, role)
    found[CALLS] = _called(account, assembly, role)

    print("|", role, "|", " | ".join(found.values()), "|")  # for whoever changes a right
    assert found == documented().get(role)


@pytest.mark.parametrize("role", ALL)
def test_around_the_streams_a_role_may_do_what_the_second_table_says(
    account: Account, role: str
) -> None:
    found = _around(account, role)

    print("|", role, "|", " | ".join(found.values()), "|")
    assert found == documented("Around the streams").get(role, dict.fromkeys(found, "-"))


@pytest.mark.parametrize("role", BY_SETTING)
def test_roles_that_settings_make_touch_no_stream_and_do_what_the_second_table_says(
    customised: Assembly, role: str
) -> None:
    account = Account(customised, CUSTOMISED)
    found = _around(account, role)

    print("|", role, "|", " | ".join(found.values()), "|")
    assert found == documented("Around the streams")[role]
    assert not any(may(account, role) for may in COLUMNS.values())
    assert _called(account, customised, role) == "-"
    # The same questions find what is there: an agent of that deployment has its rights.
    assert account.lists("agent", f"{PREFIX}stream/")
    assert account.puts("agent", FRAGMENT)


@pytest.mark.parametrize("role", [*ROLES, *OTHERS])
@pytest.mark.parametrize("action", ["BatchGetItem", "BatchWriteItem", "PartiQLSelect",
                                    "PartiQLUpdate", "PartiQLInsert", "PartiQLDelete",
                                    "ExportTableToPointInTime", "UpdateTable"])  # fmt: skip
def test_no_role_has_another_way_to_the_items(account: Account, role: str, action: str) -> None:
    assert not account.changes(role, action, ITEM)
    assert not account.changes(role, action, RULES)


@pytest.mark.parametrize("role", [*ROLES, *OTHERS])
@pytest.mark.parametrize("action", ["s3:ListBucket", "s3:ListBucketVersions"])
def test_no_role_lists_outside_the_prefix(account: Account, role: str, action: str) -> None:
    for below in ("other/stream/", "rabbitmq", "", None):
        assert not account.lists(role, below, action)


def test_s3_alone_sends_events_of_this_accounts_bucket_and_cloudwatch_alone_publishes(
    account: Account,
) -> None:
    own = {"aws:SourceAccount": "<AWS::AccountId>", **SECURE}
    bucket = {"aws:SourceArn": "arn:<AWS::Partition>:s3:::coldstream-bucket-1x2y3z"}
    alarm = {"aws:SourceArn": _arn("cloudwatch", "alarm:coldstream-DeadLetters")}
    queue, topic = account.arn(QUEUE, "CommitQueue5"), account.arn("AWS::SNS::Topic", "Alarms")
    s3, watch = "s3.amazonaws.com", "cloudwatch.amazonaws.com"

    assert account.may(s3, "sqs:SendMessage", queue, **own, **bucket)
    assert account.may(watch, "sns:Publish", topic, **own, **alarm)
    for context in (
        own | {"aws:SourceAccount": "210987654321"},
        own | {"aws:SecureTransport": "false"},
    ):
        assert not account.may(s3, "sqs:SendMessage", queue, **{**context, **bucket})
        assert not account.may(watch, "sns:Publish", topic, **{**context, **alarm})
    assert not account.may(
        s3, "sqs:SendMessage", queue, **own, **{"aws:SourceArn": "arn:<AWS::Partition>:s3:::other"}
    )
    assert not account.may(watch, "sqs:SendMessage", queue, **own, **bucket)
    assert not account.may(s3, "sns:Publish", topic, **own, **alarm)


@pytest.mark.parametrize(
    ("part", "service"),
    [
        ("CollectWorkflowRole", "states.amazonaws.com"),
        ("CollectWorkflowScheduleRole", "scheduler.amazonaws.com"),
        ("JobsScrubRole", "glue.amazonaws.com"),
    ],
)
def test_a_service_takes_a_role_for_this_account_and_for_no_other(
    account: Account, part: str, service: str
) -> None:
    own = {"aws:SourceAccount": "<AWS::AccountId>"}

    assert account.takes(service, part, **own)
    assert not account.takes(service, part, **{"aws:SourceAccount": "210987654321"})
    assert not account.takes(service, part)
    assert not account.takes("lambda.amazonaws.com", part, **own)
    assert not account.takes("<agent.Arn>", part, **own)


def test_a_key_of_the_customers_is_used_through_s3_and_in_no_other_way(
    customised: Assembly,
) -> None:
    account = Account(customised, CUSTOMISED)
    through = {"kms:ViaService": "s3.<AWS::Region>.<AWS::URLSuffix>"}

    for role in ("agent", "claim", "collect", "job scrub", "operator"):
        assert account.may(role, "kms:Decrypt", KEY, **through)
        assert not account.may(role, "kms:Decrypt", KEY)
        assert not account.may(
            role, "kms:Decrypt", KEY, **{"kms:ViaService": "dynamodb.<AWS::Region>.amazonaws.com"}
        )
    for role in ("report", "tombstone", "console", "logs"):
        assert not account.may(role, "kms:Decrypt", KEY, **through)


@pytest.mark.parametrize("role", [*ROLES, *OTHERS])
def test_no_role_reaches_what_lies_below_another_prefix(account: Account, role: str) -> None:
    assert not any(_on_key(each, STRANGE)(account, role) for each in ("s3:GetObject",
                   "s3:DeleteObject", "s3:DeleteObjectVersion"))  # fmt: skip
    assert not _put(STRANGE)(account, role)
    # Functions and people read the whole table, which is the stack's own.
    whole = ("operator", "delete")
    for action in ("PutItem", "UpdateItem", "DeleteItem"):
        assert role in whole or not _on_item(action, STRANGER)(account, role)
    assert role != "agent" or not _on_item("GetItem", STRANGER)(account, role)


@pytest.mark.parametrize("role", [*ROLES, *OTHERS])
@pytest.mark.parametrize("action", ["s3:PutBucketPolicy", "s3:PutLifecycleConfiguration",
                                    "s3:PutBucketVersioning", "dynamodb:DeleteTable"])  # fmt: skip
def test_no_role_changes_what_protects_the_data(account: Account, role: str, action: str) -> None:
    assert not account.may(role, action, TABLE if "dynamodb" in action else "<Bucket.Arn>")
