"""Index files: an 8-byte header, then one 29-byte record a chunk.

    ┌─────────┬───────┐   ┌────────────┬──────────────┬───────────┬──────────────┬──────────┐
    │ "OSII"  │ u32 1 │ + │ offset u64 │ timestamp i64│ epoch u64 │ position u32 │ type u8  │ …
    └─────────┴───────┘   └────────────┴──────────────┴───────────┴──────────────┴──────────┘

The broker writes a chunk first and its record after it, and readers that raced it never saw a torn
record or a record without its chunk: the index says what exists. All integers are big-endian.
Verified byte for byte on files of RabbitMQ 3.10.8 and 4.3.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Buffer, ChunkType

INDEX_MAGIC = b"OSII"
INDEX_VERSION = 1
INDEX_HEADER = INDEX_MAGIC + INDEX_VERSION.to_bytes(4, "big")
INDEX_HEADER_SIZE = len(INDEX_HEADER)
INDEX_DTYPE = np.dtype(
    [
        ("offset", ">u8"),
        ("timestamp", ">i8"),
        ("epoch", ">u8"),
        ("position", ">u4"),
        ("type", "u1"),
    ]
)

_LAST_TYPE = int(ChunkType.TRACKING_SNAPSHOT)


def index_records(buf: Buffer) -> NDArray[np.void]:
    """The records of an index file as a view of `INDEX_DTYPE`, shape (chunks,), without a copy.

    An incomplete last record is left out: its writer may be at it right now.

    Raises:
        CorruptDataError: the header is missing, or of another file type or version.
    """
    found = bytes(buf[:INDEX_HEADER_SIZE])
    if found != INDEX_HEADER:
        raise CorruptDataError(f"an index file begins with {INDEX_HEADER!r}, not with {found!r}")
    # A view must never hold half a record, so the count comes from what is whole.
    count = (len(buf) - INDEX_HEADER_SIZE) // INDEX_DTYPE.itemsize
    return np.frombuffer(buf, INDEX_DTYPE, count=count, offset=INDEX_HEADER_SIZE)


def check_index(records: NDArray[np.void], *, first_offset: int | None = None) -> None:
    """Check that records of one segment can be true: a few passes over arrays, without a loop.

    Offsets and positions rise (by a whole chunk at least), epochs never fall, types are known, no
    position lies in the file's header. Timestamps may fall: a new writer has a clock of its own.

    Args:
        records: of `INDEX_DTYPE`, shape (chunks,); may be a part of an index.
        first_offset: of the segment, if `records` has its first one.

    Raises:
        CorruptDataError: at the first record for which that is not so; names its offset.
    """
    if not len(records):
        return
    offsets = records["offset"].astype(np.uint64)
    if first_offset is not None and int(offsets[0]) != first_offset:
        raise CorruptDataError(
            f"the first index record of the segment has offset {int(offsets[0])}",
            offset=first_offset,
        )
    positions = records["position"].astype(np.int64)
    epochs = records["epoch"].astype(np.uint64)
    good = (records["type"] <= _LAST_TYPE) & (positions >= INDEX_HEADER_SIZE)
    if len(records) > 1:
        good[1:] &= (
            (offsets[1:] > offsets[:-1])
            & (positions[1:] >= positions[:-1] + CHUNK_HEADER_SIZE)
            & (epochs[1:] >= epochs[:-1])
        )
    if not good.all():
        at = int(np.argmin(good))
        raise CorruptDataError(
            f"index record {at} does not follow the one before it, or is of no known type",
            offset=int(offsets[at]),
        )
