from __future__ import annotations

import pytest

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris import (
    ChunkType,
    FilterMatcher,
    Tracked,
    TrackingType,
    encode_bloom,
    iter_chunks,
    parse_tracking,
)
from coldstream.osiris.tracking import encode_tracked, parse_snapshot, parse_tracked
from coldstream_devkit.generator import build_chunk

VALUES = (
    Tracked(TrackingType.SEQUENCE, b"producer", 7, chunk_id=3),
    Tracked(TrackingType.OFFSET, b"consumer", 2**64 - 1),
    Tracked(TrackingType.TIMESTAMP, b"\xff" * 255, 0),
    Tracked(TrackingType.OFFSET, b"", 1),
)
SNAPSHOT = b"".join(map(encode_tracked, VALUES))
DELTA = b"".join(map(encode_tracked, VALUES[1:]))


def test_tracked_values_come_back_from_trailer_delta_and_snapshot() -> None:
    trailer = build_chunk(1, 1, 1, [b"x"], trailer=DELTA)
    delta = build_chunk(2, 1, 1, [DELTA], chunk_type=ChunkType.TRACKING_DELTA)
    snapshot = build_chunk(3, 1, 1, [SNAPSHOT], chunk_type=ChunkType.TRACKING_SNAPSHOT)

    found = [parse_tracking(chunk) for chunk in iter_chunks(trailer + delta + snapshot)]

    assert found == [VALUES[1:], VALUES[1:], VALUES]
    assert found[2][2].name == "\\xff" * 255


def test_a_chunk_without_trailer_tracks_nothing() -> None:
    assert parse_tracking(next(iter_chunks(build_chunk(1, 1, 1, [b"x"])))) == ()


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_cut_at_any_byte_is_refused_or_ends_between_two_values(snapshot: bool) -> None:
    parse = parse_snapshot if snapshot else parse_tracked
    values = VALUES if snapshot else VALUES[1:]
    whole = SNAPSHOT if snapshot else DELTA
    ends = {0: 0}
    for number, value in enumerate(values, 1):
        ends[max(ends) + len(encode_tracked(value))] = number

    for size in range(len(whole) + 1):
        if size in ends:
            assert parse(whole[:size]) == values[: ends[size]]
        else:
            with pytest.raises(CorruptDataError, match="is cut"):
                parse(whole[:size])


def test_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="tracking type 3"):
        parse_tracked(b"\x03\x00" + bytes(8))


@pytest.mark.parametrize(
    "messages",
    [[DELTA, DELTA], [DELTA[:-1]]],
)
def test_a_tracking_chunk_that_does_not_hold_is_refused_at_its_offset(
    messages: list[bytes],
) -> None:
    chunk = next(iter_chunks(build_chunk(9, 1, 1, messages, chunk_type=ChunkType.TRACKING_DELTA)))

    with pytest.raises(CorruptDataError) as caught:
        parse_tracking(chunk)

    assert caught.value.offset == 9


def test_the_entry_of_a_tracking_chunk_fills_its_data() -> None:
    content = bytearray(build_chunk(9, 1, 1, [DELTA], chunk_type=ChunkType.TRACKING_DELTA))
    for length in (len(DELTA) - 1, len(DELTA) + 1, 0x80000000 | len(DELTA)):
        content[48:52] = length.to_bytes(4, "big")
        with pytest.raises(CorruptDataError):
            parse_tracking(next(iter_chunks(content)))


# Bit numbers of RabbitMQ 4.3.6 in tests/data/filter-4.3.6; bit 0 is for no value.
@pytest.mark.parametrize(
    ("value", "bits"),
    [(b"emea", {131, 221}), (b"apac", {149, 182}), (b"amer", {94, 111}), (b"", {0})],
)
def test_a_value_sets_the_bits_that_the_broker_sets(value: bytes, bits: set[int]) -> None:
    with_other = encode_bloom([value, b"emea"], 32)

    found = {bit for bit in range(256) if with_other[bit >> 3] & 0x80 >> (bit & 7)}

    assert found == bits | {131, 221}


def test_a_chunk_of_messages_without_values_has_no_filter() -> None:
    assert encode_bloom([]) == encode_bloom([b"", b""]) == b""


def test_no_value_that_is_in_a_filter_is_ever_missed() -> None:
    values = [bytes([number]) * number for number in range(1, 60)]
    for size in (16, 17, 255):
        bloom = encode_bloom(values, size)
        assert all(FilterMatcher((value,)).matches(bloom) for value in values)


def test_most_values_that_are_not_in_a_filter_do_not_match() -> None:
    bloom = encode_bloom([b"emea"], 255)

    others = sum(FilterMatcher((b"%d" % number,)).matches(bloom) for number in range(500))

    assert others < 10


def test_unfiltered_messages_match_only_if_they_are_wanted() -> None:
    both = encode_bloom([b"emea", b""])
    only = encode_bloom([b"emea"])

    for bloom, unfiltered in ((both, True), (only, False), (b"", True)):
        assert FilterMatcher((b"apac",), match_unfiltered=True).matches(bloom) == unfiltered
        assert not FilterMatcher((b"apac",)).matches(bloom)


def test_a_matcher_without_values_takes_everything() -> None:
    assert FilterMatcher(()).matches(b"")
    assert FilterMatcher(()).matches(bytes(16))


def test_one_matcher_serves_filters_of_all_sizes() -> None:
    matcher = FilterMatcher((b"emea", b"apac"))

    assert all(matcher.matches(encode_bloom([b"apac"], size)) for size in (16, 255, 32, 16))
    assert not any(matcher.matches(bytes(size)) for size in (16, 255, 32, 16))


@pytest.mark.parametrize("size", [1, 15, 256])
def test_filters_have_16_to_255_bytes(size: int) -> None:
    with pytest.raises(InvalidInputError):
        encode_bloom([b"x"], size)
    with pytest.raises(CorruptDataError):
        FilterMatcher((b"x",)).matches(bytes(size))


def test_the_empty_value_is_that_of_chunks_without_a_filter() -> None:
    """As `osiris_bloom:is_match/2` has it, so that both tiers give the same."""
    matcher = FilterMatcher((b"",))

    assert matcher.matches(b"")
    assert matcher.matches(encode_bloom([b"", b"eu"]))
    assert not FilterMatcher((b"eu",)).matches(b"")
