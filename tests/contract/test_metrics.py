"""Metrics of jobs arrive, in the fake and in the embedded AWS; errors are translated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from coldstream.adapters.metrics import CloudWatchMetrics, MemoryMetrics, translated
from coldstream.errors import InternalError, PermissionDeniedError, UnavailableError
from coldstream.ports import Metric, MetricSink
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.suites.metrics import MetricSinkSuite
from tests.contract.conftest import closing_client


class TestMemoryMetrics(MetricSinkSuite):
    @pytest.fixture
    def sink(self) -> MetricSink:
        return MemoryMetrics()

    def total(self, sink: MetricSink, name: str, **dimensions: str) -> float:
        assert isinstance(sink, MemoryMetrics)
        return sink.total(name, **dimensions)


@pytest.mark.emulator
class TestCloudWatchMetrics(MetricSinkSuite):
    """Not on moto, which takes a metric with more dimensions for one with fewer."""

    @pytest.fixture
    def cloudwatch(self, site: Emulator) -> Iterator[Any]:
        yield from closing_client(site, "cloudwatch")

    @pytest.fixture
    def sink(self, cloudwatch: Any) -> MetricSink:
        self.cloudwatch = cloudwatch
        return CloudWatchMetrics(client=cloudwatch)

    def total(self, sink: MetricSink, name: str, **dimensions: str) -> float:
        points = self.cloudwatch.get_metric_statistics(
            Namespace="coldstream",
            MetricName=name,
            Dimensions=[
                {"Name": key, "Value": value}
                for key, value in {"service": "coldstream", **dimensions}.items()
            ],
            StartTime=datetime.now(UTC) - timedelta(hours=1),
            EndTime=datetime.now(UTC) + timedelta(minutes=5),
            Period=3600,
            Statistics=["Sum"],
        )["Datapoints"]
        return float(sum(point["Sum"] for point in points))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "PutMetricData"), PermissionDeniedError),
        (
            ClientError({"Error": {"Code": "InvalidParameterValue"}}, "PutMetricData"),
            InternalError,
        ),
        (ClientError({"Error": {"Code": "Throttling"}}, "PutMetricData"), UnavailableError),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1"), UnavailableError),
    ],
)
def test_errors_of_cloudwatch_are_told_in_our_words(
    error: Exception, expected: type[Exception]
) -> None:
    class Failing:
        def put_metric_data(self, **_: Any) -> None:
            raise error

    assert type(translated(error)) is expected
    with pytest.raises(expected):
        CloudWatchMetrics(client=Failing()).put([Metric("Findings", 1)])  # type: ignore[arg-type]
