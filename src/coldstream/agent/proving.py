"""What is committed of streams whose looks wait, and what is held of them.

A look asks what is committed when it begins, and then may wait minutes for a store that hangs; so
may those that have not begun. A stream that is deleted meanwhile would lose what came since, for
nobody has proved it. So what has changed is asked about apart from the looks, if they take long.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from coldstream.agent.committed import CommittedOffsets
from coldstream.agent.host import Workers

#: A look is waited for so long, and what is not proved is asked about again, seconds.
_WAIT_SECONDS = 2.0


class Proving:
    """Asks about streams, one after the other, in a worker of its own.

    Args:
        committed: what of each stream is committed.
        hold: holds what has come to a stream.
        monotonic: seconds.
    """

    def __init__(
        self,
        committed: CommittedOffsets,
        hold: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._committed, self._hold, self._monotonic = committed, hold, monotonic
        self._due: dict[str, float] = {}  # when each is asked about, monotonic seconds
        self._lock = Lock()
        self._busy = False
        self._asked = ""  # the stream that is being asked about; "" if none, or it is gone

    def want(self, stream: str, now: float) -> None:
        """A stream has changed, and will be looked at."""
        with self._lock:
            self._due.setdefault(stream, now + _WAIT_SECONDS)

    def dismiss(self, stream: str) -> None:
        """It was looked at, and has not changed since."""
        with self._lock:
            self._due.pop(stream, None)

    def forget(self, stream: str) -> None:
        """Nothing more is asked of it, nor held."""
        with self._lock:
            self._due.pop(stream, None)
            if self._asked == stream:
                self._asked = ""

    def ask(self, worker: Workers, now: float) -> None:
        """Have those asked about whose time has come, unless some are being asked about."""
        with self._lock:
            if self._busy or not any(at <= now for at in self._due.values()):
                return
            self._busy = True
        try:
            worker.submit(self._ask_all, now)
        except Exception:  # no thread, for one; a later pass tries again
            self._busy = False

    def _ask_all(self, now: float) -> None:
        try:
            with self._lock:
                due = [stream for stream, at in self._due.items() if at <= now]
            for stream in due:
                self._ask(stream)
        finally:
            self._busy = False

    def _ask(self, stream: str) -> None:
        with self._lock:
            if self._due.pop(stream, None) is None:
                return  # it was looked at meanwhile
            self._asked = stream
        now = self._monotonic()
        again_at = self._committed.refresh(stream, now)
        with self._lock:
            if not self._asked:
                self._committed.forget(stream)
                return
            self._asked = ""
            self._hold(stream)
            if not self._committed.known(stream).whole:
                self._due.setdefault(stream, max(again_at, now + _WAIT_SECONDS))
