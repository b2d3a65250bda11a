"""Index files: an 8-byte header, then one 29-byte record a chunk.

    ┌─────────┬───────┐   ┌────────────┬──────────────┬───────────┬──────────────┬──────────┐
    │ "OSII"  │ u32 1 │ + │ offset u64 │ timestamp i64│ epoch u64 │ position u32 │ type u8  │ …
    └─────────┴───────┘   └────────────┴──────────────┴───────────┴──────────────┴──────────┘

The broker writes a chunk first and its record after it, and readers that raced it never saw a torn
record or a record without its chunk: the index says what exists. All integers are big-endian.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import CorruptDataError

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
_SMALLEST_CHUNK = 48


def index_records(buf: bytes | bytearray | memoryview) -> NDArray[np.void]:
    """The records of an index file as a view of `INDEX_DTYPE`, shape (chunks,), without a copy.

    An incomplete last record is left out: its writer may be at it right now.

    Raises:
        CorruptDataError: the header is missing, or of another file type or version.
    """
    found = bytes(buf[:INDEX_HEADER_SIZE])
    if found != INDEX_HEADER:
        raise CorruptDataError(f"an index file begins with {INDEX_HEADER!r}, not with {found!r}")
    count = (len(buf) - INDEX_HEADER_SIZE) // INDEX_DTYPE.itemsize
    return np.frombuffer(buf, INDEX_DTYPE, count=count, offset=INDEX_HEADER_SIZE)


def check_index(records: NDArray[np.void]) -> None:
    """Offsets and positions rise, epochs never fall, types are known.

    Raises:
        CorruptDataError: at the first record for which that is not so.
    """
    if not len(records):
        return
    offsets = records["offset"].astype(np.uint64)
    positions = records["position"].astype(np.int64)
    epochs = records["epoch"].astype(np.uint64)
    good = (
        (offsets[1:] > offsets[:-1])
        & (positions[1:] >= positions[:-1] + _SMALLEST_CHUNK)
        & (epochs[1:] >= epochs[:-1])
    )
    if positions[0] < INDEX_HEADER_SIZE or not good.all() or (records["type"] > 2).any():
        at = int(np.argmin(good)) + 1 if len(good) and not good.all() else 0
        raise CorruptDataError("the index records are out of order", offset=int(offsets[at]))
