"""What a store does with the checksum that came along with a body."""

from __future__ import annotations

from coldstream.crc import crc32
from coldstream.errors import UnavailableError
from coldstream.fragment import Buffer


def check_body(key: str, body: Buffer, crc: int | None) -> None:
    """See that a body is still what its CRC32 was computed of.

    Raises:
        UnavailableError: it is not, so it must be read and checked anew.
    """
    if crc is not None and crc32(body) != crc:
        raise UnavailableError("the bytes are no longer those that were checked", key=key)
