"""Where a stream is cut next: from its position on, as far as it is committed and claimed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.lanes import Lanes
from coldstream.agent.sending.slices import FragmentNumbers, Job
from coldstream.agent.settings import AgentSettings
from coldstream.errors import CorruptDataError
from coldstream.fragment import MAX_FRAGMENT_SIZE, Placement
from coldstream.manifest.ledger import Ledger, Right
from coldstream.names import MAX_OFFSET
from coldstream.plans.cut import SegmentView, Slice, cut


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """Under what a stream is uploaded.

    Attributes:
        epoch: of the claim, 0 before the first.
        shift: by which it is above the epochs of the broker's chunks.
        ledger: when it claimed.
    """

    epoch: int = 0
    shift: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def right_at(self, offset: int) -> Right:
        """Under which claim a slice from `offset` on is uploaded: its own, but below its floor.

        The log was compared with the manifest when it claimed, so what lies below is good, too.
        """
        floor = self.ledger.floor(self.epoch) or 0
        return self.ledger.right_at(offset) or Right(self.epoch, floor, MAX_OFFSET)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a log is done under.

    Attributes:
        now: monotonic seconds.
        now_ms: the wall clock, ms since the Unix epoch.
        limit: all local offsets below this are committed.
        most: how many slices may be cut.
        flush: whether nothing waits for its fragment to fill.
        hole_end: what begins here is cut at once, because a hole waits for it; None if none does.
    """

    now: float
    now_ms: int
    limit: int
    most: int
    flush: bool
    hole_end: int | None


@dataclass(slots=True)
class Cutter:
    """Cuts one stream.

    Args:
        log: the directory.
        settings: of the agent.
        lanes: say how much goes through at once; None for as much as the settings say.

    Attributes:
        position: everything below has been cut.
        remaining: whether more can be cut at once.
        unproved: whether something waits that is not known to be committed.
    """

    log: StreamLog
    settings: AgentSettings
    lanes: Lanes | None = None
    position: int = 0
    remaining: bool = False
    unproved: bool = False
    _numbers: FragmentNumbers = field(default_factory=FragmentNumbers)
    _read: tuple[int, int] = (-1, 0)  # segment, index records that have been dealt with
    _seen: tuple[int, ...] = ()  # what the last look found
    _sighted: tuple[int, float] = (-1, 0.0)  # the chunk that waits, and since when
    _waits: bool = False  # whether one does
    _restarted: bool = True  # nobody knows how long what lies at the position has been there

    @property
    def ripe_at(self) -> float | None:
        """When what waits has waited for the flush time as it is now, monotonic seconds; None if
        nothing waits.
        """
        return self._sighted[1] + self.settings.flush_ms / 1000 if self._waits else None

    def restart_at(self, offset: int) -> None:
        """Cut from here on."""
        self.position = offset
        self._numbers = FragmentNumbers()
        self._read, self._sighted, self._waits = (-1, 0), (-1, 0.0), False
        self.remaining = self._restarted = True

    def rest_at(self, offset: int) -> None:
        """Nothing is to be cut, for now."""
        self.position = offset
        self.remaining = self.unproved = self._waits = False

    def cut(self, segments: Sequence[int], claim: OwnClaim, look: Look, jobs: list[Job]) -> bool:
        """Put slices into `jobs`, whatever fails behind them.

        Args:
            segments: first offsets of the log's segments, of which the first is not above the
                position.
            claim: under which they are uploaded.
            look: how much, and what counts.
            jobs: takes the slices; from then on they count as under way.

        Returns:
            Whether what comes next needs another claim.

        Raises:
            CorruptDataError, OSError: nothing could be cut before it.
        """
        seen = (segments[-1], self.log.index_size(segments[-1]), look.limit, look.flush)
        waited = self.ripe_at is not None and look.now >= self.ripe_at
        if seen == self._seen and not self.remaining and not waited:
            return False
        self.log.check_indexes(self.position)
        self._seen = seen
        self.remaining = self.unproved = self._waits = False
        for at in range(bisect_right(segments, self.position) - 1, len(segments)):
            first = segments[at]
            try:
                view = self.log.view_at(
                    first,
                    self.position,
                    closed=at + 1 < len(segments),
                    skip=self._read[1] if self._read[0] == first else 0,
                )
            except (CorruptDataError, OSError):
                if not jobs:
                    raise
                self.remaining = True  # first what lies before it, then the fault is told
                return False
            if view is None:
                continue
            waiting = self._cut_segment(view, claim, look, jobs)
            if waiting:
                own, chunk = claim.epoch - claim.shift, view.chunk(-waiting)
                self.unproved = view.next_offset > look.limit
                return chunk.epoch > own and chunk.next_offset <= look.limit
        self._restarted = False
        return False

    def _cut_segment(self, view: SegmentView, claim: OwnClaim, look: Look, jobs: list[Job]) -> int:
        """Cut what there is of one segment; how many chunks of it are left."""
        ripe_at = self._ripe_at(view, 0, look)
        right, own = claim.right_at(self.position), claim.epoch - claim.shift
        pieces = cut(
            view,
            target_size=self._target_size(),
            committed=min(look.limit, right.until),
            epoch=min(right.epoch, own),
            flush=look.flush
            or right.epoch < claim.epoch
            or view.chunk(-1).epoch > own
            or self.position == look.hole_end
            or look.now >= ripe_at,
        )[: look.most - len(jobs)]
        new = [Job(self.log, piece, self._place(piece, right)) for piece in pieces]
        taken = sum(len(piece.records) for piece in pieces)
        left = len(view.records) - taken
        # From here on nothing can fail: what is in `jobs` is what is under way.
        jobs += new
        self._read = (view.first_offset, view.skipped + taken)
        self.position = view.chunk(taken).chunk_id if left else view.next_offset
        if left:
            self._ripe_at(view, taken, look)
            self._waits = True
            self.remaining = len(jobs) == look.most or self.position >= right.until
            self._restarted = self._restarted and self.remaining
        return left

    def _target_size(self) -> int:
        piece = None if self.lanes is None else self.lanes.piece
        return min(self.settings.target_size, piece or MAX_FRAGMENT_SIZE)

    def _ripe_at(self, view: SegmentView, number: int, look: Look) -> float:
        """When a chunk that begins the rest has waited for long enough, monotonic seconds.

        What it says of its time is the broker's clock, which may be wrong. So it counts from when
        it was first seen here, but for what was there before the first look.
        """
        offset, flush = view.chunk(number).chunk_id, self.settings.flush_ms / 1000
        if self._sighted[0] != offset:
            waited = 0.0
            if self._restarted:
                told = (look.now_ms - int(view.records["timestamp"][number])) / 1000
                waited = min(max(0.0, told), flush)
            self._sighted = offset, look.now - waited
        return self._sighted[1] + flush

    def _place(self, piece: Slice, right: Right) -> Placement:
        return Placement(
            epoch=right.epoch,
            floor=right.floor,
            segment_offset=piece.segment_offset,
            sequence=self._numbers.next(piece.segment_offset),
            segment_position=piece.start,
        )
