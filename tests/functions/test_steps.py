"""The steps of the workflows against moto: what goes in, what comes out, what is counted."""

from __future__ import annotations

import json
import time
from typing import Any

import boto3
import pytest

from coldstream import deployment, names
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import StreamState
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.policy import PolicySet, Rule
from coldstream.usecases import erase as usecase
from coldstream.usecases.delete_stream import delete_stream, undelete_stream
from functions import (
    collect,
    commit_runs,
    consolidate,
    delete,
    erase,
    rebalance,
    reconcile,
    retention,
    scan,
    tombstone,
)
from functions._steps import Totals, over_streams
from tests.functions.conftest import Invocation, Site
from tests.support.aws import BUCKET, PREFIX, TABLE
from tests.support.remote import STREAM, chain, no_pause

# A step that refuses its input has nothing to count, and Powertools warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")

WORK = {"work": [{"stream": STREAM}]}


def put_rules(*rules: Rule) -> None:
    policies = DynamoPolicies(client=boto3.client("dynamodb"), table=TABLE, prefix=PREFIX)
    assert policies.save(PolicySet(rules), policies.load()[1])


def committed(site: Site, count: int) -> None:
    site.upload(*chain(count))
    reconcile.handler(WORK, Invocation())
    site.stdout.readouterr()


