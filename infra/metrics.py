"""What alarms and graphs look at: metrics of handlers and jobs, and of the queue between them."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import IConstruct

from coldstream import deployment

MINUTE = Duration.minutes(1)
FIVE_MINUTES = Duration.minutes(5)


def own(scope: IConstruct, name: str, **dimensions: str) -> cloudwatch.Metric:
    """A metric that the handlers and the jobs of the stack of `scope` report."""
    return cloudwatch.Metric(
        namespace=deployment.METRIC_NAMESPACE,
        metric_name=name,
        dimensions_map={
            deployment.METRIC_DIMENSION_SERVICE: Stack.of(scope).stack_name,
            **dimensions,
        },
        statistic="Sum",
        period=FIVE_MINUTES,
    )


def most(scope: IConstruct, name: str, **dimensions: str) -> cloudwatch.Metric:
    """The largest value of a metric that a job reports about the state of things."""
    return own(scope, name, **dimensions).with_(statistic="Maximum")


def throttled(table: dynamodb.ITable, name: str) -> cloudwatch.Metric:
    """How many reads (`ReadThrottleEvents`) or writes (`Write…`) of a table were throttled."""
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=name,
        dimensions_map={"TableName": table.table_name},
        statistic="Sum",
        period=FIVE_MINUTES,
    )


def behind(function: lambda_.IFunction) -> cloudwatch.Metric:
    """How old the newest record was that a function got of the stream that it follows, in ms."""
    return function.metric("IteratorAge", period=FIVE_MINUTES, statistic="Maximum")


def waiting(queue: sqs.IQueue) -> cloudwatch.Metric:
    """How many messages a queue has."""
    return queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum")


def oldest(queue: sqs.IQueue) -> cloudwatch.Metric:
    """How long the oldest message of a queue has waited, in seconds."""
    return queue.metric_approximate_age_of_oldest_message(period=MINUTE, statistic="Maximum")
