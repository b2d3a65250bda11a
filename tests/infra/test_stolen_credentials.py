"""What whoever has stolen a credential can do with the rights of the template, and what not.

The two proofs of the audit that this began with are played here and elsewhere, step by step:

`aws_proof_state.py`: one UpdateItem on `state`, then the daily `collect` empties the stream; one on
`undelete_until`, then the delete machine does; and a LeadingKeys pattern that matches the key of
the rules. An agent changes no item: `test_a_stolen_agent_deletes_no_stream…` (each action, item and
rules), `test_a_stolen_agent_reads_the_items…` (`rabbitmq/` is not `rabbitmq/?*`). Its objects are
deleted by two roles only, and versions by one more, of data only: `test_nobody_deletes…`. Whoever
may write the item, an operator, empties nothing at once: tests/functions/test_steps.py
(`test_collect_deletes_nothing_of_a_stream_that_somebody_has_just…`, `…leave_a_held_stream_alone…`),
tests/infra/test_definitions.py (`test_a_deletion_waits_for_a_grace_time…`).

`aws_proof_poison.py`: a PUT of a hole [n, X), a PUT of a valid fragment at X, a commit; then the
true fragment at n. The hole is refused: `test_a_stolen_agent_puts_no_root_and_no_hole…`; that
`claim` makes one only over a gap that is there, and under a claim that holds, is in
tests/unit/usecases/test_claim_function.py (`test_a_hole_is_declared_over_the_gap…`,
`test_no_hole_is…`, `test_a_hole_under_a_claim…`); that no epoch leaps is there, too
(`test_an_epoch_that_no_…`).
What a thief can still have declared is undone, and the writer goes on:
tests/unit/agent/test_undo.py (`test_a_hole_that_a_thief_declared_far_above_is_undone…`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldstream import deployment
from coldstream.names import heartbeat_partition, offsets_partition, words_partition
from coldstream.plans.probe import probe_stream
from coldstream.plans.probe_fragment import probe_fragment
from tests.infra.account import (
    CREATES,
    FRAGMENT,
    HOLE,
    ITEM,
    NEW,
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
    # "*" passes over "/": junk that would be in the way of who LISTs `metadata/`.
    assert not account.puts("agent", f"{PREFIX}stream/{STREAM}/metadata/data/a.fragment")
    assert not account.puts("agent", f"{PREFIX}stream/{STREAM}/metadata/a/data/b.fragment")
    assert not account.puts("agent", FRAGMENT, CREATES)
    assert not account.puts("agent", FRAGMENT, {**NEW, "s3:x-amz-copy-source": "bucket/key"})


@pytest.mark.parametrize("role", [*ROLES, "administrator"])
@pytest.mark.parametrize("key", [FRAGMENT, HOLE, ROOT])
def test_nobody_deletes_but_collect_and_delete_and_what_they_deleted_only_an_erasure(
    account: Account, role: str, key: str
) -> None:
    where = f"<Bucket.Arn>/{key}"
    secure = {"aws:SecureTransport": "true"}

    assert account.may(role, "s3:DeleteObject", where, **secure) == (role in ("collect", "delete"))
    erases = role == "erase" and key != ROOT
    assert account.may(role, "s3:DeleteObjectVersion", where, **secure) == erases


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
    for name in deployment.WORKFLOWS:
        machine = (
            "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:"
            f"coldstream-{name}"
        )
        assert account.may("operator", "states:StartExecution", machine)  # that is its name
        assert not account.may("agent", "states:StartExecution", machine)


@pytest.mark.parametrize(
    "role",
    ["commit_runs", "claim", "reconcile", "consolidate", "collect", "erase", "retention",
     "rebalance"],
)  # fmt: skip
@pytest.mark.parametrize("action", ["UpdateItem", "PutItem"])
def test_a_function_changes_items_of_streams_and_lifts_no_hold(
    account: Account, role: str, action: str
) -> None:
    """A bug of one, or whoever took its role, has no business with the rules' item."""
    assert account.changes(role, "UpdateItem", ITEM)
    for key in (RULES, heartbeat_partition(PREFIX), offsets_partition(PREFIX, STREAM)):
        assert not account.changes(role, action, key)


def test_a_reader_changes_nothing(account: Account) -> None:
    for action in ("UpdateItem", "PutItem", "DeleteItem"):
        assert not account.changes("reader", action, ITEM)
    for key in (FRAGMENT, HOLE, ROOT):
        assert not account.puts("reader", key)
        assert account.may(
            "reader", "s3:GetObject", f"<Bucket.Arn>/{key}", **{"aws:SecureTransport": "true"}
        )


def test_a_gateway_changes_offsets_of_consumers_and_nothing_else(account: Account) -> None:
    for action in ("UpdateItem", "PutItem", "DeleteItem"):
        assert account.changes("gateway", action, offsets_partition(PREFIX, STREAM))
        for key in (ITEM, RULES, heartbeat_partition(PREFIX), offsets_partition("other/", STREAM)):
            assert not account.changes("gateway", action, key)
    for key in (FRAGMENT, HOLE, ROOT):
        assert not account.puts("gateway", key)


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