@pytest.mark.parametrize(
    "step",
    [rebalance, retention, consolidate, collect, reconcile, delete, erase],
    ids=lambda s: s.__name__,
)
def test_a_step_refuses_work_that_names_no_stream(site: Site, step: Any) -> None:
    for event in (
        {}, {"work": []}, {"work": "x"}, {"work": [{}]}, {"work": [{"stream": "../x"}]},
        {"work": [{"stream": 7}]}, {"work": [{"stream": STREAM}] * 1001},
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            step.handler(event, Invocation())


@pytest.mark.parametrize("step", [rebalance, retention, consolidate, collect, reconcile])
def test_a_stream_that_does_not_exist_is_counted_and_stops_nothing(site: Site, step: Any) -> None:
    committed(site, 1)

    answer = step.handler({"work": [{"stream": "__gone_1"}, {"stream": STREAM}]}, Invocation())

    assert (answer["streams"], answer["failed"], answer["left"]) == (2, 1, [])
    assert site.logged("ERROR")[-1]["stream"] == "__gone_1"
    name = step.__name__.rpartition(".")[2]
    assert site.metrics(workflow=name) == {deployment.METRIC_STREAMS_FAILED: 1}


def test_failures_add_up_from_call_to_call(site: Site) -> None:
    answer = retention.handler({"work": [{"stream": "__gone_1"}], "failed": 3}, Invocation())

    assert answer["failed"] == 4
    assert site.metrics(workflow="retention") == {deployment.METRIC_STREAMS_FAILED: 1}


@pytest.mark.parametrize("step", [rebalance, retention, consolidate, collect, reconcile])
def test_a_run_that_leaves_nothing_undone_pays_for_no_metric_of_it(site: Site, step: Any) -> None:
    committed(site, 1)

    step.handler(WORK, Invocation())

    assert site.metrics(workflow=step.__name__.rpartition(".")[2]) == {}


@pytest.mark.parametrize("workflow", ["reconcile", "retention", "consolidate", "collect"])
def test_an_item_that_the_scan_cannot_read_counts_as_a_stream_that_failed(
    site: Site, workflow: str
) -> None:
    """No step ever sees it, so nobody else would count it."""
    boto3.client("dynamodb").put_item(
        TableName=TABLE,
        Item={
            "stream": {"S": f"{PREFIX}__odd_1"},
            "item": {"S": names.CATALOG_ITEM},
            "kind": {"S": names.CATALOG_ITEM},
            "prefix": {"S": PREFIX},
        },
    )

    # `collect` begins anywhere, so its first page may have neither of the two items.
    event = {"workflow": workflow, "given": {}}
    answer = scan.handler({**event, "failed": [1, [2]]}, Invocation())
    while answer["more"]:
        onward = {"cursor": answer["cursor"], "failed": answer["failed"]}
        answer = scan.handler({**event, **onward}, Invocation())

    # Its last page may go beyond where it has begun, and meet the item again.
    met = answer["failed"] - 3
    assert met in ((1, 2) if workflow == "collect" else (1,))
    assert site.metrics(workflow=workflow) == {deployment.METRIC_STREAMS_FAILED: met}


def test_rebalance_groups_and_a_second_call_finds_nothing(site: Site) -> None:
    committed(site, 12)

    first = rebalance.handler(WORK, Invocation())
    counted = site.metrics()
    second = rebalance.handler(WORK, Invocation())

    assert (first["groups"], first["landed"]) == (2, 1)
    assert counted[deployment.METRIC_GROUPS_WRITTEN] == 2
    assert (second["groups"], second["landed"]) == (0, 0)
    assert len(site.root().entries) == 6


def test_a_dry_run_of_any_step_changes_nothing(site: Site) -> None:
    committed(site, 12)
    put_rules(Rule("all", max_bytes=1))
    before = site.context.catalog.get(STREAM)
    keys = site.s3.list_objects_v2(Bucket=site.context.store._bucket)["KeyCount"]  # type: ignore[attr-defined]

    for step in (rebalance, retention, consolidate, collect):
        step.handler({**WORK, "dry_run": True}, Invocation())

    assert site.context.catalog.get(STREAM) == before
    assert site.s3.list_objects_v2(Bucket=site.context.store._bucket)["KeyCount"] == keys  # type: ignore[attr-defined]


def test_retention_takes_what_the_rules_say_and_logs_each_range(site: Site) -> None:
    committed(site, 5)
    size = site.root().total_size
    put_rules(Rule("all", max_bytes=size * 3 // 5))

    answer = retention.handler(WORK, Invocation())

    assert answer["fragments"] == 2
    assert site.root().first_offset == 20
    (line,) = [each for each in site.logged("INFO") if each["message"] == "retired"]
    assert (line["offset"], line["next_offset"], line["reason"]) == (0, 20, "max-length-bytes")
    assert site.metrics()[deployment.METRIC_FRAGMENTS_RETIRED] == 2


def test_a_legal_hold_stops_retention_whatever_other_rules_say(site: Site) -> None:
    committed(site, 5)
    put_rules(Rule("all", priority=9, max_bytes=1), Rule("court", priority=-5, hold=True))

    answer = retention.handler(WORK, Invocation())

    assert (answer["held"], answer["landed"]) == (1, 0)
    assert site.root().first_offset == 0


def test_consolidate_is_switched_off_by_a_rule(site: Site) -> None:
    committed(site, 9)
    put_rules(Rule("raw", directory=STREAM, consolidate=False))

    assert consolidate.handler(WORK, Invocation())["switched_off"] == 1
    put_rules()
    # The pieces of `chain` are segments of their own, so they do not join.
    assert consolidate.handler(WORK, Invocation())["merges"] == 0


def test_collect_deletes_at_the_second_sight_only(site: Site) -> None:
    committed(site, 3)

    first = collect.handler(WORK, Invocation())
    second = collect.handler(WORK, Invocation())

    assert first["garbage"] > 0
    assert first.get("deleted", 0) == 0
    assert second["deleted"] >= first["garbage"]
    assert site.root().next_offset == 30


def test_scan_gives_exactly_the_streams_that_somebody_has_named(site: Site) -> None:
    event = {"workflow": "retention", "given": {**WORK, "dry_run": True, "reason": "r"}}

    assert scan.handler(event, Invocation()) == {
        **WORK,
        "cursor": None,
        "more": False,
        "failed": 0,
        "dry_run": True,
        "reason": "r",
    }


#: What a person may write into *Start execution*, and what no machine then runs with.
WRONG: list[Any] = [
    {"dry-run": True},
    {"dryRun": True},
    {"Comment": "Insert your JSON here"},
    {"defaults": 1},
    {"cursor": "bucket:../../"},
    {"cursor": None},
    {"streams": 1},
    {"dry_run": "true"},
    {"dry_run": 1},
    {"dry_run": None},
    {"reason": 7},
    {"work": None},
    {"work": []},
    {"work": {}},
    {"work": "x"},
    {"work": [STREAM]},
    {"work": [{"stream": STREAM, "dry_run": True}]},
    {"work": [{"stream": STREAM, "run_ms": 1}]},
    "x",
    [],
    None,
]


@pytest.mark.parametrize("given", [*WRONG, {"failed": 1}], ids=repr)
@pytest.mark.parametrize("workflow", ["retention", "consolidate", "collect", "reconcile"])
def test_scan_refuses_what_it_does_not_know_instead_of_taking_all_streams(
    site: Site, workflow: str, given: Any
) -> None:
    with pytest.raises(InvalidInputError):
        scan.handler({"workflow": workflow, "given": given, "cursor": None}, Invocation())


@pytest.mark.parametrize("wrong", [each for each in WRONG if isinstance(each, dict)], ids=repr)
@pytest.mark.parametrize("step", [rebalance, delete, erase], ids=lambda s: s.__name__)
def test_a_step_that_a_machine_begins_with_refuses_what_it_does_not_know(
    site: Site, step: Any, wrong: dict[str, Any]
) -> None:
    item = {**WORK["work"][0], **({"revision": 1} if step is delete else {})}
    with pytest.raises(InvalidInputError):
        step.handler({"work": [item], **wrong}, Invocation())


@pytest.mark.parametrize("step", [delete, erase], ids=lambda s: s.__name__)
def test_a_step_for_one_stream_refuses_more(site: Site, step: Any) -> None:
    with pytest.raises(InvalidInputError, match="one stream"):
        step.handler({"work": [{"stream": STREAM}, {"stream": "__other_1"}]}, Invocation())


@pytest.mark.parametrize("step", [delete, erase], ids=lambda s: s.__name__)
def test_a_step_without_a_dry_run_refuses_to_be_asked_for_one(site: Site, step: Any) -> None:
    with pytest.raises(InvalidInputError, match="dry_run"):
        step.handler({**WORK, "dry_run": True}, Invocation())


def test_a_machine_without_a_dry_run_does_not_run_for_real_instead(site: Site) -> None:
    for given in ({"dry_run": True}, {**WORK, "dry_run": True}):
        with pytest.raises(InvalidInputError, match="no dry run"):
            scan.handler({"workflow": "reconcile", "given": given}, Invocation())


def test_scan_says_which_word_it_does_not_know_and_which_it_does(site: Site) -> None:
    event = {"workflow": "collect", "given": {"dry-run": True}}

    with pytest.raises(InvalidInputError, match="work, dry_run, reason, and not 'dry-run'"):
        scan.handler(event, Invocation())


def test_scan_goes_on_for_a_machine_that_an_older_release_has_begun(site: Site) -> None:
    event = {"workflow": "collect", "cursor": None, "failed": 0, "reason": "cli"}

    assert scan.handler({**event, **WORK}, Invocation())["work"] == WORK["work"]
    assert scan.handler({**event, "work": []}, Invocation())["reason"] == "cli"


def test_scan_adds_up_what_the_batches_of_earlier_pages_said(site: Site) -> None:
    failed: Any = 0
    for _ in range(500):  # one page after the other, as the machine hands it on
        event = {"workflow": "retention", "given": WORK, "failed": [failed, [1, 2, 0]]}
        failed = scan.handler(event, Invocation())["failed"]

    assert failed == 1500


def test_a_tombstone_whose_machine_has_failed_gets_another_one_once_an_hour(site: Site) -> None:
    site.machine("delete")
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=1)

    answer = [reconcile.handler(WORK, Invocation()) for _ in range(2)]

    assert [each["failed"] for each in answer] == [0, 0]
    assert [each["deletions_again"] for each in answer] == [1, 0]
    (execution,) = site.executions("delete")
    assert execution["input"]["work"] == [{"stream": STREAM, "revision": 1}]


def test_a_tombstone_whose_undelete_time_runs_is_left_to_its_machine(site: Site) -> None:
    site.machine("delete")
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=2 * 10**12)

    assert reconcile.handler(WORK, Invocation())["failed"] == 1
    assert site.executions("delete") == []


def test_scan_finds_what_each_workflow_has_something_to_do_with(site: Site) -> None:
    committed(site, 9)

    # The first scan of a table also goes through the bucket, in the same call.
    event = {"workflow": "reconcile", "given": {}, "cursor": None}
    assert scan.handler(event, Invocation()) == {
        "work": [{"stream": STREAM}],
        "cursor": None,
        "more": False,
        "failed": 0,
        "dry_run": False,
        "reason": "",
    }

    def found(workflow: str) -> list[str]:
        cursor, streams = None, []
        for _ in range(3):  # a scan for `collect` begins anywhere, and then at the begin
            event = {"workflow": workflow, "cursor": cursor, "given": {}}
            answer = scan.handler(event, Invocation())
            streams += [item["stream"] for item in answer["work"]]
            cursor = answer["cursor"]
            if not answer["more"]:
                break
        assert cursor is None
        return streams

    assert found("reconcile") == found("collect") == found("consolidate") == [STREAM]
    assert found("retention") == []
    put_rules(Rule("all", max_bytes=1))
    assert found("retention") == [STREAM]
    put_rules(Rule("all", max_bytes=1), Rule("court", hold=True))
    assert found("retention") == []


def test_a_scheduled_scan_takes_idle_streams_in_turns_and_a_person_gets_them_all(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(site, 1)  # its chunks are years old
    monkeypatch.setenv(deployment.ENV_RECONCILE_MINUTES, "5")
    monkeypatch.setenv(deployment.ENV_RECONCILE_IDLE_MINUTES, "60")
    begin = 10**13 - 10**13 % 300_000

    def looked_at(reason: str) -> int:
        runs = 0
        for number in range(12):
            monkeypatch.setattr(scan, "now_ms", lambda at=begin + 300_000 * number: at)
            event = {"workflow": "reconcile", "given": {"reason": reason}}
            runs += scan.handler(event, Invocation())["work"] == WORK["work"]
        return runs

    assert 1 <= looked_at("schedule") <= 2
    assert looked_at("") == 12


def test_erased_bytes_are_in_no_object_and_no_version_after_the_steps(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(deployment.ENV_GRACE_SECONDS, "0")  # moto's objects are as old as the test
    s3 = boto3.client("s3")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    site.upload(*chain(2, body=lambda n: b"secret %d" % n))
    (deleted,) = site.upload(*chain(1, uid=77, body=lambda n: b"secret %d" % n))
    reconcile.handler(WORK, Invocation())
    s3.delete_object(Bucket=BUCKET, Key=deleted)
    everything = OffsetSet.of([(0, 20)])
    settings = {"reason": "", "now_ms": 1, "branching": 1024, "pause": no_pause}
    usecase.erase(site.context, STREAM, everything, PolicySet(()), **settings)
    assert len(with_secret(s3)) == 3
    site.stdout.readouterr()

    answer: dict[str, Any] = {"left": WORK["work"]}
    counted = 0.0
    while answer["left"]:
        time.sleep(1)  # S3 tells times in seconds
        answer = erase.handler({"work": answer["left"]}, Invocation())
        counted += site.metrics()[deployment.METRIC_VERSIONS_ERASED]

    assert with_secret(s3) == []
    assert (answer["state"], answer["versions"], answer["kept"]) == ("done", 4, {})
    assert counted == 4


def with_secret(s3: Any) -> list[str]:
    """Keys of the versions that hold the word."""
    rows = s3.list_object_versions(Bucket=BUCKET).get("Versions", [])
    return [
        row["Key"]
        for row in rows
        if b"secret"
        in s3.get_object(Bucket=BUCKET, Key=row["Key"], VersionId=row["VersionId"])["Body"].read()
    ]


def test_a_commit_that_crowds_the_root_starts_one_rebalance(site: Site) -> None:
    site.machine("rebalance")
    committed(site, 8)
    reconcile.handler(WORK, Invocation())
    commit_runs.handler(
        {"Records": [{"messageId": "1", "body": json.dumps({"stream": STREAM})}]}, Invocation()
    )

    (execution,) = site.executions("rebalance")
    assert execution["input"]["work"] == WORK["work"]
    assert STREAM[:20] in execution["name"]


def test_a_commit_lands_although_the_rebalance_cannot_be_started(site: Site) -> None:
    committed(site, 8)  # there is no such machine

    assert site.root().next_offset == 80
    assert site.logged("ERROR")


def image(site: Site) -> dict[str, Any]:
    found = boto3.client("dynamodb").get_item(
        TableName=TABLE, Key={"stream": {"S": PREFIX + STREAM}, "item": {"S": "catalog"}}
    )
    return found["Item"]


def test_a_tombstone_starts_the_delete_machine_once(site: Site) -> None:
    site.machine("delete")
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=1_000)
    record = {"eventName": "MODIFY", "dynamodb": {"NewImage": image(site)}}

    for _ in range(2):
        tombstone.handler({"Records": [record]}, Invocation())

    (execution,) = site.executions("delete")
    assert execution["input"]["work"] == [{"stream": STREAM, "revision": 1}]
    assert execution["input"]["undelete_until"] == "1970-01-01T00:00:01Z"


def test_a_tombstone_whose_time_no_calendar_has_is_damage_and_is_named(site: Site) -> None:
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=1_000)
    found = {**image(site), "undelete_until": {"N": str(10**18)}}

    with pytest.raises(CorruptDataError, match=STREAM):
        tombstone.handler({"Records": [{"dynamodb": {"NewImage": found}}]}, Invocation())


def test_the_sweep_goes_through_settle_to_done_and_leaves_the_tombstone(site: Site) -> None:
    committed(site, 3)
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=0)

    work = [{"stream": STREAM, "revision": 1}]
    first = delete.handler({"work": work}, Invocation())
    assert first["state"] == "settle"
    assert first["objects"] > 0
    site.stdout.readouterr()
    second = delete.handler({"work": first["left"]}, Invocation())

    assert (second["state"], second["left"]) == ("done", [])
    item = site.context.catalog.get(STREAM)
    assert item is not None
    assert item.state is StreamState.DELETED
    assert site.metrics()[deployment.METRIC_STREAMS_SWEPT] == 1


