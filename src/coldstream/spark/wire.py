"""Splits as bytes, on their way from the driver to a worker.

    parts u32 | for each part: stream u32, start u64, end u64, entry (56 bytes, as in a manifest)

A plan may have 100,000 splits, so they are small and cheap to make, and hold nothing but what a
manifest holds: no keys, no credentials.
"""

from __future__ import annotations

import struct

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import ENTRY_SIZE, Entries
from coldstream.spark.plan import Part, Split

_COUNT = struct.Struct(">I")
_PART = struct.Struct(">IQQ")


def encode_split(split: Split) -> bytes:
    """A split's bytes."""
    return _COUNT.pack(len(split.parts)) + b"".join(
        _PART.pack(part.stream, part.start, part.end) + part.entry.encode() for part in split.parts
    )


def decode_split(data: bytes) -> Split:
    """The split that `encode_split` made these bytes of.

    Raises:
        CorruptDataError: they are something else.
    """
    size = _PART.size + ENTRY_SIZE
    if len(data) < _COUNT.size or len(data) != _COUNT.size + _COUNT.unpack_from(data)[0] * size:
        raise CorruptDataError("the bytes of a split do not add up")
    parts = []
    for at in range(_COUNT.size, len(data), size):
        stream, start, end = _PART.unpack_from(data, at)
        (entry,) = Entries(data[at + _PART.size : at + size])
        parts.append(Part(entry, start, end, stream))
    return Split(tuple(parts))
