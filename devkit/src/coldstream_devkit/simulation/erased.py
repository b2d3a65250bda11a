"""What was erased of a stream, told by its records, and what an erased message has to look like.

By the page that draws the formats (docs/reference/formats.md) and by nothing of the product.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

_HEADER = 48
_CRC = slice(32, 36)
#: Messages here are shorter than the shortest one that has room for the mark.
_SHORTEST_MARKED = 22


@dataclass(slots=True)
class ErasedMessages:
    """Offsets by the epoch of the chunk that had them."""

    by_epoch: dict[int, set[int]] = field(default_factory=dict)

    def copy(self) -> ErasedMessages:
        """The same, on its own."""
        return ErasedMessages({epoch: set(each) for epoch, each in self.by_epoch.items()})

    def recorded(self, data: bytes) -> None:
        """A record was PUT."""
        for first, next_offset, epoch in json.loads(data)["offsets"]:
            self.by_epoch.setdefault(epoch, set()).update(range(first, next_offset))

    def overlaps(self, first: int, next_offset: int) -> bool:
        """Whether an offset of a range was erased, whatever the epoch."""
        return any(first <= each < next_offset for some in self.by_epoch.values() for each in some)

    def of(self, chunk_id: int, next_offset: int, epoch: int) -> set[int]:
        """Those of a chunk."""
        some = self.by_epoch.get(epoch, set())
        return {each for each in range(chunk_id, next_offset) if each in some}

    def is_as_written(self, written: bytes, found: bytes, epoch: int, first: int) -> bool:
        """Whether a chunk is what its broker wrote, but for messages that were erased.

        Args:
            written: by the broker.
            found: in an object.
            epoch: of the chunk.
            first: its id.
        """
        if written == found:
            return True
        if len(written) != len(found) or found[_CRC] != crc32(found[_HEADER:]).to_bytes(4, "big"):
            return False
        if _head(written) != _head(found):
            return False
        erased = self.by_epoch.get(epoch, set())
        return all(
            one == other or (first + number in erased and other == _blank(len(one)))
            for number, (one, other) in enumerate(
                zip(_bodies(written), _bodies(found), strict=True)
            )
        )

    def still_there(self, found: bytes, epoch: int, first: int) -> list[int]:
        """Offsets of a chunk that were erased and whose messages are not blank."""
        erased = self.by_epoch.get(epoch, set())
        return [
            first + number
            for number, body in enumerate(_bodies(found))
            if first + number in erased and body != _blank(len(body))
        ]


def _head(chunk: bytes) -> bytes:
    return chunk[: _CRC.start] + chunk[_CRC.stop : _HEADER]


def _bodies(chunk: bytes) -> Iterator[bytes]:
    """The messages of a chunk of simple entries, without filter and trailer."""
    at = _HEADER
    while at < len(chunk):
        size = int.from_bytes(chunk[at : at + 4], "big")
        yield chunk[at + 4 : at + 4 + size]
        at += 4 + size


def _blank(size: int) -> bytes:
    if not 5 <= size < _SHORTEST_MARKED:
        raise ValueError(f"a message of {size} bytes, which no simulated producer sends")
    return b"\x00\x53\x75\xa0" + bytes((size - 5,)) + bytes(size - 5)
