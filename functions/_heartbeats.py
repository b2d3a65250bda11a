"""What the agents' heartbeats come to, as metrics: the first page of reconcile looks at them."""

from __future__ import annotations

import os
from functools import cache

from aws_lambda_powertools.metrics import MetricUnit

from coldstream import deployment
from coldstream.adapters.dynamodb_heartbeats import DynamoHeartbeats
from coldstream.clock import now_ms
from coldstream.errors import ColdstreamError, CorruptDataError
from coldstream.plans.heartbeats import Heartbeat, fleet
from functions._runtime import aws_client, logger, metrics, tell


@cache
def _heartbeats() -> DynamoHeartbeats:
    return DynamoHeartbeats(
        client=aws_client("dynamodb"),
        table=os.environ[deployment.ENV_TABLE],
        prefix=os.environ[deployment.ENV_PREFIX],
    )


def tell_heartbeats() -> None:
    """Log and count silent, troubled and racing agents; a failure is logged and stops nothing."""
    try:
        found = _heartbeats().all()
    except ColdstreamError as error:
        tell(error)
        return
    if not found:
        return  # metrics cost money, and a tier may have no agent
    for each in found:
        if isinstance(each, CorruptDataError):
            tell(each)
    heard = [each for each in found if isinstance(each, Heartbeat)]
    agents = fleet(heard, now_ms=now_ms())
    for node in agents.silent:
        logger.warning("an agent is silent", node=node)
    for node in agents.troubled:
        logger.warning("an agent has streams that fail or stand still", node=node)
    for node in agents.racing:
        logger.warning("local retention is about to take what is not published", node=node)
    longest_ms = 0
    if agents.lags:
        node, longest_ms = agents.lags[0]
        logger.info("the agent that is furthest behind", node=node, lag_seconds=longest_ms // 1000)
    for name, value in {
        deployment.METRIC_AGENTS: agents.agents,
        deployment.METRIC_AGENTS_SILENT: len(agents.silent) + len(found) - len(heard),
        deployment.METRIC_AGENTS_TROUBLED: len(agents.troubled),
        deployment.METRIC_AGENTS_RACING: len(agents.racing),
        deployment.METRIC_STREAMS_BEHIND: agents.behind,
    }.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)
    metrics.add_metric(
        name=deployment.METRIC_AGENTS_LAG, unit=MetricUnit.Seconds, value=longest_ms // 1000
    )
    metrics.flush_metrics()
