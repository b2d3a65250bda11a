"""What a link asks for: fewer uploads at once, then smaller ones, and no more bytes a second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldstream.agent.sending.link import LEAST_PIECE, Link, TokenBucket, told

MIB = 2**20
FULL = 64 * MIB


class Wire:
    """A link of one rate, which all connections share, and on which none is faster than `each`."""

    def __init__(self, rate: float, each: float = float("inf")) -> None:
        self.link = Link(3, FULL, 60.0)
        self.rate, self.each, self.now = rate, each, 0.0

    def upload(self, count: int) -> None:
        for _ in range(count):
            many, size = self.link.at_once, self.link.piece
            seconds = size / min(self.rate / many, self.each)
            began, self.now = self.now, self.now + seconds
            self.link.landed(size, began, self.now, among=many)


def test_a_good_link_takes_full_fragments_as_many_as_may_be() -> None:
    wire = Wire(100e6)
    wire.upload(50)

    assert (wire.link.at_once, wire.link.piece) == (3, FULL)


def test_a_slow_link_has_one_upload_that_takes_about_the_flush_time() -> None:
    wire = Wire(200e3)
    wire.upload(50)

    assert wire.link.at_once == 1
    assert 30 <= wire.link.piece / 200e3 <= 61


def test_a_link_on_which_two_full_ones_take_the_flush_time_has_two() -> None:
    wire = Wire(2.5 * MIB)
    wire.upload(50)

    assert (wire.link.at_once, wire.link.piece) == (2, FULL)


def test_both_grow_again_with_the_link() -> None:
    wire = Wire(200e3)
    wire.upload(50)
    wire.rate = 100e6
    wire.upload(50)

    assert (wire.link.at_once, wire.link.piece) == (3, FULL)


def test_where_each_connection_is_slow_there_are_as_many_as_may_be() -> None:
    wire = Wire(100e6, each=100e3)
    wire.upload(200)
    seen = []
    for _ in range(100):
        wire.upload(1)
        seen.append(wire.link.at_once)

    assert seen.count(3) > 80  # now and then it looks whether fewer do as well


def test_small_uploads_say_nothing_about_a_link() -> None:
    link = Link(3, FULL, 60.0)
    for second in range(100):
        link.landed(10_000, second, second + 20, among=3)

    assert (link.at_once, link.piece) == (3, FULL)


def test_what_was_measured_long_ago_is_forgotten() -> None:
    wire = Wire(50e3)
    wire.upload(20)
    assert wire.link.piece < FULL

    wire.link.landed(100, wire.now + 3600, wire.now + 3601, among=1)

    assert (wire.link.at_once, wire.link.piece) == (3, FULL)


def test_connections_that_break_leave_smaller_pieces_until_some_land() -> None:
    link = Link(3, FULL, 60.0)
    for _ in range(3):
        link.cut_short(20 * MIB)
    smallest = link.piece
    for second in range(5):
        link.landed(link.piece, second, second + 0.1, among=1)

    assert smallest == 5 * MIB
    assert link.piece == FULL


def test_it_says_what_it_does() -> None:
    wire = Wire(200e3)
    wire.upload(50)

    words = told(wire.link)

    assert words.startswith("uploads go slowly: about 195 KiB a second go through, so one upload")
    assert words.endswith("(on a good link 3 of 64 MiB)")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(1, FULL), st.floats(0.001, 10_000), st.integers(1, 64)),
            st.integers(0, FULL),
        ),
        max_size=60,
    ),
    st.integers(1, 64),
    st.integers(1, FULL),
    st.floats(0, 600),
)
def test_whatever_uploads_take_it_stays_within_its_limits(
    seen: list[tuple[int, float, int] | int], most: int, full: int, seconds: float
) -> None:
    link, now = Link(most, full, seconds), 0.0
    for each in seen:
        if isinstance(each, int):
            link.cut_short(each)
        else:
            size, lasts, among = each
            began, now = now, now + lasts
            link.landed(size, began, now, among=among)
        assert 1 <= link.at_once <= most
        assert min(LEAST_PIECE, full) <= link.piece <= full


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.integers(1, 2**20), st.floats(0, 5)), min_size=1, max_size=60),
)
def test_no_window_of_time_lets_more_bytes_go_than_the_rate(
    rate: int, asked: list[tuple[int, float]]
) -> None:
    bucket, now, gone = TokenBucket(rate), 0.0, []
    for size, later in asked:
        now += later
        gone.append((now + bucket.reserve(size, now), size))
    for first in range(len(gone)):
        for last in range(first, len(gone)):
            seconds = gone[last][0] - gone[first][0]
            size = sum(each for _, each in gone[first:last])  # the last one is still to go
            assert size <= rate * (seconds + bucket.burst) * (1 + 1e-9) + 1


def test_a_rate_of_nothing_is_no_limit() -> None:
    bucket = TokenBucket(0)

    assert [bucket.reserve(10**12, 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_what_was_not_used_long_ago_is_lost() -> None:
    bucket = TokenBucket(1000)
    bucket.reserve(1000, 0.0)

    assert bucket.reserve(1000, 100.0) == 0.0
    assert bucket.reserve(1000, 100.0) > 0.7
