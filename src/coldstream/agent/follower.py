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

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from coldstream.agent.catch_up import CatchUp
from coldstream.agent.commits import Commits
from coldstream.agent.committed import CommittedOffsets
from coldstream.agent.cutting import Cutter, Look, OwnClaim
from coldstream.agent.division import Division
from coldstream.agent.faults import explained
from coldstream.agent.gaps import Gaps
from coldstream.agent.held import Held
from coldstream.agent.lanes import Lanes
from coldstream.agent.log import StreamLog
from coldstream.agent.members import LastCopy, Members
from coldstream.agent.opening import open_stream
from coldstream.agent.progress import (
    Gone,
    Progress,
    of_gone,
    of_take_over,
    place,
    translated,
)
from coldstream.agent.settings import AgentSettings
from coldstream.agent.standstill import StandstillWatch
from coldstream.agent.strangers import Strangers
from coldstream.agent.upload import Job, Uploaded
from coldstream.agent.watermarks import WatermarkWatch
from coldstream.errors import ColdstreamError, CorruptDataError, FencedError, UnavailableError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.cut import Slice
from coldstream.ports import ClaimFunction, CommitRequests
from coldstream.remote.context import Context

_END = 2**64 - 1
#: A stream whose manifest has all that the log has is looked at this often, seconds.
_LEVEL_SECONDS = 1800.0
#: A stream that waits is stepped this often, so that a standstill is told in time, seconds.
_STANDING_SECONDS = 15.0
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
        held: keeps files of the log readable that the broker removes; None if nothing does.
        lanes: say how much is cut at once, and when a stream that failed is tried again; None for
            as the settings say.
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
    held: Held | None = None
    lanes: Lanes | None = None
    progress: Progress = field(init=False)
    _commits: Commits = field(init=False)
    _gaps: Gaps = field(init=False)
    _standing: StandstillWatch = field(init=False)
    _strangers: Strangers = field(init=False)
    _catch_up: CatchUp = field(init=False)
    _cutter: Cutter = field(init=False)
    _watermarks: WatermarkWatch = field(init=False)
    _division: Division = field(init=False)
    _claim: OwnClaim = field(default_factory=OwnClaim)  # under which it uploads
    _outdated: bool = False  # the claim must be made again
    _unproved: bool = False  # there are chunks that are not known to be committed
    _ask_at: float = 0.0  # when it is worth asking again whether they are
    _flying: list[int] = field(default_factory=list)  # first offsets of what is being uploaded
    _blocked_at: int | None = None  # a damaged chunk; nothing from here on is cut
    _suspect_at: int | None = None  # a fault or a hole: nothing behind is cut before it is there
    _retry_at: float = 0.0
    _gave_up: bool = False
    _joins: bool = False  # once what is suspect is there, fragments that wait above can be taken
    _pending_from: int | None = None  # where it was when it saw fragments that wait above
    _watched_at: float = float("-inf")  # last look at the manifest
    _moved_at: float = 0.0  # last time that an upload ended or the manifest moved
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
        self._cutter = Cutter(self.log, self.settings, self.lanes)
        self._division = Division(self.settings)
        marks = self.progress.marks
        self._watermarks = WatermarkWatch(self.log, self.committed, self.settings, marks)
        self._standing = StandstillWatch(self.log, self.committed, self.settings, self.progress)
        self._catch_up = CatchUp(
            self.context, self.log.stream, self.settings, self.requests, commits, notices
        )

    @property
    def settled(self) -> bool:
        """Nothing is under way: all that is committed is in the manifest, or something failed."""
        if self._flying:
            return False
        followed = self.progress.next_offset >= self._cutter.position
        if isinstance(self.progress.error, FencedError):
            return True  # no commit takes what was uploaded under the claim that is over
        if self.progress.error is not None:
            # What was uploaded before the fault may still be on its way into the manifest. A hole
            # is not: it waits for what has not been uploaded.
            followed = followed or self._cutter.position == self._cutter.hole_end
            return self._claim.epoch == 0 or followed or self._gave_up or self._catch_up.hopeless
        return not self._outdated and not self._cutter.remaining and followed

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
        self._mark(now, now_ms)
        self._tell_standstill(now)
        return jobs

    def steer(self, settings: AgentSettings) -> None:
        """Go on with other settings; not while it is stepped."""
        self.settings = self._cutter.settings = settings
        self._division.settings = self._watermarks.settings = settings
        self._standing.settings = self._catch_up.settings = settings

    def trouble(self, exc: Exception, now: float) -> None:
        """It could not be looked at."""
        self._fail(translated(exc, self.log), now)

    def wake_at(self, now: float) -> float:
        """When a step is needed although no file has changed, monotonic seconds; `now` for soon."""
        cutter, next_offset = self._cutter, self.progress.next_offset
        failed = now < self._retry_at
        behind = self._claim.epoch > 0 and next_offset < cutter.position
        waits = not failed and (
            self._outdated or cutter.remaining or self.progress.gone is not None
        )
        if self.settings.once or behind or waits:
            return now
        if self._stands_by(now):
            times = [now + _LEVEL_SECONDS, self._division.due_at(self._watermarks.oldest_at)]
        else:
            times = [self._watched_at + _LEVEL_SECONDS, self._strangers.due_at(next_offset)]
        if failed:
            times.append(self._retry_at)
        elif cutter.ripe_at is not None:
            times.append(cutter.ripe_at)
        if self._unproved or cutter.unproved:
            times.append(self._ask_at)
        if self._standing.waits:
            times.append(now + _STANDING_SECONDS)
        return max(now, min(times))

    def vanish(self, at_ms: int) -> None:
        """The directory is gone: what is held of it is uploaded at once.

        Args:
            at_ms: when that was seen, ms since the Unix epoch.
        """
        if self.progress.gone is None:
            self.progress.gone = Gone(at_ms)
            self._retry_at = 0.0

    def over(self) -> bool:
        """Whether the directory is gone, and nothing more of it can be uploaded; says so then."""
        gone, error = self.progress.gone, self.progress.error
        if gone is None or self._flying:
            return False
        upload_tail = self.settings.upload_tail
        try:
            all_there = self.log.chunks_near(_END, committed=_END)
            proved = self.log.chunks_near(_END, committed=self._limit())
        except (ColdstreamError, OSError):
            all_there = proved = []  # nothing is held, or what is held is damaged
        lasting = error is not None and not isinstance(error, UnavailableError)
        behind = bool(proved) and self.progress.next_offset < proved[-1].next_offset
        if behind and upload_tail and not lasting:
            return False
        gone.end = all_there[-1].next_offset if all_there else None
        gone.proved = proved[-1].next_offset if proved else None
        self.progress.notices.append(of_gone(self.progress))
        self.progress.error = None if not lasting else error
        return True

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
        if self.progress.gone is None:
            self._ask_at = self.committed.refresh(self.log.stream, now)
        self.note_end()
        if self._stands_by(now) and not self._takes_over(now):
            self._rest(now)
            return
        if self.lanes is not None and isinstance(self.progress.error, UnavailableError):
            self._retry_at = max(self._retry_at, self.lanes.later(now))
        if now < self._retry_at:
            if self._blocked_at is None:
                self._watch_quietly(now)
                return
        elif self._blocked_at is not None and not self.settings.once:
            # Perhaps the file was mended; a second fault blocks again.
            self._suspect_at, self._blocked_at = self._blocked_at, None
        closed = self._outdated or self._claim.epoch == 0
        if closed and (self._flying or not self._open(now)):
            return
        if self._blocked_at is None:
            self.progress.error = self._catch_up.stuck
        if self._suspect_at is not None:
            # What lies behind it would be uploaded at every try, and committed at none.
            most = 0 if self._flying else min(most, 1)
        if most > 0 and (self.progress.gone is None or self.settings.upload_tail):
            self._cut(now, now_ms, most, jobs)
        self._watch(now)
        self._hold()
        self._strangers.look(self._claim.epoch, self.progress.next_offset, self._limit(), now)

    def _stands_by(self, now: float) -> bool:
        """Whether this stream is the work of another node's agent, as far as can be seen."""
        if self.settings.once or self.progress.gone is not None or self._division.acts(now):
            return False
        return not self.committed.known(self.log.stream).writer

    def _takes_over(self, now: float) -> bool:
        """Whether the other node's agent does nothing, although something waits."""
        if now < max(self._division.due_at(self._watermarks.oldest_at), self._retry_at):
            return False
        item, before = self.context.catalog.get(self.log.stream), self.progress.next_offset
        self.progress.next_offset = 0 if item is None else item.next_offset
        if not self._division.looked(now, moved=self.progress.next_offset != before):
            return False
        seconds = self._division.acts_for
        self.progress.notices.append(
            of_take_over(self.log.stream, self.progress.next_offset, seconds)
        )
        return True

    def _rest(self, now: float) -> None:
        """Finish what was begun while it was this node's turn, and then do nothing."""
        behind = self.progress.next_offset < self._cutter.position
        if self._flying or (self._claim.epoch and behind and not self._outdated):
            self._watch(now)
            return
        known, limit = self.committed.known(self.log.stream), self._limit()
        self._claim, self._outdated = OwnClaim(), False
        self._unproved = not known.whole and self.log.end() > limit
        self._cutter.remaining = self._cutter.unproved = False
        self._cutter.ripe_at = self.progress.error = None
        self._cutter.position = self.progress.cut_offset = self.progress.next_offset
        self._hold()

    def _mark(self, now: float, now_ms: int) -> None:
        """Bring the watermarks up to date; what cannot be read was told as the stream's error."""
        with suppress(Exception):  # no figure in a report may end a look
            words = self._watermarks.look(
                now,
                now_ms,
                cut=self._cutter.position,
                flying=self._flying,
                published=self.progress.next_offset,
            )
            if words is not None:
                self.progress.notices.append(words)

    def finished(self, uploaded: Uploaded, now: float) -> None:
        """An upload has landed in the store."""
        self._flying.remove(uploaded.key.first_offset)
        self._moved_at = now
        self.progress.fragments += 1
        self.progress.bytes += uploaded.size
        self._strangers.uploaded(uploaded.key)
        if self._suspect_at is not None and self._cutter.position > self._suspect_at:
            self._suspect_at = None
            self._outdated, self._joins = self._outdated or self._joins, False

    def failed(self, piece: Slice, error: ColdstreamError, now: float) -> None:
        """An upload has failed for good: cut again from it, up to the chunk at fault if one is."""
        self._flying.remove(piece.first_offset)
        self._moved_at = now
        self._cutter.position = min(self._cutter.position, piece.first_offset)
        if isinstance(error, CorruptDataError) and error.offset is not None:
            at = max(error.offset, piece.first_offset)
            self._blocked_at = at if self._blocked_at is None else min(self._blocked_at, at)
            self._retry_at = now + self.settings.rescan_seconds
            self.progress.error = self._explained(error)
            self._cutter.remaining = True
        else:
            self._fail(error, now)

    def _fail(self, error: ColdstreamError, now: float) -> None:
        error.located(stream=self.log.stream)
        self.progress.error = self._explained(error)
        seconds = self.settings.rescan_seconds
        self._retry_at = now + seconds if not self.lanes else self.lanes.again_at(now, seconds)
        self._cutter.remaining = True
        self._outdated = self._claim.epoch != 0

    def _explained(self, error: ColdstreamError) -> ColdstreamError:
        return explained(error, self.log, place(self.settings, self.context.prefix))

    def _limit(self) -> int:
        limits = (self.committed.limit(self.log.stream), self._blocked_at, self._until)
        return min(each for each in limits if each is not None)

    def _open(self, now: float) -> bool:
        """Anchor and claim the stream; False while it has no committed chunk."""
        if self.held is not None and self.progress.gone is None:
            # What a new epoch has cut off must not be taken for what retention has removed.
            self.held.forget(self.log.directory)
            self._hold()
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
        self._unproved = opened is None and bool(self.log.chunks_near(_END, committed=_END))
        if opened is None:
            return False
        report = opened.report
        self._claim = OwnClaim(opened.epoch, opened.shift, opened.ledger)
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
        self._cutter.restart_at(offset)
        self.progress.cut_offset = offset

    def _cut(self, now: float, now_ms: int, most: int, jobs: list[Job]) -> None:
        """Put up to `most` slices into `jobs`. Each counts as under way from then on."""
        limit, cutter = self._limit(), self._cutter
        segments = self.log.segments()
        if not segments:
            return
        if segments[0] > cutter.position:
            self._go_on_behind_the_gap(segments[0], limit, now)
            return
        hurry = self._blocked_at is not None or self.progress.gone is not None
        look = Look(now, now_ms, limit, most, flush=self.settings.once or hurry)
        try:
            self._outdated |= cutter.cut(segments, self._claim, look, jobs)
        finally:
            self._flying += [job.piece.first_offset for job in jobs]
            if jobs:
                self._moved_at = now
                self.progress.cut_offset = cutter.position

    def _go_on_behind_the_gap(self, begin: int, limit: int, now: float) -> None:
        """The local log begins above all that was cut: see what is really missing."""
        self._cutter.remaining = True
        if self._flying:
            return  # what is on its way may be what is missing
        self.log.check_indexes(self._cutter.position)
        there = self._gaps.bridge(self._claim.epoch, begin, committed=limit, to_log=True)
        self.progress.next_offset = there.next_offset
        if there.epoch != self._claim.epoch:
            self._outdated = True
            return
        self._restart_at(there.position)
        self._cutter.hole_end = there.position if there.waiting else None
        self._moved_at = now

    def _hold(self) -> None:
        """Keep what is not durable yet readable, whatever the broker removes."""
        if self.held is not None and self.progress.gone is None and not self.settings.once:
            proved = self.committed.limit(self.log.stream)
            segments, durable = self.log.segments(), self.progress.next_offset
            self.held.keep(self.log.directory, segments, durable, proved=proved)

    def _tell_standstill(self, now: float) -> None:
        """Say of a stream that waits and makes no progress that it does, every few minutes."""
        self._standing.look(
            now,
            in_flight=len(self._flying),
            position=self._cutter.position,
            waits=self._cutter.remaining or self._outdated,
        )

    def _watch_quietly(self, now: float) -> None:
        """Watch a stream that waits for another try; its first fault stays the one that is told."""
        if self._claim.epoch == 0 or self.progress.next_offset >= self._cutter.position:
            return
        try:
            self._watch(now)
        except Exception:
            self._gave_up = True

    def _watch(self, now: float) -> None:
        """See how far the manifest has followed, and help it if it does not."""
        level = self.progress.next_offset >= self._cutter.position
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
        if item.epoch > self._claim.epoch:
            self._outdated = True
            return
        if item.ledger.floor(self._claim.epoch) != self._claim.ledger.floor(self._claim.epoch):
            # Rebuilt, or an older root was adopted: no commit takes what this claim uploads.
            if now - self._reclaimed_at >= self.settings.rescan_seconds:
                self._outdated, self._reclaimed_at = True, now
            return
        if item.next_offset > self.progress.next_offset:
            self.progress.next_offset = item.next_offset
            self._moved_at = now
            self._catch_up.followed(now, moved=True)
            if item.next_offset > self._cutter.position and not self._flying:
                self._restart_at(item.next_offset)  # another agent of this epoch is ahead
        if self.progress.next_offset >= self._cutter.position:
            self._catch_up.followed(now, moved=True)
            if not level:
                self.progress.durable_seconds = now - self.started
            return
        flying = bool(self._flying)
        if not self._catch_up.due(now, moved_at=self._moved_at, in_flight=flying):
            return
        again = self._catch_up.help(item, self._cutter.position, now, in_flight=flying)
        if again is not None:
            behind = self.progress.cut_offset
            self._restart_at(again)
            self.progress.cut_offset = behind
