"""What happens to a stream between two looks: uploads come back, something fails, it is deleted."""

from __future__ import annotations

from dataclasses import replace

from coldstream.agent.stream.state import (
    NEVER,
    Behind,
    Blocked,
    Course,
    Cutting,
    Draining,
    Gone,
    Suspect,
    Waiting,
)
from coldstream.errors import ColdstreamError, CorruptDataError


def landed(course: Course, first_offset: int, now: float) -> Course:
    """An upload has landed in the store.

    Args:
        course: of the stream.
        first_offset: of the slice.
        now: monotonic seconds.
    """
    course = replace(course, flying=_without(course.flying, first_offset), moved_at=now)
    state, suspect = course.state, course.suspect
    if isinstance(state, Blocked | Waiting | Gone) or suspect is None:
        return course
    if course.position <= suspect.at:
        return course
    course = replace(course, state=replace(state, suspect=None))
    return outdated(course) if suspect.joins else course


def overtaken(course: Course, first_offset: int, now: float) -> Course:
    """An upload has failed whose range is in the manifest already.

    Args:
        course: of the stream.
        first_offset: of the slice.
        now: monotonic seconds.
    """
    course = landed(course, first_offset, now)
    if course.flying or course.next_offset <= course.position:
        return course
    return replace(course, position=course.next_offset, cut_offset=course.next_offset)


def given_back(
    course: Course, first_offset: int, error: ColdstreamError, now: float, again_at: float
) -> Course:
    """An upload has failed for good: cut again from it, up to the chunk at fault if one is.

    Args:
        course: of the stream.
        first_offset: of the slice.
        error: why.
        now: monotonic seconds.
        again_at: when it is tried again, monotonic seconds.
    """
    course = replace(
        course,
        flying=_without(course.flying, first_offset),
        moved_at=now,
        position=min(course.position, first_offset),
    )
    if not isinstance(error, CorruptDataError) or error.offset is None:
        return failing(course, error, again_at)
    at, state = max(error.offset, first_offset), course.state
    course = replace(course, error=error)
    match state:
        case Cutting() | Behind():
            return replace(course, state=Blocked(state.claim, at, again_at))
        case Blocked():
            return replace(course, state=replace(state, at=min(at, state.at), until=again_at))
        case Draining():
            return replace(course, state=replace(state, until=again_at, suspect=Suspect(at)))
    return replace(course, state=Waiting(again_at))


def failing(course: Course, error: ColdstreamError, again_at: float) -> Course:
    """Something has failed: what is under way ends, and then the stream is claimed anew.

    Args:
        course: of the stream.
        error: what.
        again_at: when it is tried again, monotonic seconds.
    """
    course = replace(course, error=error)
    if not course.claim.epoch:
        return replace(course, state=Waiting(again_at))
    return replace(course, state=Draining(course.claim, again_at, course.suspect))


def vanished(course: Course, now: float) -> Course:
    """The directory is gone: what is held of it is uploaded at once.

    Args:
        course: of the stream.
        now: monotonic seconds.
    """
    state, course = course.state, replace(course, vanished_at=now)
    if course.missed is not None:  # `Gaps` waits less for a directory that is gone
        course = replace(course, missed=replace(course.missed, until=now))
    if isinstance(state, Waiting | Draining | Blocked):
        return replace(course, state=replace(state, until=NEVER))
    return course


def outdated(course: Course) -> Course:
    """The claim must be made again, once what is under way has come back."""
    state = course.state
    if isinstance(state, Waiting | Gone | Draining):
        return course
    return replace(course, state=Draining(course.claim, suspect=course.suspect))


def _without(flying: tuple[int, ...], offset: int) -> tuple[int, ...]:
    at = flying.index(offset)
    return flying[:at] + flying[at + 1 :]
