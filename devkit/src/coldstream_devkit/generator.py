"""Valid stream directories without a broker: for tests, benchmarks and the demo.

Files are what a broker writes, byte for byte and in its order: index header, segment header, then
each chunk and after it its index record. Chunks are made of simple entries that carry AMQP 1.0
messages with one data section. The same arguments give the same bytes.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import InvalidInputError
from coldstream.names import INDEX_SUFFIX
from coldstream.osiris.chunk import Buffer, ChunkHeader, ChunkType, parse_chunk_header
from coldstream.osiris.entry import encode_simple
from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER
from coldstream.osiris.segment import SEGMENT_HEADER, SEGMENT_HEADER_SIZE, segment_name

#: AMQP 1.0: a described data section whose binary has a 32-bit length.
_DATA_SECTION = b"\x00\x53\x75\xb0"
_POOL = 1 << 20
_TEXT_POOL = 1 << 24  # so that no two messages of a compressed page are slices of one text
_STRIDE = 7919  # prime, so that messages begin all over the pool
_MAX_ENTRIES = 0xFFFF


@dataclass(frozen=True, slots=True)
class Written:
    """What a stream directory holds. Offsets are half-open, sizes are bytes.

    Attributes:
        stream: name of the directory.
        first_offset: of the first chunk.
        next_offset: after the last chunk.
        messages: number of user messages.
        body_bytes: of all messages' wire bytes together.
        sha256: over the wire bytes of all messages, concatenated in offset order, as in
            tests/data/fixtures.json.
        segments: first offsets of the segments.
        next_timestamp: for a chunk that would follow, ms.
    """

    stream: str
    first_offset: int
    next_offset: int
    messages: int
    body_bytes: int
    sha256: str
    segments: tuple[int, ...]
    next_timestamp: int


def build_chunk(
    chunk_id: int,
    epoch: int,
    timestamp: int,
    messages: Sequence[Buffer],
    *,
    chunk_type: ChunkType = ChunkType.USER,
    bloom: bytes = b"",
    trailer: bytes = b"",
) -> bytes:
    """One chunk of simple entries.

    Args:
        chunk_id: offset of the first message.
        epoch: of the writer.
        timestamp: ms.
        messages: wire bytes of each; a tracking chunk has one.
        chunk_type: what it carries.
        bloom: filter section.
        trailer: trailer section.

    Raises:
        InvalidInputError: no messages, or more than fit a chunk.
    """
    return join_chunk(
        chunk_id, epoch, timestamp, [encode_simple(each) for each in messages], len(messages),
        chunk_type=chunk_type, bloom=bloom, trailer=trailer,
    )  # fmt: skip


def join_chunk(
    chunk_id: int,
    epoch: int,
    timestamp: int,
    entries: Sequence[bytes],
    records: int,
    *,
    chunk_type: ChunkType = ChunkType.USER,
    bloom: bytes = b"",
    trailer: bytes = b"",
) -> bytes:
    """One chunk of encoded entries, among which may be sub-batches; see `build_chunk`.

    Args:
        chunk_id: offset of the first message.
        epoch: of the writer.
        timestamp: ms.
        entries: as `encode_simple` and `encode_sub_batch` make them.
        records: messages in all entries together.
        chunk_type: what it carries.
        bloom: filter section.
        trailer: trailer section.

    Raises:
        InvalidInputError: no entries, more than fit a chunk, or more than there are records.
    """
    if not 1 <= len(entries) <= min(records, _MAX_ENTRIES):
        raise InvalidInputError(f"a chunk of {len(entries)} entries and {records} records")
    data = b"".join(entries)
    header = ChunkHeader(
        chunk_type, len(entries), records, timestamp, epoch, chunk_id, zlib.crc32(data), len(data),
        len(trailer), len(bloom),
    )  # fmt: skip
    return b"".join((header.encode(), bloom, data, trailer))


def write_stream(
    directory: Path,
    *,
    messages: int,
    message_size: int = 1000,
    chunk_messages: int = 256,
    segment_bytes: int = 500_000_000,
    seed: int = 1,
    epochs: Sequence[tuple[int, int]] = ((1, 0),),
    start_offset: int = 0,
    start_timestamp: int = 1_790_000_000_000,
    timestamp_step: int = 10,
    text: bool = False,
) -> Written:
    """Write a stream of equally long messages, about as fast as they can be hashed.

    Args:
        directory: made if it is not there; holds nothing but this stream.
        messages: how many.
        message_size: bytes of each message's payload; its wire bytes are 8 more.
        chunk_messages: messages in a full chunk, at most 65,535.
        segment_bytes: a new segment begins before the chunk that comes after this size.
        seed: of the payloads.
        epochs: (epoch, offset from which it writes), in rising order; a chunk has one epoch.
        start_offset: of the first message.
        start_timestamp: of the first chunk, ms.
        timestamp_step: between two chunks, ms.
        text: whether payloads are JSON-like text, which compresses as such; random bytes otherwise.

    Raises:
        InvalidInputError: a chunk would hold no message or too many, or no epoch is there for the
            first offset.
    """
    if not 1 <= chunk_messages <= _MAX_ENTRIES:
        raise InvalidInputError(f"chunks of {chunk_messages} messages")
    if list(epochs) != sorted(epochs) or not any(since <= start_offset for _, since in epochs):
        raise InvalidInputError(f"epochs {epochs} of a stream that begins at {start_offset}")
    directory.mkdir(parents=True, exist_ok=True)
    body_size = len(_DATA_SECTION) + 4 + message_size
    digest = hashlib.sha256()
    segments: list[int] = []
    timestamp, position = start_timestamp, 0
    rows = _Rows(seed, message_size, chunk_messages, text=text)
    end = start_offset + messages
    if not messages:
        segments.append(start_offset)
        _create_segment(directory, start_offset)
    with ExitStack() as files:
        for offset, count, epoch in _chunk_ranges(start_offset, end, chunk_messages, epochs):
            if not segments or position >= segment_bytes:
                files.close()
                segments.append(offset)
                position = SEGMENT_HEADER_SIZE
                path = _create_segment(directory, offset)
                segment = files.enter_context(path.open("ab", buffering=0))
                index = files.enter_context(_index_path(path).open("ab", buffering=0))
            data = rows.fill(offset, count)
            digest.update(rows.bodies(count))
            header = ChunkHeader(
                ChunkType.USER, count, count, timestamp, epoch, offset, zlib.crc32(data),
                len(data), 0, 0,
            )  # fmt: skip
            segment.write(header.encode())
            segment.write(data)
            index.write(_index_record(header, position))
            position += header.size
            timestamp += timestamp_step
    return Written(
        stream=directory.name,
        first_offset=start_offset,
        next_offset=end,
        messages=messages,
        body_bytes=messages * body_size,
        sha256=digest.hexdigest(),
        segments=tuple(segments),
        next_timestamp=timestamp,
    )


def append_chunks(directory: Path, chunks: Sequence[bytes], *, roll: bool = False) -> None:
    """Append whole chunks to a stream directory as a broker does: the chunk, then its record.

    The chunks' offsets are not compared with what is there, so that tests can write bad history.

    Args:
        directory: of the stream; made if it is not there.
        chunks: as `build_chunk` makes them.
        roll: whether to begin a new segment first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    segments = sorted(directory.glob("*.segment"))
    for number, chunk in enumerate(chunks):
        header = parse_chunk_header(chunk)
        if not segments or (roll and number == 0):
            segments.append(_create_segment(directory, header.chunk_id))
        with segments[-1].open("ab", buffering=0) as segment:
            position = segment.tell()
            segment.write(chunk)
        with _index_path(segments[-1]).open("ab", buffering=0) as index:
            index.write(_index_record(header, position))


