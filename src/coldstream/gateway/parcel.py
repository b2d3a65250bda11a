"""A chunk on its way to a client: the bytes that a Deliver carries, wherever they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.osiris.bloom import FilterMatcher
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Chunk, parse_chunk_header
from coldstream.soundness.chunks import USER


@dataclass(frozen=True, slots=True)
class Parcel:
    """One chunk of messages.

    Attributes:
        chunk_id: offset of its first message.
        next_offset: after its last message.
        parts: its header, and its data section, untouched; filter and trailer are left out, as a
            broker does.
        size: bytes of all parts.
    """

    chunk_id: int
    next_offset: int
    parts: tuple[memoryview, ...]
    size: int

    @property
    def header(self) -> bytes:
        """The chunk's header."""
        return bytes(self.parts[0][:CHUNK_HEADER_SIZE])

    @property
    def epoch(self) -> int:
        """The epoch of the writer that wrote it."""
        return parse_chunk_header(self.parts[0]).epoch

    @property
    def timestamp(self) -> int:
        """When it was written, ms."""
        return parse_chunk_header(self.parts[0]).timestamp


def parcel_of(chunk: Chunk) -> Parcel:
    """A whole chunk that has been checked; without a filter its bytes are sent in one piece."""
    header = chunk.header
    size = CHUNK_HEADER_SIZE + header.data_size
    parts: tuple[memoryview, ...] = (chunk.buffer[:size],)
    if header.bloom_size:
        parts = chunk.buffer[:CHUNK_HEADER_SIZE], chunk.data
    return Parcel(header.chunk_id, header.next_offset, parts, size)


def parcels(chunks: Iterator[Chunk], wanted: FilterMatcher | None) -> list[Parcel]:
    """Of chunks that were checked, those of messages that a filter does not rule out.

    Raises:
        CorruptDataError: a filter has a size that none has.
    """
    return [
        parcel_of(each)
        for each in chunks
        if each.header.chunk_type == USER and (wanted is None or wanted.matches(each.bloom))
    ]


def delivered(view: memoryview) -> Parcel:
    """A chunk as a broker delivers it: without filter and trailer.

    Raises:
        CorruptDataError: it is no chunk of messages, has another length, or its CRC is wrong.
    """
    header = parse_chunk_header(view)
    size = CHUNK_HEADER_SIZE + header.data_size
    if header.chunk_type != USER or len(view) != size:
        raise CorruptDataError(
            f"{len(view)} bytes are delivered for a chunk of {size}", offset=header.chunk_id
        )
    if crc32(view[CHUNK_HEADER_SIZE:]) != header.crc:
        raise CorruptDataError("the chunk's CRC does not match", offset=header.chunk_id)
    return Parcel(header.chunk_id, header.next_offset, (view,), size)
