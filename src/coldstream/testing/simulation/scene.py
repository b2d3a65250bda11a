"""What a history plays with: a cluster, agents, AWS, and the oracle that watches all of them.

Whatever happens goes through here, so that the oracle is told of every object that comes and goes
and of every change of the catalog item. All times are far shorter than in life, in the same
proportions: the grace time is longer than twice what any Lambda, workflow or transfer may take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.agent.settings import AgentSettings
from coldstream.errors import ColdstreamError
from coldstream.manifest.entries import EntryKind
from coldstream.testing.simulation.choices import Choices
from coldstream.testing.simulation.cluster import Cluster, Replica
from coldstream.testing.simulation.inline import Inline
from coldstream.testing.simulation.net import Net
from coldstream.testing.simulation.nodes import SimAgent, SimMembers
from coldstream.testing.simulation.oracle import Oracle
from coldstream.testing.simulation.scheduler import Scheduler
from coldstream.testing.simulation.services import SimCatalog, SimStore
from coldstream.usecases import collect as collecting
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.load import World

STREAM = "__orders_1"
PREFIX = "rabbitmq/"
BRANCHING = 4
GRACE_MS = 120_000
#: Lambdas and steps of workflows are ended after this long.
TIMEOUT_MS = 50_000
_SETTINGS = AgentSettings(
    target_size=400,
    flush_ms=2000,
    memory_budget=2**21,
    uploads=3,
    poll_seconds=1,
    nudge_seconds=4,
    rescan_seconds=5,
)
_EVENT_DELAYS = (5, 400, 3000, 40_000)
#: Clocks of brokers, and of the agents beside them, are wrong; S3's and AWS's is right.
_SKEWS_MS = (0, -20_000, 15_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes there are, and how many chunks a full segment of theirs has."""

    nodes: int
    segment_chunks: int


