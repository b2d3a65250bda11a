"""One way to write sizes and durations: rules, options of Spark and arguments of jobs."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError
from coldstream.plans.policy_document import parse_policies
from coldstream.quantities import duration_text, parse_duration, parse_size

_DAY = 86_400


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1000", 1000),
        ("3B", 3),
        ("1KiB", 1024),
        ("64MiB", 64 * 2**20),
        ("64mib", 64 * 2**20),
        ("256m", 256 * 2**20),
        ("1G", 2**30),
        ("2 TiB", 2 * 2**40),
    ],
)
def test_sizes_have_units_of_1024_whatever_their_case(written: str, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "lots", "-1", "1.5MiB", "5 XB", "5PiB", "٧", "1" * 19])
def test_what_is_no_size_is_refused_with_one_that_is(written: str) -> None:
    with pytest.raises(InvalidInputError, match="a size such as 1048576, 64MiB or 1TiB"):
        parse_size(written)


@pytest.mark.parametrize("written", ["64MB", "64mb", "64 Mb"])
def test_a_unit_that_some_take_for_1000s_and_others_for_1024s_is_refused(written: str) -> None:
    with pytest.raises(InvalidInputError, match="write 64MiB"):
        parse_size(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90), ("90s", 90), ("15m", 900), ("6h", 21_600), ("2d", 2 * _DAY), ("2D", 2 * _DAY),
        ("1M", 30 * _DAY), ("1Y", 365 * _DAY), ("30 d", 30 * _DAY),
    ],
)  # fmt: skip
def test_durations_have_units_and_minutes_are_no_months(written: str, seconds: int) -> None:
    assert parse_duration(written) == seconds
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize("written", ["", "h", "-5s", "1.5h", "5w", "5H", "5S", "5y", "1" * 13])
def test_what_is_no_duration_is_refused_with_one_that_is(written: str) -> None:
    with pytest.raises(InvalidInputError, match="a duration such as 90s, 15m, 6h, 30d"):
        parse_duration(written)


def test_a_rule_may_say_its_size_as_a_number_or_in_words() -> None:
    for said in ("1099511627776", '"1TiB"', '"1t"'):
        document = f'{{"rules": [{{"name": "a", "max-length-bytes": {said}}}]}}'
        assert parse_policies(document).rules[0].max_bytes == 2**40


def test_no_time_is_no_days() -> None:
    assert duration_text(0) == "0s"
