"""A service that refuses is asked by one probe at a time, and then by 1, 2, 4 at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.agent.sending.breaker import LONGEST_PAUSE, Breaker


def breaker_of(most: int = 8, drawn: float = 0.5) -> Breaker:
    return Breaker(most, lambda bound: bound * drawn)


def opened(most: int = 8) -> Breaker:
    breaker = breaker_of(most)
    for _ in range(5):
        breaker.refused(0.0, 0.0)
    return breaker


def test_a_few_refusals_change_nothing() -> None:
    breaker = breaker_of()
    for _ in range(20):
        for _ in range(4):
            breaker.refused(0.0, 0.0)
        breaker.landed()

    assert not breaker.is_open
    assert breaker.wait(7, 0.0) == 0.0


def test_five_in_a_row_stop_all_until_a_pause_is_over() -> None:
    breaker = opened()

    assert breaker.is_open
    assert breaker.wait(0, 0.0) == pytest.approx(0.75)
    assert breaker.wait(0, 10.0) == 0.0


def test_only_one_probes() -> None:
    breaker = opened()

    assert breaker.wait(1, 10.0) is None


def test_pauses_double_up_to_a_minute() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(12):
        assert breaker.until is not None
        pauses.append(breaker.until - now)
        now = breaker.until
        breaker.refused(now, now)

    assert pauses[:4] == pytest.approx([0.75, 1.5, 3.0, 6.0])
    assert max(pauses) == pytest.approx(0.75 * LONGEST_PAUSE)


def test_pauses_are_drawn() -> None:
    early, late = breaker_of(drawn=0.0), breaker_of(drawn=0.99)
    for _ in range(5):
        early.refused(0.0, 0.0)
        late.refused(0.0, 0.0)

    assert early.until == pytest.approx(0.5)
    assert late.until == pytest.approx(0.995)


def test_an_upload_from_before_is_no_probe() -> None:
    breaker = opened()
    until = breaker.until
    breaker.refused(0.0, 5.0)

    assert (breaker.until, breaker.refusals) == (until, 6)


def test_they_come_back_one_two_four() -> None:
    breaker, allowed = opened(most=8), []
    for _ in range(9):
        breaker.landed()
        allowed.append(breaker.allowed)

    assert allowed == [2, 2, 4, 4, 4, 4, 8, 8, 8]
    assert not breaker.is_open


def test_two_refusals_are_enough_while_they_come_back() -> None:
    breaker = opened()
    pause = breaker.until
    breaker.landed()
    for _ in range(2):
        breaker.refused(10.0, 10.0)

    assert breaker.until is not None
    assert pause is not None
    assert breaker.until - 10.0 > pause  # and the pauses go on where they were


def test_once_all_are_back_it_begins_anew() -> None:
    breaker = opened(most=2)
    for _ in range(3):
        breaker.landed()
    for _ in range(4):
        breaker.refused(10.0, 10.0)
    assert not breaker.is_open
    breaker.refused(10.0, 10.0)

    assert breaker.wait(0, 10.0) == pytest.approx(0.75)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=100), st.integers(1, 64))
def test_it_never_keeps_anybody_waiting_for_ever(came: list[tuple[bool, float]], most: int) -> None:
    breaker, now = breaker_of(most), 0.0
    for served, later in came:
        now += later
        if served:
            breaker.landed()
        else:
            breaker.refused(now, now)
        wait = breaker.wait(0, now)
        assert wait is not None
        assert 0 <= wait <= LONGEST_PAUSE
        assert breaker.wait(0, now + LONGEST_PAUSE) == 0.0
        assert 1 <= breaker.allowed <= most
