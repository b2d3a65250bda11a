"""What whoever has stolen a credential can do with the rights of the template, and what not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from coldstream import names
from coldstream.names import DataKey, heartbeat_partition, root_path, words_partition
from coldstream.plans.probe import probe_stream
from coldstream.plans.probe_fragment import probe_fragment
from tests.infra.conftest import flat
from tests.support.iam import Call, Statement, allowed

if TYPE_CHECKING:
    from conftest import Assembly

STREAM, PREFIX = "__orders_1", "rabbitmq/"
FRAGMENT = DataKey(STREAM, 0, 10, 1, 7, "fragment").path(PREFIX)
HOLE = DataKey(STREAM, 10, 10**15, 1, 7, "hole").path(PREFIX)
ROOT = root_path(PREFIX, STREAM, 1, 1, 7)
TABLE = "<CatalogTable.Arn>"
ITEM, RULES = f"{PREFIX}{STREAM}", PREFIX
CREATES = {"s3:ObjectCreationOperation": "true", "aws:SecureTransport": "true"}
NEW = {**CREATES, "s3:if-none-match": "*"}
ROLES = {
    "agent": "Agents",
    "reader": "PeopleReaders",
    "operator": "PeopleOperators",
    "commit_runs": "CommitRuns",
    "claim": "ClaimsClaim",
    "collect": "CollectStep",
    "delete": "DeleteStep",
    "consolidate": "ConsolidateStep",
    "reconcile": "ReconcileStep",
    "retention": "RetentionStep",
    "rebalance": "RebalanceStep",
    "scan": "StepsSurvey",
}


class Account:
    """The roles of a deployment, and an administrator, and what they may do."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        policy = assembly.only("AWS::S3::BucketPolicy", "StorageBucket")
        self._bucket = [
            _plain(each) for each in policy["Properties"]["PolicyDocument"]["Statement"]
        ]

    def may(self, role: str, action: str, resource: str, **context: Any) -> bool:
        own: list[Statement] = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
        principal = f"<{role}.Arn>"
        if role in ROLES:
            own = self._assembly.rights(ROLES[role])
            principal = next(
                (
                    f"<{name}.Arn>"
                    for name in self._assembly.of_type("AWS::IAM::Role")
                    if name.startswith(f"{ROLES[role]}Role")
                ),
                principal,
            )
        call = Call(principal, action, resource, context)
        of_resource = self._bucket if action.startswith("s3:") else ()
        return allowed(call, own, of_resource)

    def puts(self, role: str, key: str, context: dict[str, str] = NEW) -> bool:
        return self.may(role, "s3:PutObject", f"<Bucket.Arn>/{key}", **context)

    def changes(self, role: str, action: str, key: str) -> bool:
        return self.may(role, f"dynamodb:{action}", TABLE, **{"dynamodb:LeadingKeys": [key]})


def _plain(statement: dict[str, Any]) -> dict[str, Any]:
    """A statement of the bucket's policy with ARNs as plain text."""
    resource = statement["Resource"]
    resources = [flat(each) for each in (resource if isinstance(resource, list) else [resource])]
    condition = {
        operator: {
            key: [flat(each) for each in value] if isinstance(value, list) else value
            for key, value in keys.items()
        }
        for operator, keys in statement.get("Condition", {}).items()
    }
    return {**statement, "Resource": resources, "Condition": condition}


@pytest.fixture(scope="module")
def account(assembly: Assembly) -> Account:
    return Account(assembly)


@pytest.mark.parametrize("action", ["UpdateItem", "PutItem", "DeleteItem", "ConditionCheckItem"])
@pytest.mark.parametrize("key", [ITEM, RULES, f"{PREFIX}other", "other/__orders_1"])
def test_a_stolen_agent_deletes_no_stream_and_lifts_no_hold_because_it_changes_no_item(
    account: Account, action: str, key: str
) -> None:
    assert not account.changes("agent", action, key)


def test_a_stolen_agent_writes_heartbeats_of_its_own_cluster_and_no_other_item(
    account: Account,
) -> None:
    assert account.changes("agent", "PutItem", heartbeat_partition(PREFIX))
    assert not account.changes("agent", "PutItem", heartbeat_partition("other/"))
    assert not account.changes("agent", "UpdateItem", heartbeat_partition(PREFIX))
    assert account.changes("agent", "PutItem", words_partition(PREFIX))
    assert not account.changes("agent", "PutItem", words_partition("other/"))
    assert not account.changes("agent", "DeleteItem", words_partition(PREFIX))
    assert not account.changes("agent", "PutItem", "#agents/")


