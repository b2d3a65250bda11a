"""Every byte that real brokers wrote decodes to what is known about it."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest

from coldstream.errors import CorruptDataError
from coldstream.osiris import (
    CHUNK_DTYPE,
    CHUNK_HEADER_SIZE,
    BodyKind,
    ChunkType,
    FilterMatcher,
    TrackingType,
    check_index,
    check_segment_header,
    decode_message,
    encode_bloom,
    index_records,
    iter_chunks,
    iter_messages,
    iter_records,
    parse_segment_name,
    parse_tracking,
    segment_name,
)
from coldstream.osiris.entry import Codec
from coldstream.osiris.tracking import encode_tracked

from .fixtures import DATA, FIXTURES, chunks_of, segment_paths

TYPES = {
    ChunkType.USER: "user",
    ChunkType.TRACKING_DELTA: "tracking_delta",
    ChunkType.TRACKING_SNAPSHOT: "tracking_snapshot",
}


@pytest.fixture(params=FIXTURES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def known(name: str) -> dict[str, Any]:
    return FIXTURES[name]


def test_messages_are_those_that_were_published(name: str, known: dict[str, Any]) -> None:
    digest, messages, size = hashlib.sha256(), 0, 0
    for chunk in chunks_of(name):
        if chunk.header.chunk_type != ChunkType.USER:
            continue
        for body in iter_messages(chunk):
            digest.update(body)
            messages += 1
            size += len(body)

    assert messages == known["messages"]
    assert size == known["body_bytes"]
    assert digest.hexdigest() == known["sha256"]


def test_records_have_the_offsets_of_their_chunk(name: str, known: dict[str, Any]) -> None:
    user = [c for c in chunks_of(name) if c.header.chunk_type == ChunkType.USER]

    assert [[c.header.chunk_id, c.header.records] for c in user] == known["user_chunks"]
    for chunk in user:
        offsets = [offset for offset, _ in iter_records(chunk)]
        assert offsets == list(range(chunk.header.chunk_id, chunk.header.next_offset))


def test_headers_say_what_is_known_of_the_stream(name: str, known: dict[str, Any]) -> None:
    chunks = list(chunks_of(name))
    headers = [chunk.header for chunk in chunks]

    assert headers[0].chunk_id == known["first_offset"]
    assert headers[-1].next_offset == known["next_offset"]
    assert all(a.next_offset == b.chunk_id for a, b in pairwise(headers))
    assert Counter(TYPES[ChunkType(h.chunk_type)] for h in headers) == known["chunk_types"]
    assert Counter(str(h.bloom_size) for h in headers) == known["bloom_sizes"]
    assert [
        {"epoch": epoch, "first_chunk_id": next(group).chunk_id}
        for epoch, group in groupby(headers, lambda h: h.epoch)
    ] == known["epochs"]
    assert sum(h.trailer_size > 0 for h in headers) == known["chunks_with_trailer"]
    for chunk in chunks:
        chunk.check_crc()


def test_encoding_a_header_gives_its_bytes_back(name: str) -> None:
    for chunk in chunks_of(name):
        assert chunk.header.encode() == chunk.buffer[:CHUNK_HEADER_SIZE]


def test_both_ways_to_read_a_header_agree(name: str) -> None:
    for chunk in chunks_of(name):
        (row,) = np.frombuffer(chunk.buffer, CHUNK_DTYPE, count=1).tolist()
        header = chunk.header
        fields = [getattr(header, each) for each in type(header).__slots__]
        assert list(row[1:11]) == fields


def test_kinds_of_entries_are_those_that_were_published(name: str, known: dict[str, Any]) -> None:
    found: Counter[str] = Counter()
    for chunk in chunks_of(name):
        if chunk.header.chunk_type != ChunkType.USER:
            continue
        data, position = chunk.data, 0
        while position < len(data):
            first = data[position]
            size_at = position + 7 if first & 0x80 else position
            found[f"sub:{first >> 4 & 7}" if first & 0x80 else "simple"] += 1
            position = size_at + 4 + int.from_bytes(data[size_at : size_at + 4], "big")

    assert found == known["entry_kinds"]


def test_segments_are_whole_and_named_after_their_first_chunk(
    name: str, known: dict[str, Any]
) -> None:
    paths = segment_paths(name)
    assert [path.name for path in paths] == [each["name"] for each in known["segments"]]
    for path, segment in zip(paths, known["segments"], strict=True):
        content = path.read_bytes()
        check_segment_header(content)
        headers = [chunk.header for chunk in iter_chunks(content, 8)]
        assert len(content) == segment["bytes"]
        assert hashlib.sha256(content).hexdigest() == segment["sha256"]
        assert len(headers) == segment["chunks"]
        assert headers[0].chunk_id == segment["first_chunk_id"] == parse_segment_name(path.name)
        assert headers[-1].chunk_id == segment["last_chunk_id"]
        assert segment_name(headers[0].chunk_id) == path.name
        assert headers[0].timestamp == segment["first_ts"]
        assert headers[-1].timestamp == segment["last_ts"]


def test_an_index_says_exactly_what_its_chunks_say(name: str, known: dict[str, Any]) -> None:
    for path, segment in zip(segment_paths(name), known["segments"], strict=True):
        index = path.with_suffix(".index").read_bytes()
        records = index_records(index)
        check_index(records, first_offset=parse_segment_name(path.name))
        position, expected = 8, []
        for chunk in iter_chunks(path.read_bytes(), 8):
            h = chunk.header
            expected.append((h.chunk_id, h.timestamp, h.epoch, position, h.chunk_type))
            position += h.size
        assert records.tolist() == expected
        assert len(index) == segment["index_bytes"]


def test_snapshots_are_those_that_are_known(name: str, known: dict[str, Any]) -> None:
    found = []
    for path in segment_paths(name):
        position = 8
        for chunk in iter_chunks(path.read_bytes(), 8):
            if chunk.header.chunk_type == ChunkType.TRACKING_SNAPSHOT:
                values = [
                    [x.tracking_type, x.name, *([x.chunk_id] * (x.chunk_id is not None)), x.value]
                    for x in parse_tracking(chunk)
                ]
                found.append([chunk.header.chunk_id, position, values])
            position += chunk.header.size

    assert found == known["snapshots"]


def test_encoding_tracked_values_gives_their_bytes_back(name: str) -> None:
    for chunk in chunks_of(name):
        user = chunk.header.chunk_type == ChunkType.USER
        raw = chunk.trailer if user else chunk.data[4:]
        assert b"".join(encode_tracked(each) for each in parse_tracking(chunk)) == raw


def test_tracking_adds_up_to_what_the_broker_answered(name: str, known: dict[str, Any]) -> None:
    offsets: dict[str, int] = {}
    sequences: dict[str, int] = {}
    for chunk in chunks_of(name):
        for each in parse_tracking(chunk):
            into = offsets if each.tracking_type is TrackingType.OFFSET else sequences
            into[each.name] = each.value

    # "probe" was stored after the broker had been asked.
    offsets.pop("probe", None)
    assert offsets == known.get("stored_offsets", offsets)
    assert sequences == known.get("publisher_sequences", sequences)


def test_a_tracking_chunk_has_no_messages() -> None:
    chunk = next(c for c in chunks_of("dedup-4.3.6") if c.header.chunk_type != ChunkType.USER)

    with pytest.raises(CorruptDataError, match="tracking chunk has no messages"):
        next(iter_messages(chunk))


def test_amqp_messages_decode_and_others_raise(name: str, known: dict[str, Any]) -> None:
    for chunk in chunks_of(name):
        if chunk.header.chunk_type != ChunkType.USER:
            continue
        for body in iter_messages(chunk):
            if known.get("raw_bodies", True):  # not noted where it was so
                with pytest.raises(CorruptDataError):
                    decode_message(body)
            else:
                assert decode_message(body).body_kind is BodyKind.DATA


def test_filters_are_the_brokers_bit_for_bit() -> None:
    seen = set()
    for chunk in chunks_of("filter-4.3.6"):
        regions = set()
        for body in iter_messages(chunk):
            properties = decode_message(body).application_properties
            assert properties is not None
            regions.add(str(properties["region"]).encode())
        assert encode_bloom(regions, 32) == bytes(chunk.bloom)
        for region in (b"emea", b"apac", b"amer"):
            assert FilterMatcher((region,)).matches(chunk.bloom) == (region in regions)
        seen |= regions

    assert seen == {b"emea", b"apac", b"amer"}


def test_fixtures_cover_every_codec_type_and_section() -> None:
    kinds = set().union(*(known["entry_kinds"] for known in FIXTURES.values()))
    types = set().union(*(known["chunk_types"] for known in FIXTURES.values()))

    assert kinds == {"simple", *(f"sub:{codec}" for codec in Codec)}
    assert types == set(TYPES.values())
    assert {path.name for path in DATA.iterdir() if path.is_dir()} >= set(FIXTURES)
