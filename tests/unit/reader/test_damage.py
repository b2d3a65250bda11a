"""Damage of any kind is an error that says where; it is never another answer."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pytest

from coldstream.crc import combine, crc32
from coldstream.errors import CorruptDataError, NotFoundError, UnavailableError
from coldstream.fragment import HEADER, INDEX_HEADER, TRAILER_SIZE, parse_trailer
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import Root
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkType
from coldstream.reader import First, Gap, GapReason, Last, Offset, ReaderSettings, Timestamp
from tests.support.tier import PREFIX, SMALL, Tier, chunk

WHOLE = ReaderSettings()
BY_RANGES = ReaderSettings(range_size=300, first_range_size=300, in_flight=4, index_guess=200)


def a_stream(tier: Tier) -> Root:
    """Three fragments of four chunks of three messages; offsets 0 to 35."""
    chunks = [
        chunk(
            n,
            b"a%d" % n,
            b"b%d" % n,
            b"c" * 40,
            timestamp=n,
            epoch=1 + (n > 20),
            trailer=b"trailer" if n % 2 else b"",
        )
        for n in range(0, 36, 3)
    ]
    return tier.add("s", [chunks[:4], chunks[4:8], chunks[8:]])


def read_until_error(tier: Tier, settings: ReaderSettings) -> tuple[list[bytes], CorruptDataError]:
    seen: list[bytes] = []
    chunks = tier.reader("s", settings).chunks(First())
    with pytest.raises(CorruptDataError) as caught:
        seen.extend(bytes(each.buffer) for each in chunks)
    return seen, caught.value


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
def test_no_flipped_bit_of_a_fragment_goes_unnoticed(settings: ReaderSettings) -> None:
    tier = Tier()
    root = a_stream(tier)
    good = [bytes(each.buffer) for each in tier.reader("s").chunks(First())]
    key = tier.key(root, "s", 1)
    size = len(tier.store.objects[key])
    bits = [(position, random.randrange(8)) for position in range(size)]

    for position, bit in bits:
        tier.flip(key, position, bit)
        seen, error = read_until_error(tier, settings)
        tier.flip(key, position, bit)

        assert error.stream == "s"
        assert error.key == key
        assert error.offset is not None
        assert 12 <= error.offset <= 24
        # What was handed out before is right, unless only the CRC of the whole fragment could tell.
        if "every chunk" not in str(error):
            assert seen == good[: len(seen)], position
        assert len(seen) < len(good)


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
@pytest.mark.parametrize("start", [18, 20, 21, 24])
def test_a_read_that_begins_behind_the_damage_is_not_stopped_by_it(
    settings: ReaderSettings, start: int
) -> None:
    """Of a small fragment, which is fetched whole, nobody came to what lies behind the damage."""
    tier = Tier()
    key = tier.key(a_stream(tier), "s", 1)
    at = len(HEADER) + len(chunk(12, b"a12", b"b12", b"c" * 40))
    tier.flip(key, at + CHUNK_HEADER_SIZE + 5)  # in the chunk at offset 15

    found = tier.reader("s", settings).messages(Offset(start))

    assert [each.offset for each in found] == list(range(start, 36))
    # Where the end lies before the last chunk of the fragment, too.
    part = tier.reader("s", settings).messages(Offset(start), Offset(22))
    assert [each.offset for each in part] == list(range(start, 22))


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
def test_all_good_chunks_before_the_damage_are_handed_out(settings: ReaderSettings) -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    third = 2 * len(chunk(12, b"a12", b"b12", b"c" * 40)) + len(b"trailer")
    tier.flip(key, len(HEADER) + third + CHUNK_HEADER_SIZE + 5)

    seen, error = read_until_error(tier, settings)

    assert len(seen) == 6
    assert error.offset == 18
    assert "CRC" in error.reason


def test_a_user_chunk_that_turned_into_tracking_data_does_not_just_vanish() -> None:
    tier = Tier()
    root = tier.add("s", [[chunk(0, b"0"), chunk(1, b"1"), chunk(2, b"2")]])
    key = tier.key(root, "s", 0)
    position = len(HEADER) + len(chunk(0, b"0")) + 1
    tier.flip(key, position)
    assert tier.store.objects[key][position] == ChunkType.TRACKING_DELTA

    for settings in (WHOLE, ReaderSettings(range_size=60, first_range_size=60)):
        with pytest.raises(CorruptDataError, match="type"):
            list(tier.reader("s", settings).messages(First()))


@pytest.mark.parametrize("cut", [1, 100, TRAILER_SIZE, TRAILER_SIZE + 30, 10**6])
def test_a_fragment_that_was_cut_is_refused(cut: int) -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    tier.store.objects[key] = tier.store.objects[key][:-cut]

    for settings in (WHOLE, BY_RANGES):
        seen, error = read_until_error(tier, settings)

        assert len(seen) == 4
        assert (error.stream, error.offset, error.key) == ("s", 12, key)


def test_a_fragment_of_another_range_under_this_key_is_refused() -> None:
    tier = Tier()
    root = a_stream(tier)
    objects, keys = tier.store.objects, [tier.key(root, "s", n) for n in range(3)]
    objects[keys[1]] = objects[keys[2]]

    for settings in (WHOLE, BY_RANGES):
        _, error = read_until_error(tier, settings)
        assert error.key == keys[1]


def test_a_trailer_that_lies_with_a_good_checksum_is_refused() -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    data = tier.store.objects[key]
    honest = parse_trailer(data)
    lies = [
        replace(honest, index_crc=honest.index_crc ^ 1),
        replace(honest, data_crc=honest.data_crc ^ 1),
        replace(honest, last_chunk_epoch=honest.first_chunk_epoch),
        replace(honest, first_chunk_epoch=honest.last_chunk_epoch),
        replace(honest, chunks=3, index_size=len(INDEX_HEADER) + 60),
        replace(honest, data_size=honest.data_size - 20, index_position=honest.index_position - 20),
        replace(honest, first_offset=13, records=11),
    ]

    for lie in lies:
        tier.store.objects[key] = data[:-TRAILER_SIZE] + lie.encode()
        for settings in (WHOLE, BY_RANGES):
            _, error = read_until_error(tier, settings)
            assert error.key == key


def test_a_damaged_index_is_found_by_every_way_in() -> None:
    tier = Tier()
    root = a_stream(tier)
    tier.flip(tier.key(root, "s", 2), -TRAILER_SIZE - 3)

    for spec in (Last(), Timestamp(30), Offset(27)):
        with pytest.raises(CorruptDataError, match="index"):
            list(tier.reader("s", BY_RANGES).chunks(spec))


@pytest.mark.parametrize("position", [0, 5, 40, 70, 110, 200, -1])
def test_a_damaged_root_is_refused_with_its_key(position: int) -> None:
    tier = Tier()
    a_stream(tier)
    key = tier.catalog.items["s"].root_key
    tier.flip(key, position)

    with pytest.raises(CorruptDataError) as caught:
        tier.reader("s").chunks(First())
    assert (caught.value.stream, caught.value.key) == ("s", key)


def test_a_root_of_another_stream_is_refused() -> None:
    tier = Tier()
    a_stream(tier)
    tier.add("other", [[chunk(7, b"7")]])
    objects, items = tier.store.objects, tier.catalog.items
    objects[items["s"].root_key] = objects[items["other"].root_key]

    with pytest.raises(CorruptDataError, match="catalog item"):
        tier.reader("s").snapshot()


def test_a_missing_fragment_is_named_after_what_comes_before_it() -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    del tier.store.objects[key]

    for settings in (WHOLE, BY_RANGES):
        seen: list[int] = []
        messages = tier.reader("s", settings).messages(First())
        with pytest.raises(NotFoundError) as caught:
            seen.extend(message.offset for message in messages)
        assert seen == list(range(12))
        assert (caught.value.stream, caught.value.offset, caught.value.key) == ("s", 12, key)


def test_a_missing_root_is_named() -> None:
    tier = Tier()
    a_stream(tier)
    key = tier.catalog.items["s"].root_key
    del tier.store.objects[key]

    with pytest.raises(NotFoundError) as caught:
        tier.reader("s").snapshot()
    assert caught.value.key == key


def test_a_read_goes_on_in_the_newer_manifest_when_fragments_were_consolidated() -> None:
    tier = Tier()
    root = a_stream(tier)
    good = [bytes(each.buffer) for each in tier.reader("s").chunks(First())]
    chunks = tier.reader("s", BY_RANGES).chunks(First())
    seen = [bytes(next(chunks).buffer) for _ in range(2)]

    entry = tier.upload("s", good, epoch=2, floor=0)
    tier.commit("s", replace(root, entries=Entries.of([entry])))
    for number in range(3):
        del tier.store.objects[tier.key(root, "s", number)]
    seen += [bytes(each.buffer) for each in chunks]

    assert seen == good


def test_retention_during_a_read_repositions_it_visibly() -> None:
    tier = Tier()
    root = a_stream(tier)
    gaps: list[Gap] = []
    one_by_one = replace(BY_RANGES, in_flight=1)
    messages = tier.reader("s", one_by_one).messages(First(), on_gap=gaps.append)
    seen = [next(messages).offset for _ in range(3)]

    tier.commit("s", replace(root, first_offset=24, entries=Entries.of(list(root.entries)[2:])))
    for number in range(2):
        del tier.store.objects[tier.key(root, "s", number)]
    seen += [message.offset for message in messages]

    reached = seen.index(24)
    assert seen[:reached] == list(range(reached))
    assert seen[reached:] == list(range(24, 36))
    assert gaps == [Gap(reached, 24, GapReason.RETENTION)]


def test_a_truncated_stream_is_read_to_its_new_end_visibly() -> None:
    tier = Tier()
    root = a_stream(tier)
    gaps: list[Gap] = []
    chunks = tier.reader("s", SMALL).chunks(First(), on_gap=gaps.append)

    entries = list(root.entries)[:2]
    tier.commit("s", replace(root, next_offset=24, entries=Entries.of(entries)))
    del tier.store.objects[tier.key(root, "s", 2)]

    assert [each.header.chunk_id for each in chunks] == list(range(0, 24, 3))
    assert gaps == [Gap(24, 36, GapReason.TRUNCATION)]


def test_a_store_that_does_not_answer_is_an_error_not_an_end() -> None:
    tier = Tier()
    a_stream(tier)
    reader = tier.reader("s", BY_RANGES)

    def fail(key: str, start: int, end: int) -> bytes:
        raise UnavailableError("down", key=key)

    tier.store.get = fail
    with pytest.raises(UnavailableError) as caught:
        list(reader.chunks(First()))
    assert str(caught.value.key).startswith(PREFIX)


def test_the_crc_of_joined_pieces_is_the_crc_of_all() -> None:
    for sizes in ((0, 5), (1, 1), (1000, 0), (12345, 678), (3, 2**20)):
        a, b = (random.randbytes(size) for size in sizes)

        assert combine(zlib.crc32(a), zlib.crc32(b), len(b)) == zlib.crc32(a + b)
    assert crc32(memoryview(b"abc")) == zlib.crc32(b"abc")
