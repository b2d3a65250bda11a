from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from coldstream.errors import LostRangeError, NotFoundError
from coldstream.osiris.chunk import ChunkType
from coldstream.reader import (
    First,
    Gap,
    GapReason,
    Last,
    Next,
    Offset,
    OffsetSpec,
    ReaderSettings,
    Timestamp,
)
from tests.support.tier import FIXTURES, SMALL, Tier, chunk, segments_of


@pytest.mark.parametrize("settings", [SMALL, ReaderSettings()], ids=["by ranges", "whole"])
@pytest.mark.parametrize("name", FIXTURES)
def test_every_message_of_a_broker_comes_back(name: str, settings: ReaderSettings) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture(name, chunks=1000), settings)

    messages = list(reader.messages(First()))

    expected = FIXTURES[name]
    digest = hashlib.sha256(b"".join(bytes(each.body) for each in messages)).hexdigest()
    assert (len(messages), digest) == (expected["messages"], expected["sha256"])
    offsets = [each.offset for each in messages]
    assert offsets == [
        offset for first, count in expected["user_chunks"] for offset in range(first, first + count)
    ]


@pytest.mark.parametrize("name", FIXTURES)
def test_chunks_come_back_byte_for_byte_with_tracking_chunks(name: str) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture(name))

    chunks = list(reader.chunks(First()))

    stored = b"".join(each for segment in segments_of(name) for each in segment)
    assert b"".join(each.buffer for each in chunks) == stored


@pytest.fixture
def tier() -> Tier:
    """Offsets 10 to 69: three fragments of two chunks of ten messages, the last with tracking."""
    tier = Tier()
    tens = [
        chunk(first, *(b"%d" % n for n in range(first, first + 10)), timestamp=first * 100)
        for first in range(10, 70, 10)
    ]
    tracking = [chunk(70 + n, b"", kind=ChunkType.TRACKING_DELTA, timestamp=7000) for n in range(3)]
    tier.add("s", [tens[:2], tens[2:4], tens[4:], tracking])
    return tier


def offsets(
    tier: Tier,
    spec: OffsetSpec,
    to: Offset | Timestamp | None = None,
    on_gap: Callable[[Gap], None] = lambda _: None,
) -> list[int]:
    return [int(bytes(each.body)) for each in tier.reader("s").messages(spec, to, on_gap=on_gap)]


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        (First(), 10),
        (Offset(0), 10),  # below the first: the first retained chunk
        (Offset(10), 10),
        (Offset(29), 29),  # the last of a fragment
        (Offset(30), 30),
        (Offset(34), 34),  # inside a chunk
        (Timestamp(-1), 10),
        (Timestamp(1000), 10),
        (Timestamp(1001), 20),
        (Timestamp(3000), 30),
        (Timestamp(6000), 60),
        (Last(), 60),  # the last chunk with messages, three tracking chunks follow
    ],
)
def test_a_read_begins_where_the_broker_would_begin(
    tier: Tier, spec: OffsetSpec, start: int
) -> None:
    assert offsets(tier, spec) == list(range(start, 70))


@pytest.mark.parametrize("spec", [Next(), Offset(73), Offset(10**12), Timestamp(7001)])
def test_a_read_from_the_end_is_empty_and_knows_where_to_wait(tier: Tier, spec: OffsetSpec) -> None:
    assert offsets(tier, spec) == []
    assert tier.reader("s").locate(spec) == 73


def test_chunks_begin_with_the_one_that_contains_the_offset(tier: Tier) -> None:
    for settings in (SMALL, ReaderSettings(first_range_size=1, range_size=1, index_guess=1)):
        chunks = tier.reader("s", settings).chunks(Offset(34), Offset(51))

        assert [each.header.chunk_id for each in chunks] == [30, 40, 50]


@pytest.mark.parametrize(
    ("to", "end"),
    [(Offset(10), 10), (Offset(11), 11), (Offset(35), 35), (Offset(99), 70), (Timestamp(2999), 30),
     (Timestamp(3000), 30), (Timestamp(99999), 70), (Timestamp(0), 10)],
)  # fmt: skip
def test_the_end_of_a_range_is_exclusive(tier: Tier, to: Offset | Timestamp, end: int) -> None:
    assert offsets(tier, First(), to) == list(range(10, end))


def test_every_pair_of_offsets_gives_exactly_the_messages_between(tier: Tier) -> None:
    for start in range(8, 75, 3):
        for end in range(8, 75, 3):
            expected = [n for n in range(10, 70) if start <= n < end]
            gaps: list[Gap] = []
            assert offsets(tier, Offset(start), Offset(end), gaps.append) == expected
            missed = (start, min(10, end))
            expected_gaps = [Gap(*missed, GapReason.RETENTION)] if missed[0] < missed[1] else []
            assert gaps == expected_gaps


def test_last_goes_back_over_whole_fragments_of_tracking_data() -> None:
    tier = Tier()
    tracking = [chunk(n, b"", kind=ChunkType.TRACKING_DELTA) for n in range(2, 400)]
    tier.add("s", [[chunk(0, b"0", b"1"), tracking[0]], tracking[1:300], tracking[300:]])

    assert tier.reader("s").locate(Last()) == 0


def test_last_is_the_end_where_nothing_but_tracking_data_is_left() -> None:
    tier = Tier()
    tier.add("s", [[chunk(5, b"", kind=ChunkType.TRACKING_SNAPSHOT)]])

    assert tier.reader("s").locate(Last()) == 6


def test_a_time_is_found_though_the_clock_fell_across_a_fail_over() -> None:
    tier = Tier()
    times = [[1000, 5000], [2000, 2500], [3000, 6000]]
    groups = [
        [chunk(4 * g + 2 * c, b"x", b"y", timestamp=time) for c, time in enumerate(group)]
        for g, group in enumerate(times)
    ]
    tier.add("s", groups)
    reader = tier.reader("s")
    flat = [(4 * g + 2 * c, time) for g, group in enumerate(times) for c, time in enumerate(group)]

    for wanted in range(500, 6500, 250):
        first = next((offset for offset, time in flat if time >= wanted), 12)
        assert reader.locate(Timestamp(wanted)) == first, wanted


def test_a_stream_without_a_root_is_empty() -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"0")]])
    item = tier.catalog.items["s"]
    tier.catalog.items["s"] = type(item)("s", item.table_id, first_offset=42)

    reader = tier.reader("s")

    assert list(reader.chunks(First())) == []
    assert {reader.locate(spec) for spec in (First(), Last(), Next(), Timestamp(0))} == {42}


def test_an_unknown_stream_is_named() -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        Tier().reader("nobody").chunks(First())


def test_a_hole_stops_a_read_unless_somebody_listens() -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"0", b"1")], tier.hole(2, 5), [chunk(5, b"5")]])
    gaps: list[Gap] = []

    with pytest.raises(LostRangeError, match="offsets 2 to 4"):
        list(tier.reader("s").messages(First()))
    read = [m.offset for m in tier.reader("s").messages(First(), on_gap=gaps.append)]

    assert read == [0, 1, 5]
    assert gaps == [Gap(2, 5, GapReason.HOLE)]


def test_a_read_that_begins_in_a_hole_tells_the_rest_of_it() -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"0", b"1")], tier.hole(2, 9), [chunk(9, b"9", timestamp=2000)]])
    gaps: list[Gap] = []

    read = [m.offset for m in tier.reader("s").messages(Offset(4), on_gap=gaps.append)]

    assert (read, gaps) == ([9], [Gap(4, 9)])
    assert tier.reader("s").locate(Timestamp(1001)) == 9
