"""Files of JSON, one object a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from coldstream.errors import CorruptDataError
from coldstream.osiris.entry import iter_records
from coldstream.reader import Gap, Message
from coldstream.reader.fragments import FetchedChunks
from coldstream.soundness.chunks import USER


class JsonLines:
    """Writes one file.

    Args:
        path: of it; must not be there.
        encode: a message as a line, without its end.
    """

    def __init__(self, path: Path, encode: Callable[[Message], bytes]) -> None:
        self._file = path.open("xb", buffering=2**20)
        self._encode = encode
        self.messages = 0

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._file.tell()

    def write(self, piece: FetchedChunks, start: int, end: int) -> None:
        """The messages of a piece with the offsets [start, end).

        Raises:
            CorruptDataError: an entry is damaged.
        """
        for chunk in piece.checked:
            header = chunk.header
            if header.chunk_type != USER:
                continue
            try:
                for offset, body in iter_records(chunk):
                    if start <= offset < end:
                        line = self._encode(Message(offset, header.timestamp, body))
                        self._file.write(line + b"\n")
                        self.messages += 1
            except CorruptDataError as error:
                raise error.located(
                    stream=piece.fragment.key.stream, key=piece.fragment.path
                ) from None

    def gap(self, gap: Gap) -> None:
        """A line that says which offsets are passed over, as `coldstream read` has it."""
        place = {"first": gap.first_offset, "next": gap.next_offset, "reason": str(gap.reason)}
        self._file.write(json.dumps({"gap": place}).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
