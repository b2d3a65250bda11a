"""What alarms and graphs look at: metrics of handlers and jobs, and of the queue between them."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from coldstream import names
from infra.function import SERVICE

MINUTE = Duration.minutes(1)
FIVE_MINUTES = Duration.minutes(5)


def own(name: str, **dimensions: str) -> cloudwatch.Metric:
    """A metric that the handlers and the jobs report."""
    return cloudwatch.Metric(
        namespace=names.METRIC_NAMESPACE,
        metric_name=name,
        dimensions_map={"service": SERVICE, **dimensions},
        statistic="Sum",
        period=FIVE_MINUTES,
    )


def most(name: str, **dimensions: str) -> cloudwatch.Metric:
    """The largest value of a metric that a job reports about the state of things."""
    return own(name, **dimensions).with_(statistic="Maximum")


def waiting(queue: sqs.IQueue) -> cloudwatch.Metric:
    """How many messages a queue has."""
    return queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum")


def oldest(queue: sqs.IQueue) -> cloudwatch.Metric:
    """How long the oldest message of a queue has waited, in seconds."""
    return queue.metric_approximate_age_of_oldest_message(period=MINUTE, statistic="Maximum")
