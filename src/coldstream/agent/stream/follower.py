"""One stream: looks at its directory and its manifest, and does what `step` decides.

Where it is, is one value (`state`, with a picture). A look performs effects one after the
other, and hands back what came of each. Only one thread at a time calls it; uploads report through
a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from coldstream.agent.broker.committed import CommittedOffsets
from coldstream.agent.broker.members import Members
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import (
    DamagedFileError,
    DeletedStreamError,
    LoneSegments,
    LostLocallyError,
    explained,
)
from coldstream.agent.sending.lanes import Lanes
from coldstream.agent.sending.slices import Job, Uploaded
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream import between, division, due
from coldstream.agent.stream import step as steps
from coldstream.agent.stream.effects import Begun, Effect, Event, Failed, Hold, Seen
from coldstream.agent.stream.perform import Performer
from coldstream.agent.stream.standstill import StandstillWatch
from coldstream.agent.stream.state import Course, Gone
from coldstream.agent.telling.progress import Gone as GoneStream
from coldstream.agent.telling.progress import Progress, of_gone, place, translated
from coldstream.agent.telling.watermarks import WatermarkWatch
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    DivergedError,
    FencedError,
    ForeignBucketError,
    LostRangeError,
)
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.names import MAX_OFFSET
from coldstream.plans.cut import Slice
from coldstream.ports import ClaimFunction, CommitRequests
from coldstream.remote.context import Context

#: What no waiting mends, once a stream is deleted: a refusal of the store may end, too.
_LASTING = (
    DamagedFileError,
    DeletedStreamError,
    DivergedError,
    FencedError,
    ForeignBucketError,
    LostRangeError,
)


@dataclass(slots=True)
class StreamFollower:
    """Follows one stream directory.

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

    Attributes:
        progress: for reports.
        course: where it is.
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
    course: Course = field(default_factory=Course)
    _performer: Performer = field(init=False)
    _standing: StandstillWatch = field(init=False)
    _watermarks: WatermarkWatch = field(init=False)
    _lone: LoneSegments = field(default_factory=LoneSegments)
    _ask_at: float = 0.0  # when it is worth asking again what is committed

    def __post_init__(self) -> None:
        self._performer = Performer(
            context=self.context,
            log=self.log,
            committed=self.committed,
            settings=self.settings,
            requests=self.requests,
            function=self.function,
            names=self.names,
            pause=self.pause,
            members=self.members,
            held=self.held,
            lanes=self.lanes,
        )
        holes, notices = self._performer.holes, self._performer.notices
        self.progress = Progress(self.log.stream, holes=holes, notices=notices)
        marks = self.progress.marks
        self._watermarks = WatermarkWatch(self.log, self.committed, self.settings, marks)
        self._standing = StandstillWatch(self.log, self.committed, self.settings, self.progress)

    # --- a look ---

    def step(self, now: float, now_ms: int, *, most: int) -> list[Job]:
        """Look at the directory and the manifest; give at most `most` slices to upload.

        Never raises: a fault is `progress.error`, and what was cut before it is given all the same.

        Args:
            now: monotonic seconds.
            now_ms: the wall clock, ms since the Unix epoch, as chunk timestamps have it.
            most: how many uploads may start.
        """
        jobs: list[Job] = []
        if self._performer.catch_up.hopeless:
            return jobs
        try:
            seen = self._see(now, now_ms, most)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is this stream's
            self.trouble(exc, now)
        else:
            self._look(seen, jobs)
        self._mark(now, now_ms)
        self._tell_standstill(now)
        return jobs

    def _see(self, now: float, now_ms: int, most: int) -> Seen:
        stream = self.log.stream
        if self.course.vanished:
            sure = 0 if self.held is None else self.held.sure(self.log.directory)
            self.committed.conclude(self.log, sure)
        else:
            self._ask_at = self.committed.refresh(stream, now)
        self.note_end()
        known = self.committed.known(stream)
        return Seen(
            now=now,
            now_ms=now_ms,
            most=most,
            committed=self.committed.limit(stream),
            writer=known.writer,
            oldest_at=self._watermarks.oldest_at,
            unproved_at=self._watermarks.unproved_at,
            store_at=now if self.lanes is None else self.lanes.later(now),
            stuck=self._performer.catch_up.stuck,
            settings=self.settings,
            epoch=known.epoch,
            super_stream=known.super_stream,
            named=known.named,
            begin=0 if known.writer or self.course.there else self._begin(),
        )

    def _begin(self) -> int:
        return next(iter(self.log.segments()), 0)

    def _look(self, seen: Seen, jobs: list[Job]) -> None:
        """Do what is to be done; what is cut is in `jobs`, whatever fails behind it."""
        self._performer.see_log()
        left = self._note(seen, Begun())
        while left:
            effect, *left = left
            try:
                for event in self._performer.perform(effect, self.course, seen, jobs):
                    left = [*self._note(seen, event), *left]
            except Exception as exc:  # noqa: BLE001 - this stream's; what was cut is uploaded
                after = self._note(seen, self._failure(exc, seen.now))
                left = [] if isinstance(effect, Hold) else after
        self.course = steps.placed(self.course, more=self._performer.cutter.remaining)

    def _note(self, seen: Seen, event: Event) -> list[Effect]:
        level = self.course.level
        self.course, effects = steps.step(self.course, seen, event)
        if isinstance(event, CatalogItem) and self.course.level and not level:
            self.progress.durable_seconds = seen.now - self.started
        self._tell()
        return list(effects)

    def _tell(self) -> None:
        """Bring what is reported, and where it is cut, up to the course."""
        progress, course = self.progress, self.course
        progress.next_offset, progress.cut_offset = course.next_offset, course.cut_offset
        progress.error = course.error

    def _mark(self, now: float, now_ms: int) -> None:
        """Bring the watermarks up to date; what cannot be read was told as the stream's error."""
        with suppress(Exception):  # no figure in a report may end a look
            words = self._watermarks.look(
                now,
                now_ms,
                cut=self.course.position,
                flying=self.course.flying,
                published=self.course.next_offset if self._knows_the_end(now) else None,
                epoch=self.course.epoch,
            )
            if words is not None:
                self.progress.notices.append(words)

    def _knows_the_end(self, now: float) -> bool:
        """Whether the manifest was read; or should have been long ago, so that nothing is in it.

        A stand-by reads it when the writer's agent should have uploaded. Who never gets to it must
        not seem to have no lag.
        """
        settings = self.settings
        soon = 2 * (settings.flush_ms / 1000 + settings.takeover_seconds)
        return self.course.read or now - self.started > max(settings.standstill_seconds, soon)

    def _tell_standstill(self, now: float) -> None:
        """Say of a stream that waits and makes no progress that it does, every few minutes."""
        self._standing.look(
            now,
            in_flight=len(self.course.flying),
            position=self.course.position,
            waits=self._performer.cutter.remaining or self.course.over,
        )

    # --- between two looks ---

    def finished(self, uploaded: Uploaded, now: float) -> None:
        """An upload has landed in the store."""
        self.course = between.landed(self.course, uploaded.key.first_offset, now)
        self.progress.fragments += 1
        self.progress.bytes += uploaded.size
        self._performer.strangers.uploaded(uploaded.key)
        self._tell()

    def failed(self, piece: Slice, error: ColdstreamError, now: float) -> None:
        """An upload has failed for good: cut again from it, up to the chunk at fault if one is."""
        if piece.next_offset <= self.course.next_offset and not isinstance(error, CorruptDataError):
            # Another agent's is published, so what was held for this one was let go.
            before = self.course.position
            self.course = between.overtaken(self.course, piece.first_offset, now)
            if self.course.position != before:
                self._performer.cutter.restart_at(self.course.position)
            self._tell()
            return
        self._performer.salvage.failed(piece.first_offset, error)
        failure = self._failure(error, now)
        self.course = between.given_back(
            self.course, piece.first_offset, failure.error, now, failure.again_at
        )
        self._performer.cutter.position = self.course.position
        self._tell()

    def trouble(self, exc: Exception, now: float) -> None:
        """It could not be looked at."""
        failure = self._failure(exc, now)
        self.course = between.failing(self.course, failure.error, failure.again_at)
        self._tell()

    def _failure(self, exc: Exception, now: float) -> Failed:
        error = translated(exc, self.log)
        error.located(stream=self.log.stream)
        # Its frames hold the course before, whose error's hold the one before that, and so on.
        error.__traceback__ = exc.__traceback__ = None
        if not self.settings.once:
            error = self._lone.judged(error, now, anew=self.course.error is None)
        where = place(self.settings, self.context.prefix)
        seconds = self.settings.rescan_seconds
        if not self.settings.once:  # others wait for this one in take-over times (`division`)
            seconds = min(seconds, self.settings.takeover_seconds)
        again_at = now + seconds if not self.lanes else self.lanes.again_at(now, seconds)
        if isinstance(exc, LostLocallyError) and exc.until is not None:
            again_at = min(again_at, max(exc.until, now))  # whoever has more is not to be overtaken
        self._performer.cutter.remaining = True
        return Failed(explained(error, self.log, where), again_at)

    def steer(self, settings: AgentSettings) -> None:
        """Go on with other settings; not while it is stepped."""
        self.settings = self._watermarks.settings = self._standing.settings = settings
        self._performer.steer(settings)

    @property
    def ripe_at(self) -> float | None:
        """As `Cutter` says."""
        return self._performer.cutter.ripe_at

    def note_end(self) -> None:
        """With `once`: upload what is committed now, nothing above it; raises as any look does."""
        if self.course.end is None and self.settings.once:
            committed = self.committed.limit(self.log.stream)
            if committed:
                self.log.check_indexes(0)
            newest = self.log.chunks_near(MAX_OFFSET, committed=committed)
            self.course = replace(self.course, end=newest[-1].next_offset if newest else 0)

    @property
    def settled(self) -> bool:
        """Nothing is under way: all that is committed is in the manifest, or something failed."""
        return due.settled(
            self.course,
            more=self._performer.cutter.remaining,
            hopeless=self._performer.catch_up.hopeless,
        )

    def wake_at(self, now: float) -> float:
        """When a step is needed although no file has changed, monotonic seconds; `now` for soon."""
        course, cutter = self.course, self._performer.cutter
        writer, once = self.committed.known(self.log.stream).writer, self.settings.once
        reasons = due.Reasons(
            stands_by=steps.stands_by(course, writer, now, once=once),
            turn_at=division.due_at(course.turn, self._watermarks.sighted_at, self.settings),
            compare_at=self._performer.strangers.due_at(course.next_offset),
            more=cutter.remaining,
            ripe_at=cutter.ripe_at,
            unproved=cutter.unproved,
            ask_at=self._ask_at,
            stands=self._standing.waits,
        )
        return due.wake_at(course, now, reasons, once=once)

    # --- the end of a stream ---

    def vanish(self, now: float, at_ms: int) -> None:
        """The directory is gone: what is held of it is uploaded at once.

        Args:
            now: monotonic seconds.
            at_ms: the same by the wall clock, ms since the Unix epoch.
        """
        if self.progress.gone is None:
            self.progress.gone = GoneStream(at_ms)
            self.course = between.vanished(self.course, now)

    def come_back(self) -> None:
        """The directory is there again: a member was made anew, of which what is held is part."""
        self.progress.gone = None
        self.course = replace(self.course, vanished_at=None)

    def over(self, now: float) -> bool:
        """Whether the directory is gone, and nothing more of it can be uploaded; says so then.

        Args:
            now: monotonic seconds.
        """
        gone, error, course = self.progress.gone, self.course.error, self.course
        if gone is None or course.flying:
            return False
        try:
            all_there = self.log.chunks_near(MAX_OFFSET, committed=MAX_OFFSET)
            limit = course.limit(self.committed.limit(self.log.stream))
            proved = self.log.chunks_near(MAX_OFFSET, committed=limit)
        except CorruptDataError:
            all_there = proved = []  # what is held is damaged
        except Exception:  # noqa: BLE001 - too many files are open, for one: a later look tells
            if self.held is not None and self.held.holds(self.log.directory):
                return False
            all_there = proved = []
        lasting = isinstance(error, _LASTING)
        if isinstance(error, LostRangeError):
            # Who has more may be of the same queue, declared again a moment ago.
            lasting = self._performer.gaps.in_vain(now)
        behind = bool(proved) and course.next_offset < proved[-1].next_offset
        if behind and self.settings.upload_tail and not lasting:
            return False
        gone.end = all_there[-1].next_offset if all_there else None
        gone.proved = proved[-1].next_offset if proved else None
        fenced = isinstance(error, FencedError)  # no trouble: it goes on elsewhere
        elsewhere = not fenced and course.read and self._has_other_members()
        words = of_gone(self.progress, read=course.read, fenced=fenced, elsewhere=elsewhere)
        self.progress.notices.append(words)
        error = error if lasting and not fenced else None
        self.course = replace(course, state=Gone(), error=error)
        self._tell()
        return True

    def _has_other_members(self) -> bool:
        """Whether the broker knows the stream, so that only its replica here is gone."""
        with suppress(Exception):  # nobody can say
            return self.members is not None and not self.members.lone(self.log.stream)
        return False
