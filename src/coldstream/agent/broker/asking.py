"""What directories' queues are called, asked for by a worker: the agent's own thread waits for no
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from coldstream.agent.host import Flag, Workers


@dataclass(slots=True)
class Asking:
    """Asks about directories, one after the other.

    Args:
        ask: finds out what the queue of a directory is called.
    """

    ask: Callable[[str], object]
    _left: set[str] = field(default_factory=set)  # changed by a worker, one entry at a time

    def about(self, stream: str) -> bool:
        """Whether a directory is a worker's: it is being asked about, or will be."""
        return stream in self._left

    def begin(self, worker: Workers, streams: Collection[str], stop: Flag) -> None:
        """Have directories asked about that are not yet; for the agent's own thread.

        Args:
            worker: one thread, which does nothing else.
            streams: the directories; only this asks about them.
            stop: set once no more are to be asked about.
        """
        new = tuple(each for each in streams if each not in self._left)
        if not new:
            return
        self._left.update(new)
        try:
            worker.submit(self._ask_all, new, stop)
        except Exception:  # noqa: BLE001 - no thread, for one: it is tried again
            self._left.difference_update(new)

    def _ask_all(self, streams: Collection[str], stop: Flag) -> None:
        for each in streams:
            if not stop.is_set():
                with suppress(Exception):  # one that cannot be asked about keeps none behind it
                    self.ask(each)
            self._left.discard(each)
