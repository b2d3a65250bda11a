"""What the heartbeats of agents come to, and that agents send them."""

from __future__ import annotations

from dataclasses import replace

from coldstream.plans.heartbeats import FORGOTTEN_MS, Heartbeat, fleet

NOW = 1_800_000_000_000
WELL = Heartbeat("a", NOW - 60_000, 60_000, streams=9, behind=2, standing=0, failing=0)


def test_an_agent_that_has_missed_five_of_its_beats_is_silent() -> None:
    late = replace(WELL, node="b", at_ms=NOW - 300_001)
    just = replace(WELL, node="c", at_ms=NOW - 300_000)

    found = fleet([WELL, late, just], now_ms=NOW)

    assert (found.agents, found.silent, found.troubled) == (3, ("b",), ())
    assert found.behind == 4


def test_a_slow_agent_is_judged_by_its_own_interval() -> None:
    slow = replace(WELL, at_ms=NOW - 900_000, interval_ms=600_000)

    assert fleet([slow], now_ms=NOW).silent == ()


def test_a_node_that_is_gone_for_a_week_counts_no_more() -> None:
    gone = replace(WELL, at_ms=NOW - FORGOTTEN_MS)

    assert fleet([gone], now_ms=NOW).agents == 0
    assert fleet([replace(gone, at_ms=gone.at_ms + 1)], now_ms=NOW).silent == ("a",)


def test_streams_that_fail_or_stand_still_are_trouble_while_the_agent_lives() -> None:
    failing, standing = replace(WELL, failing=1), replace(WELL, node="b", standing=1)
    dead = replace(failing, node="c", at_ms=0)

    assert fleet([failing, standing, dead], now_ms=NOW).troubled == ("a", "b")


def test_a_clock_that_is_far_ahead_is_trouble_because_it_hides_silence() -> None:
    a_bit, far = (
        replace(WELL, node=n, at_ms=NOW + ms) for n, ms in [("b", 60_000), ("c", 3_600_001)]
    )

    found = fleet([a_bit, far], now_ms=NOW)

    assert (found.silent, found.troubled) == ((), ("c",))


def test_a_name_that_agents_share_is_trouble_because_it_hides_silence() -> None:
    assert fleet([replace(WELL, shared=1)], now_ms=NOW).troubled == ("a",)


def test_a_race_with_local_retention_is_told_apart_from_other_trouble() -> None:
    """It is the last call before a hole, and must not wait until it has been trouble for long."""
    racing = replace(WELL, node="b", racing=1)
    dead = replace(racing, node="c", at_ms=0)

    found = fleet([WELL, racing, dead], now_ms=NOW)

    assert (found.racing, found.troubled) == (("b",), ())


def test_the_longest_lag_is_that_of_an_agent_that_is_heard_of() -> None:
    late, later = replace(WELL, node="b", lag_ms=5), replace(WELL, node="c", lag_ms=7)
    dead = replace(WELL, node="d", at_ms=0, lag_ms=10**9)

    found = fleet([WELL, late, later, dead], now_ms=NOW)

    assert found.lags == (("c", 7), ("b", 5), ("a", 0))
