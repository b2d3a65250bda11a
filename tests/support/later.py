"""Objects as a later release might write them."""

from __future__ import annotations

import struct
import zlib

from coldstream.fragment import TRAILER_SIZE


def later_fragment(data: bytes) -> bytes:
    """A fragment of version 2, whose CRC is of what it is of in version 1."""
    body = data[:-12] + struct.pack(">I", 2)
    return body + struct.pack(">I", zlib.crc32(body[-(TRAILER_SIZE - 8) :])) + data[-4:]


def longer_trailer(data: bytes) -> bytes:
    """A fragment of version 2, whose CRC is of what this release does not know."""
    body = data[:-12] + struct.pack(">I", 2)
    return body + struct.pack(">I", zlib.crc32(body)) + data[-4:]


def later_node(data: bytes) -> bytes:
    """A root or a group of version 9."""
    body = data[:4] + struct.pack(">I", 9) + data[8:-4]
    return body + struct.pack(">I", zlib.crc32(body))
