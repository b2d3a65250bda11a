"""Metrics to CloudWatch by boto3, and to a list for tests.

Lambda functions do not use this: what they log in the embedded metric format costs no request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream import deployment
from coldstream.adapters import aws_errors
from coldstream.adapters.aws_errors import code_of
from coldstream.errors import (
    ColdstreamError,
    InternalError,
    InvalidInputError,
)
from coldstream.ports import Metric

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

#: What CloudWatch takes in one request, ...
_BATCH = 1000
#: ... the highest value, and the number of dimensions, one of which is ours.
_MAX_VALUE = 2.0**360
_MAX_DIMENSIONS = 29
_MAX_TEXT = 255

_MALFORMED = frozenset(
    {
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "MissingRequiredParameterException",
        "MissingParameter",
        "ValidationError",
    }
)


class CloudWatchMetrics:
    """The `MetricSink` port on CloudWatch.

    Args:
        client: a boto3 CloudWatch client with standard retries.
        service: the dimension that every metric gets, as those of the functions have it.
    """

    def __init__(
        self,
        *,
        client: CloudWatchClient,
        service: str = deployment.METRIC_SERVICE,
    ) -> None:
        self._client = client
        self._service = service

    def put(self, metrics: Sequence[Metric]) -> None:
        for each in metrics:
            check_metric(each)
        for start in range(0, len(metrics), _BATCH):
            batch = [self._datum(each) for each in metrics[start : start + _BATCH]]
            try:
                self._client.put_metric_data(
                    Namespace=deployment.METRIC_NAMESPACE, MetricData=batch
                )
            except (ClientError, BotoCoreError) as exc:
                raise translated(exc) from exc

    def _datum(self, metric: Metric) -> Any:
        dimensions = ((deployment.METRIC_DIMENSION_SERVICE, self._service), *metric.dimensions)
        return {
            "MetricName": metric.name,
            "Value": float(metric.value),
            "Unit": metric.unit.value,
            "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions],
        }


class MemoryMetrics:
    """The `MetricSink` port on a list.

    Attributes:
        metrics: all that were put, in order.
    """

    def __init__(self) -> None:
        self.metrics: list[Metric] = []

    def put(self, metrics: Sequence[Metric]) -> None:
        for each in metrics:
            check_metric(each)
        self.metrics.extend(metrics)

    def total(self, name: str, **dimensions: str) -> float:
        """Sum of a metric's values with exactly these dimensions."""
        wanted = tuple(sorted(dimensions.items()))
        return sum(
            each.value
            for each in self.metrics
            if each.name == name and tuple(sorted(each.dimensions)) == wanted
        )


def check_metric(metric: Metric) -> None:
    """Refuse what CloudWatch would refuse, so that the fake does too and no batch fails half-way.

    Raises:
        InvalidInputError: the name, the value or a dimension is none that CloudWatch takes.
    """
    if not _is_text(metric.name):
        raise InvalidInputError(f"not the name of a metric: {metric.name[:80]!r}")
    if not math.isfinite(metric.value) or abs(metric.value) > _MAX_VALUE:
        raise InvalidInputError(f"not the value of a metric: {metric.name} {metric.value}")
    given = [name for name, _ in metric.dimensions]
    if len(given) > _MAX_DIMENSIONS or len(set(given)) < len(given):
        raise InvalidInputError(f"too many dimensions, or one twice: {metric.name}")
    if deployment.METRIC_DIMENSION_SERVICE in given:
        raise InvalidInputError(f"the dimension service is the sink's own: {metric.name}")
    for name, value in metric.dimensions:
        if not _is_text(name) or name.startswith(":") or not _is_text(value):
            raise InvalidInputError(f"not a dimension of a metric: {name[:80]!r} {value[:80]!r}")


def _is_text(value: str) -> bool:
    """What names and values of metrics and dimensions are made of."""
    return (
        0 < len(value) <= _MAX_TEXT
        and value.isascii()
        and value.isprintable()
        and bool(value.strip())
    )


def translated(exc: Exception) -> ColdstreamError:
    """The error of ours that a boto3 error means."""
    if code_of(exc) in _MALFORMED:
        return InternalError(f"CloudWatch refused what we should not have sent: {exc}")
    return aws_errors.translated(exc, "CloudWatch")
