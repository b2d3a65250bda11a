"""A remote tier with a stream that has everything, and a scrub of it without Spark."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.crc import crc32
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    INDEX_RECORD_SIZE,
    IndexRecord,
    Trailer,
    encode_index,
    parse_trailer,
)
from coldstream.jobs.scrub.reading import Effort
from coldstream.jobs.scrub.run import ScrubOutcome, ScrubSettings, run
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.work import scrub
from coldstream.manifest.entries import Entry
from coldstream.manifest.root import Root
from coldstream.osiris.bloom import encode_bloom
from coldstream.osiris.chunk import ChunkHeader, ChunkType, parse_chunk_header
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch
from coldstream.osiris.tracking import Tracked, TrackingType, encode_tracked
from coldstream_devkit.generator import join_chunk
from tests.support.tier import PREFIX, Tier

STREAM = "__orders_1"
NOW_MS = 1_800_000_000_000
SMALL = Effort(in_flight=3, range_size=4096)
BY_RANGES = Effort(in_flight=3, range_size=300)


def chunk_of(number: int, first: int) -> bytes:
    """A chunk of ten messages; every fourth has sub-batches, filters and tracking in turn."""
    bodies = [b"\x00\x53\x75\xa0\x0c%06d%06d" % (first, n) for n in range(10)]
    entries = [encode_simple(body) for body in bodies]
    bloom = trailer = b""
    if number % 4 == 1:
        codec = list(Codec)[number // 4 % 5]
        entries = [entries[0], encode_sub_batch(bodies[1:6], codec), *entries[6:]]
    elif number % 4 == 2:
        bloom = encode_bloom([b"a", b"b%d" % number])
        trailer = encode_tracked(Tracked(TrackingType.SEQUENCE, b"producer", first))
    elif number % 4 == 3 and number % 8 == 3:
        value = encode_tracked(Tracked(TrackingType.OFFSET, b"consumer", first))
        return join_chunk(
            first, 1 + (number > 12), 1000 + number, [encode_simple(value)], 1,
            chunk_type=ChunkType.TRACKING_DELTA,
        )  # fmt: skip
    return join_chunk(
        first, 1 + (number > 12), 1000 + number, entries, 10, bloom=bloom, trailer=trailer
    )


def groups_of(fragments: int, chunks: int = 4) -> list[list[bytes]]:
    """Chunks of a stream, by fragment."""
    groups: list[list[bytes]] = []
    first = 0
    for number in range(fragments * chunks):
        if number % chunks == 0:
            groups.append([])
        groups[-1].append(chunk_of(number, first))
        first = parse_chunk_header(groups[-1][-1]).next_offset
    return groups


def young_tier() -> Tier:
    """A tier whose objects are all new, so that none is overdue for collection."""
    return Tier(MemoryObjectStore(clock_ms=lambda: NOW_MS))


def a_tier(*, tree: bool = False, fragments: int = 14) -> Tier:
    """A tier with the stream, whose manifest is flat or a tree of groups of four."""
    tier = young_tier()
    (tier.add_tree if tree else tier.add)(STREAM, groups_of(fragments))
    return tier


def settings_of(**changes: Any) -> ScrubSettings:
    return ScrubSettings(**{"now_ms": NOW_MS, "effort": SMALL, **changes})


def scrub_all(
    tier: Tier,
    *,
    state: ScrubState | None = None,
    store: Any = None,
    streams: Sequence[str] = (STREAM,),
    **changes: Any,
) -> ScrubOutcome:
    """One run over streams of a tier."""
    settings = settings_of(**changes)
    store = store if store is not None else tier.store
    items = [tier.catalog.items[name] for name in streams]
    task = partial(scrub, store, PREFIX, effort=settings.effort, ages=settings.ages)
    return run(
        store, tier.catalog, PREFIX, items, state or ScrubState(), settings, partial(map, task)
    )


@dataclass
class Anatomy:
    """A fragment taken apart, so that a test can change a piece and put it together again."""

    chunks: list[bytes]
    records: list[IndexRecord]
    trailer: Trailer
    header: bytes = HEADER
    index_header: bytes = INDEX_HEADER

    @classmethod
    def of(cls, data: bytes) -> Anatomy:
        trailer = parse_trailer(data)
        at = trailer.index_position + len(INDEX_HEADER)
        body = data[at : at + trailer.chunks * INDEX_RECORD_SIZE]
        records = [IndexRecord(*each) for each in struct.iter_unpack(">QqI", body)]
        bounds = [len(HEADER) + each.position for each in records] + [trailer.index_position]
        chunks = [data[a:b] for a, b in pairwise(bounds)]
        return cls(chunks, records, trailer)

    def whole(self) -> bytes:
        """The object, with every CRC above a change made right."""
        data, index = b"".join(self.chunks), encode_index(self.records)
        trailer = replace(self.trailer, data_crc=crc32(data), index_crc=crc32(index))
        return b"".join((self.header, data, self.index_header, index, trailer.encode()))

    def set_header(self, number: int, **fields: int) -> None:
        """Other values in a chunk's header; its CRC stays what it was unless given."""
        header = replace(parse_chunk_header(self.chunks[number]), **fields)
        self.chunks[number] = header.encode() + self.chunks[number][48:]

    def set_data(self, number: int, data: bytes) -> None:
        """Another data section of the same length, under a CRC that holds."""
        header = parse_chunk_header(self.chunks[number])
        assert len(data) == header.data_size
        chunk = self.chunks[number]
        at = header.data_position
        self.chunks[number] = (
            replace(header, crc=crc32(data)).encode()
            + chunk[48:at]
            + data
            + chunk[at + len(data) :]
        )

    def data(self, number: int) -> bytes:
        header = parse_chunk_header(self.chunks[number])
        at = header.data_position
        return self.chunks[number][at : at + header.data_size]

    def header_of(self, number: int) -> ChunkHeader:
        return parse_chunk_header(self.chunks[number])


def leaf(tier: Tier, number: int) -> Entry:
    """A fragment of the stream's manifest."""
    return tier.leaves(STREAM, root_of(tier))[number]


def root_of(tier: Tier) -> Root:
    from coldstream.manifest.root import parse_root

    return parse_root(tier.store.objects[tier.catalog.items[STREAM].root_key])


def path_of(entry: Entry) -> str:
    return entry.data_key(STREAM).path(PREFIX)
