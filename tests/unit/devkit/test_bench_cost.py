"""The bill: each function by its own memory, each metric of an alarm, and what nobody counts."""

from __future__ import annotations

import pytest

from bench.cost import dollars
from bench.cost_added import alarm_metrics, memory_gb, polls, words
from bench.prices import PRICES


def test_a_second_of_a_function_costs_by_its_own_memory() -> None:
    memory = memory_gb(
        {"Handler": f"functions.{name}.handler", "MemorySize": size}
        for name, size in (("consolidate", 1024), ("scan", 512))
    )

    one = dollars({"lambda.consolidate.seconds": 10}, memory)["lambda"]
    other = dollars({"lambda.scan.seconds": 10}, memory)["lambda"]

    assert one == pytest.approx(2 * other) == pytest.approx(10 * PRICES["lambda.gb_seconds"])
    assert dollars({"lambda.scan": 10}, memory)["lambda"] == 10 * PRICES["lambda.requests"]


def test_a_function_or_a_request_without_a_price_is_no_gift() -> None:
    with pytest.raises(KeyError):
        dollars({"lambda.new.seconds": 1}, {})
    with pytest.raises(KeyError):
        dollars({"s3.NewOperation": 1}, {})


def test_an_alarm_on_a_sum_is_paid_for_by_each_metric_of_it() -> None:
    summed = {"Metrics": [{"Expression": "a + b"}, {"MetricStat": {}}, {"MetricStat": {}}]}

    assert alarm_metrics([{"MetricName": "Errors"}, summed]) == 3


def test_a_queue_without_messages_is_asked_all_the_same() -> None:
    assert polls() == pytest.approx(0.26, abs=0.01)


def test_agents_say_that_they_live_and_what_has_changed_by_the_kilobyte() -> None:
    resting, moving = words(10_000, moving=False), words(64, moving=True)

    assert resting == words(1, moving=False) == pytest.approx(0.08, abs=0.01)
    assert 4 * resting < moving < 7 * resting  # one page of some 4 KB beside the heartbeat
    # An agent writes eight pages at a heartbeat, however many have changed.
    assert words(10_000, moving=True) < 2 * words(512, moving=True)
