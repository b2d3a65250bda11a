"""Idle streams are looked at in turns: each once in the interval, some in every run."""

from __future__ import annotations

import random
from collections import Counter

from coldstream.plans.turns import is_in_turn

MINUTE = 60_000
STREAMS = [f"__orders.{number}_{number * 7919}" for number in range(3000)]


def seen(runs: list[int], every_ms: int, idle_ms: int) -> Counter[str]:
    return Counter(
        stream
        for now_ms in runs
        for stream in STREAMS
        if is_in_turn(stream, now_ms=now_ms, every_ms=every_ms, idle_ms=idle_ms)
    )


def test_every_stream_is_looked_at_in_each_hour_whatever_the_phase_of_the_schedule() -> None:
    for phase in (0, 1, 149_999, 299_999):
        runs = [10**12 + phase + 5 * MINUTE * number for number in range(12)]

        assert set(seen(runs, 5 * MINUTE, 60 * MINUTE)) == set(STREAMS)


def test_a_schedule_that_is_late_now_and_then_leaves_nobody_out() -> None:
    chance = random.Random(7)
    begin = 10**12 - 10**12 % (5 * MINUTE)
    for _ in range(20):
        late = [chance.randrange(MINUTE) for _ in range(12)]
        runs = [begin + 5 * MINUTE * number + late[number] for number in range(12)]

        assert set(seen(runs, 5 * MINUTE, 60 * MINUTE)) == set(STREAMS)


def test_a_run_looks_at_about_its_share() -> None:
    share = len(seen([10**12 + 2 * MINUTE], 5 * MINUTE, 60 * MINUTE))

    assert len(STREAMS) / 12 * 0.7 < share < len(STREAMS) / 12 * 1.3


def test_runs_that_are_rarer_than_the_interval_look_at_everybody() -> None:
    for every, idle in ((60, 60), (120, 60), (5, 9), (1440, 60)):
        assert set(seen([10**12], every * MINUTE, idle * MINUTE)) == set(STREAMS)
