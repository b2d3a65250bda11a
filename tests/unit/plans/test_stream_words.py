"""What agents say of their streams: pages of words, and whatever a thief writes in their place."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError
from coldstream.plans.stream_words import (
    MAX_PACKED,
    MAX_PAGES,
    StreamWord,
    pack,
    page_count,
    page_of,
    paged,
    unpack,
)

WORD = StreamWord("__orders_1", True, (5, 4, 3, 2, 1), (50, 40, 30, 20, 10), reason="why", lag_ms=9)
offsets = st.tuples(*[st.integers(0, 2**61)] * 5)
words = st.builds(
    StreamWord,
    stream=st.text(min_size=1, max_size=40),
    writer=st.booleans(),
    offsets=offsets,
    times_ms=offsets,
    lag_ms=st.integers(0, 2**62),
    lag_bytes=st.integers(0, 2**62),
    headroom_ms=st.integers(-1, 2**62),
    stuck_since_ms=st.integers(0, 2**62),
    reason=st.text(max_size=40),
    super_stream=st.text(max_size=40),
    unproved_ms=st.integers(0, 2**62),
    local_end=st.integers(0, 2**61),
)


@given(st.lists(words, max_size=20))
def test_a_page_gives_the_words_that_were_packed(said: list[StreamWord]) -> None:
    assert unpack(pack(said)) == said


@pytest.mark.parametrize("streams", [0, 1, 64, 65, 10_000, 10**7])
def test_there_are_enough_pages_and_never_more_than_are_believed(streams: int) -> None:
    count = page_count(streams)
    assert count & (count - 1) == 0
    assert count == MAX_PAGES or count * 64 >= streams
    assert 1 <= count <= MAX_PAGES


def test_a_stream_is_on_the_page_that_its_name_says() -> None:
    said = [replace(WORD, stream=f"__s{number}_1") for number in range(300)]

    pages = paged(said, 8)

    assert sorted(pages) == list(range(8))
    assert sorted(len(each) for each in pages.values())[0] > 0
    for number, row in pages.items():
        assert all(page_of(each.stream, 8) == number for each in row)


def test_a_page_with_more_words_than_an_item_holds_says_fewer() -> None:
    said = [
        replace(WORD, stream=f"__{zlib.crc32(str(number).encode())}_{number}", lag_ms=number**4)
        for number in range(30_000)
    ]

    data = pack(said)

    assert len(data) <= MAX_PACKED
    found = unpack(data)
    assert 0 < len(found) < len(said)
    assert found == said[: len(found)]


def row(**changes: object) -> list[object]:
    base = json.loads(zlib.decompress(pack([WORD])))[0]
    for place, value in changes.items():
        base[int(place[1:])] = value
    return base


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no json"),
        zlib.compress(b"{}"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"[[1]]"),
        zlib.compress(b" " * 2**22),
        pack([WORD])[:-1],
        zlib.compress(json.dumps([row(_0="")]).encode()),
        zlib.compress(json.dumps([row(_0="n" * 300)]).encode()),
        zlib.compress(json.dumps([row(_0=7)]).encode()),
        zlib.compress(json.dumps([row(_2=-2)]).encode()),
        zlib.compress(json.dumps([row(_2=2**63)]).encode()),
        zlib.compress(json.dumps([row(_3=1.5)]).encode()),
        zlib.compress(json.dumps([row(_3=True)]).encode()),
        zlib.compress(json.dumps([row(_16=None)]).encode()),
        zlib.compress(json.dumps([row(_18="x")]).encode()),
        zlib.compress(json.dumps([row(_19=2**63)]).encode()),
        zlib.compress(json.dumps([row()[:-1]]).encode()),
    ],
)
def test_a_page_that_is_none_is_refused_and_bounded(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match="a page of an agent's words"):
        unpack(data)


@given(st.binary(max_size=300))
def test_garbage_never_ends_in_another_error(data: bytes) -> None:
    for each in (data, zlib.compress(data)):
        with suppress(CorruptDataError):
            unpack(each)