def test_a_stolen_agent_reads_the_items_of_its_own_cluster_only(account: Account) -> None:
    assert account.changes("agent", "GetItem", ITEM)
    assert not account.changes("agent", "GetItem", RULES)
    assert not account.changes("agent", "GetItem", f"other/{STREAM}")
    for action in ("Scan", "Query", "BatchGetItem", "PartiQLSelect"):
        assert not account.changes("agent", action, ITEM)


def test_an_agents_rights_are_enough_for_all_that_its_doctor_asks_for(account: Account) -> None:
    probe = probe_stream("rabbit-1", 1)
    listing = {"s3:prefix": f"{PREFIX}stream/", "aws:SecureTransport": "true"}

    assert account.may("agent", "s3:ListBucket", "<Bucket.Arn>", **listing)
    assert account.may("agent", "dynamodb:DescribeTable", TABLE)
    assert account.changes("agent", "GetItem", f"{PREFIX}{probe}")
    assert account.changes("agent", "PutItem", heartbeat_partition(PREFIX))
    key, _ = probe_fragment(probe, 0, floor=0, timestamp=0, uid=7)
    assert account.puts("agent", key.path(PREFIX))
    assert account.may("agent", "s3:GetObject", f"<Bucket.Arn>/{key.path(PREFIX)}",
                       **{"aws:SecureTransport": "true"})  # fmt: skip


def test_a_stolen_agent_puts_no_root_and_no_hole_and_replaces_no_fragment(
    account: Account,
) -> None:
    assert account.puts("agent", FRAGMENT)
    for key in (ROOT, HOLE, "elsewhere", f"{PREFIX}stream/.complete/metadata/x"):
        assert not account.puts("agent", key)
    assert not account.puts("agent", FRAGMENT, CREATES)
    assert not account.puts("agent", FRAGMENT, {**NEW, "s3:x-amz-copy-source": "bucket/key"})


@pytest.mark.parametrize("role", [*ROLES, "administrator"])
@pytest.mark.parametrize("key", [FRAGMENT, HOLE, ROOT])
def test_nobody_deletes_but_collect_and_delete_and_nobody_what_they_deleted(
    account: Account, role: str, key: str
) -> None:
    where = f"<Bucket.Arn>/{key}"
    secure = {"aws:SecureTransport": "true"}

    assert account.may(role, "s3:DeleteObject", where, **secure) == (role in ("collect", "delete"))
    assert not account.may(role, "s3:DeleteObjectVersion", where, **secure)


@pytest.mark.parametrize("role", [*ROLES, "administrator"])
@pytest.mark.parametrize("key", [FRAGMENT, HOLE, ROOT])
def test_nobody_overwrites_an_object(account: Account, role: str, key: str) -> None:
    assert not account.puts(role, key, CREATES)


@pytest.mark.parametrize("role", ROLES)
def test_only_claim_and_operators_put_holes_and_consolidate_what_it_puts_together(
    account: Account, role: str
) -> None:
    assert account.puts(role, HOLE) == (role in ("claim", "operator", "consolidate"))


def test_a_thief_of_an_agent_may_ask_and_that_is_all(account: Account, assembly: Assembly) -> None:
    function = next(
        name
        for name, one in assembly.of_type("AWS::Lambda::Function").items()
        if one["Properties"]["Handler"] == "functions.claim.handler"
    )

    assert account.may("agent", "lambda:InvokeFunction", f"<{function}.Arn>")
    for name in assembly.of_type("AWS::Lambda::Function"):
        if name != function:
            assert not account.may("agent", "lambda:InvokeFunction", f"<{name}.Arn>")
    for name in names.WORKFLOWS:
        machine = f"arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:{name}"
        assert not account.may("agent", "states:StartExecution", machine)


def test_a_reader_changes_nothing(account: Account) -> None:
    for action in ("UpdateItem", "PutItem", "DeleteItem"):
        assert not account.changes("reader", action, ITEM)
    for key in (FRAGMENT, HOLE, ROOT):
        assert not account.puts("reader", key)
        assert account.may(
            "reader", "s3:GetObject", f"<Bucket.Arn>/{key}", **{"aws:SecureTransport": "true"}
        )


def test_an_operator_changes_states_rules_and_manifests_and_deletes_no_item(
    account: Account,
) -> None:
    for key in (ITEM, RULES):
        assert account.changes("operator", "UpdateItem", key)
        assert not account.changes("operator", "DeleteItem", key)
    for key in (FRAGMENT, HOLE, ROOT):
        assert account.puts("operator", key)


def test_nothing_is_allowed_without_tls(account: Account) -> None:
    insecure = {**NEW, "aws:SecureTransport": "false"}

    assert not account.puts("agent", FRAGMENT, insecure)
    assert not account.puts("administrator", FRAGMENT, insecure)
