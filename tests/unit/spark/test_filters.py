"""Filters as windows, against the meaning that SQL gives them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql.types import VariantVal

from coldstream.columns.reference import MAX_MS, MIN_MS, clamped_us
from coldstream.spark.far_times import expect_filters, far_times, filters_came
from coldstream.spark.filters import push
from coldstream.spark.options import Rows
from tests.support.examples import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEANING: dict[type[ds.Filter], Any] = {
    ds.EqualTo: lambda x, v: x == v,
    ds.EqualNullSafe: lambda x, v: x == v,
    ds.GreaterThan: lambda x, v: x > v,
    ds.GreaterThanOrEqual: lambda x, v: x >= v,
    ds.LessThan: lambda x, v: x < v,
    ds.LessThanOrEqual: lambda x, v: x <= v,
    ds.In: lambda x, v: x in v,
}
kinds = st.sampled_from(list(MEANING))


@examples(2)
@given(kinds, st.integers(0, 20), st.lists(st.integers(0, 20), max_size=4))
def test_a_filter_on_offset_is_exactly_its_window(
    kind: type[ds.Filter], value: int, values: list[int]
) -> None:
    operand: Any = tuple(values) if kind is ds.In else value

    pushed = push([kind(("offset",), operand)], Rows.MESSAGES)

    assert pushed.left == []
    for offset in range(22):
        inside = pushed.window.offsets.overlaps(offset, offset + 1)
        assert inside == MEANING[kind](offset, operand)


@examples(3)
@given(
    kinds,
    st.integers(-6000, 6000),
    st.lists(st.integers(-6000, 6000), max_size=4),
    st.sampled_from([UTC, timezone(timedelta(hours=2))]),
)
def test_a_filter_on_time_lets_through_the_chunks_whose_rows_match(
    kind: type[ds.Filter], value: int, values: list[int], zone: Any
) -> None:
    def moment(us: int) -> datetime:
        return (EPOCH + timedelta(microseconds=us)).astimezone(zone)

    operand: Any = tuple(map(moment, values)) if kind is ds.In else moment(value)
    plain: Any = tuple(values) if kind is ds.In else value

    pushed = push([kind(("timestamp",), operand)], Rows.MESSAGES)

    assert pushed.left == []
    for ms in range(-7, 8):
        inside = pushed.window.times.overlaps(ms, ms + 1)
        assert inside == MEANING[kind](clamped_us(ms), plain)


@pytest.mark.parametrize("ms", [MIN_MS - 5, MIN_MS, 0, MAX_MS, MAX_MS + 5, 2**63 - 1, -(2**63)])
def test_times_that_do_not_fit_in_a_row_are_where_their_rows_are(ms: int) -> None:
    late = push([ds.GreaterThan(("timestamp",), EPOCH)], Rows.MESSAGES).window
    early = push([ds.LessThan(("timestamp",), EPOCH)], Rows.MESSAGES).window

    assert late.times.overlaps(ms, ms + 1) == (clamped_us(ms) > 0)
    assert early.times.overlaps(ms, ms + 1) == (clamped_us(ms) < 0)


def test_filters_are_joined_by_and() -> None:
    pushed = push(
        [
            ds.IsNotNull(("offset",)),
            ds.GreaterThan(("offset",), 3),
            ds.LessThanOrEqual(("offset",), 9),
            ds.In(("offset",), (1, 4, 9, 30)),
        ],
        Rows.MESSAGES,
    )

    assert pushed.left == []
    assert pushed.window.offsets.spans == ((4, 5), (9, 10))


def test_what_a_window_cannot_say_is_left_to_spark() -> None:
    left = [
        ds.EqualTo(("epoch",), 1),
        ds.EqualTo(("properties", "subject"), "x"),
        ds.IsNull(("offset",)),
        ds.Not(ds.EqualTo(("offset",), 1)),
        ds.EqualTo(("offset",), True),
        ds.EqualTo(("offset",), 1.5),
        ds.GreaterThan(("timestamp",), datetime(2026, 1, 1)),
        ds.EqualNullSafe(("offset",), None),
        ds.In(("offset",), tuple(range(2000))),
        ds.StringStartsWith(("stream",), "x"),
    ]

    pushed = push(left, Rows.MESSAGES)

    assert pushed.left == left
    assert pushed.window.offsets.contains(0, 10)


def test_a_time_that_python_cannot_hold_is_left_to_spark() -> None:
    year_290000 = 9_089_000_000_000_000_000
    plain = VariantVal(bytes([12 << 2]) + (5_000_000).to_bytes(8, "little"), b"\x01\x00\x00")
    far = VariantVal(bytes([12 << 2]) + year_290000.to_bytes(8, "little"), b"\x01\x00\x00")
    with pytest.raises(OverflowError):
        far.toPython()

    with far_times():
        found = far.toPython()
        assert plain.toPython() == EPOCH + timedelta(seconds=5)
    left = [ds.GreaterThanOrEqual(("timestamp",), found), ds.In(("timestamp",), found)]

    assert push(left, Rows.MESSAGES).left == left
    with pytest.raises(OverflowError):  # nobody else's values are touched
        far.toPython()
    for _ in range(2):
        expect_filters()
    assert far.toPython() == found
    filters_came()
    with pytest.raises(OverflowError):
        far.toPython()


def test_fragments_have_two_times_and_no_timestamp() -> None:
    asked = [ds.GreaterThan(("timestamp",), EPOCH), ds.GreaterThan(("offset",), 4)]

    assert push(asked, Rows.FRAGMENTS).left == asked[:1]


@dataclass
class Unknown:
    """A filter of a later Spark."""

    attribute: tuple[str, ...] = ("offset",)
    value: int = 3


def test_a_filter_that_is_not_known_is_left_to_spark() -> None:
    given = [Unknown()]

    assert push(given, Rows.MESSAGES).left == given
