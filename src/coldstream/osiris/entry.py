"""Entries: what a user chunk's data section is made of.

    simple     u32 length (top bit 0) │ body
    sub-batch  u8 1ccc0000 │ u16 records │ u32 uncompressed size │ u32 size │ payload

`ccc` is the codec: 0 none, 1 gzip, 2 snappy (framed), 3 lz4 (frame), 4 zstd. The payload inflates
to `records` times (u32 length │ body). A body is the wire bytes of one message. A chunk may mix all
of them; the broker never looks inside. Verified on files of RabbitMQ 3.10.8 and 4.3.6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from importlib import import_module
from typing import Any

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris.chunk import Buffer, Chunk, ChunkType

_LENGTH = struct.Struct(">I")
_SUB_BATCH = struct.Struct(
    ">"
    "B"  # 1, codec, 0000
    "H"  # records
    "I"  # uncompressed size
    "I"  # size
)
_SUB_BATCH_BIT = 0x80
_RESERVED_BITS = 0x0F

#: A sub-batch may not inflate to more than this unless the caller says so.
MAX_SUB_BATCH_BYTES = 256 * 2**20


class Codec(IntEnum):
    """How the payload of a sub-batch is compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# No codec can inflate a payload further than its format allows: deflate's longest match costs two
# bits, a snappy copy of 64 bytes three bytes, lz4 has 255 more a byte, and a zstd block of 128 KiB
# needs four bytes. A size beyond that is a lie, and no memory is set aside for it.
_MAX_INFLATION = {Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255, Codec.ZSTD: 32_768}


def iter_messages(
    chunk: Chunk, *, max_sub_batch_bytes: int = MAX_SUB_BATCH_BYTES
) -> Iterator[memoryview]:
    """The wire bytes of each message of a user chunk, in offset order.

    Bodies of simple entries are views of the chunk's buffer, others of the inflated sub-batch. The
    chunk's CRC is not checked here. Damage behind a message is found after that message was given.

    Args:
        chunk: of type USER.
        max_sub_batch_bytes: a sub-batch that inflates to more is refused.

    Raises:
        CorruptDataError: not a user chunk; an entry is cut, inflates wrongly or too far, or there
            are more or fewer records than the header says. Names the offset.
    """
    header = chunk.header
    if header.chunk_type != ChunkType.USER:
        raise CorruptDataError("a tracking chunk has no messages", offset=header.chunk_id)
    data = chunk.data
    position, end = 0, len(data)
    unpack = _LENGTH.unpack_from
    offset = header.chunk_id
    # Every entry has at least one record; only sub-batches have more. Counting what is left for
    # them costs nothing for each message, and tells of too many records before they are given.
    left = header.records - header.entries
    try:
        for _ in range(header.entries):
            if end - position < 4:
                raise CorruptDataError("an entry is cut")
            (length,) = unpack(data, position)
            if length >> 31:
                records, inflated, position = sub_batch_at(data, position, max_sub_batch_bytes)
                left -= records - 1
                if left < 0:
                    raise CorruptDataError(f"more than the {header.records} records of its header")
                for body in _bodies(inflated, records):
                    yield body
                    offset += 1
            else:
                position += 4
                if length > end - position:
                    raise CorruptDataError(f"an entry of {length} bytes is cut")
                yield data[position : position + length]
                position += length
                offset += 1
        if position != end:
            raise CorruptDataError(f"{end - position} bytes follow the last entry")
        if left:
            raise CorruptDataError(
                f"{header.records - left} records, its header says {header.records}"
            )
    except CorruptDataError as exc:
        raise exc.located(offset=offset) from exc.__cause__


def iter_entries(chunk: Chunk) -> Iterator[tuple[int, int, memoryview]]:
    """(first offset, records, bytes) of each entry of a user chunk, in order; nothing is inflated.

    Raises:
        CorruptDataError: as `iter_messages`, but for what is inside of sub-batches.
    """
    header, data = chunk.header, chunk.data
    if header.chunk_type != ChunkType.USER:
        raise CorruptDataError("a tracking chunk has no messages", offset=header.chunk_id)
    position, offset, end = 0, header.chunk_id, len(data)
    for _ in range(header.entries):
        if end - position < _LENGTH.size:
            raise CorruptDataError("an entry is cut", offset=offset)
        (size,) = _LENGTH.unpack_from(data, position)
        head, records = _LENGTH.size, 1
        if size >> 31:
            if end - position < _SUB_BATCH.size:
                raise CorruptDataError("a sub-batch header is cut", offset=offset)
            _, records, _, size = _SUB_BATCH.unpack_from(data, position)
            head = _SUB_BATCH.size
        if size > end - position - head or not records:
            raise CorruptDataError(f"an entry of {size} bytes is cut, or empty", offset=offset)
        yield offset, records, data[position : position + head + size]
        position, offset = position + head + size, offset + records
    if position != end or offset != header.next_offset:
        raise CorruptDataError(
            f"entries of {position} bytes and up to offset {offset}, not of {end} and up to"
            f" {header.next_offset}",
            offset=header.chunk_id,
        )


def iter_records(
    chunk: Chunk, *, max_sub_batch_bytes: int = MAX_SUB_BATCH_BYTES
) -> Iterator[tuple[int, memoryview]]:
    """(offset, wire bytes) of each message; see `iter_messages`."""
    return enumerate(
        iter_messages(chunk, max_sub_batch_bytes=max_sub_batch_bytes), chunk.header.chunk_id
    )


