"""Valid stream directories without a broker: for tests, benchmarks and the demo.

Files are what a broker writes, byte for byte: header, chunks of simple entries that carry AMQP 1.0
messages with one data section, and an index record after each chunk. The same arguments give the
same bytes.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coldstream.osiris.chunk import ChunkHeader, ChunkType
from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER
from coldstream.osiris.segment import SEGMENT_HEADER, SEGMENT_HEADER_SIZE, segment_name

#: AMQP 1.0: a described data section whose binary has a 32-bit length.
_DATA_SECTION = b"\x00\x53\x75\xb0"
_POOL = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """What a stream directory holds. Offsets are half-open, sizes are bytes.

    Attributes:
        stream: name of the directory.
        first_offset: of the first chunk.
        next_offset: after the last chunk.
        messages: number of user messages.
        body_bytes: of all messages together.
        sha256: over all message bodies, concatenated in offset order.
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
    messages: Sequence[bytes],
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
        messages: wire bytes of each.
        chunk_type: a tracking chunk has one message.
        bloom: filter section.
        trailer: trailer section.
    """
    data = b"".join(len(each).to_bytes(4, "big") + each for each in messages)
    return _chunk(
        chunk_id, epoch, timestamp, len(messages), data, chunk_type=chunk_type, bloom=bloom,
        trailer=trailer,
    )  # fmt: skip


def _chunk(
    chunk_id: int,
    epoch: int,
    timestamp: int,
    records: int,
    data: bytes,
    *,
    chunk_type: ChunkType = ChunkType.USER,
    bloom: bytes = b"",
    trailer: bytes = b"",
) -> bytes:
    header = ChunkHeader(
        chunk_type=chunk_type,
        entries=records,
        records=records,
        timestamp=timestamp,
        epoch=epoch,
        chunk_id=chunk_id,
        crc=zlib.crc32(data),
        data_size=len(data),
        trailer_size=len(trailer),
        bloom_size=len(bloom),
    )
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
) -> Written:
    """Write a stream of equally long messages, as fast as the disk takes it.

    Args:
        directory: made if it is not there; holds nothing but this stream.
        messages: how many.
        message_size: bytes of each message's payload.
        chunk_messages: messages in a full chunk, at most 65,535.
        segment_bytes: a new segment begins before the chunk that comes after this size.
        seed: of the payloads.
        epochs: (epoch, offset from which it writes), in rising order.
        start_offset: of the first message.
        start_timestamp: of the first chunk, ms.
        timestamp_step: between two chunks, ms.
    """
    directory.mkdir(parents=True, exist_ok=True)
    pool = np.frombuffer(np.random.default_rng(seed).bytes(_POOL + message_size), np.uint8)
    body_size = len(_DATA_SECTION) + 4 + message_size
    prefix = body_size.to_bytes(4, "big") + _DATA_SECTION + message_size.to_bytes(4, "big")
    digest = hashlib.sha256()
    segments: list[int] = []
    offset, timestamp = start_offset, start_timestamp
    end = start_offset + messages
    while offset < end:
        segments.append(offset)
        position = SEGMENT_HEADER_SIZE
        records = []
        path = directory / segment_name(offset)
        with path.open("wb") as segment:
            segment.write(SEGMENT_HEADER)
            while offset < end and position < segment_bytes:
                count = min(chunk_messages, end - offset)
                rows = np.empty((count, len(prefix) + message_size), np.uint8)
                rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
                # Each message begins at another place of the pool, so no two are alike.
                starts = (np.arange(offset, offset + count) * 7919) % _POOL
                rows[:, len(prefix) :] = pool[starts[:, None] + np.arange(message_size)]
                digest.update(np.ascontiguousarray(rows[:, 4:]).data)
                epoch = max(e for e, since in epochs if since <= offset)
                chunk = _chunk(offset, epoch, timestamp, count, rows.tobytes())
                segment.write(chunk)
                records.append((offset, timestamp, epoch, position, ChunkType.USER))
                position += len(chunk)
                offset += count
                timestamp += timestamp_step
        path.with_suffix(".index").write_bytes(
            INDEX_HEADER + np.array(records, INDEX_DTYPE).tobytes()
        )
    return Written(
        stream=directory.name,
        first_offset=start_offset,
        next_offset=offset,
        messages=messages,
        body_bytes=messages * body_size,
        sha256=digest.hexdigest(),
        segments=tuple(segments),
        next_timestamp=timestamp,
    )


def append_chunks(directory: Path, chunks: Sequence[bytes], *, roll: bool = False) -> None:
    """Append whole chunks to a stream directory as a broker does: the chunk, then its record.

    Args:
        directory: of the stream.
        chunks: as `build_chunk` makes them.
        roll: whether to begin a new segment first.
    """
    from coldstream.osiris.chunk import parse_chunk_header

    segments = sorted(directory.glob("*.segment"))
    for number, chunk in enumerate(chunks):
        header = parse_chunk_header(chunk)
        if not segments or (roll and number == 0):
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / segment_name(header.chunk_id)
            path.with_suffix(".index").write_bytes(INDEX_HEADER)
            path.write_bytes(SEGMENT_HEADER)
            segments.append(path)
        with segments[-1].open("ab") as segment:
            position = segment.tell()
            segment.write(chunk)
        record = np.array(
            [(header.chunk_id, header.timestamp, header.epoch, position, header.chunk_type)],
            INDEX_DTYPE,
        )
        with segments[-1].with_suffix(".index").open("ab") as index:
            index.write(record.tobytes())
