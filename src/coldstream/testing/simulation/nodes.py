"""The agent beside one broker: the real follower and the real upload, in tasks of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from coldstream.agent.follower import StreamFollower
from coldstream.agent.log import StreamLog
from coldstream.agent.members import Members
from coldstream.agent.settings import AgentSettings
from coldstream.agent.upload import Job, Uploaded, fragment_size, upload
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.testing.simulation.cluster import Cluster, Replica, ReplicaFiles
from coldstream.testing.simulation.scheduler import Scheduler
from coldstream.usecases.load import World

_ATTEMPTS = 3
_RETRY_MS = 200
_POLL_MS = 1500
_MOST_UPLOADS = 3


class Delivered:
    """What the local broker itself delivers: committed as far as it has heard (rule R2).

    Args:
        replica: of the broker.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def limit(self, stream: str) -> int:
        """All offsets below this are committed; 0 while the broker is down."""
        del stream
        return self.replica.committed if self.replica.up else 0


class SimMembers:
    """Asks the other members what they still have.

    Args:
        scheduler: asking takes a step.
        cluster: of them all.
        replica: of the agent that asks.
        asked: told when they have been asked.
    """

    def __init__(
        self, scheduler: Scheduler, cluster: Cluster, replica: Replica, asked: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._replica = replica
        self._asked = asked

    def earliest(self, stream: str) -> int | None:
        """As `agent.members.Members` says."""
        self._scheduler.pause()
        self._asked()
        reachable = self._cluster.reachable
        if self._replica not in reachable or not self._enough(len(reachable)):
            raise UnavailableError("not all members can be asked", stream=stream)
        others = [each for each in reachable if each is not self._replica]
        return min((each.begin for each in others if each.tail > each.begin), default=None)

    def _enough(self, answers: int) -> bool:
        return answers == len(self._cluster.replicas)


class AskingQueue:
    """`CommitRequests` that go where events go.

    Args:
        post: takes the name of a stream.
    """

    def __init__(self, post: Callable[[str], None]) -> None:
        self._post = post

    def ask(self, stream: str) -> None:
        """Ask for a look at a stream."""
        self._post(stream)


@dataclass(slots=True)
class SimAgent:
    """One life of an agent.

    Attributes:
        owner: of all its tasks.
        follower: the real one.
        paused_until: it does nothing before this time, though its uploads go on.
        looking: whether it is in the middle of a claim, a commit or a look at its files.
    """

    scheduler: Scheduler
    replica: Replica
    world: World
    stream: str
    settings: AgentSettings
    owner: str
    post: Callable[[str], None]
    members: Members
    follower: StreamFollower = field(init=False)
    paused_until: int = 0
    looking: bool = False
    _inbox: list[tuple[Job, Uploaded | ColdstreamError]] = field(default_factory=list)
    _in_flight: int = 0

    def __post_init__(self) -> None:
        self.follower = StreamFollower(
            world=self.world,
            log=StreamLog(Path("/data") / self.stream, ReplicaFiles(self.replica)),
            committed=Delivered(self.replica),
            settings=self.settings,
            requests=AskingQueue(self.post),
            name=QueueName("c", "/", "orders"),
            pause=lambda attempt: self.scheduler.sleep(50 * attempt),
            started=self.scheduler.now / 1000,
            members=self.members,
        )

    def start(self) -> None:
        """Begin."""
        self.scheduler.spawn(self.owner, self._main, self.owner)

    def _main(self) -> None:
        scheduler = self.scheduler
        while True:
            self.look()
            scheduler.sleep(max(_POLL_MS, self.paused_until - scheduler.now))

    def look(self) -> None:
        """Take in finished uploads, look at directory and manifest, start uploads."""
        scheduler, follower = self.scheduler, self.follower
        for job, outcome in self._inbox:
            self._in_flight -= 1
            if isinstance(outcome, Uploaded):
                follower.finished(outcome, scheduler.now / 1000)
            else:
                follower.failed(job.piece, outcome, scheduler.now / 1000)
        self._inbox.clear()
        before = follower.progress.error
        self.looking = True
        jobs = follower.step(
            scheduler.now / 1000,
            scheduler.now + self.replica.skew,
            most=_MOST_UPLOADS - self._in_flight,
        )
        self.looking = False
        error = follower.progress.error
        if error is not None and error is not before:
            scheduler.say(f"{type(error).__name__}: {error}")
        for job in jobs:
            self._in_flight += 1
            scheduler.spawn(f"{self.owner} upload", partial(self._upload, job), self.owner)

    def _upload(self, job: Job) -> None:
        outcome: Uploaded | ColdstreamError
        try:
            outcome = self._upload_stubbornly(job)
        except ColdstreamError as exc:
            outcome = exc
        except OSError as exc:
            outcome = UnavailableError(f"a file cannot be read: {exc}", stream=self.stream)
        self._inbox.append((job, outcome))

    def _upload_stubbornly(self, job: Job) -> Uploaded:
        attempt = 0
        while True:
            try:
                return upload(
                    self.world.store,
                    job.log,
                    job.piece,
                    job.placement,
                    prefix=self.world.prefix,
                    uid=self.world.new_uid(),
                    buffer=bytearray(fragment_size(job.piece)),
                )
            except (UnavailableError, UnknownOutcomeError, AlreadyExistsError):
                attempt += 1
                if attempt >= _ATTEMPTS:
                    raise
            self.scheduler.sleep(_RETRY_MS * attempt)
