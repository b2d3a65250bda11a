"""Segment files: an 8-byte header, then chunks back to back up to the end of the file.

    ┌─────────┬───────┬─────────┬─────────┬───┐
    │ "OSIL"  │ u32 1 │ chunk   │ chunk   │ … │      named <first offset, 20 digits>.segment
    └─────────┴───────┴─────────┴─────────┴───┘

Verified byte for byte on files of RabbitMQ 3.10.8, 4.0.5 and 4.3.6; a segment rolls when its size
has reached the stream's maximum before a write, so it overshoots by up to one chunk.
"""

from __future__ import annotations

import re

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.names import INDEX_SUFFIX, MAX_OFFSET, SEGMENT_SUFFIX
from coldstream.osiris.chunk import Buffer

SEGMENT_MAGIC = b"OSIL"
SEGMENT_VERSION = 1
SEGMENT_HEADER = SEGMENT_MAGIC + SEGMENT_VERSION.to_bytes(4, "big")
SEGMENT_HEADER_SIZE = len(SEGMENT_HEADER)
_NAME = re.compile(r"([0-9]{20})\.segment", re.ASCII)


def check_segment_header(buf: Buffer) -> None:
    """Check the first bytes of a segment file.

    Raises:
        CorruptDataError: they are missing, or of another file type or version.
    """
    found = bytes(buf[:SEGMENT_HEADER_SIZE])
    if found != SEGMENT_HEADER:
        raise CorruptDataError(f"a segment file begins with {SEGMENT_HEADER!r}, not with {found!r}")


def segment_name(first_offset: int) -> str:
    """File name of the segment whose first chunk id is `first_offset`.

    Raises:
        InvalidInputError: no stream has this offset.
    """
    if not 0 <= first_offset <= MAX_OFFSET:
        raise InvalidInputError(f"{first_offset} is not an offset")
    return f"{first_offset:020d}{SEGMENT_SUFFIX}"


def index_name(first_offset: int) -> str:
    """File name of the index of that segment."""
    return f"{first_offset:020d}{INDEX_SUFFIX}"


def parse_segment_name(name: str) -> int:
    """First offset of a segment from its file name.

    Raises:
        InvalidInputError: it is not the name of a segment file.
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        raise InvalidInputError(f"not the name of a segment file: {name[:80]!r}")
    return int(match[1])