def test_a_sweep_after_an_undelete_is_called_off(site: Site) -> None:
    committed(site, 3)
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=0)
    undelete_stream(site.context, STREAM)

    answer = delete.handler({"work": [{"stream": STREAM, "revision": 1}]}, Invocation())

    assert (answer["state"], answer["left"]) == ("called_off", [])
    assert site.root().next_offset == 30


def test_collect_sweeps_what_arrives_after_the_sweep(site: Site) -> None:
    delete_stream(site.context, STREAM, PolicySet(), now_ms=0, undelete_ms=0)
    left = [{"stream": STREAM, "revision": 1}]
    while left:
        left = delete.handler({"work": left}, Invocation())["left"]
    site.upload(*chain(2))

    seen = collect.handler(WORK, Invocation())
    answer = collect.handler(WORK, Invocation())

    assert (seen.get("deleted", 0), seen["waiting"]) == (0, 2)
    assert answer["deleted"] == 2
    assert not site.s3.list_objects_v2(Bucket=site.context.store._bucket)["KeyCount"]  # type: ignore[attr-defined]


def said_to_be_deleted(site: Site) -> list[str]:
    """Write into the item what a thief of an operator's credentials would; give all keys."""
    boto3.client("dynamodb").update_item(
        TableName=TABLE,
        Key={"stream": {"S": PREFIX + STREAM}, "item": {"S": "catalog"}},
        UpdateExpression="SET #state = :deleted, undelete_until = :long_ago, revision = :revision",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={
            ":deleted": {"S": "deleted"}, ":long_ago": {"N": "1"}, ":revision": {"N": "2"}
        },
    )  # fmt: skip
    return keys_of(site)


