"""Tracking: what consumers stored and how far named publishers came, kept inside the stream.

    trailer of a user chunk, and the one entry of a tracking delta, again and again:

        type u8 │ size u8 │ reference │ value u64

    the one entry of a tracking snapshot, again and again:

        type u8 │ size u8 │ reference │ chunk id u64 (sequences only) │ value u64

A user chunk has a trailer only if a named publisher wrote to it. A broker writes a delta when a
consumer stores its offset, and a snapshot as first chunk of a new segment when there is anything to
keep. Verified byte for byte on files of RabbitMQ 3.10.8 and 4.3.6 (Osiris: osiris_tracking.erl).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import Buffer, Chunk, ChunkType

_HEAD = struct.Struct(">BB")
_VALUE = struct.Struct(">Q")
_ENTRY_LENGTH = struct.Struct(">I")


class TrackingType(IntEnum):
    """What a tracked value is."""

    SEQUENCE = 0
    OFFSET = 1
    TIMESTAMP = 2


@dataclass(frozen=True, slots=True)
class Tracked:
    """One tracked value.

    Attributes:
        tracking_type: what `value` is.
        reference: name of the publisher or consumer, at most 255 bytes, as they came.
        value: last publishing id (SEQUENCE), stored offset (OFFSET), or ms (TIMESTAMP); u64.
        chunk_id: of the chunk that had the sequence last; None outside of snapshots' sequences.
    """

    tracking_type: TrackingType
    reference: bytes
    value: int
    chunk_id: int | None = None

    @property
    def name(self) -> str:
        """The reference as text; bytes that are no UTF-8 are escaped with backslashes."""
        return self.reference.decode("utf-8", "backslashreplace")


def parse_tracking(chunk: Chunk) -> tuple[Tracked, ...]:
    """All that a chunk says about tracking: in a user chunk the trailer, otherwise its one entry.

    Raises:
        CorruptDataError: a length or type does not hold, or a tracking chunk has not exactly one
            simple entry. Names the chunk's offset.
    """
    header = chunk.header
    try:
        if header.chunk_type == ChunkType.USER:
            return parse_tracked(chunk.trailer)
        entry = _only_entry(chunk)
        if header.chunk_type == ChunkType.TRACKING_DELTA:
            return parse_tracked(entry)
        return parse_snapshot(entry)
    except CorruptDataError as exc:
        raise exc.located(offset=header.chunk_id) from exc.__cause__


def parse_tracked(buf: Buffer) -> tuple[Tracked, ...]:
    """The values of a trailer or of a tracking delta's entry.

    Raises:
        CorruptDataError: it is cut, or a type is not known.
    """
    return _parse(buf, snapshot=False)


def parse_snapshot(buf: Buffer) -> tuple[Tracked, ...]:
    """The values of a tracking snapshot's entry.

    Raises:
        CorruptDataError: it is cut, or a type is not known.
    """
    return _parse(buf, snapshot=True)


def encode_tracked(tracked: Tracked) -> bytes:
    """One value, as in a snapshot if it has a chunk id, otherwise as in a trailer or delta."""
    chunk_id = b"" if tracked.chunk_id is None else _VALUE.pack(tracked.chunk_id)
    head = _HEAD.pack(tracked.tracking_type, len(tracked.reference))
    return b"".join((head, tracked.reference, chunk_id, _VALUE.pack(tracked.value)))


def _only_entry(chunk: Chunk) -> memoryview:
    header, data = chunk.header, chunk.data
    if header.entries != 1 or header.records != 1:
        raise CorruptDataError(
            f"a tracking chunk with {header.entries} entries and {header.records} records"
        )
    if len(data) < _ENTRY_LENGTH.size:
        raise CorruptDataError("the entry of a tracking chunk is cut")
    (size,) = _ENTRY_LENGTH.unpack_from(data)
    if size != len(data) - _ENTRY_LENGTH.size:
        raise CorruptDataError(
            f"the entry of a tracking chunk says {size} bytes and has"
            f" {len(data) - _ENTRY_LENGTH.size}"
        )
    return data[_ENTRY_LENGTH.size :]


def _parse(buf: Buffer, *, snapshot: bool) -> tuple[Tracked, ...]:
    found: list[Tracked] = []
    position, end = 0, len(buf)
    while position < end:
        if end - position < _HEAD.size:
            raise CorruptDataError("a tracked value is cut")
        kind, size = _HEAD.unpack_from(buf, position)
        if kind > TrackingType.TIMESTAMP:
            raise CorruptDataError(f"tracking type {kind} is not known")
        position += _HEAD.size
        with_chunk = snapshot and kind == TrackingType.SEQUENCE
        if end - position < size + _VALUE.size * (1 + with_chunk):
            raise CorruptDataError("a tracked value is cut")
        reference = bytes(buf[position : position + size])
        position += size
        chunk_id = None
        if with_chunk:
            (chunk_id,) = _VALUE.unpack_from(buf, position)
            position += _VALUE.size
        (value,) = _VALUE.unpack_from(buf, position)
        position += _VALUE.size
        found.append(Tracked(TrackingType(kind), reference, value, chunk_id))
    return tuple(found)
