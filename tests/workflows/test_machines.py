"""What each state machine does between its steps: loops, batches, waits, retries, reports."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from coldstream.deployment import ERROR_REPORTED
from tests.support.probe_stack import eventually
from tests.workflows.conftest import NUMBERS, SCANNING, Machines

pytestmark = pytest.mark.emulator

MAPPED_BATCH = {"retention": 100, "consolidate": 10, "collect": 10, "reconcile": 100}


@pytest.mark.parametrize("workflow", SCANNING)
def test_work_that_is_given_is_done_and_nothing_else_is_looked_for(
    machines: Machines, mark: str, workflow: str
) -> None:
    work = [{"stream": f"{mark}-{i}"} for i in range(2)]

    ended = machines.run(workflow, work=work, dry_run=True, reason="asked")

    assert ended["status"] == "SUCCEEDED", ended
    assert json.loads(ended["output"]) == {
        "dry_run": True,
        "reason": "asked",
        "streams": 2,
        "failed": [0, []],
    }
    (scan,) = machines.given("scan", mark)
    assert scan == {
        "workflow": workflow,
        "given": {"work": work, "dry_run": True, "reason": "asked"},
        "cursor": None,
        "failed": 0,
    }
    steps = machines.given("step", mark)
    assert sorted(json.dumps(each["work"]) for each in steps) == sorted(
        [json.dumps(work)] if MAPPED_BATCH[workflow] > 1 else [json.dumps([item]) for item in work]
    )
    assert all((each["dry_run"], each["reason"]) == (True, "asked") for each in steps)


@pytest.mark.parametrize("workflow", SCANNING)
def test_without_work_all_pages_of_the_scan_are_gone_through(
    machines: Machines, mark: str, workflow: str
) -> None:
    ended = machines.run(workflow, reason=mark)

    assert ended["status"] == "SUCCEEDED", ended
    assert json.loads(ended["output"]) == {
        "dry_run": False,
        "reason": mark,
        "streams": 6,
        "failed": [0, []],
    }
    looked_at = [item["stream"] for each in machines.given("step", mark) for item in each["work"]]
    assert sorted(looked_at) == [f"{page}-{i}" for page in ("first", "second") for i in range(3)]


@pytest.mark.parametrize("workflow", ["rebalance", *SCANNING])
def test_a_step_is_called_again_with_what_it_left(
    machines: Machines, mark: str, workflow: str
) -> None:
    ended = machines.run(workflow, work=[{"stream": mark, "calls": 3}])

    assert ended["status"] == "SUCCEEDED", ended
    (first, second, third) = machines.given("step", mark)
    assert [each["work"][0].get("seen", 0) for each in (first, second, third)] == [0, 1, 2]
    assert third["dry_run"] is False


@pytest.mark.parametrize("workflow", ["rebalance", "retention"])
def test_a_step_that_fails_for_a_while_is_tried_again(
    machines: Machines, mark: str, workflow: str
) -> None:
    ended = machines.run(workflow, work=[{"stream": mark, "raise": ["UnavailableError"]}])

    assert ended["status"] == "SUCCEEDED", ended
    assert len(machines.given("step", mark)) == 2
    assert machines.given("report", mark) == []


def test_a_batch_that_is_given_up_is_reported_and_the_others_go_on(
    machines: Machines, mark: str
) -> None:
    bad = {"stream": f"{mark}-bad", "raise": ["KeyError"] * 9}
    beside = [{"stream": f"{mark}-{number}"} for number in range(24)]  # a batch has 25

    ended = machines.run("collect", work=[bad, *beside, {"stream": f"{mark}-good"}])

    assert ended["status"] == "SUCCEEDED", ended
    (report,) = machines.given("report", mark)
    assert (report["workflow"], report["error"]["Error"]) == ("collect", "KeyError")
    assert report["work"] == [bad, *beside]
    assert [f"{mark}-good"] in [
        [item["stream"] for item in each["work"]] for each in machines.given("step", mark)
    ]


def test_a_machine_without_batches_reports_and_then_fails_with_the_error(
    machines: Machines, mark: str
) -> None:
    ended = machines.run("rebalance", work=[{"stream": mark, "raise": ["KeyError"] * 9}])

    assert (ended["status"], ended["error"]) == ("FAILED", f"KeyError{ERROR_REPORTED}")
    (report,) = machines.given("report", mark)
    assert report["workflow"] == "rebalance"
    assert len(machines.given("step", mark)) == 3


def test_nothing_is_swept_before_the_undelete_time_is_over(machines: Machines, mark: str) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    arn = machines.start(
        "delete",
        work=[{"stream": mark, "states": ["sweeping", "settle", "done"]}],
        undelete_until=f"{until:%Y-%m-%dT%H:%M:%SZ}",
    )
    while True:
        seen = machines.given("step", mark)
        if datetime.now(UTC) >= until:
            break  # the look itself may have taken so long
        assert seen == []
        time.sleep(0.2)

    ended = machines.ended(arn)

    assert ended["status"] == "SUCCEEDED", ended
    assert json.loads(ended["output"]) == {"state": "done", "reason": ""}
    assert [each["work"][0]["states"][0] for each in machines.given("step", mark)] == [
        "sweeping",
        "settle",
        "done",
    ]


def test_a_deletion_waits_by_the_machine_s_own_clock_whatever_time_the_item_says(
    machines: Machines, mark: str
) -> None:
    began = time.monotonic()
    arn = machines.start(
        "delete", work=[{"stream": mark, "states": ["done"]}], undelete_until="2026-01-01T00:00:00Z"
    )

    assert machines.ended(arn)["status"] == "SUCCEEDED"
    assert time.monotonic() - began >= NUMBERS["LeastSeconds"]


def test_a_sweep_that_finds_nothing_waits_before_it_looks_once_more(
    machines: Machines, mark: str
) -> None:
    began = time.monotonic()
    machines.run(
        "delete",
        work=[{"stream": mark, "states": ["settle", "settle", "done"]}],
        undelete_until="2026-01-01T00:00:00Z",
    )

    assert time.monotonic() - began >= 2


def test_a_deletion_that_was_called_off_ends_without_another_sweep(
    machines: Machines, mark: str
) -> None:
    ended = machines.run(
        "delete",
        work=[{"stream": mark, "states": ["called_off"]}],
        undelete_until="2026-01-01T00:00:00Z",
    )

    assert json.loads(ended["output"])["state"] == "called_off"
    assert len(machines.given("step", mark)) == 1


def test_the_scheduler_starts_a_machine_with_its_input(machines: Machines, mark: str) -> None:
    scheduler = machines.emulator.client("scheduler")
    scheduler.create_schedule(
        Name=mark,
        ScheduleExpression=f"at({datetime.now(UTC):%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": machines.outputs["retention"],
            "RoleArn": "arn:aws:iam::000000000000:role/schedule",
            "Input": json.dumps({"reason": mark}),
        },
    )
    assert eventually(lambda: machines.given("step", mark))
