"""The fragment that a probe uploads: one chunk with one message."""

from __future__ import annotations

import zlib

from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    IndexRecord,
    Placement,
    build_trailer,
    encode_index,
)
from coldstream.names import DataKey
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.chunk import ChunkHeader, ChunkType
from coldstream.osiris.entry import encode_simple
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.plans.probe import EPOCH

#: Messages of a segment: positions in one have 32 bits.
_SEGMENT = 2**20


def probe_fragment(
    stream: str, offset: int, *, floor: int, timestamp: int, uid: int
) -> tuple[DataKey, bytes]:
    """The fragment that holds the message at an offset, and what its key says.

    Args:
        stream: directory name.
        offset: of the message.
        floor: of the claim.
        timestamp: of the chunk, ms since the Unix epoch.
        uid: of the upload.
    """
    entry = encode_simple(encode_data(f"coldstream doctor {offset:020d}".encode()))
    header = ChunkHeader(
        chunk_type=ChunkType.USER,
        entries=1,
        records=1,
        timestamp=timestamp,
        epoch=EPOCH,
        chunk_id=offset,
        crc=zlib.crc32(entry),
        data_size=len(entry),
        trailer_size=0,
        bloom_size=0,
    )
    data, number = header.encode() + entry, offset % _SEGMENT
    index = encode_index([IndexRecord(offset, timestamp, 0)])
    trailer = build_trailer(
        placement=Placement(
            epoch=EPOCH,
            floor=floor,
            segment_offset=offset - number,
            sequence=number,
            segment_position=SEGMENT_HEADER_SIZE + number * len(data),
        ),
        index=index,
        next_offset=offset + 1,
        first_chunk_epoch=EPOCH,
        last_chunk_epoch=EPOCH,
        data_size=len(data),
        data_crc=zlib.crc32(data),
    )
    key = DataKey(stream, offset, offset + 1, EPOCH, uid)
    return key, HEADER + data + INDEX_HEADER + index + trailer.encode()
