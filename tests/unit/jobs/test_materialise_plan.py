"""What a run of materialise has to do about a stream."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.plan import BackfillWindow, Wanted, wanted, windows
from coldstream.jobs.materialise.ranges import Ranges


def _wanted(
    covered: list[tuple[int, int]], *, start: str = "first", window: BackfillWindow | None = None
) -> Wanted:
    """Of a stream that holds [100, 500)."""
    return wanted(Ranges.of(covered), 100, 500, start=start, window=window or BackfillWindow())


@pytest.mark.parametrize(
    ("start", "spans"),
    [("first", ((100, 500),)), ("next", ()), ("250", ((250, 500),)), ("900", ())],
)
def test_a_new_table_begins_where_its_rule_says(
    start: str, spans: tuple[tuple[int, int], ...]
) -> None:
    found = _wanted([], start=start)
    assert found.read.spans == spans
    assert not found.lost


def test_a_new_table_has_lost_nothing_although_retention_was_there_before_it() -> None:
    assert not _wanted([], start="0").lost


def test_a_table_goes_on_after_its_last_offset_and_leaves_older_gaps_alone() -> None:
    assert _wanted([(100, 150), (200, 300)]).read.spans == ((300, 500),)


def test_offsets_that_retention_took_before_the_table_had_them_are_lost() -> None:
    found = _wanted([(0, 40)])
    assert found.lost.spans == ((40, 100),)
    assert found.read.spans == ((100, 500),)


def test_a_stream_that_has_nothing_new_gives_nothing_to_do() -> None:
    found = _wanted([(100, 500)])
    assert not found.read
    assert not found.lost


def test_a_back_fill_reads_what_the_table_has_not() -> None:
    found = _wanted([(200, 300)], window=BackfillWindow(first=0, next_offset=400))
    assert found.read.spans == ((100, 200), (300, 400))
    assert not found.lost
    assert not found.replaces


def test_an_overwrite_reads_all_of_its_window_and_says_what_it_replaces() -> None:
    found = _wanted([(100, 300)], window=BackfillWindow(first=150, next_offset=400, overwrite=True))
    assert found.read.spans == ((150, 400),)
    assert found.replaces.spans == ((150, 300),)


def test_an_end_without_a_beginning_stops_there() -> None:
    assert _wanted([(100, 200)], window=BackfillWindow(next_offset=260)).read.spans == ((200, 260),)


def test_a_window_that_says_nothing_sensible_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs --from"):
        BackfillWindow(overwrite=True)
    with pytest.raises(InvalidInputError, match="no range"):
        BackfillWindow(first=5, next_offset=5)


def test_windows_are_limited_by_bytes_and_by_number_and_leave_nothing_out() -> None:
    items = [("a", 5), ("b", 5), ("c", 1), ("d", 1), ("e", 1), ("f", 50), ("g", 1)]
    found = list(windows(items, max_bytes=10, max_items=3))
    assert found == [["a", "b"], ["c", "d", "e"], ["f"], ["g"]]
