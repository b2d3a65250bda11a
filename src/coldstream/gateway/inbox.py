"""A client's bytes, cut into frames; no I/O."""

from __future__ import annotations

import struct


class FrameTooLargeError(Exception):
    """A frame says that it is larger than a client's may be."""


class Inbox:
    """What has come and was not taken yet: at the most one frame, and what was read with it."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def put(self, block: bytes) -> None:
        """Bytes have come."""
        self._data = self._data[self._at :] + block
        self._at = 0

    def next(self, most: int) -> bytes | None:
        """The next frame behind its size; None if it is not all there.

        Raises:
            FrameTooLargeError: it has more than `most` bytes; nothing of it need have come.
        """
        left = len(self._data) - self._at
        if left < 4:
            return None
        size = struct.unpack_from(">I", self._data, self._at)[0]
        if size > most:
            raise FrameTooLargeError
        if left < 4 + size:
            return None
        begin = self._at + 4
        self._at = begin + size
        return self._data[begin : self._at]
