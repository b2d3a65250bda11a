"""The agent's main loop: look at every stream, hand slices to the uploaders, collect what came.

One thread decides; `uploads` threads move bytes. A slice is retried for as long as the store does
not answer, with a growing pause, and its buffer is given back meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.committed import CommittedOffsets
from coldstream.agent.directory import nothing_found, some, unnamed
from coldstream.agent.follower import StreamFollower
from coldstream.agent.host import Flag, Host, Mailbox, ThisMachine, Workers
from coldstream.agent.log import StreamLog
from coldstream.agent.members import Members
from coldstream.agent.progress import Progress
from coldstream.agent.settings import AgentSettings
from coldstream.agent.upload import BufferPool, Job, Uploaded, fragment_size, upload
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    InternalError,
    InvalidInputError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.plans.heartbeats import Heartbeat
from coldstream.ports import ClaimFunction, CommitRequests, Heartbeats
from coldstream.remote.context import Context

_LONGEST_PAUSE = 30.0
_MAX_GONE = 1000


@dataclass(frozen=True, slots=True)
class _Result:
    follower: StreamFollower
    job: Job
    outcome: Uploaded | ColdstreamError


@dataclass(slots=True)
class Agent:
    """Follows every stream directory below one data directory.

    Args:
        context: bucket, table, prefix, ids.
        data_dir: holds one directory a stream.
        committed: what of each stream is committed.
        settings: how to cut, upload and wait.
        requests: for a commit when events seem lost, None if there is no queue.
        function: that claims and commits for it.
        names: queue of each directory, where the operator has said so.
        pause: sleeps after the n-th commit in a row that did not land.
        report: called with all progress after every look.
        members: as in `StreamFollower`.
        heartbeats: where it says that it lives, unless it runs once; None for nowhere.
        host: clocks, threads, waiting and directories of the machine.
        skipped: directories whose name no broker gives to a stream; they are left alone.
        warnings: what is strange about the data directory as a whole, as of the last look.
        interrupted: whether `stop` ended the run, and not that all was done.
    """

    context: Context
    data_dir: Path
    committed: CommittedOffsets
    settings: AgentSettings
    requests: CommitRequests | None
    function: ClaimFunction
    names: Mapping[str, QueueName]
    pause: Callable[[int], None]
    report: Callable[[list[Progress]], None] = lambda progress: None
    members: Members | None = None
    heartbeats: Heartbeats | None = None
    host: Host = field(default_factory=ThisMachine)
    skipped: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    _followers: dict[str, StreamFollower] = field(default_factory=dict)
    _results: Mailbox[_Result] = field(init=False)
    _stop: Flag = field(init=False)
    _waiting: int = 0
    _jobs: dict[int, Job] = field(default_factory=dict)  # under way, by identity
    _gone: dict[str, Progress] = field(default_factory=dict)  # what is to be told of lost streams
    _turn: int = 0
    _beat_at: float = float("-inf")
    _unheard: list[str] = field(default_factory=list)  # why the last heartbeat did not arrive
    _seen: bool = False  # the data directory could be read once
    _silent: set[str] = field(default_factory=set)  # streams that were told to have no offset

    def __post_init__(self) -> None:
        self._results, self._stop = self.host.mailbox(), self.host.flag()

    def stop(self) -> None:
        """Ask the loop to end after the uploads that are under way; safe from a signal handler."""
        self._stop.set()

    def run(self) -> list[Progress]:
        """Follow until stopped; with `settings.once` until every stream has settled.

        Returns:
            What every stream has come to.

        Raises:
            InvalidInputError: the data directory cannot be read at the first look, or, with
                `settings.once`, at any, or then holds no stream.
        """
        buffers = BufferPool(self.settings.memory_budget, self.host.condition())
        self.interrupted = True
        with self.host.workers(self.settings.uploads) as pool:
            try:
                while not self._stop.is_set():
                    self._discover()
                    self._look(pool, buffers)
                    self._beat()
                    # Where stderr cannot be written, a full disk for one, uploads go on.
                    with suppress(OSError, ValueError):
                        self.report(self.progress())
                    if self.settings.once and self._settled():
                        self.interrupted = False
                        break
                    self._collect()
            finally:
                self._stop.set()
        self._note_all(self._results.get(0))
        return self.progress()

    def _beat(self) -> None:
        """Say that this agent lives, now and then; where that fails, its silence says so."""
        now, interval = self.host.monotonic(), self.settings.heartbeat_seconds
        if self.heartbeats is None or self.settings.once:
            return
        if now - self._beat_at >= interval:
            self._beat_at = now
            self._unheard = self._say(self.heartbeats, interval)
        self.warnings = [*self.warnings, *self._unheard]

    def _say(self, heartbeats: Heartbeats, interval: float) -> list[str]:
        """Send a heartbeat; why it did not arrive, nothing if it did."""
        rows = [each.progress for each in self._followers.values()]
        word = Heartbeat(
            node=self.settings.node,
            at_ms=self.host.now_ms(),
            interval_ms=int(interval * 1000),
            streams=len(rows),
            behind=sum(each.next_offset < each.cut_offset for each in rows),
            standing=sum(each.standstill is not None for each in rows),
            failing=sum(each.error is not None for each in rows),
        )
        try:
            heartbeats.beat(word)
        except ColdstreamError as exc:
            return [f"no heartbeat: {exc}"]
        return []

    def _settled(self) -> bool:
        return all(follower.settled for follower in self._followers.values())

    def progress(self) -> list[Progress]:
        """What every stream has come to so far, by name; also what is to be told of gone ones."""
        rows = {stream: each.progress for stream, each in self._followers.items()}
        return [row for _, row in sorted((self._gone | rows).items())]

    def _discover(self) -> None:
        try:
            found = self.host.scan(self.data_dir, self._followers)
        except OSError as exc:
            trouble = f"the data directory cannot be read: {exc.strerror or exc}"
            if self.settings.once or not self._seen:
                raise InvalidInputError(trouble, key=str(self.data_dir)) from exc
            # It was there before: a mount that comes back, or a broker that is set up anew.
            self.warnings = [f"{trouble}; it is tried again (key {self.data_dir})"]
            return
        begun = self._seen and self.settings.once
        self._seen = True
        self.skipped.update(found.strange)
        for stream in found.streams:
            if stream not in self._followers and not begun:
                self._followers[stream] = self._follower(stream)
        if not self.settings.once:
            self._forget(self._followers.keys() - set(found.streams))
        if self.settings.once and not self._followers:
            raise InvalidInputError(nothing_found(self.data_dir), key=str(self.data_dir))
        self._warn(found.bare)

    def _forget(self, vanished: Collection[str]) -> None:
        """Follow no directory that is gone, once nothing of it is under way."""
        busy = {job.log.stream for job in self._jobs.values()}
        for stream in set(vanished) - busy:
            row = self._followers.pop(stream).progress
            if row.error is not None or row.holes or row.notices:
                self._gone.pop(stream, None)
                self._gone[stream] = row
        while len(self._gone) > _MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _warn(self, bare: Sequence[str]) -> None:
        silent, missing = unnamed(self.committed, self._followers)
        for stream in silent - self._silent:
            self._followers[stream].progress.notices.append(
                "the file of committed offsets does not name this stream, so nothing of it is"
                f" uploaded (stream {stream})"
            )
        self._silent = silent
        warnings = self.committed.warnings()
        if not self._followers:
            warnings.append(nothing_found(self.data_dir))
        if bare:
            warnings.append(f"left alone, no segment file in them: {some(bare)}")
        if missing:
            warnings.append(
                "the file of committed offsets names streams that have no directory with segment"
                f" files below {self.data_dir}: {some(missing)}"
            )
        self.warnings = warnings

    def _follower(self, stream: str) -> StreamFollower:
        self._gone.pop(stream, None)
        follower = StreamFollower(
            context=self.context,
            log=StreamLog(self.data_dir / stream, self.host.files),
            committed=self.committed,
            settings=self.settings,
            requests=self.requests,
            function=self.function,
            names=self.names,
            pause=self.pause,
            started=self.host.monotonic(),
            members=self.members,
        )
        with suppress(ColdstreamError, OSError):  # its first step says so
            follower.note_end()
        return follower

    def _look(self, pool: Workers, buffers: BufferPool) -> None:
        """One step of every stream, beginning with another one each time, so that none starves."""
        for follower in self._in_turn():
            room = 2 * self.settings.uploads - self._waiting
            jobs = follower.step(self.host.monotonic(), self.host.now_ms(), most=room)
            for job in jobs:
                self._waiting += 1
                self._jobs[id(job)] = job
                try:
                    pool.submit(self._upload, follower, job, buffers)
                except Exception as exc:  # no thread, for one; a worker may have it all the same
                    self._results.put(_Result(follower, job, _not_begun(job, exc)))
        self._turn += 1

    def _in_turn(self) -> Iterator[StreamFollower]:
        followers = list(self._followers.values())
        first = self._turn % len(followers) if followers else 0
        yield from followers[first:]
        yield from followers[:first]

    def _collect(self) -> None:
        """Take in finished uploads; wait for one, or for the next look, if there is none."""
        timeout = self.settings.poll_seconds
        if self.settings.once:
            timeout = min(timeout, 0.1)
        self._note_all(self._results.get(timeout))

    def _note_all(self, result: _Result | None) -> None:
        while result is not None:
            self._note(result)
            result = self._results.get(0)

    def _note(self, result: _Result) -> None:
        if self._jobs.pop(id(result.job), None) is None:
            return  # it could not be submitted, and was carried out all the same
        self._waiting -= 1
        now = self.host.monotonic()
        if isinstance(result.outcome, Uploaded):
            result.follower.finished(result.outcome, now)
        else:
            result.follower.failed(result.job.piece, result.outcome, now)

    def _upload(self, follower: StreamFollower, job: Job, buffers: BufferPool) -> None:
        """In a worker thread: upload one slice, for as long as it takes."""
        outcome: Uploaded | ColdstreamError
        try:
            outcome = self._upload_stubbornly(job, buffers)
        except ColdstreamError as exc:
            outcome = exc
        except OSError as exc:
            outcome = UnavailableError(
                f"a file cannot be read: {exc}",
                stream=job.log.stream,
                offset=job.piece.first_offset,
            )
        except BaseException as exc:
            outcome = InternalError(f"an upload died: {exc!r}", stream=job.log.stream)
            self._results.put(_Result(follower, job, outcome))
            raise
        self._results.put(_Result(follower, job, outcome))

    def _upload_stubbornly(self, job: Job, buffers: BufferPool) -> Uploaded:
        attempt = 0
        while True:
            buffer = buffers.take(fragment_size(job.piece), stop=self._stop.is_set)
            if buffer is None:
                raise UnavailableError("the agent is stopping", stream=job.log.stream)
            try:
                return upload(
                    self.context.store,
                    job.log,
                    job.piece,
                    job.placement,
                    prefix=self.context.prefix,
                    uid=self.context.new_uid(),
                    buffer=buffer,
                )
            except (UnavailableError, UnknownOutcomeError, AlreadyExistsError):
                # Whatever became of it: the next attempt has a uid of its own, and of two good
                # uploads of one range the manifest takes one.
                attempt += 1
                if self._stop.is_set() or (self.settings.once and attempt >= 5):
                    raise
            finally:
                buffers.give_back(buffer)
            self._stop.wait(self.host.jitter(min(_LONGEST_PAUSE, 0.2 * 2 ** min(attempt, 10))))


def _not_begun(job: Job, exc: Exception) -> UnavailableError:
    return UnavailableError(
        f"an upload could not begin: {exc!r}", stream=job.log.stream, offset=job.piece.first_offset
    )
