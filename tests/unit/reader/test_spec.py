from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError
from coldstream.reader import First, Last, Next, Offset, Timestamp, parse_bound, parse_spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("first", First()),
        ("LAST", Last()),
        (" next ", Next()),
        ("0", Offset(0)),
        ("18446744073709551615", Offset(2**64 - 1)),
        ("1970-01-01T00:00:01Z", Timestamp(1000)),
        ("1970-01-01T00:00:01", Timestamp(1000)),
        ("1970-01-01 00:00:01", Timestamp(1000)),
        ("1970-01-01T01:00:00.5+01:00", Timestamp(500)),
        ("1970-01-02", Timestamp(86_400_000)),
        ("1969-12-31T23:59:59Z", Timestamp(-1000)),
        ("timestamp:1795227161842", Timestamp(1795227161842)),
        ("timestamp:-5", Timestamp(-5)),
    ],
)
def test_every_documented_form_is_understood(text: str, spec: object) -> None:
    assert parse_spec(text) == spec


def test_a_time_between_two_milliseconds_means_the_later_one() -> None:
    assert parse_spec("1970-01-01T00:00:00.0001Z") == Timestamp(1)
    assert parse_spec("1969-12-31T23:59:59.9999Z") == Timestamp(0)


@pytest.mark.parametrize("spec", [First(), Last(), Next(), Offset(7), Timestamp(-12)])
def test_a_spec_prints_as_it_is_parsed(spec: First | Last | Next | Offset | Timestamp) -> None:
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    ["", "-1", "yesterday", "18446744073709551616", "9" * 5000, "timestamp:", "timestamp:1.5",
     "timestamp:9223372036854775808", "2026-02-30", "1_000", "٣", "²", "timestamp:²", "firstt"],
)  # fmt: skip
def test_anything_else_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_spec(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("text", ["first", "last", "next", ""])
def test_a_range_ends_at_an_offset_or_a_time_only(text: str) -> None:
    with pytest.raises(InvalidInputError, match="an offset or a time"):
        parse_bound(text)