def sub_batch_at(
    data: memoryview, position: int, limit: int = MAX_SUB_BATCH_BYTES
) -> tuple[int, memoryview, int]:
    """Records, inflated payload and end of the sub-batch that begins at `position`.

    Args:
        data: a chunk's data section, or more before it.
        position: where an entry with the top bit set begins.
        limit: a sub-batch that inflates to more bytes is refused.

    Raises:
        CorruptDataError: it is cut, or does not inflate to what it says.
    """
    end = len(data)
    if end - position < _SUB_BATCH.size:
        raise CorruptDataError("a sub-batch header is cut")
    kind, records, inflated_size, size = _SUB_BATCH.unpack_from(data, position)
    position += _SUB_BATCH.size
    if kind & _RESERVED_BITS:
        raise CorruptDataError(f"an entry of the unknown kind {kind:#x}")
    if size > end - position:
        raise CorruptDataError(f"a sub-batch of {size} bytes is cut")
    if not 1 <= records <= inflated_size // _LENGTH.size:
        raise CorruptDataError(f"a sub-batch of {records} records in {inflated_size} bytes")
    payload = data[position : position + size]
    inflated = inflate(payload, kind >> 4 & 7, inflated_size, limit=limit)
    return records, inflated, position + size


def sub_batch_bodies(
    entry: memoryview, limit: int = MAX_SUB_BATCH_BYTES
) -> tuple[Codec, list[memoryview]]:
    """Codec and messages of the sub-batch that is all of `entry`.

    Raises:
        CorruptDataError: as `sub_batch_at`, or its messages are not what it says.
    """
    records, inflated, end = sub_batch_at(entry, 0, limit)
    if end != len(entry):
        raise CorruptDataError(f"{len(entry) - end} bytes follow a sub-batch")
    return Codec(entry[0] >> 4 & 7), list(_bodies(inflated, records))


def _bodies(data: memoryview, records: int) -> Iterator[memoryview]:
    position, end = 0, len(data)
    unpack = _LENGTH.unpack_from
    for _ in range(records):
        if end - position < 4:
            raise CorruptDataError("a record of a sub-batch is cut")
        (length,) = unpack(data, position)
        position += 4
        if length > end - position:
            raise CorruptDataError(f"a record of {length} bytes in a sub-batch is cut")
        yield data[position : position + length]
        position += length
    if position != end:
        raise CorruptDataError(f"{end - position} bytes follow the last record of a sub-batch")


def inflate(
    payload: Buffer, codec: int, size: int, *, limit: int = MAX_SUB_BATCH_BYTES
) -> memoryview:
    """A sub-batch's payload, inflated to exactly `size` bytes.

    No more than `size` bytes are ever allocated for it, whatever the payload claims to hold, and
    none if its length cannot hold so much.

    Raises:
        CorruptDataError: unknown codec, damaged payload, another size, or `size` above `limit`.
    """
    if size > limit:
        raise CorruptDataError(f"a sub-batch that inflates to {size} bytes, more than {limit}")
    if codec == Codec.NONE:
        if len(payload) != size:
            raise CorruptDataError(f"a sub-batch of {len(payload)} bytes says it has {size}")
        return memoryview(payload)
    if codec > Codec.ZSTD:
        raise CorruptDataError(f"codec {codec} of a sub-batch is not known")
    known = Codec(codec)
    name = known.name.lower()
    if size > len(payload) * _MAX_INFLATION[known]:
        raise CorruptDataError(
            f"a {name} sub-batch of {len(payload)} bytes cannot inflate to {size}"
        )
    module = _module(name)
    output = bytearray(size)
    try:
        written = module.decompress_into(payload, output)
    except Exception as exc:  # the codec's own error types differ
        raise CorruptDataError(f"a {name} sub-batch does not inflate: {exc}") from exc
    if written != size:
        raise CorruptDataError(f"a {name} sub-batch inflates to {written} bytes, not {size}")
    return memoryview(output).toreadonly()


def encode_simple(body: Buffer) -> bytes:
    """A simple entry.

    Raises:
        InvalidInputError: the message has 2 GiB or more.
    """
    if len(body) >= 1 << 31:
        raise InvalidInputError(f"a message of {len(body)} bytes does not fit an entry")
    return _LENGTH.pack(len(body)) + bytes(body)


def encode_sub_batch(bodies: Sequence[Buffer], codec: int) -> bytes:
    """A sub-batch entry of 1 to 65,535 messages.

    Raises:
        InvalidInputError: no such codec, or too few or too many messages.
    """
    if not 1 <= len(bodies) <= 0xFFFF:
        raise InvalidInputError(f"a sub-batch of {len(bodies)} messages")
    if codec not in Codec.__members__.values():
        raise InvalidInputError(f"codec {codec} of a sub-batch is not known")
    raw = b"".join(encode_simple(body) for body in bodies)
    payload = raw
    if codec != Codec.NONE:
        payload = bytes(_module(Codec(codec).name.lower()).compress(raw))
    return (
        _SUB_BATCH.pack(_SUB_BATCH_BIT | codec << 4, len(bodies), len(raw), len(payload)) + payload
    )


def _module(name: str) -> Any:
    # Most streams have no compressed sub-batches, and then none of this is loaded.
    return getattr(import_module("cramjam"), name)