class Scene:
    """All of one history's world.

    Args:
        choices: decide everything.
        shape: of the cluster.
        trace: told of everything, or None.
        page_size: keys in one LIST answer.

    Attributes:
        event_percent: of all events, how many are lost, late or doubled.
        buckets: what kinds of events it had, for coverage.
        events: when each event on its way is due, ms.
        running: deadline and owner of Lambdas and steps of workflows.
    """

    def __init__(
        self,
        choices: Choices,
        shape: Shape,
        trace: Callable[[str], None] | None,
        *,
        page_size: int = 1000,
    ) -> None:
        self.choices = choices
        self.shape = shape
        self.scheduler = Scheduler(choices, trace)
        self.net = Net(self.scheduler)
        self.objects = MemoryObjectStore(lambda: self.scheduler.now)
        self.cluster = Cluster(
            [f"n{number}" for number in range(shape.nodes)],
            segment_chunks=shape.segment_chunks,
            skews=_SKEWS_MS,
        )
        self.catalog = SimCatalog(self.net, self._landed)
        self.store = SimStore(self.net, self.objects, self._created, self._deleted)
        self._uid = 0
        self.oracle = Oracle(
            self.cluster,
            self.objects,
            lambda: self.catalog.inner,
            PREFIX,
            STREAM,
            lambda: self.scheduler.now,
            GRACE_MS,
        )
        self.event_percent = 0.0
        self.agents: list[SimAgent] = []
        self.events: list[int] = []  # when each is due
        self.running: list[tuple[int, str]] = []  # deadline and owner of Lambdas and workflows
        self.buckets: Counter[str] = Counter()
        self._page_size = page_size
        self._lives = 0
        self._lambdas = 0

    def new_uid(self) -> int:
        """Ids that look random and are not."""
        self._uid += 1
        return (self._uid * 0x9E3779B97F4A7C15) & (2**64 - 1)

    def world(self) -> World:
        """A process's own view: nothing is cached across processes."""
        return World(
            self.store,
            self.catalog,
            PREFIX,
            self.new_uid,
            pool=Inline,
            hold_ms=TIMEOUT_MS,
            page_size=self._page_size,
        )

    def _created(self, key: str) -> None:
        self.oracle.created(key)
        if "/data/" in key:
            self.post(STREAM)

    def _deleted(self, key: str) -> None:
        self.buckets["deleted"] += 1
        self.oracle.deleted(key)

    def _landed(self, item: Any, what: str) -> None:
        self.buckets[what] += 1
        before = self.oracle.current
        self.oracle.landed(item, what)
        after = self.oracle.current
        if before is None or after is None or after is before:
            return
        if after.root.quarantine_key != before.root.quarantine_key:
            anew = after.root.first_offset == after.root.next_offset
            self.buckets["begun anew" if anew else "truncated"] += 1
        holes = [sum(e.kind is EntryKind.HOLE for e in each.leaves) for each in (before, after)]
        self.buckets["hole"] += max(0, holes[1] - holes[0])

    def post(self, stream: str) -> None:
        """An event for a stream: it may be lost, late or doubled."""
        del stream
        now, choices = self.scheduler.now, self.choices
        if self.event_percent and choices.chance(self.event_percent):
            fate = choices.below(3)
            if fate == 0:
                self.buckets["event lost"] += 1
                return
            if fate == 1:
                self.buckets["event doubled"] += 1
                self.events.append(now + choices.one_of(_EVENT_DELAYS) * 10)
            self.events.append(now + choices.one_of(_EVENT_DELAYS))
            return
        self.events.append(now + 5)

    def take_over(self, before: Scene) -> None:
        """Begin where another history has ended."""
        self.cluster = before.cluster.copy()
        self.oracle.cluster = self.cluster
        self.objects.take_over(before.objects)
        self.catalog.inner.items = dict(before.catalog.inner.items)
        self.oracle.take_over(before.oracle)
        self.scheduler.now = before.scheduler.now
        self._uid = before._uid

    def node(self) -> Replica:
        """One of the nodes."""
        return self.choices.one_of(self.cluster.replicas)

    def busy_node(self) -> Replica:
        """A node whose agent is in the middle of something, if there is one: the worst moment."""
        busy = [each.replica for each in self.agents if each.looking]
        return self.choices.one_of(busy) if busy and self.choices.below(4) else self.node()

    def start_agent(self, replica: Replica) -> None:
        """An agent begins its life beside a broker."""
        self._lives += 1
        agent = SimAgent(
            self.scheduler,
            replica,
            self.world(),
            STREAM,
            _SETTINGS,
            f"agent {replica.name}.{self._lives}",
            self.post,
            SimMembers(self.scheduler, self.cluster, replica, self._asked),
        )
        self.agents.append(agent)
        agent.start()

    def _asked(self) -> None:
        self.oracle.asked = self.scheduler.now

    def advance(self, ms: int) -> None:
        """Let time pass: sleepers wake, events arrive, what takes too long is ended."""
        scheduler = self.scheduler
        scheduler.advance(ms)
        now = scheduler.now
        due = [each for each in self.events if each <= now]
        if due:
            self.events = [each for each in self.events if each > now]
            # A batching window makes one call of many events.
            self.spawn("commit", lambda: commit_runs(self.world(), STREAM, pause=self.pause))
        for deadline, owner in self.running:
            if deadline <= now and scheduler.kill(owner):
                scheduler.say(f"{owner} times out")
        self.running = [each for each in self.running if each[0] > now]

    def pause(self, attempt: int) -> None:
        """What a use case waits before it tries a lost commit again."""
        self.scheduler.sleep(20 * attempt)

    def spawn(self, name: str, act: Callable[[], object]) -> None:
        """A Lambda or a step of a workflow: may fail, is ended when it takes too long."""
        self._lambdas += 1
        owner = f"{name} {self._lambdas}"

        def run() -> None:
            try:
                act()
            except ColdstreamError as exc:
                self.scheduler.say(f"{type(exc).__name__}: {exc}")
                self.buckets[f"{name}: {type(exc).__name__}"] += 1

        self.running.append((self.scheduler.now + TIMEOUT_MS, owner))
        self.scheduler.spawn(owner, run, owner)

    def collect(self) -> object:
        """One step of collect, now."""
        now = self.scheduler.now
        return collecting.collect(
            self.world(), self.store, STREAM, grace_ms=GRACE_MS, run_ms=now, now_ms=now
        )

    def replicate_all(self) -> None:
        """Let every replica copy all that it can."""
        for _ in range(400):
            news = [self.cluster.replicate(each, chunks=50) for each in self.cluster.replicas]
            if not any(news):
                return

    def attempt(self, act: Callable[[], object]) -> None:
        """Alone, outside any task: nothing interferes."""
        try:
            act()
        except ColdstreamError as exc:
            self.scheduler.say(f"{type(exc).__name__}: {exc}")

    def drain(self) -> None:
        """Run whatever can run now."""
        for _ in range(20_000):
            if not self.scheduler.step():
                return
        raise AssertionError("tasks that never rest")
