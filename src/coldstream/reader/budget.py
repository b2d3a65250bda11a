"""One budget of bytes for everything that readers of this process have fetched or are fetching.

Read-ahead takes from the budget only what is free, or what is kept for readers that want it later
(`shared`). The one range that a reader needs next is
granted even if nothing is free: otherwise a reader that waits for its consumer could block another
one for ever, in the same thread. So what is held never exceeds the budget by more than one range a
reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from coldstream.errors import InvalidInputError

DEFAULT_BUDGET_BYTES = 256 * 2**20


class Keeper(Protocol):
    """Keeps what was fetched in memory of the budget, as long as nothing else wants it."""

    def reclaim(self, size: int) -> None:
        """Give back so many bytes, if it can."""
        ...


K = TypeVar("K", bound=Keeper)


class MemoryBudget:
    """Counts bytes; safe between threads.

    Args:
        total: bytes that read-ahead may hold.
    """

    def __init__(self, total: int = DEFAULT_BUDGET_BYTES) -> None:
        if total < 0:
            raise InvalidInputError(f"a memory budget of {total} bytes")
        self.total = total
        self._held = 0
        self._peak = 0
        self._keeper: Keeper | None = None
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes taken now."""
        return self._held

    @property
    def peak(self) -> int:
        """The most bytes that were ever taken at once."""
        return self._peak

    @property
    def free(self) -> int:
        """Bytes that can be taken now."""
        return max(0, self.total - self._held)

    def shared(self, make: Callable[[MemoryBudget], K]) -> K:
        """The one that keeps things in this budget's memory; it is made when it is first asked."""
        with self._lock:
            if self._keeper is None:
                self._keeper = make(self)
            return cast(K, self._keeper)

    def take(self, size: int, *, needed: bool = False, reclaim: bool = True) -> bool:
        """Take `size` bytes; False if they are not free.

        Args:
            size: bytes.
            needed: whether they are given in any case.
            reclaim: whether what is only kept has to give way.
        """
        if self.take_free(size):
            return True
        if reclaim and self._keeper is not None:
            self._keeper.reclaim(size)
        return self._take(size, needed=needed)

    def take_free(self, size: int) -> bool:
        """Take `size` bytes if they are free, and trouble nobody."""
        return self._take(size, needed=False)

    def _take(self, size: int, *, needed: bool) -> bool:
        with self._lock:
            if not needed and self._held + size > self.total:
                return False
            self._held += size
            self._peak = max(self._peak, self._held)
            return True

    def give_back(self, size: int) -> None:
        """Return bytes that were taken."""
        with self._lock:
            self._held -= size


#: Shared by every reader that is not given one of its own.
PROCESS_BUDGET = MemoryBudget()
