"""Chunk headers for numpy, to look at many at once. Apart from `chunk`: no Lambda has numpy."""

from __future__ import annotations

import numpy as np

#: Field for field as `chunk.ChunkHeader`.
CHUNK_DTYPE = np.dtype(
    [
        ("magic_version", "u1"),
        ("chunk_type", "u1"),
        ("entries", ">u2"),
        ("records", ">u4"),
        ("timestamp", ">i8"),
        ("epoch", ">u8"),
        ("chunk_id", ">u8"),
        ("crc", ">u4"),
        ("data_size", ">u4"),
        ("trailer_size", ">u4"),
        ("bloom_size", "u1"),
        ("reserved", "V3"),
    ]
)
