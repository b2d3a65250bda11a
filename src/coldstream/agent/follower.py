"""One stream: claimed, cut, uploaded, and watched until its manifest has followed.

    waiting ── a committed chunk is there ──> open (anchor, claim) ──> cut ──> uploads in flight
       ▲                                         ▲                               │
       └── failed: tried again later             └── a chunk of a higher epoch ──┤
                                                                                 ▼
                                behind: helped (catch_up.py) <── watched: manifest follows

Where the local log begins above what is remote, and nobody has the range between any more, a hole
is uploaded for it, and the stream goes on behind the hole (usecases/holes.py).

All state that matters is in S3 and the catalog. What this object remembers may be lost at any
instant: another one, here or on another node, begins at the manifest's next offset.
Only the agent's main thread calls it; uploads report through a queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coldstream.agent.catch_up import CatchUp
from coldstream.agent.commits import Commits
from coldstream.agent.committed import CommittedOffsets
from coldstream.agent.faults import explained
from coldstream.agent.gaps import Gaps
from coldstream.agent.log import StreamLog
from coldstream.agent.members import LastCopy, Members
from coldstream.agent.opening import open_stream
from coldstream.agent.progress import Progress, place, translated
from coldstream.agent.settings import AgentSettings
from coldstream.agent.standstill import StandstillWatch
from coldstream.agent.strangers import Strangers
from coldstream.agent.upload import FragmentNumbers, Job, Uploaded
from coldstream.errors import ColdstreamError, CorruptDataError, FencedError, UnavailableError
from coldstream.fragment import Placement
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.ledger import Ledger, Right
from coldstream.names import MAX_OFFSET
from coldstream.plans.cut import SegmentView, Slice, cut
from coldstream.ports import ClaimFunction, CommitRequests
from coldstream.remote.context import Context

_END = 2**64 - 1
#: A stream whose manifest has all that the log has is looked at this often, seconds.
_LEVEL_SECONDS = 1800.0
_WATCH_SECONDS = 0.2  # at most five reads of the item a second, however often it is stepped


@dataclass(slots=True)
class StreamFollower:
    """Follows one stream directory; see the module's picture.

    Args:
        context: bucket, table, prefix, ids.
        log: the directory.
        committed: what of it is committed.
        settings: of the agent.
        requests: for a commit, None if there is no queue.
        function: that claims and commits.
        names: which queue a directory belongs to, as far as it is known when it is opened.
        pause: sleeps after a lost commit.
        started: monotonic seconds of the first look.
        members: asked what they still have before a range is declared lost; None if nobody can
            say, unless the settings say that this is the last copy.
    """

    context: Context
    log: StreamLog
    committed: CommittedOffsets
    settings: AgentSettings
    requests: CommitRequests | None
    function: ClaimFunction
    names: Mapping[str, QueueName]
    pause: Callable[[int], None]
    started: float
    members: Members | None = None
    progress: Progress = field(init=False)
    _commits: Commits = field(init=False)
    _gaps: Gaps = field(init=False)
    _standing: StandstillWatch = field(init=False)
    _strangers: Strangers = field(init=False)
    _catch_up: CatchUp = field(init=False)
    _epoch: int = 0  # of the claim under which it uploads, 0 before the first
    _shift: int = 0  # by which it is above the epochs of the broker's chunks
    _ledger: Ledger = field(default_factory=Ledger)  # when it claimed
    _outdated: bool = False  # the claim must be made again
    _position: int = 0  # everything below has been cut
    _remaining: bool = False  # more can be cut at once
    _in_flight: int = 0
    _blocked_at: int | None = None  # a damaged chunk; nothing from here on is cut
    _suspect_at: int | None = None  # a fault or a hole: nothing behind is cut before it is there
    _retry_at: float = 0.0
    _gave_up: bool = False
    _joins: bool = False  # once what is suspect is there, fragments that wait above can be taken
    _pending_from: int | None = None  # where it was when it saw fragments that wait above
    _numbers: FragmentNumbers = field(default_factory=FragmentNumbers)
    _read: tuple[int, int] = (-1, 0)  # segment, index records that have been dealt with
    _seen: tuple[int, ...] = ()  # what the last look found
    _wake_ms: int | None = None  # when the oldest waiting chunk has waited long enough
    _watched_at: float = float("-inf")  # last look at the manifest
    _moved_at: float = 0.0  # last time that an upload ended or the manifest moved
    _hole_end: int | None = None  # what begins here is cut at once, because the hole waits for it
    _until: int | None = None  # with `once`: what is committed above came after the start
    _reclaimed_at: float = float("-inf")  # when its claim was last found missing

    def __post_init__(self) -> None:
        members = self.members or (LastCopy() if self.settings.last_copy else None)
        commits = Commits(self.context, self.function, self.log.stream, self.pause)
        self._commits = commits
        self._gaps = Gaps(self.context, commits, self.log, members, self.pause)
        notices = self._gaps.notices
        self.progress = Progress(self.log.stream, holes=self._gaps.holes, notices=notices)
        every = 0.0 if self.settings.once else self.settings.compare_seconds
        self._strangers = Strangers(self.context, self.log, every, notices)
        self._standing = StandstillWatch(self.log, self.committed, self.settings, self.progress)
        self._catch_up = CatchUp(
            self.context, self.log.stream, self.settings, self.requests, commits, notices
        )

    @property
    def settled(self) -> bool:
        """Nothing is under way: all that is committed is in the manifest, or something failed."""
        if self._in_flight:
            return False
        followed = self.progress.next_offset >= self._position
        if isinstance(self.progress.error, FencedError):
            return True  # no commit takes what was uploaded under the claim that is over
        if self.progress.error is not None:
            # What was uploaded before the fault may still be on its way into the manifest. A hole
            # is not: it waits for what has not been uploaded.
            followed = followed or self._position == self._hole_end
            return self._epoch == 0 or followed or self._gave_up or self._catch_up.hopeless
        return not self._outdated and not self._remaining and followed

    def step(self, now: float, now_ms: int, *, most: int) -> list[Job]:
        """Look at the directory and the manifest; give at most `most` slices to upload.

        Never raises: a fault is `progress.error`, and what was cut before it is given all the same.

        Args:
            now: monotonic seconds.
            now_ms: the wall clock, ms since the Unix epoch, as chunk timestamps have it.
            most: how many uploads may start.
        """
        jobs: list[Job] = []
        if self._catch_up.hopeless:
            return jobs
        try:
            self._advance(now, now_ms, most, jobs)
        except Exception as exc:  # it is this stream's, and what was cut before it is uploaded
            self._fail(translated(exc, self.log), now)
        self._tell_standstill(now, now_ms)
        return jobs

    def note_end(self) -> None:
        """With `once`: upload what is committed now, nothing above it; raises as any look does."""
        if self._until is None and self.settings.once:
            committed = self.committed.limit(self.log.stream)
            if committed:
                self.log.check_indexes(0)
            newest = self.log.chunks_near(_END, committed=committed)
            self._until = newest[-1].next_offset if newest else 0

    def _advance(self, now: float, now_ms: int, most: int, jobs: list[Job]) -> None:
        """A step; what it cuts is in `jobs`, whatever fails behind it."""
        self.note_end()
        if now < self._retry_at:
            if self._blocked_at is None:
                self._watch_quietly(now)
                return
        elif self._blocked_at is not None and not self.settings.once:
            # Perhaps the file was mended; a second fault blocks again.
            self._suspect_at, self._blocked_at = self._blocked_at, None
        closed = self._outdated or self._epoch == 0
        if closed and (self._in_flight or not self._open(now)):
            return
        if self._blocked_at is None:
            self.progress.error = self._catch_up.stuck
        if self._suspect_at is not None:
            # What lies behind it would be uploaded at every try, and committed at none.
            most = 0 if self._in_flight else min(most, 1)
        if most > 0:
            self._cut(now, now_ms, most, jobs)
        self._watch(now)
        self._strangers.look(self._epoch, self.progress.next_offset, self._limit(), now)

    def finished(self, uploaded: Uploaded, now: float) -> None:
        """An upload has landed in the store."""
        self._in_flight -= 1
        self._moved_at = now
        self.progress.fragments += 1
        self.progress.bytes += uploaded.size
        self._strangers.uploaded(uploaded.key)
        if self._suspect_at is not None and self._position > self._suspect_at:
            self._suspect_at = None
            self._outdated, self._joins = self._outdated or self._joins, False

    def failed(self, piece: Slice, error: ColdstreamError, now: float) -> None:
        """An upload has failed for good: cut again from it, up to the chunk at fault if one is."""
        self._in_flight -= 1
        self._moved_at = now
        self._position = min(self._position, piece.first_offset)
        if isinstance(error, CorruptDataError) and error.offset is not None:
            at = max(error.offset, piece.first_offset)
            self._blocked_at = at if self._blocked_at is None else min(self._blocked_at, at)
            self._retry_at = now + self.settings.rescan_seconds
            self.progress.error = self._explained(error)
            self._remaining = True
        else:
            self._fail(error, now)

    def _fail(self, error: ColdstreamError, now: float) -> None:
        error.located(stream=self.log.stream)
        self.progress.error = self._explained(error)
        self._retry_at = now + self.settings.rescan_seconds
        self._remaining = True
        self._outdated = self._epoch != 0

    def _explained(self, error: ColdstreamError) -> ColdstreamError:
        return explained(error, self.log, place(self.settings, self.context.prefix))

    def _limit(self) -> int:
        limits = (self.committed.limit(self.log.stream), self._blocked_at, self._until)
        return min(each for each in limits if each is not None)

    def _open(self, now: float) -> bool:
        """Anchor and claim the stream; False while it has no committed chunk."""
        opened = open_stream(
            self.context,
            self._commits,
            self.log,
            self._gaps,
            limit=self._limit(),
            settings=self.settings,
            name=self.names.get(self.log.stream, QueueName()),
            notices=self.progress.notices,
        )
        if opened is None:
            return False
        report = opened.report
        self._epoch, self._shift, self._ledger = opened.epoch, opened.shift, opened.ledger
        self._outdated = False
        if report.waiting:
            # Of fragments that land out of order the second could make a hole count over the first.
            self._suspect_at = report.next_offset
        elif opened.waits_at is not None:
            # Something below it could not be uploaded. If that is still so, what lies behind it
            # must not be uploaded by every run; if not, the next claim takes what waits.
            self._suspect_at = opened.waits_at - 1
            self._joins = self._pending_from != report.next_offset
            self._pending_from = report.next_offset
        self._restart_at(report.next_offset)
        self.progress.next_offset = report.next_offset
        self._moved_at = now
        self._catch_up.opened(now, moved=report.commits > 0)
        self._strangers.opened(opened.claimed_at, now)
        self._watched_at = now
        return True

    def _restart_at(self, offset: int) -> None:
        self._position = offset
        self._numbers = FragmentNumbers()
        self._read = (-1, 0)
        self._remaining = True
        self.progress.cut_offset = offset

    def _cut(self, now: float, now_ms: int, most: int, jobs: list[Job]) -> None:
        """Put up to `most` slices into `jobs`. Each counts as under way from then on."""
        limit = self._limit()
        segments = self.log.segments()
        if not segments:
            return
        if segments[0] > self._position:
            self._go_on_behind_the_gap(segments[0], limit, now)
            return
        seen = (segments[-1], self.log.index_size(segments[-1]), limit)
        waiting = self._wake_ms is not None and now_ms >= self._wake_ms
        if seen == self._seen and not self._remaining and not waiting:
            return
        self.log.check_indexes(self._position)
        self._seen, self._remaining, self._wake_ms = seen, False, None
        for at in range(bisect_right(segments, self._position) - 1, len(segments)):
            first = segments[at]
            try:
                view = self.log.view_at(
                    first,
                    self._position,
                    closed=at + 1 < len(segments),
                    skip=self._read[1] if self._read[0] == first else 0,
                )
            except (CorruptDataError, OSError):
                if not jobs:
                    raise
                self._remaining = True  # first what lies before it, then the fault is told
                return
            if view is not None and not self._cut_segment(view, limit, now, now_ms, most, jobs):
                return

    def _cut_segment(
        self, view: SegmentView, limit: int, now: float, now_ms: int, most: int, jobs: list[Job]
    ) -> bool:
        """Cut what there is of one segment; False if something of it is left."""
        ripe_ms = int(view.records["timestamp"][0]) + self.settings.flush_ms
        right, own = self._right(), self._epoch - self._shift
        pieces = cut(
            view,
            target_size=self.settings.target_size,
            committed=min(limit, right.until),
            epoch=min(right.epoch, own),
            flush=self.settings.once
            or right.epoch < self._epoch
            or view.chunk(-1).epoch > own
            or self._position == self._hole_end
            or self._blocked_at is not None
            or now_ms >= ripe_ms,
        )[: most - len(jobs)]
        new = [Job(self.log, piece, self._place(piece, right)) for piece in pieces]
        taken = sum(len(piece.records) for piece in pieces)
        waiting = view.chunk(taken) if taken < len(view.records) else None
        # From here on nothing can fail: what is in `jobs` is what is under way.
        jobs += new
        self._in_flight += len(new)
        self._read = (view.first_offset, view.skipped + taken)
        self._position = view.next_offset if waiting is None else waiting.chunk_id
        if new:
            self._moved_at = now
            self.progress.cut_offset = self._position
        if waiting is None:
            return True
        self._wake_ms = ripe_ms
        self._remaining = len(jobs) == most or self._position >= right.until
        if waiting.epoch > own and waiting.next_offset <= limit:
            self._outdated = True  # it needs a claim, after all before it is uploaded
        return False

    def _go_on_behind_the_gap(self, begin: int, limit: int, now: float) -> None:
        """The local log begins above all that was cut: see what is really missing."""
        self._remaining = True
        if self._in_flight:
            return  # what is on its way may be what is missing
        self.log.check_indexes(self._position)
        there = self._gaps.bridge(self._epoch, begin, committed=limit, to_log=True)
        self.progress.next_offset = there.next_offset
        if there.epoch != self._epoch:
            self._outdated = True
            return
        self._restart_at(there.position)
        self._hole_end = there.position if there.waiting else None
        self._moved_at = now

    def _tell_standstill(self, now: float, now_ms: int) -> None:
        """Say of a stream that waits and makes no progress that it does, every few minutes."""
        wake_ms = self._wake_ms
        self._standing.look(
            now,
            in_flight=self._in_flight,
            position=self._position,
            waits=self._remaining or self._outdated,
            odd_time=wake_ms is not None and not 0 < wake_ms - now_ms <= self.settings.flush_ms,
        )

    def _right(self) -> Right:
        """Under which claim the next slice is uploaded: its own, but below its floor.

        The log was compared with the manifest when it claimed, so what lies below is good, too.
        """
        floor = self._ledger.floor(self._epoch) or 0
        return self._ledger.right_at(self._position) or Right(self._epoch, floor, MAX_OFFSET)

    def _place(self, piece: Slice, right: Right) -> Placement:
        return Placement(
            epoch=right.epoch,
            floor=right.floor,
            segment_offset=piece.segment_offset,
            sequence=self._numbers.next(piece.segment_offset),
            segment_position=piece.start,
        )

    def _watch_quietly(self, now: float) -> None:
        """Watch a stream that waits for another try; its first fault stays the one that is told."""
        if self._epoch == 0 or self.progress.next_offset >= self._position:
            return
        try:
            self._watch(now)
        except Exception:
            self._gave_up = True

    def _watch(self, now: float) -> None:
        """See how far the manifest has followed, and help it if it does not."""
        level = self.progress.next_offset >= self._position
        if level and not self._catch_up.trying:
            self._catch_up.followed(now, moved=False)
            if self.settings.once or now - self._watched_at < _LEVEL_SECONDS:
                return  # later it is looked whether an undo has cut off what was there
        if now - self._watched_at < _WATCH_SECONDS:
            return
        self._watched_at = now
        item = self.context.catalog.get(self.log.stream)
        if item is None:
            raise UnavailableError("the stream's item is gone", stream=self.log.stream)
        if item.epoch > self._epoch:
            self._outdated = True
            return
        if item.ledger.floor(self._epoch) != self._ledger.floor(self._epoch):
            # Rebuilt, or an older root was adopted: no commit takes what this claim uploads.
            if now - self._reclaimed_at >= self.settings.rescan_seconds:
                self._outdated, self._reclaimed_at = True, now
            return
        if item.next_offset > self.progress.next_offset:
            self.progress.next_offset = item.next_offset
            self._moved_at = now
            self._catch_up.followed(now, moved=True)
            if item.next_offset > self._position and not self._in_flight:
                self._restart_at(item.next_offset)  # another agent of this epoch is ahead
        if self.progress.next_offset >= self._position:
            self._catch_up.followed(now, moved=True)
            if not level:
                self.progress.durable_seconds = now - self.started
            return
        if not self._catch_up.due(now, moved_at=self._moved_at, in_flight=self._in_flight > 0):
            return
        again = self._catch_up.help(item, self._position, now, in_flight=self._in_flight > 0)
        if again is not None:
            behind = self.progress.cut_offset
            self._restart_at(again)
            self.progress.cut_offset = behind
