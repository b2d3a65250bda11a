"""Where the chunks of a damaged fragment begin and end, as well as that can be said.

A chunk's header says where the next one begins, and so does the index. Where both are damaged, the
data is searched for the next header whose chunk has a good CRC. So one damaged chunk hides nothing
behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coldstream.crc import crc32
from coldstream.osiris.chunk import (
    CHUNK_HEADER,
    CHUNK_HEADER_SIZE,
    CHUNK_MAGIC_VERSION,
    ChunkHeader,
    ChunkType,
)

_RESERVED = slice(45, 48)


@dataclass(frozen=True, slots=True)
class Slot:
    """Bytes that are one chunk, whatever is wrong with it.

    Attributes:
        start: byte position of its header.
        end: where it ends.
        header: what stands there, right or wrong; None if there are too few bytes.
        magic: the header's first byte.
        reserved: whether the header's last three bytes are zero, as they must be.
    """

    start: int
    end: int
    header: ChunkHeader | None
    magic: int = CHUNK_MAGIC_VERSION
    reserved: bool = True

    @property
    def is_header(self) -> bool:
        """Whether a chunk's header can look like this."""
        return (
            self.header is not None and self.magic == CHUNK_MAGIC_VERSION and _possible(self.header)
        )


def slots(
    data: memoryview, positions: Sequence[int], *, first_offset: int, next_offset: int
) -> list[Slot]:
    """The chunks of `data`, which they fill from its first byte to its last.

    Args:
        data: the data section of a fragment.
        positions: where the index has chunks begin; need not be right.
        first_offset: of the fragment.
        next_offset: of the fragment.
    """
    size = len(data)
    known = sorted({each for each in positions if 0 <= each < size})
    found: list[Slot] = []
    at = 0
    while at < size:
        end = _end(data, at, known, first_offset, next_offset)
        found.append(_slot(data, at, end))
        at = end
    return found


def _end(
    data: memoryview, at: int, known: Sequence[int], first_offset: int, next_offset: int
) -> int:
    """Where the chunk at `at` ends: the header's word and the index's word, weighed."""
    size = len(data)
    header = _header_at(data, at)
    claimed = None if header is None else at + header.size
    if claimed is not None and (claimed == size or _holds(known, claimed) or _at(data, claimed)):
        return claimed
    after = known[bisect_right(known, at) :]
    if after and _at(data, after[0]):
        return after[0]  # the header lies about a size
    if header is not None and claimed is not None and _crc_holds(data, at, header) and after:
        return claimed  # it is the next header that is damaged, and the index too
    following = next((each for each in after if _at(data, each)), None)
    if following is not None:
        return following
    if known and at >= known[-1]:
        return size
    return _search(data, at + CHUNK_HEADER_SIZE, first_offset, next_offset)


def _holds(known: Sequence[int], position: int) -> bool:
    number = bisect_right(known, position) - 1
    return number >= 0 and known[number] == position


def _header_at(data: memoryview, at: int) -> ChunkHeader | None:
    """The header at a position if a whole chunk can begin there."""
    if len(data) - at < CHUNK_HEADER_SIZE or data[at] != CHUNK_MAGIC_VERSION:
        return None
    header = ChunkHeader(*CHUNK_HEADER.unpack_from(data, at)[1:])
    return header if _possible(header) and at + header.size <= len(data) else None


def _at(data: memoryview, at: int) -> bool:
    return _header_at(data, at) is not None


def _possible(header: ChunkHeader) -> bool:
    return (
        header.chunk_type <= ChunkType.TRACKING_SNAPSHOT and 1 <= header.entries <= header.records
    )


def _crc_holds(data: memoryview, at: int, header: ChunkHeader) -> bool:
    start = at + header.data_position
    return crc32(data[start : start + header.data_size]) == header.crc


def _search(data: memoryview, at: int, first_offset: int, next_offset: int) -> int:
    """The next byte at which a whole chunk of this fragment with a good CRC begins, or the end."""
    if len(data) <= at:
        return len(data)
    raw = np.frombuffer(data, np.uint8)[at:]
    last = len(raw) - CHUNK_HEADER_SIZE
    if last < 0:
        return len(data)
    candidates = np.flatnonzero(raw[: last + 1] == CHUNK_MAGIC_VERSION)
    candidates = candidates[raw[candidates + 1] <= ChunkType.TRACKING_SNAPSHOT]
    for reserved in range(_RESERVED.start, _RESERVED.stop):
        candidates = candidates[raw[candidates + reserved] == 0]
    for each in candidates.tolist():
        header = _header_at(data, at + each)
        if (
            header is not None
            and first_offset <= header.chunk_id < next_offset
            and _crc_holds(data, at + each, header)
        ):
            return at + int(each)
    return len(data)


def _slot(data: memoryview, start: int, end: int) -> Slot:
    if end - start < CHUNK_HEADER_SIZE:
        return Slot(start, end, None)
    magic, *fields = CHUNK_HEADER.unpack_from(data, start)
    reserved = not any(data[start + each] for each in range(_RESERVED.start, _RESERVED.stop))
    return Slot(start, end, ChunkHeader(*fields), magic, reserved)
