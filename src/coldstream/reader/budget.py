"""One budget of bytes for everything that readers of this process have fetched or are fetching.

Read-ahead takes from the budget only what is free. The one range that a reader needs next is
granted even if nothing is free: otherwise a reader that waits for its consumer could block another
one for ever, in the same thread. So what is held never exceeds the budget by more than one range a
reader.
"""

from __future__ import annotations

import threading

from coldstream.errors import InvalidInputError

DEFAULT_BUDGET_BYTES = 256 * 2**20


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
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes taken now."""
        return self._held

    @property
    def peak(self) -> int:
        """The most bytes that were ever taken at once."""
        return self._peak

    def take(self, size: int, *, needed: bool = False) -> bool:
        """Take `size` bytes; False if they are not free. `needed` always gets them."""
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
