"""What of all that an agent comes to is said: each thing once, the totals now and then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from coldstream.cli.agent_log import AgentLog, Totals

if TYPE_CHECKING:
    from coldstream.agent.telling.progress import Progress


def row_of(progress: Progress) -> dict[str, object]:
    """What `--json` says of a stream."""
    error, standstill = progress.error, progress.standstill
    return {
        "stream": progress.stream,
        "next": progress.next_offset,
        "fragments": progress.fragments,
        "bytes": progress.bytes,
        "seconds_to_durable": progress.durable_seconds,
        "holes": [{"first": first, "next": next_offset} for first, next_offset in progress.holes],
        "notices": progress.notices,
        "standstill": None if standstill is None else asdict(standstill),
        "error": None if error is None else {"kind": error.kind, "message": str(error)},
    }


@dataclass(slots=True)
class _Told:
    """What was already said of a stream.

    Attributes:
        row: of the stream; another one is of another life of it.
        notices: how many of its notices.
        errors: the last ones.
    """

    row: Progress
    notices: int = 0
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=8))


class AgentProgress:
    """One line on stderr that says how far all streams are; a line a minute without a terminal.

    What cannot be written, because a disk is full, is said at a later look.

    Args:
        log: takes it.
    """

    def __init__(self, log: AgentLog) -> None:
        self._log = log
        self._last = 0.0
        self._told: dict[str, _Told] = {}
        self._warned: deque[str] = deque(maxlen=64)

    def show(self, rows: Sequence[Progress], warnings: Sequence[str] = ()) -> None:
        """Say what is new, and now and then how far all streams are.

        Raises:
            OSError: stderr cannot be written.
        """
        moved = self._moved(rows)
        for told in moved:
            error = told.row.error
            if error is not None and str(error) not in told.errors:
                self._log.error(error)
                told.errors.append(str(error))
        self._tell(warnings, moved)
        now = time.monotonic()
        if now - self._last < (0.2 if self._log.drawn else 60.0):
            return
        self._last = now
        self._log.totals(Totals.of(rows))

    def end(self, rows: Sequence[Progress], warnings: Sequence[str] = ()) -> None:
        """The last line holds the totals, whenever the one before it was printed."""
        with suppress(OSError, ValueError):
            self._tell(warnings, self._moved(rows))
            self._log.totals(Totals.of(rows), last=True)

    def _moved(self, rows: Sequence[Progress]) -> list[_Told]:
        """The streams of which there may be something to say: of ten thousand, few."""
        moved = []
        for row in rows:
            told = self._told.get(row.stream)
            if told is None or told.row is not row:
                told = self._told[row.stream] = _Told(row)
            if row.error is not None or row.notices.total != told.notices:
                moved.append(told)
        if len(self._told) > len(rows):
            there = {row.stream for row in rows}
            self._told = {name: told for name, told in self._told.items() if name in there}
        return moved

    def _tell(self, warnings: Sequence[str], moved: Sequence[_Told]) -> None:
        """Each notice once, on a line of its own: the stream goes on, but a person should know."""
        for warning in warnings:
            if warning not in self._warned:
                self._log.warning("warning", warning)
                self._warned.append(warning)
        for told in moved:
            notices = told.row.notices
            new = notices.since(told.notices)
            for number, notice in enumerate(new, notices.total - len(new) + 1):
                stream = told.row.stream
                self._log.warning("notice", notice, stream=stream, offset=notice.offset)
                told.notices = number
