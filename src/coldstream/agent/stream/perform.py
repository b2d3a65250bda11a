"""Does what `step` decides, one effect at a time: reads, claims, cuts, asks, holds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from coldstream.agent.broker.committed import CommittedOffsets
from coldstream.agent.broker.members import LastCopy, Members
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.lanes import Lanes
from coldstream.agent.sending.slices import Job
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream import division
from coldstream.agent.stream.catch_up import CatchUp
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.cutting import Cutter, Look
from coldstream.agent.stream.effects import (
    BeginsAbove,
    Bridge,
    Claimed,
    Compare,
    Cut,
    CutTo,
    Effect,
    Event,
    Follow,
    Help,
    Helped,
    Hold,
    OpenStream,
    ReadItem,
    ReadTurn,
    Rest,
    Restart,
    Rested,
    Salvaging,
    Seen,
    TellTakeOver,
    TurnRead,
    Unclaimed,
    Watch,
    Watching,
)
from coldstream.agent.stream.gaps import Gaps
from coldstream.agent.stream.opening import open_stream
from coldstream.agent.stream.salvage import Salvage
from coldstream.agent.stream.state import Course
from coldstream.agent.stream.strangers import Strangers
from coldstream.agent.telling.progress import Notices, of_take_over
from coldstream.errors import UnavailableError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.names import MAX_OFFSET
from coldstream.ports import ClaimFunction, CommitRequests
from coldstream.remote.context import Context


@dataclass(slots=True)
class Performer:
    """Performs the effects of one stream. Its arguments are those of `StreamFollower`.

    Attributes:
        cutter: knows how far it is cut, and what waits.
        catch_up: makes the manifest follow.
        strangers: compares what others have uploaded.
        gaps: goes on where something is missing.
        salvage: has what brokers have lost uploaded before a claim.
        notices: what a person should know although the stream goes on.
        holes: ranges [first, next) that were declared lost, oldest first.
    """

    context: Context
    log: StreamLog
    committed: CommittedOffsets
    settings: AgentSettings
    requests: CommitRequests | None
    function: ClaimFunction
    names: Mapping[str, QueueName]
    pause: Callable[[int], None]
    members: Members | None
    held: Held | None
    lanes: Lanes | None
    cutter: Cutter = field(init=False)
    catch_up: CatchUp = field(init=False)
    strangers: Strangers = field(init=False)
    gaps: Gaps = field(init=False)
    salvage: Salvage = field(init=False)
    _commits: Commits = field(init=False)
    _joined: bool = field(init=False, default=False)
    _newest: int | None = field(init=False, default=None)  # segment at the last look

    def __post_init__(self) -> None:
        context, log, settings = self.context, self.log, self.settings
        members = self.members or (LastCopy() if settings.last_copy else None)
        self._commits = Commits(context, self.function, log.stream, self.pause)
        self.gaps = Gaps(context, self._commits, log, members, self.pause)
        self.salvage = Salvage(
            context, self._commits, log, self._new_cutter, self.held, self.notices
        )
        every = 0.0 if settings.once else settings.compare_seconds
        self.cutter = self._new_cutter()
        self.strangers = Strangers(context, log, every, self.notices)
        self.catch_up = CatchUp(
            context, log.stream, settings, self.requests, self._commits, self.notices
        )

    @property
    def notices(self) -> Notices:
        """As the class says."""
        return self.gaps.notices

    @property
    def holes(self) -> list[tuple[int, int]]:
        """As the class says."""
        return self.gaps.holes

    def _new_cutter(self) -> Cutter:
        return Cutter(self.log, self.settings, self.lanes)

    def steer(self, settings: AgentSettings) -> None:
        """Go on with other settings."""
        self.settings = self.cutter.settings = self.catch_up.settings = settings

    def perform(
        self, effect: Effect, course: Course, seen: Seen, jobs: list[Job]
    ) -> Iterator[Event]:
        """Do one thing; what came of it.

        Args:
            effect: what.
            course: of the stream.
            seen: what the look is done under.
            jobs: takes what is cut.

        Raises:
            ColdstreamError, OSError: it cannot be done.
        """
        self.gaps.now, self.gaps.vanished_at = seen.now, course.vanished_at
        self.gaps.patience = patience = self._patience()
        # One that stands by comes to its own look as much later, and its time begins then.
        self.gaps.turn = patience if seen.writer else 0.0
        self.salvage.note(seen.epoch, seen.committed)
        match effect:
            case Cut():
                yield from self._cut(effect, course, seen, jobs)
            case OpenStream(limit):
                yield self._open(limit, course, seen, jobs)
            case Restart(offset):
                self.cutter.restart_at(offset)
            case Bridge(epoch, begin, limit):
                self.log.check_indexes(course.position)
                yield self.gaps.bridge(epoch, begin, committed=limit, to_log=True)
            case ReadTurn():
                item = self.context.catalog.get(self.log.stream)
                self.gaps.see_first(item)
                yield TurnRead() if item is None else TurnRead(item.next_offset, item.epoch, True)
            case TellTakeOver(seconds):
                self.notices.append(of_take_over(self.log.stream, course.next_offset, seconds))
            case Rest():
                yield self._rest(course, seen)
            case Watch():
                yield Watching(self.catch_up.trying)
            case ReadItem():
                item = self.context.catalog.get(self.log.stream)
                if item is None:
                    raise UnavailableError("the stream's item is gone", stream=self.log.stream)
                yield item
            case Follow(moved):
                self.catch_up.followed(seen.now, moved=moved)
            case Help(item):
                yield Helped(self._help(item, course, seen))
            case Hold():
                self._hold(course)
            case Compare(epoch, limit):
                self.strangers.look(epoch, course.next_offset, limit, seen.now)

    def _cut(self, effect: Cut, course: Course, seen: Seen, jobs: list[Job]) -> Iterator[Event]:
        segments, cutter = self.log.segments(), self.cutter
        if not segments:
            return
        begin, held = segments[0], self.held
        if held is not None:
            begin = held.begin(self.log.directory, segments, cutter.position)
        if begin > cutter.position:
            cutter.remaining = True
            if held is not None and begin > segments[0]:
                if not course.level:
                    return  # what is held below it is not durable yet
                held.release(self.log.directory, begin)
            yield BeginsAbove(begin)
            return
        if course.position <= course.next_offset and self._goes_on(segments, course.position):
            self._joined, self._newest = True, segments[-1]
        look = Look(
            now=seen.now,
            now_ms=seen.now_ms,
            limit=effect.limit,
            most=effect.most,
            flush=effect.hurry,
            hole_end=effect.hole_end,
        )
        fault, over = None, False
        try:
            over = cutter.cut(segments, effect.claim, look, jobs)
        except Exception as exc:  # noqa: BLE001 - raised once it is said what was cut
            fault = exc
        yield CutTo(cutter.position, tuple(job.piece.first_offset for job in jobs), over)
        if fault is not None:
            raise fault

    def _open(self, limit: int, course: Course, seen: Seen, jobs: list[Job]) -> Event:
        """Anchor and claim the stream, once all is uploaded that the claim would leave behind."""
        if self.held is not None and not course.vanished:
            # What a new epoch has cut off must not be taken for what retention has removed; but
            # what that removed while the remote tier did not answer is nowhere else.
            if limit:  # else nothing is claimed
                self.held.doubt(self.log.directory, epoch=seen.epoch)
            self._hold(course)
            self._show_gap(self.held, course)
        look = Look(seen.now, seen.now_ms, limit, seen.most, flush=True, hole_end=None)
        if self.salvage.cut(look, jobs):
            return Salvaging(tuple(job.piece.first_offset for job in jobs))
        opened = open_stream(
            self.context,
            self._commits,
            self.log,
            self.gaps,
            self.salvage,
            limit=limit,
            settings=self.settings,
            name=self.names.get(self.log.stream, QueueName()),
        )
        if opened is None:
            return Unclaimed(bool(self.log.chunks_near(MAX_OFFSET, committed=MAX_OFFSET)))
        self.catch_up.opened(seen.now, moved=opened.report.commits > 0)
        self.strangers.opened(opened.claimed_at, seen.now)
        return Claimed(opened)

    def _show_gap(self, held: Held, course: Course) -> None:
        """Let go of what is durable below a gap: the claim would see the log begin with it.

        What an older writer has uploaded in the gap must be taken before the claim, or never is.
        """
        directory, segments = self.log.directory, self.log.segments()
        if not segments or not held.any_removed(directory):
            return
        item = self.context.catalog.get(self.log.stream)
        if item is None:
            return
        begin = held.begin(directory, segments, item.next_offset)
        if begin <= max(item.next_offset, segments[0]):
            return
        near, shift = self.log.chunks_near(begin, committed=MAX_OFFSET), course.claim.shift
        if any(each.chunk_id < begin and each.epoch + shift > item.epoch for each in near):
            return  # it is in no manifest, and shows that this one is of another history
        held.release(directory, begin)

    def _goes_on(self, segments: Sequence[int], position: int) -> bool:
        """Whether the broker's own log has a position: what is only held may end before it."""
        at = bisect_right(segments, position)
        return at > 0 and self.log.is_there(segments[at - 1])

    def see_log(self) -> None:
        """Notice that the broker has made the log anew, or was faster than the looks.

        A replica whose node was away begins where the others' logs do.
        """
        if not self._joined:
            return
        with suppress(Exception):  # whatever it is, the look says so
            segments = self.log.segments()
            if segments and segments[-1] != self._newest:
                if self._newest is not None and not self.log.is_there(self._newest):
                    self._joined = False
                self._newest = segments[-1]

    def _patience(self) -> float:
        """How long another node's agent may take to act for this one, seconds.

        Only while this one has not had what joins the manifest: later it holds what goes itself.
        """
        if self.settings.once or self._joined:
            return 0.0
        return division.patience(self.settings)

    def _rest(self, course: Course, seen: Seen) -> Rested:
        self.cutter.rest_at(course.next_offset)
        known, limit = self.committed.known(self.log.stream), course.limit(seen.committed)
        return Rested(not known.whole and self.log.end() > limit)

    def _help(self, item: CatalogItem, course: Course, seen: Seen) -> int | None:
        flying = bool(course.flying)
        if not self.catch_up.due(seen.now, moved_at=course.moved_at, in_flight=flying):
            return None
        return self.catch_up.help(item, course.position, seen.now, in_flight=flying)

    def _hold(self, course: Course) -> None:
        """Keep what is not durable yet readable, whatever the broker removes."""
        if self.held is not None and not course.vanished and not self.settings.once:
            proved = self.committed.limit(self.log.stream)
            segments, durable = self.log.segments(), course.next_offset
            self.held.keep(self.log.directory, segments, durable, proved=proved)
