"""The agent's main loop: see which streams have changed, have them looked at, collect what came.

One thread decides who is looked at, and when. `looks` threads look: they read indexes, ask the
broker, claim, and watch the manifests, each at one stream; `uploads` threads move bytes. So neither
a slow claim nor a slow link keeps the other streams waiting, and a stream that does not change
costs two `stat` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.broker.committed import CommittedOffsets
from coldstream.agent.broker.members import Members
from coldstream.agent.disk.changes import Changes
from coldstream.agent.disk.directory import nothing_found, unnamed
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import unreadable
from coldstream.agent.host import Flag, Host, ThisMachine, Workers
from coldstream.agent.sending.lanes import Lanes, Valve
from coldstream.agent.sending.persist import Uploader
from coldstream.agent.sending.slices import BufferPool
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.follower import StreamFollower
from coldstream.agent.telling.heartbeat import Beats, Teller
from coldstream.agent.telling.progress import Progress
from coldstream.agent.turns import Turns
from coldstream.agent.work import Work
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.heartbeats import NameWatch
from coldstream.ports import ClaimFunction, CommitRequests, Heartbeats
from coldstream.remote.context import Context
from coldstream.wording import listed

_MAX_GONE = 1000
#: Looks that wait for a thread: a few, so that whatever is most urgent is next.
_QUEUED = 2
#: A look that takes longer is told, seconds.
_LONG_LOOK = 60.0


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
        report: called with all progress, once in `settings.poll_seconds`.
        members: as in `StreamFollower`.
        heartbeats: where it says that it lives, unless it runs once; None for nowhere.
        host: clocks, threads, waiting and directories of the machine.
        valve: what the bytes of all uploads go through.
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
    valve: Valve = field(default_factory=Valve)
    skipped: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    _followers: dict[str, StreamFollower] = field(default_factory=dict)
    _turns: Turns = field(default_factory=Turns)
    _work: Work = field(init=False)
    _stop: Flag = field(init=False)
    _held: Held = field(init=False)
    _changes: Changes = field(init=False)
    _lanes: Lanes = field(init=False)
    _gone: dict[str, Progress] = field(default_factory=dict)  # what is to be told of lost streams
    _rows: list[Progress] | None = None  # of all these, until one comes or goes
    _pass_at: float = float("-inf")  # when the directories are looked at next
    _report_at: float = float("-inf")
    _beats: Beats | None = None
    _seen: bool = False  # the data directory could be read once
    _silent: set[str] = field(default_factory=set)  # streams that were told to have no offset

    def __post_init__(self) -> None:
        host, settings = self.host, self.settings
        self._stop = host.flag()
        self._held = Held(host.files, budget=settings.held_bytes, most=host.open_files() // 2)
        self._changes = Changes(self.data_dir, host.files)
        self._lanes = Lanes(host, settings)
        self._work = Work(
            host,
            self._turns,
            self._followers,
            # A look that waits for its thread has a share, too; one without could cut nothing.
            room=2 * settings.uploads + _QUEUED * settings.looks,
            poll=lambda: self._poll,
            over=self._part,
        )

    @property
    def held(self) -> Held:
        """The files that are kept readable."""
        return self._held

    def figures(self) -> dict[str, float]:
        """What there is to say of the agent as a whole, by the names of its metrics."""
        return {
            "agent_held_bytes": self._held.unlinked_bytes,
            "agent_held_budget_bytes": self.settings.held_bytes,
            "agent_held_lacking_files": self._held.lacking,
            "agent_held_dropped_segments": self._held.dropped,
            "agent_uploads_in_flight": len(self._work.jobs),
            "agent_longest_look_seconds": max(self._work.lasting().values(), default=0.0),
            **self._lanes.figures(),
        }

    def stop(self) -> None:
        """Ask the loop to end after the uploads that are under way; safe from a signal handler."""
        self._stop.set()

    def run(self) -> list[Progress]:
        """Follow until stopped; with `settings.once` until every stream has settled.

        Returns:
            What every stream has come to.

        Raises:
            InvalidInputError, PermissionDeniedError: the data directory cannot be read at the
                first look, or, with `settings.once`, at any, or then holds no stream.
        """
        host, settings = self.host, self.settings
        buffers = BufferPool(settings.memory_budget, host.condition())
        uploader = Uploader(
            self.context, buffers, self._stop, host.jitter, settings.once, self._lanes
        )
        self.interrupted = True
        looks, uploads = (
            host.workers(settings.looks, "look"),
            host.workers(settings.uploads, "upload"),
        )
        tellers = host.workers(1, "tell")
        with uploads as pool, looks as lookers, tellers as speaker:
            try:
                while not self._stop.is_set():
                    self._pass()
                    self._work.look(lookers, _QUEUED * self.settings.looks)
                    self._work.collect(self._wait_seconds(), pool, uploader)
                    self._beat(speaker)
                    self._tell()
                    if settings.once and not self._turns.busy and self._settled():
                        self.interrupted = False
                        break
            finally:
                self._stop.set()
        self._work.collect(0, None, uploader)
        self._held.close()
        return self.progress()

    def _pass(self) -> None:
        """See which directories there are and which have changed, if it is time to."""
        now = self.host.monotonic()
        if now < self._pass_at:
            return
        self._pass_at = now + self._poll
        self._lanes.follow(self.settings)
        self.valve.set_rate(self.settings.upload_rate)
        known = set(self._followers)
        all_wait = self._all_wait
        self._discover(now)
        for stream in self._changes.look(list(self._followers), now):
            if stream in known:  # one that has just come has its turn as such
                self._turns.wake(stream, now)
            if (all_wait or stream in self._turns.busy) and not self.settings.once:
                # Its look, or those before it, may wait for a store that hangs.
                self._held.keep_new(self.data_dir / stream, proved=self._proved(stream))

    @property
    def _all_wait(self) -> bool:
        """Whether no look could begin."""
        return len(self._turns.busy) >= _QUEUED * self.settings.looks

    def _proved(self, stream: str) -> int:
        try:
            return self.committed.limit(stream)
        except (ColdstreamError, OSError):
            return 0  # a look says why

    def _tell(self) -> None:
        """Report, once a poll: what is said is of all streams, and may not be paid a look."""
        now = self.host.monotonic()
        if now < self._report_at:
            return
        self._report_at = now + self._poll
        # Where stderr cannot be written, a full disk for one, uploads go on.
        with suppress(OSError, ValueError):
            self.report(self.progress())

    @property
    def _poll(self) -> float:
        poll = self.settings.poll_seconds
        return min(poll, 0.1) if self.settings.once else poll

    def _beat(self, speaker: Workers) -> None:
        """Say that this agent lives, now and then; where that fails, its silence says so."""
        if self.heartbeats is None or self.settings.once:
            return
        if self._beats is None:
            names = NameWatch(f"{self.context.new_uid():016x}")
            self._beats = Beats(Teller(self.heartbeats, names), self.host)
        self._beats.beat(speaker, self.settings, self._all_rows, self._left_out())
        self.warnings = [*self.warnings, *self._beats.unheard, *self._beats.shared]

    def _all_rows(self) -> list[Progress]:
        return [*(each.progress for each in self._followers.values()), *self._undecided()]

    def _undecided(self) -> list[Progress]:
        """Streams in the data directory that wait for a name: rules cannot choose them before.

        They are told of too, because a stream that no agent tells of counts as gone.
        """
        return []

    def _left_out(self) -> int:
        """Directories of the data directory that rules leave alone, of which nothing is told."""
        return 0

    def _settled(self) -> bool:
        return all(follower.settled for follower in self._followers.values())

    def progress(self) -> list[Progress]:
        """What every stream has come to so far, by name; also what is to be told of gone ones."""
        if self._rows is None:
            rows = {stream: each.progress for stream, each in self._followers.items()}
            self._rows = [row for _, row in sorted((self._gone | rows).items())]
        return [*self._rows]

    def _discover(self, now: float) -> None:
        try:
            bare = self._changes.bare(now)
            found = self.host.scan(self.data_dir, self._followers.keys() - bare)
        except OSError as exc:
            trouble = unreadable(self.data_dir, exc)
            if self.settings.once or not self._seen:
                raise trouble from exc
            # It was there before: a mount that comes back, or a broker that is set up anew.
            self.warnings = [f"{trouble.reason}; it is tried again (key {self.data_dir})"]
            return
        begun = self._seen and self.settings.once
        self._seen = True
        self.skipped.update(found.strange)
        for stream in found.streams:
            follower = self._followers.get(stream)
            if follower is not None and follower.progress.gone and self._came_back(stream):
                follower.come_back()
                self._turns.wake(stream, now)
            if follower is None and not begun:
                self._followers[stream] = self._follower(stream)
                self._turns.begin(stream)
        if not self.settings.once:
            self._part_with(self._followers.keys() - set(found.streams), set(found.bare), now)
        if self.settings.once and not self._followers:
            raise InvalidInputError(nothing_found(self.data_dir), key=str(self.data_dir))
        self._warn(found.bare)

    def _part_with(self, vanished: Collection[str], bare: Collection[str], now: float) -> None:
        """Their directories are gone: what is held of them is uploaded, and then they are told.

        So where a directory stays behind without a file, or with what is none of the broker's.
        """
        for stream in vanished:
            follower, busy = self._followers[stream], stream in self._turns.busy
            if follower.progress.gone is not None:
                continue
            there = stream not in bare and self._is_there(stream)
            if not there:
                self._held.gone(self.data_dir / stream)
            if busy:
                continue  # another thread has its follower
            if there:
                self._drop(stream)  # it is to be left alone from now on
            else:
                follower.vanish(now, self.host.now_ms())
                self._turns.wake(stream, now)

    def _came_back(self, stream: str) -> bool:
        """Whether a member was made anew where a directory was gone.

        Not because something has happened in one that stayed behind, or it cannot be read.
        """
        if stream in self._turns.busy:
            return False
        try:
            return bool(StreamLog(self.data_dir / stream, self.host.files).segments())
        except Exception:  # noqa: BLE001 - whatever it is, a later look can tell
            return False

    def _is_there(self, stream: str) -> bool:
        try:
            self.host.files.stamp(self.data_dir / stream, "")
        except Exception:  # noqa: BLE001 - whatever it is, it cannot be read
            return False
        return True

    def _part(self, stream: str) -> None:
        """Follow a stream no more, and tell what became of it."""
        self._gone.pop(stream, None)
        self._gone[stream], self._rows = self._drop(stream), None
        while len(self._gone) > _MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _drop(self, stream: str) -> Progress:
        """Follow a stream no more."""
        progress, self._rows = self._followers.pop(stream).progress, None
        self._turns.forget(stream)
        self._held.forget(self.data_dir / stream)
        self._changes.forget(stream)
        self.committed.forget(stream)
        return progress

    def _warn(self, bare: Sequence[str]) -> None:
        silent, missing = unnamed(self.committed, self._followers)
        for stream in silent - self._silent:
            self._followers[stream].progress.notices.append(
                "the file of committed offsets does not name this stream, so nothing of it is"
                f" uploaded (stream {stream})"
            )
        self._silent = silent
        warnings = [*self.committed.warnings(), *self._lanes.words(), *self._held.words()]
        slow = [name for name, seconds in self._work.lasting().items() if seconds > _LONG_LOOK]
        if slow:
            warnings.append(
                f"a look at {listed(sorted(slow))} has not ended for more than a minute: a file,"
                " the broker or the remote tier does not answer; nothing of these is uploaded"
                " meanwhile"
            )
        if not self._followers:
            warnings.append(nothing_found(self.data_dir))
        if bare:
            warnings.append(f"left alone, no segment file in them: {listed(sorted(bare))}")
        if missing:
            warnings.append(
                "the file of committed offsets names streams that have no directory with segment"
                f" files below {self.data_dir}: {listed(sorted(missing))}"
            )
        self.warnings = warnings

    def _follower(self, stream: str) -> StreamFollower:
        self._gone.pop(stream, None)
        self._rows = None
        follower = StreamFollower(
            context=self.context,
            log=StreamLog(self.data_dir / stream, self._held),
            committed=self.committed,
            settings=self.settings,
            requests=self.requests,
            function=self.function,
            names=self.names,
            pause=self.pause,
            started=self.host.monotonic(),
            members=self.members,
            held=self._held,
            lanes=self._lanes,
        )
        with suppress(ColdstreamError, OSError):  # its first step says so
            follower.note_end()
        return follower

    def _wait_seconds(self) -> float:
        """How long nothing is to be done unless something comes."""
        now = self.host.monotonic()
        until = min(self._pass_at, self._turns.next_at(), now + self._poll)
        return self._poll if self._all_wait else max(0.0, until - now)
