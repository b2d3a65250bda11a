"""Chunks: what a broker writes, replicates and delivers in one piece.

    ┌──────────────┬──────────────┬──────────┬─────────────┐
    │ header       │ bloom filter │ data     │ trailer     │
    │ 48 bytes     │ bloom_size   │ data_size│ trailer_size│
    └──────────────┴──────────────┴──────────┴─────────────┘

    0      1    2       4       8           16      24        32   36        40           44    45
    magver type entries records timestamp   epoch   chunk id  crc  data size trailer size bloom 0 0 0
    u8     u8   u16     u32     i64 ms      u64     u64       u32  u32       u32          u8    3 B

The CRC-32 covers the data section only; nothing protects the header, so every length in it is
checked against what is there before it is used. A chunk's id is the offset of its first record;
tracking chunks have one record and take one offset each.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from coldstream.errors import CorruptDataError
from coldstream.names import MAX_OFFSET

CHUNK_HEADER_SIZE = 48
CHUNK_MAGIC_VERSION = 0x50

CHUNK_HEADER = struct.Struct(
    ">"
    "B"  # magic (5) and version (0)
    "B"  # type
    "H"  # entries
    "I"  # records
    "q"  # timestamp, ms
    "Q"  # epoch
    "Q"  # chunk id
    "I"  # CRC-32 of the data section
    "I"  # data size
    "I"  # trailer size
    "B"  # bloom filter size
    "3x"  # reserved
)


class ChunkType(IntEnum):
    """What a chunk carries."""

    USER = 0
    TRACKING_DELTA = 1
    TRACKING_SNAPSHOT = 2


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The 48 bytes before a chunk's sections. Sizes in bytes, timestamp in ms."""

    chunk_type: int
    entries: int
    records: int
    timestamp: int
    epoch: int
    chunk_id: int
    crc: int
    data_size: int
    trailer_size: int
    bloom_size: int

    @property
    def size(self) -> int:
        """Bytes of the whole chunk."""
        return CHUNK_HEADER_SIZE + self.bloom_size + self.data_size + self.trailer_size

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.chunk_id + self.records

    @property
    def data_position(self) -> int:
        """Where the data section begins, from the chunk's first byte."""
        return CHUNK_HEADER_SIZE + self.bloom_size

    def encode(self) -> bytes:
        """The header's 48 bytes."""
        return CHUNK_HEADER.pack(
            CHUNK_MAGIC_VERSION,
            self.chunk_type,
            self.entries,
            self.records,
            self.timestamp,
            self.epoch,
            self.chunk_id,
            self.crc,
            self.data_size,
            self.trailer_size,
            self.bloom_size,
        )


def parse_chunk_header(buf: bytes | bytearray | memoryview, position: int = 0) -> ChunkHeader:
    """Read the chunk header at `position`.

    Raises:
        CorruptDataError: the buffer is too short, or no header of a known kind is there.
    """
    if position < 0 or len(buf) - position < CHUNK_HEADER_SIZE:
        raise CorruptDataError("too few bytes for a chunk header")
    (
        magic_version,
        chunk_type,
        entries,
        records,
        timestamp,
        epoch,
        chunk_id,
        crc,
        data_size,
        trailer_size,
        bloom_size,
    ) = CHUNK_HEADER.unpack_from(buf, position)
    if magic_version != CHUNK_MAGIC_VERSION:
        raise CorruptDataError(
            f"a chunk begins with byte {CHUNK_MAGIC_VERSION:#x}, not with {magic_version:#x}"
        )
    if chunk_type > ChunkType.TRACKING_SNAPSHOT:
        raise CorruptDataError(f"chunk type {chunk_type} is not known", offset=chunk_id)
    if not 1 <= entries <= records or chunk_id + records > MAX_OFFSET:
        raise CorruptDataError(
            f"a chunk with {entries} entries and {records} records", offset=chunk_id
        )
    return ChunkHeader(
        chunk_type,
        entries,
        records,
        timestamp,
        epoch,
        chunk_id,
        crc,
        data_size,
        trailer_size,
        bloom_size,
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """One whole chunk over the bytes it came in.

    Attributes:
        header: parsed.
        buffer: all of the chunk's bytes, `header.size` of them.
    """

    header: ChunkHeader
    buffer: memoryview

    @property
    def bloom(self) -> memoryview:
        """The bloom filter, empty if the publisher used no filter values."""
        return self.buffer[CHUNK_HEADER_SIZE : self.header.data_position]

    @property
    def data(self) -> memoryview:
        """The data section: entries."""
        start = self.header.data_position
        return self.buffer[start : start + self.header.data_size]

    @property
    def trailer(self) -> memoryview:
        """The trailer: tracking of named publishers, mostly empty."""
        return self.buffer[self.header.data_position + self.header.data_size :]

    def check_crc(self) -> None:
        """Check the data section.

        Raises:
            CorruptDataError: its CRC-32 is not the header's; names the offset.
        """
        if zlib.crc32(self.data) != self.header.crc:
            raise CorruptDataError("the chunk's CRC does not match", offset=self.header.chunk_id)


def chunk_at(buf: memoryview, position: int, end: int) -> Chunk:
    """The chunk that begins at `position` and lies wholly below `end`.

    Raises:
        CorruptDataError: it is torn, or no chunk is there.
    """
    header = parse_chunk_header(buf[:end], position)
    if position + header.size > end:
        raise CorruptDataError(
            f"a chunk of {header.size} bytes is torn after {end - position}", offset=header.chunk_id
        )
    return Chunk(header, buf[position : position + header.size])


def iter_chunks(
    buf: bytes | bytearray | memoryview, start: int = 0, end: int | None = None
) -> Iterator[Chunk]:
    """Chunks that lie back to back in `buf` from `start` to `end` exactly.

    Raises:
        CorruptDataError: something else than a whole chunk comes next.
    """
    view = memoryview(buf)
    end = len(view) if end is None else end
    position = start
    while position < end:
        chunk = chunk_at(view, position, end)
        yield chunk
        position += chunk.header.size
