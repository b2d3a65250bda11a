"""Looks and uploads that are under way: who begins one, and what came of it.

A stream's follower is one thread's at a time: while it looks, what came of its uploads waits. The
agent's own thread calls all of it, but for what is said to run in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from coldstream.agent.host import Host, Mailbox, Workers
from coldstream.agent.sending.persist import Uploader
from coldstream.agent.sending.slices import Job, Uploaded
from coldstream.agent.stream.follower import StreamFollower
from coldstream.agent.turns import Turns
from coldstream.errors import ColdstreamError, UnavailableError


@dataclass(frozen=True, slots=True)
class _Result:
    """What became of an upload."""

    follower: StreamFollower
    job: Job
    outcome: Uploaded | ColdstreamError


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a look at a stream has come to.

    Attributes:
        follower: of the stream.
        jobs: to upload.
        share: how many it might have had.
        over: whether the stream is gone, and nothing more is to be done for it.
    """

    follower: StreamFollower
    jobs: list[Job]
    share: int
    over: bool


@dataclass(slots=True)
class Work:
    """What is under way.

    Args:
        host: clocks, and the mailbox through which results come.
        turns: when each stream is looked at next.
        followers: of the streams.
        room: uploads that may be under way or promised.
        poll: seconds before a stream is looked at again.
        over: called with a stream that is gone, and of which all that can be is done.

    Attributes:
        jobs: uploads under way, by identity.
    """

    host: Host
    turns: Turns
    followers: Mapping[str, StreamFollower]
    room: int
    poll: Callable[[], float]
    over: Callable[[str], object]
    jobs: dict[int, Job] = field(default_factory=dict)
    _came: Mailbox[_Result | _Looked] = field(init=False)
    _numbers: Iterator[int] = field(default_factory=count)  # of looks
    _asked: set[int] = field(default_factory=set)  # looks that have not begun
    _began: dict[str, float] = field(default_factory=dict)  # looks that have
    _late: dict[str, list[_Result]] = field(default_factory=dict)  # of streams that are looked at

    def __post_init__(self) -> None:
        self._came = self.host.mailbox()

    def look(self, lookers: Workers, most: int) -> None:
        """Have every stream looked at whose time has come, those that wait longest first.

        Args:
            lookers: look.
            most: looks that may be under way, or wait for a worker.
        """
        now, turns = self.host.monotonic(), self.turns
        due = turns.take(now, most - len(turns.busy))
        among = most if turns.next_at() <= now else len(due)
        for stream in due:
            follower = self.followers[stream]
            share = max(min(1, self.room), self.room // among)
            self.room -= share
            self._asked.add(look := next(self._numbers))
            try:
                lookers.submit(self._looked, look, follower, share)
            except Exception as exc:  # noqa: BLE001 - no thread, for one; a worker may have it
                if self._begins(look):
                    follower.trouble(exc, now)
                    self._came.put(_Looked(follower, [], share, over=False))

    def lasting(self) -> dict[str, float]:
        """For how long each stream has been looked at that is, seconds."""
        now = self.host.monotonic()
        return {stream: now - began for stream, began in list(self._began.items())}

    def _begins(self, look: int) -> bool:
        """Whether a look has not begun; it has from now on."""
        try:
            self._asked.remove(look)
        except KeyError:
            return False
        return True

    def _looked(self, look: int, follower: StreamFollower, share: int) -> None:
        """In a worker: look at one stream."""
        if not self._begins(look):
            return
        self._began[follower.progress.stream] = self.host.monotonic()
        jobs = follower.step(self.host.monotonic(), self.host.now_ms(), most=share)
        self._came.put(_Looked(follower, jobs, share, follower.over(self.host.monotonic())))

    def collect(self, seconds: float, pool: Workers | None, uploader: Uploader) -> None:
        """Take in all that came.

        Args:
            seconds: to wait, if nothing did.
            pool: uploads what was cut; None where the agent ends.
            uploader: that it uses.
        """
        came = self._came.get(seconds)
        while came is not None:
            if isinstance(came, _Result):
                self._note(came)
            else:
                self._note_look(came, pool, uploader)
            came = self._came.get(0)

    def _note_look(self, looked: _Looked, pool: Workers | None, uploader: Uploader) -> None:
        follower, now = looked.follower, self.host.monotonic()
        stream = follower.progress.stream
        self._began.pop(stream, None)
        self.room += looked.share
        for job in looked.jobs:
            if pool is None:
                break
            self.room -= 1
            self.jobs[id(job)] = job
            try:
                pool.submit(self._upload, follower, job, uploader)
            except Exception as exc:  # noqa: BLE001 - no thread, for one; a worker may have it
                self._came.put(_Result(follower, job, _not_begun(job, exc)))
        if looked.over:
            self.over(stream)
        else:
            self.turns.back(stream, follower.wake_at(now), soonest=now + self.poll())
        for result in self._late.pop(stream, ()):
            self._note(result)

    def _note(self, result: _Result) -> None:
        stream = result.job.log.stream
        if stream in self.turns.busy:  # its follower is another thread's just now
            self._late.setdefault(stream, []).append(result)
            return
        if self.jobs.pop(id(result.job), None) is None:
            return  # it could not be submitted, and was carried out all the same
        self.room += 1
        now = self.host.monotonic()
        if isinstance(result.outcome, Uploaded):
            result.follower.finished(result.outcome, now)
        else:
            result.follower.failed(result.job.piece, result.outcome, now)
        if stream in self.followers:  # it may be left alone since, by a rule that has changed
            self.turns.wake(stream, now)

    def _upload(self, follower: StreamFollower, job: Job, uploader: Uploader) -> None:
        """In a worker: upload one slice."""

        def told(outcome: Uploaded | ColdstreamError) -> None:
            self._came.put(_Result(follower, job, outcome))

        told(uploader.outcome(job, told))


def _not_begun(job: Job, exc: Exception) -> UnavailableError:
    return UnavailableError(
        f"an upload could not begin: {exc!r}", stream=job.log.stream, offset=job.piece.first_offset
    )
