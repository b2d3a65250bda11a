"""What every `MetricSink` must do."""

from __future__ import annotations

import secrets

import pytest

from coldstream.errors import InvalidInputError
from coldstream.ports import Metric, MetricSink, MetricUnit


class MetricSinkSuite:
    """The rules of the port, one test a rule; the backend overrides `sink` and `total`."""

    @pytest.fixture
    def sink(self) -> MetricSink:
        """The sink under test."""
        raise NotImplementedError

    @pytest.fixture
    def name(self) -> str:
        """A metric that no other test uses, because backends may be shared."""
        return f"Findings{secrets.token_hex(8)}"

    def total(self, sink: MetricSink, name: str, **dimensions: str) -> float:
        """Sum of what was recorded under a name and exactly these dimensions."""
        raise NotImplementedError

    def test_values_of_one_metric_add_up(self, sink: MetricSink, name: str) -> None:
        sink.put([Metric(name, 2), Metric(name, 3.5, MetricUnit.BYTES)])
        sink.put([Metric(name, 1)])

        assert self.total(sink, name) == 6.5

    def test_each_combination_of_dimensions_is_a_metric_of_its_own(
        self, sink: MetricSink, name: str
    ) -> None:
        sink.put([Metric(name, 2), Metric(name, 3, dimensions=(("job", "scrub"),))])

        assert self.total(sink, name) == 2
        assert self.total(sink, name, job="scrub") == 3
        assert self.total(sink, name, job="fleet") == 0

    def test_a_zero_is_recorded_and_nothing_is_nothing(self, sink: MetricSink, name: str) -> None:
        sink.put([])
        sink.put([Metric(name, 0)])

        assert self.total(sink, name) == 0

    def test_more_metrics_than_a_request_takes_are_all_recorded(
        self, sink: MetricSink, name: str
    ) -> None:
        sink.put([Metric(name, 1) for _ in range(2345)])

        assert self.total(sink, name) == 2345

    @pytest.mark.parametrize(
        "hostile",
        [
            Metric("", 1),
            Metric("naïve", 1),
            Metric("x" * 256, 1),
            Metric("Findings", float("nan")),
            Metric("Findings", float("inf")),
            Metric("Findings", 2.0**361),
            Metric("Findings", 1, dimensions=(("job", ""),)),
            Metric("Findings", 1, dimensions=(("job", "a"), ("job", "b"))),
            Metric("Findings", 1, dimensions=((":job", "a"),)),
            Metric("Findings", 1, dimensions=(("job", "a\n"),)),
            Metric("Findings", 1, dimensions=(("service", "another"),)),
        ],
        ids=repr,
    )
    def test_what_no_sink_takes_is_refused_and_nothing_beside_it_is_recorded(
        self, sink: MetricSink, name: str, hostile: Metric
    ) -> None:
        with pytest.raises(InvalidInputError):
            sink.put([Metric(name, 1), hostile])

        assert self.total(sink, name) == 0
