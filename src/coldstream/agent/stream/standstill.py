"""A stream that makes no progress although something waits: when to say so, and when again."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.broker.committed import CommittedOffsets
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.progress import Progress, Standstill
from coldstream.names import MAX_OFFSET

#: A stream that is written to has something at its end that is not proved yet, at any moment; only
#: what has waited for so long does not count as that, seconds.
UNPROVED_SECONDS = 60.0
_UNDELIVERED = "this node's broker delivers no more of it, so that nobody knows it is committed"


def lacking(log: StreamLog, limit: int, next_offset: int) -> int | None:
    """Offsets of a log from a manifest's end on; None if the log cannot be read.

    Args:
        log: the directory.
        limit: only those below it count.
        next_offset: of the manifest, as last seen.
    """
    try:
        segments = log.segments()
        newest = log.chunks_near(MAX_OFFSET, committed=limit)
    except Exception:  # noqa: BLE001 - whatever it is, the stream's error says it
        return None
    if not segments or not newest:
        return 0
    return max(0, newest[-1].next_offset - max(next_offset, segments[0]))


@dataclass(slots=True)
class StandstillWatch:
    """Tells of one stream, every few minutes, that it waits and makes no progress.

    Args:
        log: the directory.
        committed: what of it is committed.
        settings: of the agent.
        progress: of the stream; takes what is told.

    Attributes:
        waits: whether something does, as of the last look.
    """

    log: StreamLog
    committed: CommittedOffsets
    settings: AgentSettings
    progress: Progress
    waits: bool = False
    _since: float = float("-inf")  # when something began to wait, or the manifest last moved
    _next_offset: int = -1
    _told_at: float = float("-inf")

    def look(self, now: float, *, in_flight: int, position: int, waits: bool) -> None:
        """Tell it, if it is time. Never raises.

        Args:
            now: monotonic seconds.
            in_flight: uploads under way.
            position: everything below it has been cut.
            waits: whether more can be cut at once, or a claim has to be made.
        """
        progress, settings = self.progress, self.settings
        unproved = progress.marks.unproved_seconds
        blind = unproved >= UNPROVED_SECONDS
        if progress.error is not None:
            reason = str(progress.error)
        elif in_flight:
            reason = f"{in_flight} uploads are under way"
        elif progress.next_offset < position:
            reason = "what was uploaded has not entered the manifest"
        elif blind:
            trouble = self.committed.known(self.log.stream).trouble
            reason = f"not proved to be committed: {trouble or _UNDELIVERED}"
        elif waits:
            reason = "it waits for its turn"
        else:
            reason = ""
        began, self.waits = bool(reason) and not self.waits, bool(reason)
        if not reason or began or progress.next_offset != self._next_offset:
            self._since, self._next_offset = now, progress.next_offset
            self._told_at, progress.standstill = float("-inf"), None
            if not (began and blind):
                return
            self._since = now - unproved
        seconds = now - self._since
        if seconds < settings.standstill_seconds:
            return
        if now - self._told_at < settings.standstill_again_seconds:
            return
        self._told_at = now
        limit = progress.marks.local_end if blind else self.committed.limit(self.log.stream)
        offsets = lacking(self.log, limit, progress.next_offset)
        if offsets == 0:
            return
        progress.standstill = Standstill(seconds, offsets, reason)
        words = str(progress.standstill)
        if progress.error is None:  # else it says where by itself
            words += f" (stream {progress.stream}, offset {progress.next_offset})"
        progress.notices.append(words)
