"""When the agent looks at a stream again, and when one run is done with it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.stream.state import Course, Waiting
from coldstream.errors import FencedError

#: A stream whose manifest has all that the log has is looked at this often, seconds: an undo may
#: have cut off what was there. It can wait, since local retention takes nothing of a log at rest.
LEVEL_SECONDS = 7200.0
#: A stream that waits is looked at this often, so that a standstill is told in time, seconds.
_STANDING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Reasons:
    """What else may ask for a look. Times are monotonic seconds.

    Attributes:
        stands_by: it is another node's work.
        turn_at: when one that stands by looks at the manifest.
        compare_at: when what others have uploaded is compared.
        more: more can be cut at once.
        ripe_at: when what waits is cut though its fragment is not full; None if nothing waits.
        unproved: something waits that is not known to be committed.
        ask_at: when it is worth asking again whether it is.
        stands: it makes no progress, and is to be told.
    """

    stands_by: bool
    turn_at: float
    compare_at: float
    more: bool
    ripe_at: float | None
    unproved: bool
    ask_at: float
    stands: bool


def wake_at(course: Course, now: float, reasons: Reasons, *, once: bool) -> float:
    """When a look is needed although no file has changed, monotonic seconds; `now` for soon.

    Args:
        course: of the stream.
        now: monotonic seconds.
        reasons: to look.
        once: one run looks all the time.
    """
    failed, state = now < course.until, course.state
    behind = course.claim.epoch > 0 and not course.level
    if once or behind or (not failed and (course.over or reasons.more or course.vanished)):
        return now
    if reasons.stands_by:
        times = [now + LEVEL_SECONDS, reasons.turn_at]
    else:
        times = [course.watched_at + LEVEL_SECONDS, reasons.compare_at]
    if failed:
        times.append(course.until)
    elif reasons.ripe_at is not None:
        times.append(reasons.ripe_at)
    if reasons.unproved or (isinstance(state, Waiting) and state.unproved):
        times.append(reasons.ask_at)
    if reasons.stands:
        times.append(now + _STANDING_SECONDS)
    return max(now, min(times))


def settled(course: Course, *, more: bool, hopeless: bool) -> bool:
    """Whether nothing is under way: all is in the manifest, or something failed.

    Args:
        course: of the stream.
        more: more can be cut at once.
        hopeless: the manifest follows whatever is tried.
    """
    if course.flying:
        return False
    if isinstance(course.error, FencedError):
        return True  # no commit takes what was uploaded under the claim that is over
    if course.error is not None:
        # What was uploaded before the fault may still be on its way into the manifest. A hole
        # is not: it waits for what has not been uploaded.
        followed = course.level or course.position == course.hole_end
        return course.claim.epoch == 0 or followed or course.gave_up or hopeless
    return not course.over and not more and course.level
