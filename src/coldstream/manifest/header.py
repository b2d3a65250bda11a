"""The 64 bytes that every node of a manifest begins with, and the CRC32 that it ends in.

0        4         8        16       24         32           40            56        64
┌────────┬─────────┬────────┬────────┬──────────┬────────────┬─────────────┬─────────┐
│ magic  │ version │ first  │ next   │ first ts │ oldest ts  │ total size  │ catalog │
│ 4 bytes│ u32     │ u64    │ u64    │ i64 ms   │ i64 ms     │ u128 bytes  │ version │
└────────┴─────────┴────────┴────────┴──────────┴────────────┴─────────────┴─────────┘
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, UnknownVersionError

#: Of groups.
VERSION = 1

_HEADER = struct.Struct(">4sIQQqqQQQ")
_VERSION = struct.Struct(">I")
_VERSION_AT = 4
_CRC = struct.Struct(">I")
HEADER_SIZE = _HEADER.size
CRC_SIZE = _CRC.size


@dataclass(frozen=True, slots=True)
class NodeHeader:
    """What a root and a group have in common.

    Attributes:
        first_offset: first offset that can be read below the node.
        next_offset: one past the last.
        first_timestamp: smallest chunk timestamp of the oldest fragment, ms; 0 if there is none.
        oldest_timestamp: greatest chunk timestamp of the oldest fragment, ms; 0 if there is none.
        total_size: bytes of all fragments that can be read below the node.
        catalog_version: of the item, once the commit that this node was written for has landed.
    """

    first_offset: int
    next_offset: int
    first_timestamp: int
    oldest_timestamp: int
    total_size: int
    catalog_version: int


def sealed(magic: bytes, header: NodeHeader, body: bytes, *, version: int = VERSION) -> bytes:
    """A node's bytes: header, body, CRC32 of both."""
    data = (
        _HEADER.pack(
            magic,
            version,
            header.first_offset,
            header.next_offset,
            header.first_timestamp,
            header.oldest_timestamp,
            header.total_size >> 64,
            header.total_size & (2**64 - 1),
            header.catalog_version,
        )
        + body
    )
    return data + _CRC.pack(zlib.crc32(data))


def version_of(data: bytes) -> int:
    """The version that a node's header says; 0 if it is too short to say one."""
    return 0 if len(data) < HEADER_SIZE else int(_VERSION.unpack_from(data, _VERSION_AT)[0])


def opened(
    magic: bytes, data: bytes, *, fixed: int, what: str, newest: int = VERSION
) -> NodeHeader:
    """Check magic, version and CRC32 of a node, and read its header.

    Args:
        magic: that the node must have.
        data: the whole object.
        fixed: bytes between header and CRC that it has at least.
        what: for messages.
        newest: version that is known; the first is 1.

    Raises:
        CorruptDataError: cut, flipped, or something else.
        UnknownVersionError: of a later version; the CRC32 at a node's end holds in every version.
    """
    if len(data) < HEADER_SIZE + fixed + CRC_SIZE:
        raise CorruptDataError(f"{len(data)} bytes are too few for a {what}")
    found, version, first, next_offset, first_ts, oldest, high, low, catalog_version = (
        _HEADER.unpack_from(data)
    )
    if found != magic:
        raise CorruptDataError(f"a {what} begins with {magic!r}, this object with {found!r}")
    if zlib.crc32(data[:-CRC_SIZE]) != _CRC.unpack_from(data, len(data) - CRC_SIZE)[0]:
        raise CorruptDataError(f"the {what}'s checksum does not match")
    if version > newest:
        raise UnknownVersionError(f"manifest version {version} is not known to this release")
    if not version:
        raise CorruptDataError("there is no manifest version 0")
    return NodeHeader(first, next_offset, first_ts, oldest, high << 64 | low, catalog_version)


def check_version(what: str, document: object, newest: int) -> None:
    """Look at the version of a record that is JSON; what is no version is for the caller to refuse.

    Raises:
        UnknownVersionError: it is a later one than `newest`.
    """
    found = document.get("version") if isinstance(document, dict) else None
    if type(found) is int and found > newest:
        raise UnknownVersionError(f"{what} of version {str(found)[:20]}, unknown to this release")
