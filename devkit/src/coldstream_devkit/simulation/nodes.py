"""The agent beside one broker: the real one, loop and uploads, on a host of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.committed import Known
from coldstream.agent.members import Members
from coldstream.agent.progress import Progress
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.agent.strangers import ForgedError
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.ports import ClaimFunction
from coldstream.remote.context import Context
from coldstream_devkit.simulation.cluster import Cluster, Replica
from coldstream_devkit.simulation.machines import Node, SimHost
from coldstream_devkit.simulation.oracle import BrokenError
from coldstream_devkit.simulation.scheduler import Scheduler


class Delivered:
    """What the local broker itself delivers: committed as far as it has heard (rule R2).

    Args:
        replicas: of the broker, by stream.
    """

    def __init__(self, replicas: Mapping[str, Replica]) -> None:
        self.replicas = replicas

    def refresh(self, stream: str, now: float) -> float:
        """Nothing is remembered."""
        del stream
        return now

    def forget(self, stream: str) -> None:
        """Nothing is remembered."""

    def known(self, stream: str) -> Known:
        """Who believes to be the writer is told so; while the broker is down nobody can say."""
        replica = self.replicas.get(stream)
        if replica is None or not replica.up:
            return Known()
        committed = self.of(replica)
        last = next(
            (
                each
                for segment in reversed(replica.segments)
                for each in reversed(segment.chunks)
                if each.next_offset <= committed
            ),
            None,
        )
        return Known(
            writer=replica.leads,
            whole=committed >= replica.tail,
            epoch=0 if last is None else last.epoch,
        )

    def limit(self, stream: str) -> int:
        """All offsets below this are committed; 0 while the broker is down."""
        return self.of(self.replicas[stream]) if stream in self.replicas else 0

    def warnings(self) -> list[str]:
        """None."""
        return []

    def of(self, replica: Replica) -> int:
        """As `limit`, for a replica."""
        return replica.committed if replica.up else 0


class SimMembers:
    """Asks the other members what they still have.

    Args:
        scheduler: asking takes a step.
        clusters: by stream.
        node: where the agent that asks is.
        asked: told of the stream when its members have been asked.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clusters: Mapping[str, Cluster],
        node: Node,
        asked: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._clusters = clusters
        self._node = node
        self._asked = asked

    def earliest(self, stream: str) -> int | None:
        """As `agent.members.Members` says."""
        self._scheduler.pause()
        self._asked(stream)
        cluster, own = self._clusters[stream], self._node.replicas[stream]
        reachable = cluster.reachable
        if own not in reachable or not self._enough(len(reachable), cluster):
            raise UnavailableError("not all members can be asked", stream=stream)
        others = [each for each in reachable if each is not own]
        return min((each.begin for each in others if each.tail > each.begin), default=None)

    def _enough(self, answers: int, cluster: Cluster) -> bool:
        return answers == len(cluster.replicas)


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
        node: where it is.
        owner: of all its tasks.
        agent: the real one.
        ended: whether its loop has ended by itself.
    """

    scheduler: Scheduler
    node: Node
    context: Context
    settings: AgentSettings
    owner: str
    post: Callable[[str], None]
    members: Members
    function: ClaimFunction
    agent: Agent = field(init=False)
    host: SimHost = field(init=False)
    ended: bool = False

    def __post_init__(self) -> None:
        self.host = SimHost(self.scheduler, self.node, self.owner)
        self.agent = Agent(
            context=self.context,
            data_dir=Path("/data"),
            committed=Delivered(self.node.replicas),
            settings=self.settings,
            requests=AskingQueue(self.post),
            function=self.function,
            names={stream: QueueName("c", "/", _queue(stream)) for stream in self.node.replicas},
            pause=lambda attempt: self.scheduler.sleep(50 * attempt),
            report=self._say if self.scheduler.trace is not None else lambda progress: None,
            members=self.members,
            host=self.host,
        )
        self._told: dict[str, str] = {}

    _told: dict[str, str] = field(init=False)

    @property
    def looking(self) -> bool:
        """Whether it is in the middle of a claim, a commit or a look at its files."""
        return not self.host.idle

    def progress(self) -> list[Progress]:
        """As the agent has it."""
        return self.agent.progress()

    def start(self) -> None:
        """Begin."""
        self.scheduler.spawn(self.owner, self._main, self.owner)

    def _main(self) -> None:
        try:
            self.agent.run()
        except ColdstreamError as exc:
            self.scheduler.say(f"the agent ends: {type(exc).__name__}: {exc}")
        self.ended = True

    def _say(self, rows: list[Progress]) -> None:
        for row in rows:
            if isinstance(row.error, ForgedError):
                words = f"nobody forges anything here, but: {row.error}"
                raise BrokenError([Violation(Invariant.AGREEMENT, words)])
            words = "" if row.error is None else f"{type(row.error).__name__}: {row.error}"
            if words != self._told.get(row.stream, ""):
                self._told[row.stream] = words
                self.scheduler.say(words or f"{row.stream} goes on")


def _queue(stream: str) -> str:
    """The queue of a directory `__QUEUE_NANOSECONDS`, in the virtual host `/`."""
    return stream.strip("_").rpartition("_")[0]
