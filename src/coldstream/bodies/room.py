"""How much a body may stand for beyond its own bytes.

Some bytes of a binary format stand for many: a message without any for all the defaults of its
fields, and one byte for the longest name of an enum. A small body could take all memory.
"""

from __future__ import annotations

from coldstream.errors import CorruptDataError

#: Bytes that a value counts for at least, whatever its JSON has: Python has no smaller one.
A_VALUE = 8
#: Bytes that any body may stand for: who wants small bodies does not mean the names of fields.
_LEAST = 2**20


def room_of(limit: int) -> int:
    """Bytes that a body may stand for where it may have so many."""
    return max(limit, _LEAST)


class Room:
    """Counts what is made of one body, before most of it is made.

    Args:
        limit: bytes that a body may have; it may stand for as many, about, and for 1 MiB at least.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._left = room_of(limit)

    def take(self, size: int) -> None:
        """Count so many bytes.

        Raises:
            CorruptDataError: there is no room for them.
        """
        self._left -= size
        if self._left < 0:
            raise CorruptDataError(
                f"the body stands for more JSON than its limit, {self._limit} bytes"
            )
