"""Whose turn it is: nobody is passed over, nothing that happens is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldstream.agent.turns import Turns


def test_those_whose_time_has_come_are_taken_in_the_order_of_their_times() -> None:
    turns = Turns()
    for stream, at in (("b", 2.0), ("a", 1.0), ("c", 9.0)):
        turns.wake(stream, at)

    assert turns.take(5.0, 9) == ["a", "b"]
    assert turns.next_at() == 9.0


def test_a_stream_that_is_looked_at_has_no_turn_until_it_is_back() -> None:
    turns = Turns()
    turns.wake("a", 1.0)
    turns.take(1.0, 1)

    turns.wake("a", 2.0)

    assert turns.take(3.0, 1) == []
    assert list(turns.busy) == ["a"]


def test_what_happens_while_a_stream_is_looked_at_is_looked_at_soon() -> None:
    turns = Turns()
    turns.wake("a", 1.0)
    turns.take(1.0, 1)
    turns.wake("a", 2.0)

    turns.back("a", 1800.0, soonest=3.0)

    assert turns.next_at() == 3.0


def test_a_stream_to_which_nothing_happens_waits_as_long_as_it_says() -> None:
    turns = Turns()
    turns.wake("a", 1.0)
    turns.take(1.0, 1)

    turns.back("a", 1800.0, soonest=3.0)

    assert turns.next_at() == 1800.0


def test_a_turn_may_come_sooner_and_never_later() -> None:
    turns = Turns()
    turns.wake("a", 5.0)
    turns.wake("a", 2.0)
    turns.wake("a", 7.0)

    assert turns.take(2.0, 9) == ["a"]
    turns.back("a", 20.0, soonest=0.0)
    assert turns.take(7.0, 9) == []


def test_data_that_arrives_does_not_wait_for_all_that_were_never_looked_at() -> None:
    turns = Turns()
    for number in range(1000):
        turns.begin(f"new{number}")
    turns.wake("new500", 1.0)
    turns.wake("known", 2.0)

    assert turns.take(2.0, 2) == ["new500", "known"]


def test_streams_that_were_never_looked_at_get_their_turns_beside_busy_ones() -> None:
    turns = Turns()
    for number in range(10):
        turns.begin(f"new{number}")
    taken = []
    for now in range(40):
        turns.wake("busy", float(now))
        (stream,) = turns.take(float(now), 1)
        taken.append(stream)
        turns.back(stream, float("inf"), soonest=float(now))

    assert [each for each in taken if each != "busy"] == [f"new{number}" for number in range(10)]


def test_new_streams_come_in_the_order_in_which_they_were_told() -> None:
    turns = Turns()
    for stream in ("c", "a", "b"):
        turns.begin(stream)

    assert turns.take(0.0, 9) == ["c", "a", "b"]


def test_a_stream_that_is_gone_has_no_turn() -> None:
    turns = Turns()
    turns.begin("new")
    turns.wake("known", 1.0)
    for stream in ("new", "known", "never"):
        turns.forget(stream)

    assert turns.take(9.0, 9) == []
    assert turns.next_at() == float("inf")


def test_a_stream_that_came_again_has_the_turn_of_its_new_life() -> None:
    turns = Turns()
    turns.wake("a", 1.0)
    turns.forget("a")
    turns.wake("a", 5.0)

    assert turns.take(4.0, 9) == []
    assert turns.take(5.0, 9) == ["a"]
    assert turns.take(5.0, 9) == []


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "wake", "take", "back", "forget"]),
        st.sampled_from("abcd"),
        st.integers(0, 20),
    ),
    max_size=60,
)


@given(ACTS)
def test_every_stream_is_busy_or_waits_or_is_gone_and_is_taken_once(
    acts: list[tuple[str, str, int]],
) -> None:
    turns, there, busy = Turns(), set[str](), set[str]()
    for act, stream, at in acts:
        if act == "begin" and stream not in there:
            turns.begin(stream)
            there.add(stream)
        elif act == "wake" and stream in there:
            turns.wake(stream, float(at))
        elif act == "take":
            taken = turns.take(float(at), 2)
            assert not busy & set(taken)
            busy |= set(taken)
        elif act == "back" and stream in busy:
            turns.back(stream, float(at), soonest=0.0)
            busy.remove(stream)
        elif act == "forget":
            turns.forget(stream)
            there.discard(stream)
            busy.discard(stream)
        assert set(turns.busy) == busy

    assert sorted(turns.take(99.0, 99)) == sorted(there - busy)


def test_however_often_streams_are_woken_no_more_turns_are_kept_than_there_are_streams() -> None:
    """With a flush time of an hour each busy stream came to thousands, one for each look."""
    turns = Turns()
    for second in range(1_000):
        now = float(second)
        for stream in ("a", "b"):
            turns.wake(stream, now)
        for stream in turns.take(now, 2):
            turns.back(stream, now + 3600, soonest=now)

    assert len(turns._heap) < 100
    assert turns.take(998.0 + 3600, 9) == []
    assert sorted(turns.take(999.0 + 3600, 9)) == ["a", "b"]
