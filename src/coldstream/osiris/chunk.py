"""Chunks: what a broker writes, replicates and delivers in one piece.

    ┌──────────────┬──────────────┬──────────┬─────────────┐
    │ header       │ bloom filter │ data     │ trailer     │
    │ 48 bytes     │ bloom_size   │ data_size│ trailer_size│
    └──────────────┴──────────────┴──────────┴─────────────┘

    0      magic and version  u8   0x50         24  chunk id      u64
    1      type               u8   ChunkType    32  crc           u32
    2      entries            u16               36  data size     u32
    4      records            u32               40  trailer size  u32
    8      timestamp          i64  ms           44  bloom size    u8
    16     epoch              u64               45  reserved      3 bytes

The CRC-32 covers the data section only; nothing protects the header, so every length in it is
checked against what is there before it is used. A chunk's id is the offset of its first record;
tracking chunks have one record and take one offset each. All integers are big-endian. Verified byte
for byte on files of RabbitMQ 3.10.8 and 4.3.6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.names import MAX_OFFSET

Buffer = bytes | bytearray | memoryview

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


def parse_chunk_header(buf: Buffer, position: int = 0) -> ChunkHeader:
    """Read the chunk header at `position`.

    Raises:
        CorruptDataError: the buffer is too short, or no header of a known kind is there.
    """
    if position < 0 or len(buf) - position < CHUNK_HEADER_SIZE:
        raise CorruptDataError("too few bytes for a chunk header")
    magic_version, *values = CHUNK_HEADER.unpack_from(buf, position)
    if magic_version != CHUNK_MAGIC_VERSION:
        raise CorruptDataError(
            f"a chunk begins with byte {CHUNK_MAGIC_VERSION:#x}, not with {magic_version:#x}"
        )
    header = ChunkHeader(*values)
    if header.chunk_type > ChunkType.TRACKING_SNAPSHOT:
        raise CorruptDataError(
            f"chunk type {header.chunk_type} is not known", offset=header.chunk_id
        )
    if not 1 <= header.entries <= header.records or header.next_offset > MAX_OFFSET:
        raise CorruptDataError(
            f"a chunk with {header.entries} entries and {header.records} records",
            offset=header.chunk_id,
        )
    return header


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
        if crc32(self.data) != self.header.crc:
            raise CorruptDataError("the chunk's CRC does not match", offset=self.header.chunk_id)


def chunk_at(buf: memoryview, position: int, end: int) -> Chunk:
    """The chunk that begins at `position` and lies wholly below `end`, as views of `buf`.

    Raises:
        CorruptDataError: it is torn, or no chunk is there. Names the byte position, and the offset
            if the header has one.
    """
    if not 0 <= position <= end <= len(buf):
        raise CorruptDataError(f"no chunk at byte {position}: there are {min(end, len(buf))} bytes")
    try:
        if end - position < CHUNK_HEADER_SIZE:
            raise CorruptDataError(f"a chunk header is torn after {end - position} bytes")
        header = parse_chunk_header(buf, position)
    except CorruptDataError as exc:
        raise CorruptDataError(f"{exc.reason}, at byte {position}", offset=exc.offset) from None
    size = header.size
    if size > end - position:
        raise CorruptDataError(
            f"a chunk of {size} bytes is torn after {end - position}, at byte {position}",
            offset=header.chunk_id,
        )
    return Chunk(header, buf[position : position + size])


def iter_chunks(buf: Buffer, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
    """Chunks that lie back to back in `buf` from `start` to `end` exactly, as views of it.

    Neither CRCs nor the order of the chunks are checked.

    Args:
        buf: any bytes that hold chunks; a whole segment file has them from byte 8 on.
        start: byte position of the first chunk.
        end: byte position after the last one; the end of `buf` by default.

    Raises:
        CorruptDataError: something else than a whole chunk comes next. Names the offset at which
            the chunks before it end.
    """
    view = memoryview(buf)
    end = len(view) if end is None else end
    position = start
    next_offset: int | None = None
    while position != end:
        try:
            chunk = chunk_at(view, position, end)
        except CorruptDataError as exc:
            if next_offset is not None:
                exc.offset = next_offset
            raise
        yield chunk
        position += len(chunk.buffer)
        next_offset = chunk.header.next_offset