def keys_of(site: Site) -> list[str]:
    found = site.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{PREFIX}stream/{STREAM}/")
    return [each["Key"] for each in found.get("Contents", [])]


def test_collect_deletes_nothing_of_a_stream_that_somebody_has_just_said_to_be_deleted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(deployment.ENV_GRACE_SECONDS, "86400")
    committed(site, 3)
    before = said_to_be_deleted(site)

    for _ in range(3):
        collect.handler(WORK, Invocation())

    assert set(before) <= set(keys_of(site))


def test_collect_and_delete_leave_a_held_stream_alone_whatever_its_item_says(site: Site) -> None:
    committed(site, 3)
    put_rules(Rule("court", hold=True))
    before = said_to_be_deleted(site)

    for _ in range(3):
        collect.handler(WORK, Invocation())
    with pytest.raises(ConflictError, match="legal hold"):
        delete.handler({"work": [{"stream": STREAM, "revision": 1}]}, Invocation())

    assert set(before) <= set(keys_of(site))


def test_trouble_with_one_stream_starves_no_other(site: Site) -> None:
    looked_at: list[str] = []

    def act(item: dict[str, Any]) -> None:
        if item["stream"] == "__b_1":
            raise PermissionDeniedError("S3 refused: AccessDenied")
        looked_at.append(item["stream"])

    work = [{"stream": f"__{name}_1"} for name in "abc"]
    left = over_streams({"work": work}, Totals(), lambda: True, act)

    assert looked_at == ["__a_1", "__c_1"]
    assert left == [{"stream": "__b_1"}]
    assert site.logged("ERROR")[-1]["stream"] == "__b_1"
    with pytest.raises(PermissionDeniedError):  # now it is the only one
        over_streams({"work": left}, Totals(), lambda: True, act)


