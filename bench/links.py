"""An S3 whose connections are slow and whose link is not: a stream of any size, made as it is read.

Every GET waits for the latency, then gets the bytes of one connection's rate; all of them together
never more than the link's. The bytes are made while it waits, so they cost no time of the link.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass
from typing import Any

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.crc import crc32
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    Buffer,
    IndexRecord,
    Placement,
    build_trailer,
    encode_index,
)
from coldstream.manifest.catalog import CatalogItem, Commit
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.names import DataKey, root_path
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkHeader, ChunkType
from coldstream.osiris.entry import encode_simple
from coldstream.ports import Landed

PREFIX, STREAM = "rabbitmq/", "__bench_link"
_CHUNKS, _MESSAGES, _MESSAGE_SIZE = 256, 256, 1020
_CHUNK_ID = 24  # position in a chunk's header


@dataclass(frozen=True, slots=True)
class Link:
    """What a simulated S3 gives.

    Attributes:
        total: bytes a second of all connections.
        connection: bytes a second of one.
        latency: seconds to the first byte.
    """

    total: float
    connection: float = 40e6
    latency: float = 0.030


class LinkedStore:
    """An object store of one stream behind a link.

    Args:
        fragments: of 64 MiB each.
        link: that it is read through; None for none.

    Attributes:
        size: bytes of chunks of the stream.
        gets: requests so far.
        catalog: that knows the stream.
    """

    def __init__(self, fragments: int, link: Link | None) -> None:
        self._link = link
        self._free = 0.0
        self._lock = threading.Lock()
        self._memory = MemoryObjectStore()
        self.gets = 0
        data = b"".join(encode_simple(bytes(_MESSAGE_SIZE)) for _ in range(_MESSAGES))
        header = ChunkHeader(
            ChunkType.USER, _MESSAGES, _MESSAGES, 1000, 1, 0, crc32(data), len(data), 0, 0
        )
        self._chunk = CHUNK_HEADER_SIZE + len(data)
        self._template = (header.encode() + data) * _CHUNKS
        self.size = fragments * len(self._template)
        self._tails: dict[str, tuple[int, bytes]] = {}
        self.catalog = self._committed([self._made(number) for number in range(fragments)])

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As `ObjectStore.get`, of chunks."""
        return self._through(self._data(key, start, end))

    def get_suffix(self, key: str, length: int) -> Buffer:
        """As `ObjectStore.get_suffix`, of trailer and index."""
        return self._through(self._tails[key][1][-length:])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def _through(self, data: Buffer) -> Buffer:
        link, now = self._link, time.perf_counter()
        with self._lock:
            self.gets += 1
            if link is None:
                return data
            self._free = max(self._free, now) + len(data) / link.total
            done = max(self._free, now + link.latency + len(data) / link.connection)
        time.sleep(max(0.0, done - time.perf_counter()))
        return data

    def _data(self, key: str, start: int, end: int) -> Buffer:
        first = self._tails[key][0]
        lead = HEADER[start:end]
        begin, stop = max(0, start - len(HEADER)), end - len(HEADER)
        data = bytearray(lead)
        data += memoryview(self._template)[begin:stop]
        for number in range(-(-begin // self._chunk), -(-stop // self._chunk)):
            at = len(lead) + number * self._chunk - begin + _CHUNK_ID
            struct.pack_into(">Q", data, at, first + number * _MESSAGES)
        return data

    def _made(self, number: int) -> Entry:
        first = number * _CHUNKS * _MESSAGES
        next_offset = first + _CHUNKS * _MESSAGES
        index = encode_index(
            IndexRecord(first + n * _MESSAGES, 1000, n * self._chunk) for n in range(_CHUNKS)
        )
        data_key = DataKey(STREAM, first, next_offset, 1, number + 1)
        key = data_key.path(PREFIX)
        self._tails[key] = first, b""
        whole = self._data(key, len(HEADER), len(HEADER) + len(self._template))
        trailer = build_trailer(
            placement=Placement(1, 0, first, number, 8),
            index=index,
            next_offset=next_offset,
            first_chunk_epoch=1,
            last_chunk_epoch=1,
            data_size=len(whole),
            data_crc=crc32(whole),
        )
        tail = INDEX_HEADER + index + trailer.encode()
        self._tails[key] = first, tail
        size = len(HEADER) + len(whole) + len(tail)
        return Entry(
            first, next_offset, 1000, 1000, EntryKind.FRAGMENT, size, trailer.records, 1, number + 1
        )

    def _committed(self, entries: list[Entry]) -> MemoryCatalog:
        catalog = MemoryCatalog()
        root = Root(
            first_offset=0,
            next_offset=entries[-1].next_offset,
            epoch=1,
            version=1,
            ledger=Ledger.of([(1, 0)]),
            entries=Entries.of(entries),
        )
        catalog.anchor(CatalogItem(STREAM, catalog.table_id(), first_offset=0, next_offset=0))
        item = catalog.get(STREAM)
        assert item is not None
        key = root_path(PREFIX, STREAM, 1, item.version + 1, 1)
        self._memory.put(key, root.encode(), write_id="1")
        commit = Commit(STREAM, catalog.table_id(), item.version, item.uid, root, key, 1)
        outcome = catalog.commit(commit)
        assert isinstance(outcome, Landed), outcome
        return catalog
