"""A cold seek in a petabyte: requests to the first chunk, and its time against one GET of it.

Nothing is cached: a new reader, its own cache of groups. The stream has 2^24 fragments of 64 MiB;
root, groups and the one fragment that is read are made when asked for. Every request waits 30 ms,
and one connection gives 40 MB/s, as one of S3 does. The catalog's item is one request more, to
DynamoDB; it is counted, and waits 5 ms.
"""

from __future__ import annotations

import random
import statistics
import time
from functools import lru_cache

from bench import synthetic_stream as synthetic
from bench.links import Link
from bench.report import quick, ratio
from coldstream.crc import crc32
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    TRAILER_SIZE,
    Buffer,
    IndexRecord,
    Placement,
    build_trailer,
    encode_index,
)
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.outline import Outline
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaf_at
from coldstream.names import DataKey, GroupKey, parse_data_key, parse_metadata_key, root_path
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkHeader, ChunkType
from coldstream.reader import MemoryBudget, Offset, StreamReader, Timestamp
from coldstream.remote.nodes import NodeCache

_CHUNKS = 256
_TABLE_SECONDS = 0.005
_ROOT_UID = 1


class Petabyte:
    """A bucket and a table that hold one stream, and count what is asked.

    Attributes:
        root: of the stream.
        asked: what requests since it was cleared bring, in the order in which they were sent.
    """

    def __init__(self, fragments: int, link: Link) -> None:
        self.root: Root = synthetic.root(fragments)
        self.asked: list[str] = []
        self._link = link
        self._root_key = root_path(
            synthetic.PREFIX, synthetic.STREAM, synthetic.EPOCH, fragments, _ROOT_UID
        )
        self._body = self.root.encode()
        self._fragment = lru_cache(maxsize=4)(self._made)

    def item(self, stream: str) -> CatalogItem:
        """As `Catalog.get`."""
        self.asked.append("item")
        time.sleep(_TABLE_SECONDS)
        root = self.root
        return CatalogItem(
            stream,
            "table",
            uid=_ROOT_UID,
            root_key=self._root_key,
            epoch=root.epoch,
            version=root.version,
            first_offset=root.first_offset,
            next_offset=root.next_offset,
            ledger=root.ledger,
            outline=Outline.of(_ROOT_UID, root),
        )

    def get_all(self, key: str, *, limit: int) -> bytes:
        """As `ObjectStore.get_all`, of nodes."""
        del limit
        if key == self._root_key:
            self.asked.append("root")
            return bytes(self._through(self._body))
        group = parse_metadata_key(key, synthetic.PREFIX)
        assert isinstance(group, GroupKey)
        children = synthetic.children(group.first_offset, group.level)
        node = Node(EntryKind(group.level), group.uid, children)
        self.asked.append("group")
        return bytes(self._through(node.encode()))

    def get_suffix(self, key: str, length: int) -> bytes:
        """As `ObjectStore.get_suffix`, of trailer and index."""
        self.asked.append("index")
        return bytes(self._through(self._fragment(key)[-length:]))

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As `ObjectStore.get`, of chunks."""
        self.asked.append("chunks")
        return self._through(memoryview(self._fragment(key))[start:end])

    def _through(self, data: Buffer) -> Buffer:
        time.sleep(self._link.latency + len(data) / self._link.connection)
        return data

    def _made(self, key: str) -> bytes:
        """The fragment under a key, of chunks that nobody looks into."""
        parsed = parse_data_key(key, synthetic.PREFIX)
        entry = leaf_at(self.root, parsed.first_offset, lambda group: synthetic.node(group))
        assert entry is not None
        room = entry.size - len(HEADER) - len(INDEX_HEADER) - 20 * _CHUNKS - TRAILER_SIZE
        data = bytearray()
        index = []
        for number in range(_CHUNKS):
            first, after = (
                entry.first_offset + entry.records * n // _CHUNKS for n in (number, number + 1)
            )
            size = room * (number + 1) // _CHUNKS - len(data)
            body = bytes(size - CHUNK_HEADER_SIZE)
            timestamp = entry.min_timestamp + synthetic.STEP_MS * number // (_CHUNKS - 1)
            index.append(IndexRecord(first, timestamp, len(data)))
            header = ChunkHeader(
                ChunkType.USER, 1, after - first, timestamp, entry.epoch, first, crc32(body),
                len(body), 0, 0,
            )  # fmt: skip
            data += header.encode() + body
        encoded = encode_index(index)
        trailer = build_trailer(
            placement=Placement(entry.epoch, 0, entry.first_offset, 0, 8),
            index=encoded,
            next_offset=entry.next_offset,
            first_chunk_epoch=entry.epoch,
            last_chunk_epoch=entry.epoch,
            data_size=len(data),
            data_crc=crc32(data),
        )
        return HEADER + data + INDEX_HEADER + encoded + trailer.encode()

    def warm_up(self, offset: int) -> tuple[str, int]:
        """Make the fragment that holds an offset; its key, and where its data ends."""
        entry = leaf_at(self.root, offset, synthetic.node)
        assert entry is not None
        key = DataKey(
            synthetic.STREAM, entry.first_offset, entry.next_offset, entry.epoch, entry.uid
        ).path(synthetic.PREFIX)
        self._fragment(key)
        return key, entry.size


class _Table:
    """The catalog of it."""

    def __init__(self, petabyte: Petabyte) -> None:
        self.get = petabyte.item


def seek(petabyte: Petabyte, spec: Offset | Timestamp) -> tuple[float, int]:
    """Seconds until the first chunk is there, and requests to S3 by then."""
    petabyte.asked.clear()
    reader = StreamReader(
        petabyte,  # type: ignore[arg-type]
        _Table(petabyte),  # type: ignore[arg-type]
        synthetic.PREFIX,
        synthetic.STREAM,
        budget=MemoryBudget(),
        nodes=NodeCache(),
    )
    began = time.perf_counter()
    chunks = reader.chunks(spec)
    next(chunks)
    seconds = time.perf_counter() - began
    # What is sent after the first range is read ahead, and not waited for.
    requests = petabyte.asked.index("chunks")  # all before it but the table's, and itself
    chunks.close()
    return seconds, requests


def main() -> None:
    small = quick(__doc__)
    petabyte = Petabyte(2**14 if small else 2**24, Link(1e9))
    rng = random.Random(7)
    times, requests, plain = [], [], []
    for _ in range(3 if small else 30):
        offset = rng.randrange(petabyte.root.next_offset)
        key, _ = petabyte.warm_up(offset)
        seconds, count = seek(petabyte, Offset(offset))
        times.append(seconds)
        requests.append(count)
        began = time.perf_counter()
        petabyte.get(key, 8, 8 + 2**20)
        plain.append(time.perf_counter() - began)
    alone, ours = statistics.median(plain), statistics.median(times)
    print(
        f"a seek by offset: {max(requests)} requests to S3 at most and one to the table,"
        f" {ours * 1000:.0f} ms (median of {len(times)}); one GET of 1 MiB {alone * 1000:.0f} ms"
    )
    ratio("seek-requests", max(requests), "<= 4")
    ratio("seek-to-get", ours / alone, "<= 5")


if __name__ == "__main__":
    main()
