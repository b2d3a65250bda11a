"""Streams in a directory for the Spark benchmarks: the same bytes every time, built once.

    build/bench/<name>/rabbitmq/stream/__<name>/...    fragments of 64 MiB and a manifest root

Messages as clients send them: s100 and s1k have one data section of 100 B or 1 KiB, p100 and p1k
ten properties and four application properties besides. Bodies are letters of a small alphabet,
which compress to about two thirds.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from pathlib import Path

from bench.decode import message
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
from coldstream.manifest.root import Root
from coldstream.names import DataKey, root_path
from coldstream.osiris.chunk import ChunkHeader, ChunkType
from coldstream.osiris.entry import encode_simple

PREFIX = "rabbitmq/"
FRAGMENT_BYTES = 64 * 2**20
START_MS = 1_795_227_161_842
_SIZES = {"100": 100, "1k": 1024}
_CHUNK_BYTES = 2**18
_CHUNK_MS = 250


@dataclass(frozen=True)
class BenchStream:
    """A stream in a directory.

    Attributes:
        endpoint: URL of the directory, for the option `endpoint`.
        stream: directory name.
        messages: in it.
        size: bytes of its fragments.
        first_ms: time of the first chunk.
        last_ms: time of the last chunk.
    """

    endpoint: str
    stream: str
    messages: int
    size: int
    first_ms: int
    last_ms: int


def bench_stream(base: Path, name: str, fragments: int) -> BenchStream:
    """The stream of a data set, made if it is not there yet.

    Args:
        base: directory for all data sets.
        name: s100, s1k, p100 or p1k.
        fragments: of 64 MiB each.
    """
    directory = base / f"{name}-{fragments}"
    stream = f"__{name}"
    done = directory / "done"
    if not done.is_file():
        _build(directory, stream, name, fragments)
        done.write_text(" ".join(str(n) for n in _described(directory, stream)))
    messages, size, last_ms = (int(each) for each in done.read_text().split())
    return BenchStream(f"file://{directory.resolve()}", stream, messages, size, START_MS, last_ms)


def _described(directory: Path, stream: str) -> tuple[int, int, int]:
    from coldstream.adapters.directory import DirectoryCatalog, DirectoryStore

    item = DirectoryCatalog(DirectoryStore(str(directory)), PREFIX).get(stream)
    assert item is not None
    return item.next_offset, item.total_size, item.last_timestamp


def _build(directory: Path, stream: str, name: str, fragments: int) -> None:
    size = _SIZES[name[1:]]
    per_chunk = max(16, _CHUNK_BYTES // size)
    words = random.Random(1).choices(b'abcdefghijklmnop {}":,0123456789', k=2**20)
    pool = bytes(words) + bytes(words[: 2 * size])
    entries: list[Entry] = []
    offset, timestamp = 0, START_MS
    for number in range(fragments):
        first, position = offset, 0
        chunks: list[bytes] = []
        index: list[IndexRecord] = []
        while position < FRAGMENT_BYTES:
            data = b"".join(
                encode_simple(_message(offset + n, size, name[0] == "p", pool))
                for n in range(per_chunk)
            )
            header = ChunkHeader(
                ChunkType.USER, per_chunk, per_chunk, timestamp, 1, offset, zlib.crc32(data),
                len(data), 0, 0,
            )  # fmt: skip
            index.append(IndexRecord(offset, timestamp, position))
            chunks.append(header.encode() + data)
            position += len(chunks[-1])
            offset += per_chunk
            timestamp += _CHUNK_MS
        entries.append(_fragment(directory, stream, number, first, offset, b"".join(chunks), index))
    root = Root(
        first_offset=0,
        next_offset=offset,
        epoch=1,
        version=1,
        ledger=Ledger().claimed(1, 0),
        entries=Entries.of(entries),
    )
    path = directory / root_path(PREFIX, stream, 1, 1, 7)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(root.encode())


def _message(offset: int, size: int, properties: bool, pool: bytes) -> bytes:
    wire = message(offset, size, properties=properties)
    at = offset * 7919 % (len(pool) - size)
    return wire[:-size] + pool[at : at + size]


def _fragment(
    directory: Path,
    stream: str,
    number: int,
    first: int,
    next_offset: int,
    data: bytes,
    index: list[IndexRecord],
) -> Entry:
    records = encode_index(index)
    trailer = build_trailer(
        placement=Placement(1, 0, first, 0, 8),
        index=records,
        next_offset=next_offset,
        first_chunk_epoch=1,
        last_chunk_epoch=1,
        data_size=len(data),
        data_crc=zlib.crc32(data),
    )
    key = DataKey(stream, first, next_offset, 1, number + 1)
    path = directory / key.path(PREFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(HEADER + data + INDEX_HEADER + records + trailer.encode())
    return Entry(
        first, next_offset, trailer.min_timestamp, trailer.max_timestamp, EntryKind.FRAGMENT,
        trailer.size, next_offset - first, 1, number + 1,
    )  # fmt: skip
