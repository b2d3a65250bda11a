"""Messages without what was in them: the same offsets, the same lengths, nothing of the bytes.

A message of `size` bytes becomes the one AMQP 1.0 message of that size which says that it was
erased, whatever it was before; a publisher's plain bytes, too:

    22 bytes or more   message annotations {x-erased: true} and a data section of zeros
    5 to 21 bytes      a data section of zeros: there is no room for the annotation
    below 5 bytes      zeros, which are no AMQP 1.0

So the properties go with the body, and an erasure done twice is done once. A chunk keeps its
header, its filter and its trailer; its CRC is made anew. A message keeps its length, also in a
sub-batch. A compressed sub-batch is compressed again, so its size changes, and the chunk's with it.

What stays of a message: its offset, its length, the chunk's time, and in the chunk's filter the two
bits of its filter value, which are a hash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import (
    CHUNK_HEADER_SIZE,
    Buffer,
    Chunk,
    ChunkHeader,
    ChunkType,
    iter_chunks,
)
from coldstream.osiris.entry import (
    MAX_SUB_BATCH_BYTES,
    encode_simple,
    encode_sub_batch,
    iter_entries,
    iter_records,
    sub_batch_bodies,
)
from coldstream.osiris.offsets import OffsetSet

_RESERVED = 3  # bytes at the end of a chunk's header, kept as they are
#: The annotation by which a reader can tell an erased message.
MARK = b"x-erased"
# Section 0x72 with a map8 of two values: a sym8 and `true`.
_MAP = bytes((2 + len(MARK) + 1 + 1, 2, 0xA3, len(MARK))) + MARK + b"\x41"
_ANNOTATIONS = b"\x00\x53\x72\xc1" + _MAP
_DATA = b"\x00\x53\x75"
_SHORT = len(_DATA) + 2  # vbin8: its length in a byte
_LONG = len(_DATA) + 5  # vbin32: its length in four
#: Shorter messages have no room for the annotation.
MARKED_FROM = len(_ANNOTATIONS) + _SHORT


@dataclass(frozen=True, slots=True)
class Erased:
    """Which messages of a stream were erased: offsets by the epoch of the chunk that had them.

    After a fail-over that lost data the same offsets have other messages, in chunks of other
    epochs; those nobody has asked to erase. The epoch 0 stands for offsets without a chunk in the
    manifest: no message is blanked for them, and what still has them is garbage.

    Attributes:
        by_epoch: offsets by chunk epoch.
    """

    by_epoch: Mapping[int, OffsetSet] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> Erased:
        """From (first, next, epoch) rows in any order.

        Raises:
            InvalidInputError: one is no range of offsets.
        """
        ranges: dict[int, list[tuple[int, int]]] = {}
        for first, next_offset, epoch in rows:
            ranges.setdefault(epoch, []).append((first, next_offset))
        return cls({epoch: OffsetSet.of(each) for epoch, each in sorted(ranges.items())})

    @property
    def rows(self) -> Iterator[tuple[int, int, int]]:
        """(first, next, epoch), by epoch and offset."""
        for epoch, offsets in self.by_epoch.items():
            for first, next_offset in offsets.ranges:
                yield first, next_offset, epoch

    @property
    def offsets(self) -> OffsetSet:
        """All of them, whatever the epoch."""
        return OffsetSet.of(each for some in self.by_epoch.values() for each in some.ranges)

    def __bool__(self) -> bool:
        return bool(self.by_epoch)

    def __or__(self, other: Erased) -> Erased:
        return Erased.of((*self.rows, *other.rows))

    def overlaps(self, first: int, next_offset: int) -> bool:
        """Whether some offset of [first, next_offset) was erased, whatever the epoch."""
        return any(each.overlaps(first, next_offset) for each in self.by_epoch.values())

    def in_chunk(self, header: ChunkHeader) -> OffsetSet:
        """Those of a chunk."""
        found = self.by_epoch.get(header.epoch, OffsetSet())
        return found.within(header.chunk_id, header.next_offset)


@lru_cache(maxsize=256)
def blank_message(size: int) -> bytes:
    """The message of `size` bytes that stands for an erased one."""
    mark = _ANNOTATIONS if size >= MARKED_FROM else b""
    room = size - len(mark)
    if room < _SHORT:
        return bytes(size)
    if room - _SHORT <= 0xFF:
        return mark + _DATA + bytes((0xA0, room - _SHORT)) + bytes(room - _SHORT)
    return mark + _DATA + struct.pack(">BI", 0xB0, room - _LONG) + bytes(room - _LONG)


def is_blank(message: Buffer) -> bool:
    """Whether a message is what an erasure leaves.

    One of less than `MARKED_FROM` bytes may be a publisher's own, which has nothing but zeros.
    """
    return bytes(message) == blank_message(len(message))


def blank_chunk(
    chunk: Chunk, erased: Erased, *, max_sub_batch_bytes: int = MAX_SUB_BATCH_BYTES
) -> Chunk:
    """A chunk without what was in its erased messages; the same one if nothing is left to do.

    Args:
        chunk: whole and sound: its CRC is not checked, and what is made of it has one that holds.
        erased: of the stream; what the chunk has not is passed over.
        max_sub_batch_bytes: a sub-batch that inflates to more is refused.

    Raises:
        CorruptDataError: an entry is damaged. Names the offset.
    """
    header = chunk.header
    offsets = erased.in_chunk(header)
    if header.chunk_type != ChunkType.USER or not offsets:
        return chunk
    entries: list[Buffer] = []
    changed = False
    for offset, records, entry in iter_entries(chunk):
        blank: Buffer | None = None
        if offsets.overlaps(offset, offset + records):
            try:
                blank = _blank_entry(entry, offset, offsets, max_sub_batch_bytes)
            except CorruptDataError as exc:
                raise exc.located(offset=offset) from exc.__cause__
        changed = changed or blank is not None
        entries.append(entry if blank is None else blank)
    if not changed:
        return chunk
    data = b"".join(entries)
    header = replace(header, crc=crc32(data), data_size=len(data))
    kept = CHUNK_HEADER_SIZE - _RESERVED
    head = header.encode()[:kept] + bytes(chunk.buffer[kept:CHUNK_HEADER_SIZE])
    return Chunk(header, memoryview(b"".join((head, chunk.bloom, data, chunk.trailer))))


def _blank_entry(entry: memoryview, offset: int, erased: OffsetSet, limit: int) -> bytes | None:
    """An entry with blanks; None if all that is to be erased is blank already."""
    if not entry[0] & 0x80:
        body = entry[4:]
        return None if is_blank(body) else encode_simple(blank_message(len(body)))
    codec, bodies = sub_batch_bodies(entry, limit)
    blanks = [
        blank_message(len(body)) if offset + number in erased else body
        for number, body in enumerate(bodies)
    ]
    if all(blank == body for blank, body in zip(blanks, bodies, strict=True)):
        return None
    return encode_sub_batch(blanks, codec)


def all_blank(data: Buffer, erased: Erased) -> bool:
    """Whether nothing is left to erase in chunks that lie back to back and are whole.

    Raises:
        CorruptDataError: they do not, or are not.
    """
    return all(blank_chunk(chunk, erased) is chunk for chunk in iter_chunks(data))


def differs_by_erasure_alone(own: Chunk, found: Chunk, erased: Erased) -> bool:
    """Whether `found` is `own` but for messages that were erased.

    Args:
        own: as a broker wrote it.
        found: a chunk with the same id, as it is in the remote tier.
        erased: of the stream.
    """
    offsets = erased.in_chunk(own.header)
    one, other = (
        own.header,
        replace(found.header, crc=own.header.crc, data_size=own.header.data_size),
    )
    if one != other or own.bloom != found.bloom or own.trailer != found.trailer:
        return False
    if one.chunk_type != ChunkType.USER:
        return own.data == found.data
    try:
        pairs: Iterable[tuple[tuple[int, memoryview], tuple[int, memoryview]]] = zip(
            iter_records(own), iter_records(found), strict=True
        )
        return all(
            body == blank or (offset in offsets and len(body) == len(blank) and is_blank(blank))
            for (offset, body), (_, blank) in pairs
        )
    except (CorruptDataError, ValueError):
        return False
