"""Entries: what a user chunk's data section is made of.

    simple     u32 length (top bit 0) | body
    sub-batch  u8 1ccc0000 | u16 records | u32 uncompressed size | u32 size | payload

`ccc` is the codec: 0 none, 1 gzip, 2 snappy (framed), 3 lz4 (frame), 4 zstd. The payload inflates
to `records` times (u32 length | body). A body is the wire bytes of one message. A chunk may mix all
of them; the broker never looks inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import Chunk, ChunkType

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">I")
_SUB_BATCH = struct.Struct(
    ">"
    "B"  # 1, codec, 0000
    "H"  # records
    "I"  # uncompressed size
    "I"  # size
)
_SUB_BATCH_BIT = 0x80
_CODEC_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

#: A sub-batch may not inflate to more than this unless the caller says so.
MAX_SUB_BATCH_BYTES = 256 * 2**20


def iter_messages(
    chunk: Chunk, *, max_sub_batch_bytes: int = MAX_SUB_BATCH_BYTES
) -> Iterator[Buffer]:
    """The wire bytes of each message of a user chunk, in offset order.

    Bodies of simple entries are views of the chunk's buffer, others of the inflated sub-batch.

    Raises:
        CorruptDataError: not a user chunk; an entry is cut, inflates wrongly or needlessly large,
            or there are more or fewer records than the header says. Names the offset.
    """
    header = chunk.header
    if header.chunk_type != ChunkType.USER:
        raise CorruptDataError("a tracking chunk has no messages", offset=header.chunk_id)
    seen = 0
    try:
        for body in _bodies(chunk.data, header.entries, max_sub_batch_bytes):
            seen += 1
            if seen > header.records:
                raise CorruptDataError(f"more than the {header.records} records of its header")
            yield body
        if seen != header.records:
            raise CorruptDataError(f"{seen} records, its header says {header.records}")
    except CorruptDataError as exc:
        raise exc.located(offset=header.chunk_id + seen) from exc.__cause__


def iter_records(
    chunk: Chunk, *, max_sub_batch_bytes: int = MAX_SUB_BATCH_BYTES
) -> Iterator[tuple[int, Buffer]]:
    """(offset, wire bytes) of each message; see `iter_messages`."""
    return enumerate(
        iter_messages(chunk, max_sub_batch_bytes=max_sub_batch_bytes), chunk.header.chunk_id
    )


def _bodies(data: memoryview, entries: int, limit: int) -> Iterator[Buffer]:
    position, end = 0, len(data)
    unpack = _LENGTH.unpack_from
    for _ in range(entries):
        if end - position < 4:
            raise CorruptDataError("an entry is cut")
        if data[position] & _SUB_BATCH_BIT:
            if end - position < _SUB_BATCH.size:
                raise CorruptDataError("a sub-batch header is cut")
            kind, records, inflated_size, size = _SUB_BATCH.unpack_from(data, position)
            position += _SUB_BATCH.size
            if size > end - position:
                raise CorruptDataError(f"a sub-batch of {size} bytes is cut")
            if kind & 0x0F:
                raise CorruptDataError(f"an entry of the unknown kind {kind:#x}")
            payload = data[position : position + size]
            inflated = inflate(payload, kind >> 4 & 7, inflated_size, limit=limit)
            yield from _sub_batch_bodies(inflated, records)
            position += size
        else:
            (length,) = unpack(data, position)
            position += 4
            if length > end - position:
                raise CorruptDataError(f"an entry of {length} bytes is cut")
            yield data[position : position + length]
            position += length
    if position != end:
        raise CorruptDataError(f"{end - position} bytes follow the last entry")


def _sub_batch_bodies(data: memoryview, records: int) -> Iterator[memoryview]:
    position, end = 0, len(data)
    for _ in range(records):
        if end - position < 4:
            raise CorruptDataError("a record of a sub-batch is cut")
        (length,) = _LENGTH.unpack_from(data, position)
        position += 4
        if length > end - position:
            raise CorruptDataError(f"a record of {length} bytes in a sub-batch is cut")
        yield data[position : position + length]
        position += length
    if position != end:
        raise CorruptDataError(f"{end - position} bytes follow the last record of a sub-batch")


def inflate(payload: memoryview, codec: int, size: int, *, limit: int) -> memoryview:
    """A sub-batch's payload, inflated to exactly `size` bytes.

    No more than `size` bytes are ever allocated for it, whatever the payload claims to hold.

    Raises:
        CorruptDataError: unknown codec, damaged payload, another size, or `size` above `limit`.
    """
    if size > limit:
        raise CorruptDataError(f"a sub-batch that inflates to {size} bytes, more than {limit}")
    if codec == 0:
        if len(payload) != size:
            raise CorruptDataError(f"a sub-batch of {len(payload)} bytes says it has {size}")
        return payload
    if codec not in _CODEC_NAMES:
        raise CorruptDataError(f"codec {codec} of a sub-batch is not known")
    name = _CODEC_NAMES[codec]
    module = _codec(name)
    output = bytearray(size)
    try:
        written = module.decompress_into(payload, output)
    except Exception as exc:  # cramjam's error and, for some damage, the codec's own
        raise CorruptDataError(f"a {name} sub-batch does not inflate: {exc}") from exc
    if written != size:
        raise CorruptDataError(f"a {name} sub-batch inflates to {written} bytes, not {size}")
    return memoryview(output)


def _codec(name: str) -> Any:
    import cramjam

    return getattr(cramjam, name)


def encode_simple(body: Buffer) -> bytes:
    """A simple entry."""
    if len(body) >= 1 << 31:
        raise ValueError("a message of 2 GiB or more")
    return _LENGTH.pack(len(body)) + bytes(body)


def encode_sub_batch(bodies: Sequence[Buffer], codec: int) -> bytes:
    """A sub-batch entry of at most 65,535 messages with one of the codecs 0 to 4."""
    raw = b"".join(_LENGTH.pack(len(body)) + bytes(body) for body in bodies)
    payload = raw if codec == 0 else bytes(_codec(_CODEC_NAMES[codec]).compress(raw))
    return (
        _SUB_BATCH.pack(_SUB_BATCH_BIT | codec << 4, len(bodies), len(raw), len(payload)) + payload
    )
