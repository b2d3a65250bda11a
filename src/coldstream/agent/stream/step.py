"""What the agent does next with one stream: `step(course, seen, event) -> (course, effects)`, pure.

A look at a stream begins with `Begun`. Whoever performs an effect hands back what came of it as an
event, and performs what follows from it before the effects that were left; `Failed` ends the look
but for what follows from it. Uploads come back between two looks (`between`).
Whatever a stream waits for, its files are held: the broker goes on to remove the oldest.
"""

from __future__ import annotations

from dataclasses import replace

from coldstream.agent.stream import division
from coldstream.agent.stream.between import failing, outdated
from coldstream.agent.stream.cutting import OwnClaim
from coldstream.agent.stream.due import LEVEL_SECONDS
from coldstream.agent.stream.effects import (
    BeginsAbove,
    Begun,
    Bridge,
    Claimed,
    Compare,
    Cut,
    CutTo,
    Effect,
    Event,
    Failed,
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
from coldstream.agent.stream.gaps import Bridged
from coldstream.agent.stream.opening import Opened
from coldstream.agent.stream.state import (
    Behind,
    Blocked,
    Course,
    Cutting,
    Draining,
    Gone,
    Open,
    Opening,
    Suspect,
    Waiting,
)
from coldstream.errors import UnavailableError
from coldstream.manifest.catalog import CatalogItem

Next = tuple[Course, tuple[Effect, ...]]


def step(course: Course, seen: Seen, event: Event) -> Next:
    """What a stream comes to by an event, and what to do before all that was still to be done."""
    match event:
        case Begun():
            return _begun(course, seen)
        case TurnRead():
            return _turn_read(course, seen, event)
        case Rested(unproved):
            return _rested(course, unproved)
        case Unclaimed(unproved):
            return replace(course, state=Waiting(unproved=unproved)), ()
        case Salvaging(begun):
            return replace(course, flying=(*course.flying, *begun), moved_at=seen.now), ()
        case Claimed(opened):
            return _claimed(course, seen, opened)
        case CutTo():
            return _cut_to(course, seen, event)
        case BeginsAbove(begin):
            return _begins_above(course, seen, begin)
        case Bridged():
            return _bridged(course, seen, event)
        case Watching(trying):
            return _watching(course, seen, trying)
        case CatalogItem():
            return _item_read(course, seen, event)
        case Helped(again):
            return _helped(course, again)
        case Failed():
            return _failed(course, seen, event)


def _begun(course: Course, seen: Seen) -> Next:
    by = _is_by(course, seen)
    waits = [seen.oldest_at] if by else []
    if by or (isinstance(course.state, Waiting) and not (seen.settings.once or course.vanished)):
        # Perhaps the manifest has long had what this node's broker does not prove.
        waits.append(seen.unproved_at)
    since = min((each for each in waits if each is not None), default=None)
    due_at = division.due_at(course.turn, since, seen.settings)
    if by and _may_be_first(course, seen):
        due_at = seen.now
    if seen.now >= max(due_at, course.until):
        return course, (ReadTurn(),)
    return _rest(course) if by else _work(course, seen)


def _may_be_first(course: Course, seen: Seen) -> bool:
    """Whether the stream would begin with this log, although that has lost the beginning.

    Who stands by begins to wait for others as soon as it has seen its log, and not at its turn:
    else one that has less would be the first.
    """
    return seen.committed > seen.begin > 0 and not course.there


def _is_by(course: Course, seen: Seen) -> bool:
    return stands_by(course, seen.writer, seen.now, once=seen.settings.once)


def _turn_read(course: Course, seen: Seen, there: TurnRead) -> Next:
    """The writer's agent lives where the manifest has moved; else its work is done here."""
    by, idle = _is_by(course, seen), seen.oldest_at is None
    moved = (there.next_offset, there.epoch) != (course.next_offset, course.epoch)
    end, epoch = there.next_offset, there.epoch
    course = replace(course, next_offset=end, epoch=epoch, read=True, there=there.there)
    first = _may_be_first(course, seen)
    moved_on = moved or idle or first or not by
    turn = division.looked(course.turn, seen.now, seen.settings, moved=moved_on)
    course = replace(course, turn=turn)
    if first or not by:
        return _work(course, seen)
    if moved or idle:
        return _rest(course)
    course, effects = _work(course, seen)
    return course, (TellTakeOver(division.acts_for(seen.settings)), *effects)


def _rest(course: Course) -> Next:
    """Finish what was begun while it was this node's turn, and then do nothing."""
    opened = isinstance(course.state, Open)
    if course.flying or (opened and not course.level):
        return course, (Watch(), Hold())
    return course, (Rest(), Hold())


def _rested(course: Course, unproved: bool) -> Next:
    state = Waiting(course.until, unproved)
    end = course.next_offset
    return replace(course, state=state, error=None, position=end, cut_offset=end), ()


def _work(course: Course, seen: Seen) -> Next:
    course = _patient(course, seen)
    state, now = course.state, seen.now
    waits = course.until
    if isinstance(course.error, UnavailableError):
        waits = max(waits, seen.store_at)
    if now < waits and not isinstance(state, Blocked):
        watches = course.claim.epoch and not course.level
        return course, (Watch(), Hold()) if watches else (Hold(),)
    if isinstance(state, Blocked) and now >= waits and not seen.settings.once:
        state = Cutting(state.claim, Suspect(state.at))  # perhaps the file was mended
        course = replace(course, state=state)
    if isinstance(state, Open):
        if not _is_overtaken(course, seen):
            return _cut(course, seen)
        course = outdated(course)
    if course.flying or isinstance(state, Gone):
        return course, (Hold(),)
    opening = Opening(course.claim, course.suspect)
    return replace(course, state=opening), (OpenStream(course.limit(seen.committed)),)


def _is_overtaken(course: Course, seen: Seen) -> bool:
    """Whether a newer epoch than the claim's has written below the end of the manifest.

    All members have lost what the manifest has from there on. What they write in its place may stay
    shorter for long, and nothing of it lies where the stream is cut next.
    """
    claim = course.claim
    return seen.epoch > claim.epoch - claim.shift and seen.committed <= course.position


def _patient(course: Course, seen: Seen) -> Course:
    """A stream that failed for the store's sake waits until the store is worth asking."""
    state = course.state
    if isinstance(course.error, UnavailableError) and isinstance(state, Waiting | Draining):
        return replace(course, state=replace(state, until=max(state.until, seen.store_at)))
    return course


def _cut(course: Course, seen: Seen) -> Next:
    state, most = course.state, seen.most
    course, first = _look_at_gap(course, seen)
    missed = course.missed
    if missed is not None and seen.now >= missed.until:
        most = 0  # what is under way comes back first
    if isinstance(state, Blocked):
        hurry, suspect = True, None
    else:
        hurry, suspect = course.vanished, course.suspect
        course = replace(course, error=seen.stuck if missed is None else missed.error)
    if suspect is not None:
        # What lies behind it would be uploaded at every try, and committed at none.
        most = 0 if course.flying else min(most, 1)
    limit = course.limit(seen.committed)
    effects: tuple[Effect, ...] = (Watch(), Hold(), Compare(course.claim.epoch, limit))
    if most > 0 and (not course.vanished or seen.settings.upload_tail):
        hurry = hurry or seen.settings.once
        effects = (Cut(course.claim, limit, most, hurry, course.hole_end), *effects)
    return course, (*first, *effects)


def _look_at_gap(course: Course, seen: Seen) -> Next:
    """Begin again below a gap once the time of other agents is over, if it is still one."""
    if course.missed is None:
        return course, ()
    if course.hole_end is None or course.next_offset >= course.hole_end:
        return replace(course, missed=None), ()
    if seen.now < course.missed.until or course.flying:
        return course, ()
    at = course.next_offset
    return replace(course, position=at, hole_end=None, missed=None), (Restart(at),)


def _claimed(course: Course, seen: Seen, opened: Opened) -> Next:
    report, suspect, pending_from = opened.report, course.suspect, course.pending_from
    if report.waiting:
        # Of fragments that land out of order the second could make a hole count over the first.
        suspect = Suspect(report.next_offset, joins=suspect is not None and suspect.joins)
    elif opened.waits_at is not None:
        # Something below it could not be uploaded. If that is still so, what lies behind it
        # must not be uploaded by every run; if not, the next claim takes what waits.
        suspect = Suspect(opened.waits_at - 1, joins=pending_from != report.next_offset)
        pending_from = report.next_offset
    claim = OwnClaim(opened.epoch, opened.shift, opened.ledger)
    end = report.next_offset
    course = replace(
        course,
        state=Cutting(claim, suspect),
        next_offset=end,
        epoch=opened.epoch,
        position=end,
        cut_offset=end,
        pending_from=pending_from,
        missed=None,
        moved_at=seen.now,
        watched_at=seen.now,
        read=True,
        there=True,
    )
    course, effects = _cut(course, seen)
    return course, (Restart(end), *effects)


def _cut_to(course: Course, seen: Seen, event: CutTo) -> Next:
    course = replace(course, position=event.position)
    if event.begun:
        flying = (*course.flying, *event.begun)
        course = replace(course, flying=flying, moved_at=seen.now, cut_offset=event.position)
    return (outdated(course) if event.over else course), ()


def _begins_above(course: Course, seen: Seen, begin: int) -> Next:
    """See what is really missing; but what is on its way may be just that."""
    if course.flying:
        return course, ()
    limit = course.limit(seen.committed)
    return course, (Bridge(course.claim.epoch, begin, limit),)


def _bridged(course: Course, seen: Seen, there: Bridged) -> Next:
    course = replace(course, next_offset=there.next_offset)
    if there.epoch != course.claim.epoch:
        return outdated(course), ()
    at = there.position
    course = replace(
        course,
        position=at,
        cut_offset=at,
        hole_end=at if there.waiting else None,
        missed=there.missed,
        error=course.error if there.missed is None else there.missed.error,
        moved_at=seen.now,
    )
    return course, (Restart(at),)


def _watching(course: Course, seen: Seen, trying: bool) -> Next:
    """See how far the manifest has followed, if it is time to."""
    effects: tuple[Effect, ...] = ()
    since = seen.now - course.watched_at
    if course.level and not trying:
        effects = (Follow(moved=False),)
        if seen.settings.once or since < LEVEL_SECONDS:
            return course, effects  # later it is seen whether an undo has cut off what was there
    if since < seen.settings.watch_seconds:
        return course, effects
    return replace(course, watched_at=seen.now), (*effects, ReadItem())


def _item_read(course: Course, seen: Seen, item: CatalogItem) -> Next:
    epoch, now = course.claim.epoch, seen.now
    if item.epoch > epoch:
        return outdated(course), ()
    if item.ledger.floor(epoch) != course.claim.ledger.floor(epoch):
        # Rebuilt, or an older root was adopted: no commit takes what this claim uploads.
        if now - course.reclaimed_at >= seen.settings.rescan_seconds:
            course = outdated(replace(course, reclaimed_at=now))
        return course, ()
    lacks_super_stream = seen.super_stream and not item.name.super_stream
    lacks_name = lacks_super_stream or (seen.named and not item.name.queue)
    if lacks_name and now - course.reclaimed_at >= LEVEL_SECONDS:
        # A super stream is made partition by partition, and bound last: at the claim it was none.
        # And which of two queues it was, may have been seen only later.
        return outdated(replace(course, reclaimed_at=now)), ()
    effects: tuple[Effect, ...] = ()
    if item.next_offset > course.next_offset:
        course = replace(course, next_offset=item.next_offset, moved_at=now)
        effects = (Follow(moved=True),)
        if item.next_offset > course.position and not course.flying:
            at = item.next_offset  # another agent of this epoch is ahead
            course = replace(course, position=at, cut_offset=at)
            effects = (*effects, Restart(at))
    if course.level:
        return course, (*effects, Follow(moved=True))
    if course.missed is not None:
        return course, effects  # what is uploaded has nothing to follow yet
    return course, (*effects, Help(item))


def _helped(course: Course, again: int | None) -> Next:
    """What is cut a second time still counts as cut."""
    if again is None:
        return course, ()
    return replace(course, position=again), (Restart(again),)


def _failed(course: Course, seen: Seen, event: Failed) -> Next:
    if seen.now < course.until and not isinstance(course.state, Blocked):
        # The first fault stays the one that is told.
        return replace(course, gave_up=True), (Hold(),)
    return failing(course, event.error, event.again_at), (Hold(),)


def placed(course: Course, *, more: bool) -> Course:
    """Whether a stream that is open is behind, once it was looked at.

    Args:
        course: of the stream.
        more: whether more can be cut at once.
    """
    match course.state:
        case Cutting(claim, suspect) if not more and not course.level:
            return replace(course, state=Behind(claim, suspect))
        case Behind(claim, suspect) if more or course.level:
            return replace(course, state=Cutting(claim, suspect))
    return course


def stands_by(course: Course, writer: bool, now: float, *, once: bool) -> bool:
    """Whether a stream is the work of another node's agent, as far as can be seen.

    Args:
        course: of the stream.
        writer: whether this node has its writer, or nobody can say.
        now: monotonic seconds.
        once: one run does all work.
    """
    if once or course.vanished or now < course.turn.acts_until:
        return False
    return not writer
