"""The agent beside one broker: the real one, loop and uploads, on a host of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.broker.gate import Gate
from coldstream.agent.broker.members import Members
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.strangers import ForgedError
from coldstream.agent.telling.progress import Progress
from coldstream.broker.answers import NoMemberError
from coldstream.broker.management import Partition, StreamQueue
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE
from coldstream.ports import ClaimFunction
from coldstream.remote.context import Context
from coldstream_devkit.simulation.cluster import Cluster, Replica, SimChunk
from coldstream_devkit.simulation.machines import Node, SimHost
from coldstream_devkit.simulation.oracle import BrokenError
from coldstream_devkit.simulation.scheduler import Scheduler

DATA_DIR = Path("/data")


class SimBroker:
    """A node's own broker, as the agent's gate asks it (rule R2).

    Args:
        replicas: on the node, by stream.

    Attributes:
        answered: called between an answer and the look at the files that it is compared with.
    """

    def __init__(self, replicas: Mapping[str, Replica]) -> None:
        self._replicas = replicas
        self.answered: Callable[[], None] = lambda: None

    def streams(self) -> Sequence[StreamQueue]:
        """As `Lists` says: of all of them, members that are down too."""
        return [StreamQueue("/", queue_of(stream)) for stream in self._replicas]

    def super_streams(self) -> Mapping[tuple[str, str], Partition]:
        """None."""
        return {}

    def last_header(self, vhost: str, queue: str) -> bytes | None:
        """Of the last chunk that the node has heard to be committed, as its writer made it.

        Raises:
            NoMemberError: the member is down.
        """
        last = self.delivered(self._member(queue))
        self.answered()
        return None if last is None else last.data[:CHUNK_HEADER_SIZE]

    def header_at(self, vhost: str, queue: str, offset: int) -> bytes | None:
        """Of the committed chunk with an offset, or the next one; raises as `last_header`."""
        replica = self._member(queue)
        self.answered()
        chunks = (chunk for segment in replica.segments for chunk in segment.chunks)
        found = next((each for each in chunks if offset < each.next_offset), None)
        if found is None or found.next_offset > replica.committed:
            return None
        return found.data[:CHUNK_HEADER_SIZE]

    def leads(self, vhost: str, queue: str) -> bool | None:
        """Who believes to be the writer is told so; raises as `last_header`."""
        return self._member(queue).leads

    def generation(self) -> int:
        """Every end of a member is one of the broker."""
        return sum(each.ends for each in self._replicas.values())

    def keep_up(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    @staticmethod
    def delivered(replica: Replica) -> SimChunk | None:
        """The last chunk that a member would deliver; None if it has none."""
        return next(
            (
                chunk
                for segment in reversed(replica.segments)
                for chunk in reversed(segment.chunks)
                if chunk.next_offset <= replica.committed
            ),
            None,
        )

    def _member(self, queue: str) -> Replica:
        for stream, replica in self._replicas.items():
            if queue_of(stream) == queue and replica.up:
                return replica
        raise NoMemberError("the node has no running member of this stream")


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
        """As `agent.broker.members.Members` says."""
        self._scheduler.pause()
        self._asked(stream)
        cluster, own = self._clusters[stream], self._node.replicas[stream]
        reachable = cluster.reachable
        if own not in reachable or not self._enough(len(reachable), cluster):
            raise UnavailableError("not all members can be asked", stream=stream)
        others = [each for each in reachable if each is not own]
        return min((each.begin for each in others if each.tail > each.begin), default=None)

    def lone(self, stream: str) -> bool:
        """As `agent.broker.members.Members` says."""
        return len(self._clusters[stream].replicas) == 1

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
        gate: likewise; it asks the broker.
        broker: of the node.
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
    gate: Gate = field(init=False)
    broker: SimBroker = field(init=False)
    host: SimHost = field(init=False)
    ended: bool = False

    def __post_init__(self) -> None:
        self.host = SimHost(self.scheduler, self.node, self.owner)
        self.broker = SimBroker(self.node.replicas)
        self.gate = Gate(
            DATA_DIR,
            self.broker,
            cluster="c",
            files=self.host.files,
            alike=lambda *_: (),
            clock=self.host.monotonic,
            pause=lambda seconds: self.scheduler.sleep(int(seconds * 1000)),
        )
        self.agent = Agent(
            context=self.context,
            data_dir=DATA_DIR,
            committed=self.gate,
            settings=self.settings,
            requests=AskingQueue(self.post),
            function=self.function,
            names=self.gate.names,
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
            with self.gate.looking(once=self.settings.once):
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


def queue_of(stream: str) -> str:
    """The queue of a directory `__QUEUE_NANOSECONDS`, in the virtual host `/`."""
    return stream.strip("_").rpartition("_")[0]
