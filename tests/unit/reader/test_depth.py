"""Reads find by measuring how many GETs fill the link."""

from __future__ import annotations

import pytest

from coldstream.reader.depth import AT_ONCE, Depth

SIZE = 4 * 2**20


def link(
    depth: Depth, *, gets: int, per_get: float, most: float, consumer: float = 1e12
) -> list[int]:
    """The numbers that a read had, where so many bytes a second are one GET's, and all of them."""
    now, seen = 0.0, []
    for _ in range(gets):
        rate = min(depth.now * per_get, most, consumer)
        now += SIZE / rate
        depth.consumed(SIZE, now, waited=rate < consumer)
        seen.append(depth.now)
    return seen


@pytest.mark.parametrize("most", [0.4e9, 1e9, 1.5e9])
def test_a_read_soon_has_as_many_gets_under_way_as_fill_the_link(most: float) -> None:
    seen = link(Depth(64), gets=400, per_get=31e6, most=most)

    assert min(seen[200:]) * 31e6 >= 0.9 * most
    settled = sorted(seen[200:])[100]
    assert settled * 31e6 <= 2.3 * most, "more would only hold memory"


def test_a_read_has_its_first_gets_under_way_two_results_after_its_first() -> None:
    assert link(Depth(64), gets=2, per_get=1e6, most=1e9)[-1] == AT_ONCE


def test_a_slow_consumer_gets_no_more_than_it_begins_with() -> None:
    assert max(link(Depth(64), gets=400, per_get=40e6, most=1e9, consumer=100e6)) == AT_ONCE


def test_more_gets_that_bring_nothing_are_given_up() -> None:
    seen = link(Depth(64), gets=300, per_get=1e9, most=1e9)

    assert sorted(seen)[150] == AT_ONCE


def test_a_link_that_has_become_faster_is_found_out() -> None:
    depth = Depth(64)
    link(depth, gets=200, per_get=31e6, most=0.2e9)

    assert link(depth, gets=2000, per_get=31e6, most=1e9)[-1] * 31e6 >= 0.9e9


@pytest.mark.parametrize("most", [1, 2, 3, 8, 20])
def test_the_number_never_exceeds_what_is_allowed(most: int) -> None:
    seen = link(Depth(most), gets=300, per_get=1e6, most=1e12)

    assert max(seen) == most
    assert min(seen) >= 1
