"""The scan of reconcile tells of agents that are silent or in trouble."""

from __future__ import annotations

import time
from dataclasses import replace

import boto3
import pytest

from coldstream import deployment, names
from coldstream.adapters.dynamodb_heartbeats import DynamoHeartbeats
from coldstream.plans.heartbeats import Heartbeat
from functions import scan
from tests.functions.conftest import Invocation, Site
from tests.support.aws import PREFIX, TABLE
from tests.support.remote import STREAM, piece

RECONCILE = {"workflow": "reconcile", "given": {}}


def beat(*heartbeats: Heartbeat) -> None:
    port = DynamoHeartbeats(client=boto3.client("dynamodb"), table=TABLE, prefix=PREFIX)
    for each in heartbeats:
        port.beat(each)


def word(node: str, *, ago_ms: int = 0, **more: int) -> Heartbeat:
    now = time.time_ns() // 1_000_000
    return replace(Heartbeat(node, now - ago_ms, 60_000, 5, 1, 0, 0), **more)


def test_silent_and_troubled_agents_are_counted_and_named(site: Site) -> None:
    beat(
        word("a", lag_ms=90_000),
        word("b", ago_ms=600_000, lag_ms=10**9),  # what the dead have said last grows old
        word("c", failing=2, lag_ms=3_700_000),
        word("d", racing=1),
    )

    scan.handler(RECONCILE, Invocation())

    assert site.metrics() == {
        deployment.METRIC_AGENTS: 4,
        deployment.METRIC_AGENTS_SILENT: 1,
        deployment.METRIC_AGENTS_TROUBLED: 1,
        deployment.METRIC_AGENTS_RACING: 1,
        deployment.METRIC_STREAMS_BEHIND: 3,
        deployment.METRIC_AGENTS_LAG: 3700,
    }
    (told,) = [each for each in site.logged("INFO") if "lag_seconds" in each]
    assert (told["node"], told["lag_seconds"]) == ("c", 3700)
    assert {(each["message"], each["node"]) for each in site.logged("WARNING")} == {
        ("an agent is silent", "b"),
        ("an agent has streams that fail or stand still", "c"),
        ("local retention is about to take what is not published", "d"),
    }


@pytest.mark.parametrize(
    "event",
    [{"workflow": "collect", "given": {}}, {**RECONCILE, "given": {"work": [{"stream": "s"}]}}],
)
def test_other_scans_and_runs_on_named_streams_look_at_no_heartbeat(
    site: Site, event: dict[str, object]
) -> None:
    beat(word("b", ago_ms=600_000))

    scan.handler(event, Invocation())

    assert not site.logged("WARNING")


def test_a_heartbeat_that_cannot_be_read_is_told_and_stops_no_scan(site: Site) -> None:
    beat(word("a"))
    boto3.client("dynamodb").put_item(
        TableName=TABLE,
        Item={"stream": {"S": names.heartbeat_partition(PREFIX)}, "item": {"S": "odd"}},
    )

    answer = scan.handler(RECONCILE, Invocation())

    assert answer["work"] == [{"stream": STREAM}]
    assert site.metrics()[deployment.METRIC_AGENTS_SILENT] == 1
    assert site.logged("ERROR")


def test_a_stream_whose_item_was_lost_is_counted_named_and_handed_on(site: Site) -> None:
    first = scan.handler({**RECONCILE, "given": {"reason": "person"}}, Invocation())
    assert first["work"] == [{"stream": STREAM}]
    lost = "__lost_1745252105682952999"
    site.upload(piece(0, 10, stream=lost))

    answer = scan.handler({**RECONCILE, "given": {"reason": "person"}}, Invocation())

    assert {"stream": lost} in answer["work"]
    assert site.metrics()[deployment.METRIC_STREAMS_WITHOUT_ITEM] == 1
    (told,) = [each for each in site.logged("WARNING") if "items were lost" in each["message"]]
    assert told["streams"] == [lost]
