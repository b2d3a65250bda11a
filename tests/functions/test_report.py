from __future__ import annotations

import json
from typing import Any

import pytest

from coldstream import deployment
from functions.report import handler
from tests.functions.conftest import Invocation, Site

ERROR = {"Error": "UnavailableError", "Cause": "x" * 9000 + "the end"}


def test_what_a_machine_gives_up_is_logged_with_its_streams(site: Site) -> None:
    event = {"workflow": "collect", "error": ERROR, "work": [{"stream": "a"}, {"stream": "b"}]}

    assert handler(event, Invocation()) == {}

    (line,) = site.logged("ERROR")
    assert (line["workflow"], line["error"]) == ("collect", "UnavailableError")
    assert line["streams"] == ["a", "b"]
    assert line["cause"].endswith("the end")
    assert len(line["cause"]) == 4000


def test_it_is_counted_for_the_alarm_and_for_the_workflow(site: Site) -> None:
    handler({"workflow": "rebalance", "error": ERROR}, Invocation())

    lines = [
        json.loads(each) for each in site.stdout.readouterr().out.splitlines() if "_aws" in each
    ]
    counted = {
        tuple(sorted(directive["Dimensions"][0])): line[deployment.METRIC_WORKFLOW_FAILURES]
        for line in lines
        for directive in line["_aws"]["CloudWatchMetrics"]
    }
    assert counted == {("service",): [1], ("service", "workflow"): [1]}
    assert [line["workflow"] for line in lines if "workflow" in line] == ["rebalance"]


def test_a_scan_that_failed_has_no_streams_to_name(site: Site) -> None:
    handler({"workflow": "retention", "error": {"Error": "States.Timeout"}}, Invocation())

    (line,) = site.logged("ERROR")
    assert (line["streams"], line["cause"]) == ([], "")


@pytest.mark.parametrize(
    ("event", "streams"),
    [
        ({"workflow": "collect", "error": ERROR, "work": "x"}, []),
        ({"workflow": "collect", "error": ERROR, "work": {"stream": "a"}}, []),
        ({"workflow": "collect", "error": ERROR, "work": 7}, []),
        ({"workflow": "collect", "error": ERROR, "work": ["x", {}, {"stream": 7}, None]}, []),
        ({"workflow": "collect", "error": ERROR, "work": ["x", {"stream": "a"}]}, ["a"]),
        ({"workflow": "collect", "error": ERROR, "work": [{"stream": "\ud800"}]}, ["\\ud800"]),
        ({"workflow": "collect", "error": ERROR, "work": [{"stream": "a" * 900}]}, ["a" * 255]),
        ({"workflow": "collect", "error": ERROR, "given": {"work": [{"stream": "a"}]}}, ["a"]),
        ({"workflow": "collect", "error": ERROR, "given": "x"}, []),
        ({"workflow": "collect", "error": "E"}, []),
        ({"workflow": "collect", "error": {"Error": 7, "Cause": [1]}}, []),
        ({"detail": "x", "workflow": "collect"}, []),
        ({"detail": {"stateMachineArn": "collect"}}, []),
        ({"detail": {"jobName": "collect"}}, []),
    ],
)
def test_a_failure_is_told_whatever_the_event_holds(
    site: Site, event: dict[str, Any], streams: list[str]
) -> None:
    """People start machines by hand, and what they wrote as `work` comes here as it is."""
    assert handler(event, Invocation()) == {}

    (line,) = site.logged("ERROR")
    assert (line["workflow"], line["streams"]) == ("collect", streams)
    assert site.metrics(workflow="collect") == {deployment.METRIC_WORKFLOW_FAILURES: 1}


def test_an_event_that_names_nothing_is_counted_all_the_same(site: Site) -> None:
    handler({}, Invocation())

    assert site.metrics(workflow="unknown") == {deployment.METRIC_WORKFLOW_FAILURES: 1}


@pytest.mark.parametrize(
    ("status", "error", "counted"),
    [
        ("FAILED", f"KeyError{deployment.ERROR_REPORTED}", 0),
        ("FAILED", "KeyError", 1),  # `report` did not answer
        ("FAILED", "States.Runtime", 1),  # no Catch has it
        ("FAILED", None, 1),  # AWS does not promise an error
        ("TIMED_OUT", None, 1),
    ],
)
def test_the_event_of_a_failure_that_its_machine_has_reported_counts_no_second_time(
    site: Site, status: str, error: str | None, counted: int
) -> None:
    arn = "arn:aws:states:eu-central-1:123456789012:stateMachine:coldstream-delete"
    detail = {"stateMachineArn": arn, "status": status, "error": error, "cause": None}

    handler({"source": "aws.states", "detail": detail}, Invocation())

    assert len(site.logged("ERROR")) == counted
    assert len(site.metrics(workflow="delete")) == counted


def test_an_event_of_a_machine_that_timed_out_is_told_by_the_name_of_its_workflow(
    site: Site,
) -> None:
    """As EventBridge sends it: a machine that ran out of time can report nothing itself.

    AWS's own example has neither an error nor a cause.
    """
    place = "arn:aws:states:eu-central-1:123456789012"
    detail = {
        "executionArn": f"{place}:execution:coldstream-collect:e",
        "stateMachineArn": f"{place}:stateMachine:coldstream-collect",
        "name": "e",
        "status": "TIMED_OUT",
        "startDate": 1551224926156,
        "stopDate": 1551224927157,
        "input": "{}",
        "output": None,
    }

    handler({"source": "aws.states", "detail": detail}, Invocation())

    (line,) = site.logged("ERROR")
    assert (line["workflow"], line["error"], line["cause"]) == ("collect", "TIMED_OUT", "")
    assert site.metrics(workflow="collect") == {deployment.METRIC_WORKFLOW_FAILURES: 1}


def test_an_event_of_a_job_that_failed_is_told_by_its_name_with_what_glue_says(site: Site) -> None:
    detail = {"jobName": "coldstream-fleet", "state": "FAILED", "message": "no such database"}

    handler({"source": "aws.glue", "detail": {**detail, "jobRunId": "jr_1"}}, Invocation())

    (line,) = site.logged("ERROR")
    assert (line["workflow"], line["error"]) == ("coldstream-fleet", "FAILED")
    assert line["cause"] == "no such database"
    assert site.metrics(workflow="coldstream-fleet") == {deployment.METRIC_WORKFLOW_FAILURES: 1}