def test_trouble_does_not_hide_streams_that_time_did_not_allow_for(site: Site) -> None:
    def act(item: dict[str, Any]) -> None:
        raise UnavailableError("S3 does not answer")

    times = iter([True, False, False])
    work = [{"stream": f"__{name}_1"} for name in "abc"]
    left = over_streams({"work": work}, Totals(), lambda: next(times), act)

    assert [item["stream"] for item in left] == ["__b_1", "__c_1", "__a_1"]
    assert site.logged("ERROR")


def test_retention_says_that_it_kept_a_stream_whose_name_nobody_knows(site: Site) -> None:
    committed(site, 5)
    put_rules(Rule("all", max_bytes=1), Rule("court", queue="orders", hold=True))

    answer = retention.handler(WORK, Invocation())

    assert (answer["fragments"], answer["unnamed"]) == (0, 1)
    assert site.root().first_offset == 0
    (line,) = [each for each in site.logged("WARNING") if each.get("stream") == STREAM]
    assert line["rules"] == ["court"]
    assert site.metrics()[deployment.METRIC_STREAMS_UNNAMED] == 1


def test_a_bug_that_one_stream_meets_is_told_and_stops_no_other(site: Site) -> None:
    looked_at: list[str] = []

    def act(item: dict[str, Any]) -> None:
        if item["stream"] == "__b_1":
            raise RecursionError("too deep")
        looked_at.append(item["stream"])

    totals = Totals()
    work = [{"stream": f"__{name}_1"} for name in "abc"]
    left = over_streams({"work": work}, totals, lambda: True, act)

    assert looked_at == ["__a_1", "__c_1"]
    assert left == [], "the same would come of it"
    assert (totals["streams"], totals["failed"]) == (3, 1)
    (line,) = site.logged("ERROR")
    assert (line["stream"], line["kind"]) == ("__b_1", "internal")
    assert "RecursionError: too deep" in line["message"]
    (where,) = site.logged("WARNING")
    assert where["stream"] == "__b_1"
    assert "in act" in where["exception"], "whoever mends it has to see where"
