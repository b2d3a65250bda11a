from __future__ import annotations

import pytest

from coldstream.gateway.hand_off import (
    Mark,
    Verdict,
    across,
    may_come_again,
    same_log,
    verdict,
)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ((0, 10), Verdict.SKIP),
        ((90, 100), Verdict.SKIP),
        ((95, 105), Verdict.DELIVER),  # it contains what is due
        ((100, 101), Verdict.DELIVER),
        ((101, 110), None),
    ],
)
def test_a_chunk_below_what_is_due_is_not_delivered_again(
    chunk: tuple[int, int], expected: Verdict | None
) -> None:
    assert verdict(100, *chunk) is expected


@pytest.mark.parametrize(
    ("local_first", "remote_next", "expected"),
    [
        (0, 0, Verdict.DELIVER),  # tracking data lies between
        (100, 50, Verdict.DELIVER),
        (101, 50, Verdict.WAIT),  # nobody has it
        (101, 100, Verdict.WAIT),
        (101, 101, Verdict.REMOTE),  # it has been uploaded meanwhile
        (None, 101, Verdict.REMOTE),
        (None, 100, Verdict.WAIT),
    ],
)
def test_offsets_are_passed_over_only_where_nothing_can_be_missing(
    local_first: int | None, remote_next: int, expected: Verdict
) -> None:
    assert across(100, local_first, remote_next) is expected


@pytest.mark.parametrize(
    ("last", "found", "same"),
    [
        (None, Mark(0, 1, 50), True),
        (Mark(90, 2, 50), None, True),
        (Mark(90, 2, 50), Mark(90, 2, 50), True),
        (Mark(90, 2, 50), Mark(90, 2, 49), True),  # the manifest knows the greatest time only
        (Mark(90, 2, None), Mark(90, 2, 51), True),
        (Mark(90, 2, 50), Mark(95, 1, 51), True),  # what could be compared is gone, or is tracking
        (Mark(90, 2, 50), Mark(90, 3, 50), False),
        (Mark(90, 2, 50), Mark(88, 2, 50), False),
        (Mark(90, 2, 50), Mark(5, 1, 51), False),  # a queue that was made anew
        (Mark(90, 1, 50), Mark(90, 1, 51), False),  # and has a chunk of the same number
    ],
)
def test_a_log_with_another_chunk_where_the_manifest_ends_is_another_log(
    last: Mark | None, found: Mark | None, same: bool
) -> None:
    assert same_log(last, found) is same


@pytest.mark.parametrize(
    ("chunk", "end", "may"),
    [
        (Mark(100, 3, 1000), 110, True),  # the very chunk
        (Mark(100, 4, 1000), 110, False),  # written anew under another epoch
        (Mark(100, 3, 1001), 110, False),  # or later
        (Mark(90, 3, 1000), 100, True),
        (Mark(90, 2, 900), 95, True),
        (Mark(90, 3, 1000), 101, False),  # in one log nothing begins within a chunk
        (Mark(90, 4, 1000), 100, False),
        (Mark(90, 3, 1001), 100, False),  # declared anew
        (Mark(101, 3, 1000), 105, False),
    ],
)
def test_what_comes_again_may_be_of_the_log_that_was_read_or_not(
    chunk: Mark, end: int, may: bool
) -> None:
    assert may_come_again(chunk._replace(end=end), Mark(100, 3, 1000)) is may


def test_a_log_with_a_chunk_that_begins_within_the_last_one_is_another_one() -> None:
    last = Mark(100, 3, 1000, end=110)

    assert same_log(last, Mark(110, 3, 1000))  # retention has taken it
    assert not same_log(last, Mark(109, 3, 1000))
