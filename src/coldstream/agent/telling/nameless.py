"""Streams that are not followed yet, because a rule asks for the name of their queue: told of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from coldstream.agent.broker.committed import CommittedOffsets
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.progress import Progress, Standstill
from coldstream.agent.telling.watermarks import Watermarks

_UNKNOWN = "the name of its queue is unknown"


@dataclass(slots=True)
class Nameless:
    """Tells of each, every few minutes, that it waits for its name, and why.

    One without a message has no name and no trouble either, and nothing of it waits.

    Args:
        committed: says why a name is not settled.
        rows: of those that wait, by directory.
    """

    committed: CommittedOffsets
    rows: dict[str, Progress] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)  # in trouble, monotonic seconds
    _told_at: dict[str, float] = field(default_factory=dict)

    def look(self, streams: Collection[str], settings: AgentSettings, now: float) -> None:
        """Take in which streams wait.

        Args:
            streams: directories.
            settings: of the agent.
            now: monotonic seconds.
        """
        for each in self.rows.keys() - set(streams):
            del self.rows[each]
            self._calm(each)
        for each in streams:
            # Another node's agent says more of it, if it has the writer.
            row = self.rows.setdefault(each, Progress(each, marks=Watermarks(writer=False)))
            known = self.committed.known(each)
            trouble = known.trouble or known.doubt or ("" if known.local else _UNKNOWN)
            if trouble:
                self._tell(row, trouble, settings, now)
            else:
                row.standstill = None
                self._calm(each)

    def standing(self) -> list[Progress]:
        """Those that have waited for minutes, by name."""
        return [row for _, row in sorted(self.rows.items()) if row.standstill is not None]

    def _tell(self, row: Progress, trouble: str, settings: AgentSettings, now: float) -> None:
        seconds = now - self._since.setdefault(row.stream, now)
        again = now - self._told_at.get(row.stream, float("-inf"))
        if seconds < settings.standstill_seconds or again < settings.standstill_again_seconds:
            return
        self._told_at[row.stream] = now
        reason = f"[[streams]] asks for the name of its queue, which is not settled: {trouble}"
        row.standstill = Standstill(seconds, None, reason)
        row.notices.append(f"{row.standstill} (stream {row.stream})")

    def _calm(self, stream: str) -> None:
        self._since.pop(stream, None)
        self._told_at.pop(stream, None)
