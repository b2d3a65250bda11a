"""Sets of offsets: as sets of numbers would have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.jobs.materialise.ranges import MAX_RANGES, Ranges, parse_ranges
from coldstream.jobs.materialise.state import TableState, parse_state

_SPAN = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1]))
_SPANS = st.lists(_SPAN, max_size=8)


def _numbers(ranges: Ranges) -> set[int]:
    return {number for first, next_offset in ranges for number in range(first, next_offset)}


@given(_SPANS, _SPANS)
def test_union_intersection_and_difference_are_those_of_sets(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    ours, theirs = Ranges.of(left), Ranges.of(right)
    a, b = _numbers(ours), _numbers(theirs)
    assert _numbers(ours | theirs) == a | b
    assert _numbers(ours & theirs) == a & b
    assert _numbers(ours - theirs) == a - b
    assert ours.offsets == len(a)
    assert all(ours.contains(number) == (number in a) for number in range(60))


def test_very_many_ranges_are_a_set_like_others_and_a_state_has_the_last_of_what_was_lost() -> None:
    odd = Ranges.of((number, number + 1) for number in range(1, 100_000, 2))
    all_of_them = Ranges.of([(0, 100_000)])

    assert (all_of_them - odd).offsets == 50_000
    assert (all_of_them & odd) == odd
    assert odd.contains(77_777)
    assert not odd.contains(77_778)

    state = TableState().with_more({"__s_1": all_of_them}, {"__s_1": odd})
    state = parse_state(state.encode())
    assert state.covered == {"__s_1": all_of_them}
    assert state.lost["__s_1"].spans == odd.spans[-MAX_RANGES:]
    with pytest.raises(InvalidInputError, match="50000 ranges of one stream"):
        TableState({"__s_1": odd}).encode()


@given(_SPANS)
def test_ranges_are_normal_and_survive_the_state_object(spans: list[tuple[int, int]]) -> None:
    ranges = Ranges.of(spans)
    ends = [number for span in ranges for number in span]
    assert ends == sorted(set(ends))
    assert parse_ranges(ranges.to_json()) == ranges


@pytest.mark.parametrize("span", [(5, 4), (-1, 3), (0, 2**64 + 1)])
def test_what_is_no_range_is_refused(span: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        Ranges.of([span])


@pytest.mark.parametrize("value", [None, "ab", 7, [1], [[1]], [[1, "2"]], [[True, 2]], [[9, 3]]])
def test_a_damaged_state_is_no_set_of_ranges(value: object) -> None:
    with pytest.raises(CorruptDataError):
        parse_ranges(value)
