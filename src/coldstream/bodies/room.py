"""How much a body may stand for beyond its own bytes.

Some bytes of a binary format stand for many: a message without any for all the defaults of its
fields, and one byte for the longest name of an enum. A small body could take all memory.
"""

from __future__ import annotations

from coldstream.errors import CorruptDataError

#: Bytes that a value counts for at least, whatever its JSON has: Python has no smaller one.
A_VALUE = 8


class Room:
    """Counts what is made of one body, before most of it is made.

    Args:
        limit: bytes of JSON, about.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

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
