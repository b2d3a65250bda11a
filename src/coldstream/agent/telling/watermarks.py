"""How far a stream has come: five offsets, when each got there, and what is behind the last one.

    committed ── cut ── uploaded ── verified ── published
    the brokers'  in a     in S3     checked by   what readers
    own promise   fragment           a function   may read

The function that checks fragments publishes them by one conditional write, so the last two move
together: there is nothing that has been checked and cannot be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields

from coldstream.agent.broker.committed import CommittedOffsets, Known
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.settings import AgentSettings
from coldstream.names import MAX_OFFSET
from coldstream.quantities import duration_text

#: While something is behind, its bytes are counted this often, seconds.
_COUNT_SECONDS = 15.0
#: A shorter headroom than this is told, seconds, and told again after as long.
SHORT_HEADROOM = 3600.0
_MAX_SIGHTINGS = 64


@dataclass(frozen=True, slots=True)
class Mark:
    """One watermark.

    Attributes:
        offset: everything below it has come so far.
        at_ms: when it was seen to move there, ms since the Unix epoch by the agent's clock; 0 if it
            never has.
    """

    offset: int = 0
    at_ms: int = 0

    def moved(self, offset: int, now_ms: int) -> Mark:
        """The mark at another offset; itself if it is there already."""
        return self if offset == self.offset else Mark(offset, now_ms)


@dataclass(slots=True)
class Watermarks:
    """What there is to say of one stream.

    Attributes:
        committed: all below is known to be committed, and in the local log.
        cut: all below is in fragments.
        uploaded: all below is in S3.
        verified: all below has been checked by a function.
        published: all below can be read from the remote tier.
        writer: whether this node has the stream's writer, and so the work; True if nobody can say.
        lag_seconds: for how long the oldest committed chunk has waited to be published.
        lag_bytes: of the local log that are not published.
        headroom_seconds: until local retention takes something that is not published, if the stream
            grows on as it does; None if nothing is behind, or no retention is known.
        super_stream: of which it is a partition; "" if of none, or nobody knows.
        unproved_seconds: for how long the oldest of the local log has waited that the broker does
            not prove to be committed, and that is not published either, as far as is known.
        local_end: where the messages of the local log end, if that is above what is proved and
            published; else 0.
        read: whether the manifest was read since the agent began. Before, all that depends on what
            is published is unknown: the marks from `cut` on, lag and headroom.
    """

    committed: Mark = Mark()
    cut: Mark = Mark()
    uploaded: Mark = Mark()
    verified: Mark = Mark()
    published: Mark = Mark()
    writer: bool = True
    lag_seconds: float = 0.0
    lag_bytes: int = 0
    headroom_seconds: float | None = None
    super_stream: str = ""
    unproved_seconds: float = 0.0
    local_end: int = 0
    read: bool = False

    def marks(self) -> Iterator[tuple[str, Mark]]:
        """Names and marks, in the order in which data passes them."""
        for each in fields(self):
            mark = getattr(self, each.name)
            if isinstance(mark, Mark):
                yield each.name, mark


@dataclass(slots=True)
class Sightings:
    """Since when data is there that is not published: by the agent's own clock, not the broker's.

    Of many sightings neighbours become one, with the earlier time: what waits is never said to have
    waited for less than it has.
    """

    _seen: list[tuple[int, float]] = field(default_factory=list)  # end, since when; both rising

    def see(self, end: int, now: float) -> None:
        """The log ends at `end`, at `now` monotonic seconds."""
        if self._seen and end <= self._seen[-1][0]:
            while self._seen and self._seen[-1][0] > end:  # a new epoch has cut it off
                last = self._seen.pop()
                if not self._seen or self._seen[-1][0] < end:
                    self._seen.append((end, last[1]))
            return
        self._seen.append((end, now))
        if len(self._seen) > _MAX_SIGHTINGS:
            pairs = zip(self._seen[::2], self._seen[1::2], strict=False)
            odd = self._seen[len(self._seen) // 2 * 2 :]
            self._seen = [(later[0], earlier[1]) for earlier, later in pairs] + odd

    def reach(self, offset: int) -> None:
        """All below `offset` is published."""
        while self._seen and self._seen[0][0] <= offset:
            del self._seen[0]

    @property
    def oldest_at(self) -> float | None:
        """Since when the oldest that is not published is known to be there; None if all is."""
        return self._seen[0][1] if self._seen else None


def headroom(
    *, lag_seconds: float, lag_bytes: int, max_bytes: int | None, max_age_ms: int | None
) -> float | None:
    """Seconds until local retention takes what is not published; None if nothing bounds it.

    What is behind was written in the time that it is behind, so that is how fast the stream grows.
    """
    found = []
    if max_bytes is not None:
        rate = lag_bytes / max(lag_seconds, 1.0)
        found.append((max_bytes - lag_bytes) / rate if rate else float("inf"))
    if max_age_ms is not None:
        found.append(max_age_ms / 1000 - lag_seconds)
    least = min(found, default=float("inf"))
    return None if least == float("inf") else max(0.0, least)


@dataclass(slots=True)
class WatermarkWatch:
    """Keeps the watermarks of one stream.

    Args:
        log: the directory.
        committed: what of it is committed.
        settings: of the agent.
        marks: takes what is found.
    """

    log: StreamLog
    committed: CommittedOffsets
    settings: AgentSettings
    marks: Watermarks
    _sightings: Sightings = field(default_factory=Sightings)
    _unproved: Sightings = field(default_factory=Sightings)  # of the end of the local log
    _stamp: tuple[int, int, int] | None = None  # newest segment, bytes of its index, limit
    _ended: tuple[tuple[int, int, int], int] = (-1, -1, -1), 0  # such a stamp, and what it had
    _older: tuple[int, float] | None = None  # what is below was there at the first look: seconds
    _counted_at: float = float("-inf")
    _warned_at: float = float("-inf")

    @property
    def oldest_at(self) -> float | None:
        """As `Sightings` says, of what is committed."""
        return self._sightings.oldest_at

    @property
    def sighted_at(self) -> float | None:
        """Since when the oldest is there that is not published, proved or not."""
        sighted = (self._sightings.oldest_at, self._unproved.oldest_at)
        return min((each for each in sighted if each is not None), default=None)

    @property
    def unproved_at(self) -> float | None:
        """As `Sightings` says, of what is neither proved to be committed nor published."""
        return self._unproved.oldest_at

    def look(
        self,
        now: float,
        now_ms: int,
        *,
        cut: int,
        flying: Collection[int],
        published: int | None,
        epoch: int,
    ) -> str | None:
        """Bring them up to date; what a person should know of them, if anything.

        Args:
            now: monotonic seconds.
            now_ms: the wall clock, ms since the Unix epoch.
            cut: all below is cut.
            flying: first offsets of the slices that are being uploaded.
            published: next offset of the manifest, as last seen; None before it was read.
            epoch: of the manifest, likewise.

        Raises:
            CorruptDataError, OSError: the log cannot be read.
        """
        marks, known = self.marks, self.committed.known(self.log.stream)
        marks.writer, marks.super_stream = known.writer, known.super_stream
        marks.read = published is not None
        if published is None:
            self._look_blindly(known, now, now_ms)
            return None
        marks.cut = marks.cut.moved(max(cut, published), now_ms)
        marks.uploaded = marks.uploaded.moved(max(published, min([cut, *flying])), now_ms)
        marks.verified = marks.verified.moved(published, now_ms)
        marks.published = marks.published.moved(published, now_ms)
        end = self._end(known.local)
        if end:
            marks.committed = marks.committed.moved(max(end, published), now_ms)
            self._sightings.see(end, now)
        # What was proved last is of a newer epoch: the manifest cannot have it, though it may end
        # above it, with what a loss of power has taken from all members.
        newer = end > 0 and known.epoch > epoch
        self._sightings.reach(min(published, end - 1) if newer else published)
        self._look_above(known, now, published)
        if self._older is None and published:
            self._older = end, self._waited(published, now, now_ms)
        return self._lag(now, published)

    def _look_blindly(self, known: Known, now: float, now_ms: int) -> None:
        """See what is there, of which nobody here knows yet what is published."""
        end = self._end(known.local)
        if end:
            self.marks.committed = self.marks.committed.moved(end, now_ms)
            self._sightings.see(end, now)
        self._look_above(known, now, 0)

    def _look_above(self, known: Known, now: float, published: int) -> None:
        """See since when the local log has messages that nobody proves to be committed.

        A tracking chunk at its end is proved by the next message; one who stands by is level where
        the manifest has all that it has.
        """
        marks, proved = self.marks, max(self.committed.limit(self.log.stream), published)
        marks.local_end = 0
        if known.local and not (known.whole and not known.trouble):
            marks.local_end = self._messages_end(proved)
        self._unproved.reach(proved if marks.local_end else MAX_OFFSET)
        if marks.local_end:
            self._unproved.see(marks.local_end, now)
        oldest = self._unproved.oldest_at
        marks.unproved_seconds = 0.0 if oldest is None else now - oldest

    def _messages_end(self, above: int) -> int:
        segments = self.log.segments()
        if not segments:
            return 0
        stamp = segments[-1], self.log.index_size(segments[-1]), above
        if stamp != self._ended[0]:
            self._ended = stamp, self.log.messages_end(above)
        return self._ended[1]

    def _waited(self, published: int, now: float, now_ms: int) -> float:
        """How long the oldest of what was there at the first look had waited by then, seconds.

        By the broker's clock: nobody else knows. It is a figure in a report, and decides nothing.
        """
        oldest = self._sightings.oldest_at
        at_ms = None if oldest is None else self.log.timestamp_at(published)
        if oldest is None or at_ms is None:
            return 0.0
        return max(0.0, (now_ms - at_ms) / 1000 - (now - oldest))

    def _end(self, local: bool) -> int:
        """Where the committed part of the local log ends; 0 if nobody can say just now."""
        limit = self.committed.limit(self.log.stream)
        if local or not limit:
            return limit
        segments = self.log.segments()
        if not segments:
            return 0
        stamp = segments[-1], self.log.index_size(segments[-1]), limit
        if stamp != self._stamp:
            self._stamp, end = stamp, self.log.end()
            return min(limit, end)
        return self.marks.committed.offset

    def _lag(self, now: float, published: int) -> str | None:
        marks, oldest = self.marks, self.sighted_at
        if oldest is None:
            marks.lag_seconds, marks.lag_bytes, marks.headroom_seconds = 0.0, 0, None
            self._counted_at = float("-inf")
            return None
        until, older = self._older or (0, 0.0)
        marks.lag_seconds = now - oldest + (older if published < until else 0.0)
        if now - self._counted_at < _COUNT_SECONDS:
            return None
        known = self.committed.known(self.log.stream)
        self._counted_at, marks.lag_bytes = now, self.log.bytes_from(published)
        marks.headroom_seconds = headroom(
            lag_seconds=marks.lag_seconds,
            lag_bytes=marks.lag_bytes,
            max_bytes=known.max_bytes,
            max_age_ms=known.max_age_ms,
        )
        return self._warning(now)

    def _warning(self, now: float) -> str | None:
        """What there is to say of a headroom that is short; now and then, not at every look."""
        marks, left = self.marks, self.marks.headroom_seconds
        usual = 2 * (self.settings.flush_ms / 1000 + self.settings.takeover_seconds)
        if left is None or left >= SHORT_HEADROOM or now - self._warned_at < SHORT_HEADROOM:
            return None
        if marks.lag_seconds < usual and left >= usual:
            return None  # as much waits as always does, and it is not close
        self._warned_at = now
        return (
            f"local retention takes what is not uploaded in about {duration_text(int(left))}, if"
            f" nothing changes: {marks.lag_bytes} bytes wait, the oldest for"
            f" {duration_text(int(marks.lag_seconds))}; give the stream more local bytes or time"
            f" (stream {self.log.stream}, offset {marks.published.offset})"
        )


def mark_rows(marks: Watermarks) -> dict[str, dict[str, int]]:
    """The five marks for JSON, by name."""
    return {name: {"offset": each.offset, "at_ms": each.at_ms} for name, each in marks.marks()}
