"""A remote tier in memory, filled with fragments that are built as the agent builds them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    IndexRecord,
    Placement,
    build_trailer,
    encode_index,
)
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaves
from coldstream.names import DataKey, group_path, root_path
from coldstream.osiris.chunk import ChunkHeader, ChunkType, iter_chunks
from coldstream.osiris.entry import encode_simple
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.plans.rebalance import Rebalance, rebalance
from coldstream.ports import Landed
from coldstream.reader import MemoryBudget, ReaderSettings, StreamReader
from coldstream.remote.nodes import NodeCache, fetcher

DATA = Path(__file__).parents[1] / "data"
PREFIX = "rabbitmq/"
BRANCHING = 4
FIXTURES: dict[str, dict[str, Any]] = {
    each["path"]: each for each in json.loads((DATA / "fixtures.json").read_text())["streams"]
}
SMALL = ReaderSettings(range_size=4096, first_range_size=1024, in_flight=4, index_guess=512)


def chunk(
    first: int,
    *bodies: bytes,
    timestamp: int = 1000,
    epoch: int = 1,
    kind: ChunkType = ChunkType.USER,
    trailer: bytes = b"",
) -> bytes:
    """One chunk with simple entries."""
    data = b"".join(encode_simple(body) for body in bodies)
    header = ChunkHeader(
        kind, len(bodies), len(bodies), timestamp, epoch, first, zlib.crc32(data), len(data),
        len(trailer), 0,
    )  # fmt: skip
    return header.encode() + data + trailer


def segments_of(name: str) -> list[list[bytes]]:
    """The chunks of each segment of a fixture."""
    paths = sorted((DATA / name).glob("*.segment"))
    return [
        [bytes(each.buffer) for each in iter_chunks(path.read_bytes(), SEGMENT_HEADER_SIZE)]
        for path in paths
    ]


class Slice(list[bytes]):
    """Chunks that know where they stood in a broker's files: segment, byte position."""

    segment: tuple[int, int]

    @classmethod
    def of(cls, chunks: Sequence[bytes], at: int, many: int) -> Slice:
        """Some chunks of a whole segment's."""
        made = cls(chunks[at : at + many])
        before = sum(map(len, chunks[:at]))
        made.segment = headers_of(chunks[:1])[0].chunk_id, SEGMENT_HEADER_SIZE + before
        return made


def headers_of(chunks: Iterable[bytes]) -> list[ChunkHeader]:
    return [next(iter_chunks(each)).header for each in chunks]


def fragment_of(chunks: Sequence[bytes], *, epoch: int, floor: int = 0) -> tuple[bytes, Any]:
    """A whole fragment, and its trailer."""
    headers = headers_of(chunks)
    positions = [0]
    for each in chunks:
        positions.append(positions[-1] + len(each))
    index = encode_index(
        IndexRecord(h.chunk_id, h.timestamp, p) for h, p in zip(headers, positions, strict=False)
    )
    data = b"".join(chunks)
    segment, position = chunks.segment if isinstance(chunks, Slice) else (floor, 8)
    trailer = build_trailer(
        placement=Placement(epoch, floor, segment, 0, position),
        index=index,
        next_offset=headers[-1].next_offset,
        first_chunk_epoch=headers[0].epoch,
        last_chunk_epoch=headers[-1].epoch,
        data_size=len(data),
        data_crc=zlib.crc32(data),
    )
    return HEADER + data + INDEX_HEADER + index + trailer.encode(), trailer


