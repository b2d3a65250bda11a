"""Valid fragments without a broker: bytes, keys, and lies that still have a good checksum."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    TRAILER_SIZE,
    IndexRecord,
    Placement,
    Trailer,
    build_trailer,
    encode_index,
    parse_trailer,
)
from coldstream.names import DataKey
from coldstream.osiris.amqp import encode_data
from coldstream_devkit.generator import build_chunk

START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class SyntheticFragment:
    """A fragment and where it belongs.

    Attributes:
        key: all that its object key says.
        data: the whole object.
    """

    key: DataKey
    data: bytes

    @property
    def trailer(self) -> Trailer:
        """Its trailer, as parsed from its last bytes."""
        return parse_trailer(self.data[-TRAILER_SIZE:])

    @property
    def index_section(self) -> bytes:
        """Its index section, with the section's header."""
        position = self.trailer.index_position
        return self.data[position : position + self.trailer.index_size]

    @property
    def chunks(self) -> bytes:
        """Its chunks, as a broker would have written them."""
        return self.data[len(HEADER) : self.trailer.index_position]

    def path(self, prefix: str) -> str:
        """Its full key below `prefix`."""
        return self.key.path(prefix)

    def lying(self, **changes: Any) -> SyntheticFragment:
        """The same object with other values in its trailer, under a checksum that holds."""
        trailer = replace(self.trailer, **changes)
        return replace(self, data=self.data[:-TRAILER_SIZE] + trailer.encode())


def build_fragment(
    first_offset: int,
    next_offset: int,
    *,
    stream: str = "__orders_1",
    epoch: int = 1,
    floor: int = 0,
    uid: int = 1,
    chunk_epochs: Sequence[int] = (),
    timestamps: Sequence[int] = (),
    records_per_chunk: int = 10,
    body_size: int = 8,
    body: Callable[[int], bytes] | None = None,
    message: Callable[[int], bytes] | None = None,
    segment_offset: int | None = None,
    segment_position: int = 8,
) -> SyntheticFragment:
    """A fragment whose every checksum, record and length holds; the same arguments, the same bytes.

    Args:
        first_offset: of its first record.
        next_offset: one past its last.
        stream: directory name.
        epoch: of the writer that uploads it.
        floor: of that epoch in the ledger.
        uid: of the upload.
        chunk_epochs: one a chunk; the last goes on for the rest. All `epoch` by default.
        timestamps: one a chunk, ms; the last goes on, one ms more a chunk.
        records_per_chunk: the last chunk may have fewer.
        body_size: bytes of each record's body, at least 8; the first are its offset.
        body: gives the body of the record at an offset instead.
        message: gives all of the record at an offset instead.
        segment_offset: first offset of its segment; its own by default.
        segment_position: byte position of its first chunk in that segment.
    """
    chunks: list[bytes] = []
    index: list[IndexRecord] = []
    epochs: list[int] = []
    position = 0
    make = body or (lambda n: n.to_bytes(8, "big").ljust(body_size, b"."))
    wire = message or (lambda n: encode_data(make(n)))
    for number, offset in enumerate(range(first_offset, next_offset, records_per_chunk)):
        epochs.append(
            chunk_epochs[min(number, len(chunk_epochs) - 1)] if len(chunk_epochs) else epoch
        )
        timestamp = (
            timestamps[number]
            if number < len(timestamps)
            else (timestamps[-1] if len(timestamps) else START_MS + first_offset) + number
        )
        records = min(records_per_chunk, next_offset - offset)
        messages = [wire(offset + i) for i in range(records)]
        chunk = build_chunk(offset, epochs[-1], timestamp, messages)
        index.append(IndexRecord(offset, timestamp, position))
        chunks.append(chunk)
        position += len(chunk)
    data, records_of_index = b"".join(chunks), encode_index(index)
    trailer = build_trailer(
        placement=Placement(
            epoch=epoch,
            floor=floor,
            segment_offset=first_offset if segment_offset is None else segment_offset,
            sequence=0,
            segment_position=segment_position,
        ),
        index=records_of_index,
        next_offset=next_offset,
        first_chunk_epoch=epochs[0],
        last_chunk_epoch=epochs[-1],
        data_size=len(data),
        data_crc=zlib.crc32(data),
    )
    return SyntheticFragment(
        key=DataKey(stream, first_offset, next_offset, epoch, uid),
        data=HEADER + data + INDEX_HEADER + records_of_index + trailer.encode(),
    )
