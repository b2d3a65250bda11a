"""Hours without S3, and slow links, seen by uploads and by whoever reads the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from coldstream.agent.sending.lanes import Lanes, Valve
from coldstream.agent.settings import AgentSettings
from coldstream.errors import PermissionDeniedError, UnavailableError
from coldstream.ports.objects import CutShortError
from tests.unit.agent.machine import Machine

DOWN = UnavailableError("S3 did not answer properly: 503")
MIB = 2**20


def lanes_of(machine: Machine, **more: object) -> Lanes:
    return Lanes(machine, AgentSettings(**more))  # type: ignore[arg-type]


def fail(lanes: Lanes, times: int, error: Exception = DOWN) -> None:
    for _ in range(times):
        lane = lanes.enter(lambda: False)
        assert lane is not None
        lanes.leave(lane, error=error)


def test_in_an_hour_without_s3_it_is_asked_some_dozens_of_times_and_told_a_few() -> None:
    machine = Machine()
    lanes = lanes_of(machine)
    asked = 0
    while machine.now < 3600:
        fail(lanes, 1)
        asked += 1

    assert 50 < asked < 120  # an upload a second would be 10,800 for three
    words = lanes.words()
    assert words[0] == (
        "S3 has refused 5 times in a row since 2027-01-15T08:00:00Z, so it is only asked now and"
        " then: S3 did not answer properly: 503"
    )
    assert 5 <= len(words) <= 8


def test_who_waits_while_it_is_down_comes_back_one_by_one() -> None:
    machine = Machine()
    lanes = lanes_of(machine, uploads=8)
    fail(lanes, 8)
    held = [lanes.enter(lambda: False)]
    together = []
    for _ in range(8):
        first = held.pop(0)
        assert first is not None
        lanes.leave(first, size=100)
        while lanes.breaker.wait(len(held), machine.now) == 0:
            held.append(lanes.enter(lambda: False))
        together.append(len(held))

    assert together == [2, 2, 4, 4, 4, 4, 8, 8]
    assert "takes uploads again, after 8 refusals in a row" in lanes.words()[-1]


def test_a_stream_that_failed_does_not_ask_before_the_next_probe() -> None:
    machine = Machine()
    lanes = lanes_of(machine)
    fail(lanes, 12)

    assert lanes.breaker.until is not None
    assert lanes.later(machine.now) > lanes.breaker.until
    assert lanes.again_at(machine.now, 1.0) > lanes.breaker.until
    assert lanes.later(machine.now + 1000) == machine.now + 1000


def test_a_stream_that_failed_alone_comes_back_after_about_its_time() -> None:
    assert lanes_of(Machine()).again_at(100.0, 30.0) == pytest.approx(130.0)


def test_a_missing_right_is_no_reason_to_stop_the_others() -> None:
    lanes = lanes_of(Machine())
    fail(lanes, 20, PermissionDeniedError("no"))

    assert not lanes.breaker.is_open


def test_a_link_that_breaks_is_no_s3_that_refuses() -> None:
    lanes = lanes_of(Machine())
    fail(lanes, 6, CutShortError("broken", key="k", sent=20 * MIB))

    assert not lanes.breaker.is_open
    assert lanes.piece == MIB
    assert lanes.too_large(64 * MIB)


def test_one_run_does_not_wait_for_s3_to_come_back() -> None:
    machine = Machine()
    fail(lanes_of(machine, once=True), 50)

    assert machine.now == 0


def test_who_waits_is_let_go_when_the_agent_stops() -> None:
    lanes = lanes_of(Machine(), uploads=1)
    assert lanes.enter(lambda: False) is not None
    asked = iter([False, False, True])

    assert lanes.enter(lambda: next(asked)) is None


def slowly(lanes: Lanes, machine: Machine, rate: float, times: int) -> None:
    for _ in range(times):
        lane = lanes.enter(lambda: False)
        assert lane is not None
        size = lanes.link.piece
        machine.now += size / rate
        lanes.leave(lane, size=size)


def test_a_slow_link_is_told_when_it_gets_so_and_when_it_is_good_again_not_each_time() -> None:
    machine = Machine()
    lanes = lanes_of(machine)
    for _ in range(20):
        slowly(lanes, machine, 90e3, 5)
        slowly(lanes, machine, 110e3, 5)
    told = len(lanes.words())
    slowly(lanes, machine, 200e6, 300)
    machine.now += 100
    lanes.follow(AgentSettings())

    assert 1 <= told <= 3
    assert "uploads go slowly: about" in lanes.words()[0]
    assert lanes.words()[-1] == "uploads go quickly again: fragments are full ones"


@pytest.mark.parametrize(
    "other",
    [{"target_size": 2**20}, {"target_size": 2**28, "memory_budget": 2**30}, {"uploads": 9}],
    ids=str,
)
def test_a_change_of_settings_is_told_as_no_change_of_a_good_link(other: dict[str, Any]) -> None:
    machine = Machine()
    lanes = lanes_of(machine)
    slowly(lanes, machine, 200e6, 30)
    for settings in (AgentSettings(**other), AgentSettings()):
        machine.now += 100
        lanes.follow(settings)
        slowly(lanes, machine, 2e9, 30)

    assert lanes.words() == []


@dataclass
class Clock:
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_bytes_go_at_the_rate_that_was_set() -> None:
    clock = Clock()
    valve, gone = Valve(10_000, lambda: clock.now, clock.sleep), 0
    while gone < 100_000:
        gone += valve.grant(128 * 1024)

    assert clock.now == pytest.approx(10.0, abs=0.5)


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()

    assert Valve(0, lambda: clock.now, clock.sleep).grant(128 * 1024) == 128 * 1024
    assert not clock.slept


def test_a_rate_may_be_set_while_bytes_go() -> None:
    clock = Clock()
    valve = Valve(1, lambda: clock.now, clock.sleep)
    valve.set_rate(0)

    assert valve.grant(10_000) == 10_000


def test_what_waits_for_its_bytes_ends_with_the_agent() -> None:
    clock = Clock()
    valve = Valve(1, lambda: clock.now, clock.sleep)
    valve.end_in(3.0)
    valve.grant(1000)
    valve.grant(1000)

    assert valve.ended()
    assert clock.now < 5