@dataclass
class Tier:
    """A bucket, a table, and the streams in them."""

    store: Any = field(default_factory=MemoryObjectStore)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    uids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 30)))

    def upload(self, stream: str, chunks: Sequence[bytes], *, epoch: int, floor: int) -> Entry:
        """PUT a fragment; the manifest entry for it."""
        data, trailer = fragment_of(chunks, epoch=epoch, floor=floor)
        uid = next(self.uids)
        key = DataKey(stream, trailer.first_offset, trailer.next_offset, epoch, uid)
        self.store.put(key.path(PREFIX), data, write_id=str(uid))
        return Entry(
            trailer.first_offset, trailer.next_offset, trailer.min_timestamp,
            trailer.max_timestamp, EntryKind.FRAGMENT, len(data), trailer.records, epoch, uid,
        )  # fmt: skip

    def hole(self, first: int, next_offset: int, *, epoch: int = 1) -> Entry:
        """The manifest entry of a lost range."""
        return Entry(
            first, next_offset, 1000, 1000, EntryKind.HOLE, 0, 0, epoch, next(self.uids)
        )  # fmt: skip

    def add(
        self,
        stream: str,
        groups: Iterable[Sequence[bytes] | Entry],
        *,
        name: QueueName | None = None,
    ) -> Root:
        """A stream whose fragments hold the given groups of chunks."""
        groups = list(groups)
        chunks = [each for group in groups if not isinstance(group, Entry) for each in group]
        headers = headers_of(chunks)
        for each in groups:
            if isinstance(each, Entry) and each.kind is EntryKind.HOLE:
                path = each.data_key(stream).path(PREFIX)
                self.store.put(path, b"", write_id=str(each.uid))
        epoch = max((h.epoch for h in headers), default=1)
        first = groups[0].first_offset if isinstance(groups[0], Entry) else headers[0].chunk_id
        entries = [
            group
            if isinstance(group, Entry)
            else self.upload(stream, group, epoch=epoch, floor=first)
            for group in groups
        ]
        root = Root(
            first_offset=first,
            next_offset=entries[-1].next_offset,
            epoch=epoch,
            ledger=Ledger.of([(epoch, first)]),
            entries=Entries.of(entries),
        )
        self.catalog.anchor(
            CatalogItem(
                stream,
                self.catalog.table_id(),
                name=name or QueueName(),
                first_offset=first,
                next_offset=first,
            )
        )
        return self.commit(stream, root)

    def commit(self, stream: str, root: Root) -> Root:
        """Make `root` the stream's manifest."""
        item = self.catalog.get(stream)
        assert item is not None
        root = replace(root, version=item.version + 1)
        uid = next(self.uids)
        key = root_path(PREFIX, stream, root.epoch, root.version, uid)
        self.store.put(key, root.encode(), write_id=str(uid))
        outcome = self.catalog.commit(
            Commit(stream, self.catalog.table_id(), item.version, item.uid, root, key, uid)
        )
        assert isinstance(outcome, Landed), outcome
        return root

    def publish(self, stream: str, change: Rebalance) -> Root:
        """PUT the groups of a plan, then make its root the stream's manifest."""
        for node in change.nodes:
            entry = node.entry()
            key = group_path(PREFIX, stream, entry.first_offset, node.uid, node.kind)
            self.store.put(key, node.encode(), write_id=str(node.uid))
        return self.commit(stream, change.root)

    def add_tree(self, stream: str, groups: Iterable[Sequence[bytes] | Entry]) -> Root:
        """As `add`, and then as many levels of groups of four as there must be."""
        root = self.add(stream, groups)
        return self.publish(stream, rebalance(root, BRANCHING, self.uids))

    def fetch(self, stream: str) -> Fetch:
        """Reads the stream's groups, with a cache of its own."""
        return fetcher(self.store, NodeCache(), PREFIX, stream)

    def leaves(self, stream: str, root: Root) -> list[Entry]:
        """The live fragments and holes of a tree."""
        return list(leaves(root, self.fetch(stream)))

    def add_fixture(self, name: str, *, chunks: int = 7) -> str:
        """A fixture's stream, in fragments of a few chunks that never cross a segment."""
        queue = FIXTURES[name].get("stream", "fx.epochs")
        stream = "fx_" + name.replace(".", "_")
        groups = [
            Slice.of(segment, at, chunks)
            for segment in segments_of(name)
            for at in range(0, len(segment), chunks)
        ]
        self.add(stream, groups, name=QueueName("test", "/", queue))
        return stream

    def reader(
        self,
        stream: str,
        settings: ReaderSettings = SMALL,
        budget: MemoryBudget | None = None,
        nodes: NodeCache | None = None,
        **others: Any,
    ) -> StreamReader:
        return StreamReader(
            self.store,
            self.catalog,
            PREFIX,
            stream,
            settings=settings,
            budget=budget if budget is not None else MemoryBudget(),
            nodes=nodes if nodes is not None else NodeCache(),
            **others,
        )

    def key(self, root: Root, stream: str, number: int) -> str:
        """Key of a fragment of the manifest."""
        return root.entries[number].data_key(stream).path(PREFIX)

    def flip(self, key: str, position: int, bit: int = 0) -> None:
        """Damage one bit of an object."""
        data = bytearray(self.store.objects[key])
        data[position] ^= 1 << bit
        self.store.objects[key] = bytes(data)
