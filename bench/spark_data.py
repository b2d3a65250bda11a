"""Streams for the Spark benchmarks, as directories, read at the file system's speed.

Parquet and binaryFile read files of the same disk, so nobody is slowed down by a server that plays
S3. Nothing here is timed.
"""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass
from pathlib import Path

from bench import synthetic_stream as synthetic
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    IndexRecord,
    Placement,
    build_trailer,
    encode_index,
)
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import DataKey, group_path, root_path
from coldstream.osiris.chunk import Chunk, iter_chunks
from coldstream.spark.plan import select
from coldstream.spark.window import Window
from coldstream_devkit.generator import write_stream

PREFIX = "rabbitmq/"
FRAGMENT = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Made:
    """A stream in a directory.

    Attributes:
        bucket: the directory; `file://` and it are the endpoint.
        stream: name.
        messages: how many.
        size: bytes of all fragments.
        root: its manifest.
    """

    bucket: Path
    stream: str
    messages: int
    size: int
    root: Root

    @property
    def options(self) -> dict[str, str]:
        """Of the source."""
        return {"endpoint": f"file://{self.bucket}", "stream": self.stream, "prefix": PREFIX}

    @property
    def data(self) -> Path:
        """Where the fragments are."""
        return self.bucket / PREFIX / "stream" / self.stream / "data"


def make(
    bucket: Path, stream: str, *, messages: int, message_size: int, fragment: int = FRAGMENT
) -> Made:
    """A stream of equally long texts in chunks of about 64 KiB and fragments of 64 MiB, or less."""
    segments = bucket / "segments" / stream
    chunk_messages = max(1, 2**16 // (message_size + 12))
    write_stream(
        segments,
        messages=messages,
        message_size=message_size,
        chunk_messages=chunk_messages,
        text=True,
    )
    entries: list[Entry] = []
    waiting: list[Chunk] = []
    last = LastChunk(0, 1)
    for path in sorted(segments.glob("*.segment")):
        for chunk in iter_chunks(path.read_bytes(), 8):
            waiting.append(chunk)
            last = LastChunk(chunk.header.chunk_id, chunk.header.epoch)
            if _size(waiting) > fragment:
                entries.append(_put(bucket, stream, waiting))
                waiting = []
        if waiting:
            entries.append(_put(bucket, stream, waiting))
            waiting = []
        path.unlink()
    root = Root(
        0,
        messages,
        epoch=1,
        version=1,
        ledger=Ledger.of([(1, 0)]),
        entries=Entries.of(entries),
        last_chunk=last,
    )
    _write(bucket, root_path(PREFIX, stream, 1, 1, 1), root.encode())
    return Made(bucket, stream, messages, sum(each.size for each in entries), root)


def make_petabyte(bucket: Path, fragments: int, window: Window) -> Made:
    """The manifest of a petabyte: its root, and those groups that planning `window` asks for."""
    root = synthetic.root(fragments)
    nodes: list[Node] = []

    def fetch(entry: Entry) -> Node:
        nodes.append(synthetic.node(entry))
        return nodes[-1]

    select(root, window, fetch)
    for node in nodes:
        entry = node.entry()
        key = group_path(PREFIX, synthetic.STREAM, entry.first_offset, entry.uid, entry.kind)
        _write(bucket, key, node.encode())
    key = root_path(PREFIX, synthetic.STREAM, root.epoch, root.version, 1)
    _write(bucket, key, root.encode())
    return Made(bucket, synthetic.STREAM, root.next_offset, root.total_size, root)


def make_all_groups(bucket: Path, made: Made) -> None:
    """Every group of a petabyte's manifest: 58 kB for 1,024 fragments."""
    below = [entry for entry in made.root.entries if entry.kind.level]
    while below:
        entry = below.pop()
        node = synthetic.node(entry)
        key = group_path(PREFIX, synthetic.STREAM, entry.first_offset, entry.uid, entry.kind)
        _write(bucket, key, node.encode())
        if entry.kind.level > 1:
            below += node.entries


def _size(chunks: list[Chunk]) -> int:
    return chunks[-1].header.size * len(chunks)  # all but the last are equally long


def _put(bucket: Path, stream: str, chunks: list[Chunk]) -> Entry:
    data = b"".join(each.buffer for each in chunks)
    records, position = [], 0
    for each in chunks:
        records.append(IndexRecord(each.header.chunk_id, each.header.timestamp, position))
        position += len(each.buffer)
    index = encode_index(records)
    first = chunks[0].header.chunk_id
    trailer = build_trailer(
        placement=Placement(1, 0, first, 0, 8),
        index=index,
        next_offset=chunks[-1].header.next_offset,
        first_chunk_epoch=1,
        last_chunk_epoch=1,
        data_size=len(data),
        data_crc=zlib.crc32(data),
    )
    uid = secrets.randbits(63)
    key = DataKey(stream, first, trailer.next_offset, 1, uid)
    _write(bucket, key.path(PREFIX), HEADER + data + INDEX_HEADER + index + trailer.encode())
    return Entry(
        first,
        trailer.next_offset,
        trailer.min_timestamp,
        trailer.max_timestamp,
        EntryKind.FRAGMENT,
        trailer.size,
        trailer.records,
        1,
        uid,
    )


def _write(bucket: Path, key: str, body: bytes) -> None:
    path = bucket / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