class _Rows:
    """The data sections of chunks of equally long messages, one row of bytes a message.

    Payloads are slices of one random pool, each from another place, so no two neighbours are alike
    and filling a chunk is one copy.
    """

    def __init__(self, seed: int, message_size: int, most: int, *, text: bool) -> None:
        body_size = len(_DATA_SECTION) + 4 + message_size
        prefix = body_size.to_bytes(4, "big") + _DATA_SECTION + message_size.to_bytes(4, "big")
        self._pool = _TEXT_POOL if text else _POOL
        size = self._pool + message_size
        random = np.random.default_rng(seed)
        pool = np.frombuffer(_text(random, size) if text else random.bytes(size), np.uint8)
        # A row of `windows` is the pool from there on; nothing is copied until rows are picked.
        self._windows: NDArray[np.uint8] = np.lib.stride_tricks.sliding_window_view(
            pool, message_size
        )
        self._rows = np.empty((most, len(prefix) + message_size), np.uint8)
        self._rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        self._payload = len(prefix)

    def fill(self, offset: int, count: int) -> memoryview:
        """The data section of `count` messages from `offset` on; valid until the next call."""
        starts = np.arange(offset, offset + count, dtype=np.uint64) * np.uint64(_STRIDE)
        starts %= np.uint64(self._pool)
        self._rows[:count, self._payload :] = self._windows[starts.astype(np.int64)]
        return self._rows[:count].data.cast("B")

    def bodies(self, count: int) -> memoryview:
        """The same messages' wire bytes back to back, without the lengths before them."""
        return np.ascontiguousarray(self._rows[:count, 4:]).data.cast("B")


def _text(random: np.random.Generator, size: int) -> bytes:
    """Fields of made-up words and numbers, common words more often, as JSON logs have them."""
    letters = random.integers(97, 123, (6000, 10), np.uint8)
    lengths = random.integers(2, 11, 6000)
    words = [bytes(row[:length]) for row, length in zip(letters, lengths.tolist(), strict=True)]
    made = bytearray()
    while len(made) < size:
        picked = (random.zipf(1.3, 4096) % len(words)).tolist()
        numbers = random.integers(0, 1_000_000, 4096).tolist()
        for word, number in zip(picked, numbers, strict=True):
            made += b'"%s":"%s",' % (words[word], words[number % len(words)])
            if number % 5 == 0:
                made += b'"n":%d}\n{' % number
    return bytes(made[:size])


def _chunk_ranges(
    start: int, end: int, most: int, epochs: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """(first offset, messages, epoch) of each chunk; none reaches over the start of an epoch."""
    offset = start
    while offset < end:
        epoch = max(each for each, since in epochs if since <= offset)
        stop = min((since for _, since in epochs if since > offset), default=end)
        count = min(most, end - offset, stop - offset)
        yield offset, count, epoch
        offset += count


def _create_segment(directory: Path, first_offset: int) -> Path:
    path = directory / segment_name(first_offset)
    _index_path(path).write_bytes(INDEX_HEADER)
    path.write_bytes(SEGMENT_HEADER)
    return path


def _index_path(segment: Path) -> Path:
    return segment.with_suffix(INDEX_SUFFIX)


def _index_record(header: ChunkHeader, position: int) -> bytes:
    fields = (header.chunk_id, header.timestamp, header.epoch, position, header.chunk_type)
    return np.array([fields], INDEX_DTYPE).tobytes()
