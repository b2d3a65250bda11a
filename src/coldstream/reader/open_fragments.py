"""Fragments whose trailer and index were checked, kept for who reads on, by bytes of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from coldstream.fragment import FragmentIndex, Trailer
from coldstream.names import DataKey
from coldstream.soundness.chunks import Records

#: What one stream keeps, and what all streams of a gateway keep together, bytes.
STREAM_BYTES, SHARED_BYTES = 8 * 2**20, 64 * 2**20
#: So many stay, however large: a reader goes back and forth between one fragment and the next.
_AT_LEAST = 4
#: Bytes of memory of each chunk in an index, and of all else; measured with `tracemalloc`.
_PER_CHUNK, _EACH = 140, 4096


@dataclass(frozen=True, slots=True)
class OpenFragment:
    """A fragment whose trailer and index have been checked.

    Attributes:
        key: what its key says.
        path: its key in the store.
        index: its index, with its trailer.
        records: the same as arrays.
    """

    key: DataKey
    path: str
    index: FragmentIndex
    records: Records

    @property
    def trailer(self) -> Trailer:
        """What the fragment says about itself."""
        return self.index.trailer

    @property
    def memory(self) -> int:
        """Bytes that it holds, about."""
        return _EACH + _PER_CHUNK * len(self.index)


class OpenFragments:
    """The least recently used go first. Thread-safe; for streams of one store.

    Args:
        most: bytes of memory that they hold together, as long as there are more than a few.
    """

    def __init__(self, most: int = STREAM_BYTES) -> None:
        self._most, self._size = most, 0
        self._open: OrderedDict[str, OpenFragment] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def memory(self) -> int:
        """Bytes that they hold now, about."""
        return self._size

    def get(self, path: str) -> OpenFragment | None:
        """The one of this key, if it is here."""
        with self._lock:
            found = self._open.get(path)
            if found is not None:
                self._open.move_to_end(path)
            return found

    def put(self, opened: OpenFragment) -> None:
        """Keep one."""
        with self._lock:
            before = self._open.pop(opened.path, None)
            self._open[opened.path] = opened
            self._size += opened.memory - (0 if before is None else before.memory)
            while self._size > self._most and len(self._open) > _AT_LEAST:
                _, oldest = self._open.popitem(last=False)
                self._size -= oldest.memory
