"""What a history plays with: machines, streams, agents, AWS, and the oracles that watch all of it.

Whatever happens goes through here, so that the oracles are told of every object that comes and goes
and of every change of a catalog item. All times are far shorter than in life, in the same
proportions: the grace time is longer than twice what any Lambda, workflow or transfer may take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from coldstream.adapters.memory import MemoryObjectStore, MemoryPolicies
from coldstream.agent.settings import AgentSettings
from coldstream.errors import ColdstreamError
from coldstream.plans.policy import effective
from coldstream.remote.context import Context
from coldstream_devkit.simulation.asked import AskedFunction, view_of_an_agent
from coldstream_devkit.simulation.choices import Choices
from coldstream_devkit.simulation.cluster import Cluster, Replica
from coldstream_devkit.simulation.events import Queue
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.machines import Node
from coldstream_devkit.simulation.net import Net
from coldstream_devkit.simulation.nodes import SimAgent, SimMembers
from coldstream_devkit.simulation.oracle import Oracle
from coldstream_devkit.simulation.oracle_steps import retired
from coldstream_devkit.simulation.reading import HOLE
from coldstream_devkit.simulation.scheduler import Scheduler, Task
from coldstream_devkit.simulation.services import SimCatalog, SimStore

STREAM = "__orders_1"
SECOND = "__events_2"
PREFIX = "rabbitmq/"
BRANCHING = 4
GRACE_MS = 120_000
#: Lambdas and steps of workflows are ended after this long.
TIMEOUT_MS = 50_000
SETTINGS = AgentSettings(
    target_size=400,
    flush_ms=2000,
    takeover_seconds=5,
    memory_budget=2**21,
    uploads=3,
    poll_seconds=1.5,
    nudge_seconds=4,
    rescan_seconds=5,
    compare_seconds=3,
    watch_seconds=0.2,
)
#: Clocks of machines are wrong; S3's and AWS's is right.
_SKEWS_MS = (0, -20_000, 15_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many machines there are, how many chunks a full segment has, and whose tree it begins on.

    Attributes:
        nodes: machines.
        segment_chunks: of a full segment.
        past: which history went before; see `prehistory`.
    """

    nodes: int
    segment_chunks: int
    past: int = 0


@dataclass(slots=True)
class Stream:
    """One stream: who writes it, and who judges what becomes of it."""

    name: str
    cluster: Cluster
    oracle: Oracle


class Scene:
    """All of one history's world.

    Args:
        choices: decide everything.
        shape: of the cluster.
        trace: told of everything, or None.
        page_size: keys in one LIST answer.

    Attributes:
        streams: by name.
        buckets: what kinds of events it had, for coverage.
        page_size: keys in one LIST answer.
        running: deadline and owner of Lambdas and steps of workflows.
        before_change: told that a task is about to change something, and where; a conflict may be
            made there.
        before_upload: told that a slice that was cut is about to be read.
        after_answer: told that a broker has answered what is committed.
        before_put: told that an object is about to be PUT; the PUT may hang there.
        lasting: owners of what is never ended.
        function: `claim`, for agents.
        loses_items: whether items may be lost in this history.
        repairs: which repair has PUT an object; it takes for whole what it has just written.
        rules: of the retention that a task carries out, by owner: bytes, and the oldest time in ms.
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
        self.buckets: Counter[str] = Counter()
        self.net = Net(self.scheduler, buckets=self.buckets)
        self.objects = MemoryObjectStore(lambda: self.scheduler.now)
        self.before_change: Callable[[str, str], None] | None = None
        self.before_upload: Callable[[], None] = lambda: None
        self.after_answer: Callable[[], None] = lambda: None
        self.before_put: Callable[[str], None] = lambda key: None
        self.policies = MemoryPolicies()
        self.catalog = SimCatalog(
            self.net, self._landed, self._lost, self._edge, policies=self.policies
        )
        self.store = SimStore(
            self.net, self.objects, self._created, self._deleted, self._edge, self._put
        )
        self.function = AskedFunction(self, TIMEOUT_MS)
        self._uid = 0
        self.nodes = [
            Node(f"n{number}", _SKEWS_MS[number % len(_SKEWS_MS)]) for number in range(shape.nodes)
        ]
        self.streams: dict[str, Stream] = {}
        self.clusters: dict[str, Cluster] = {}
        self.add_stream(STREAM)
        self.queue = Queue(self)
        self.agents: list[SimAgent] = []
        self.running: list[tuple[int, str]] = []  # deadline and owner of Lambdas and workflows
        self.lasting: list[str] = []
        self.loses_items = False
        self.replacing: dict[str, Task] = {}  # who has PUT what takes the place of other objects
        self.rules: dict[object, tuple[int | None, int | None]] = {}
        self.page_size = page_size
        self._lives = 0
        self._lambdas = 0
        self._warm: list[Context] = []

    def add_stream(self, name: str) -> Stream:
        """A queue is declared: every machine has a member."""
        cluster = Cluster(
            [node.name for node in self.nodes], segment_chunks=self.shape.segment_chunks
        )
        oracle = Oracle(
            cluster,
            self.objects,
            lambda: self.catalog.inner,
            PREFIX,
            name,
            lambda: self.scheduler.now,
            GRACE_MS,
            self._seen,
            lambda: self.scheduler.steps,
            self._began,
            self._purging,
        )
        self.streams[name] = Stream(name, cluster, oracle)
        self._place(name, cluster)
        return self.streams[name]

    def _place(self, name: str, cluster: Cluster) -> None:
        self.clusters[name] = cluster
        for node, replica in zip(self.nodes, cluster.replicas, strict=True):
            node.add(name, replica)

    def _seen(self) -> Collection[str]:
        task = self.scheduler.task
        if task is None:
            return self.objects.objects.keys()
        if not task.name.startswith(("repair", "consolidate")):
            return task.seen
        # A repair plans once; what another one writes meanwhile comes too late for it.
        born = [stream.oracle.contents.born for stream in self.streams.values()]
        return {key for key in task.seen if max(b.get(key, 0) for b in born) < task.began}

    def _began(self) -> int:
        """The step at which the task that runs now was started."""
        task = self.scheduler.task
        return self.scheduler.steps + 1 if task is None else task.began

    def _purging(self) -> bool:
        """Whether what runs now makes go what was erased; outside of tasks anything may."""
        task = self.scheduler.task
        return task is None or task.name.startswith("purge")

    def pick(self) -> Stream:
        """One of the streams."""
        return self.choices.one_of(list(self.streams.values()))

    def new_uid(self) -> int:
        """Ids that look random and are not."""
        self._uid += 1
        return (self._uid * 0x9E3779B97F4A7C15) & (2**64 - 1)

    def context(self) -> Context:
        """A process's own view; a warm Lambda has caches from calls before."""
        if self._warm and self.choices.chance(30):
            return self.choices.one_of(self._warm)
        context = Context(
            self.store,
            self.catalog,
            PREFIX,
            self.new_uid,
            pool=Inline,
            hold_ms=TIMEOUT_MS,
            page_size=self.page_size,
        )
        if len(self._warm) < 3:
            self._warm.append(context)
        return context

    # --- told by the services ---

    def _stream_of(self, key: str) -> Stream | None:
        return self.streams.get(key.removeprefix(PREFIX).split("/")[1]) if "/" in key else None

    def _created(self, key: str) -> None:
        stream = self._stream_of(key)
        if stream is None:
            return
        stream.oracle.created(key)
        task = self.scheduler.task
        if task is not None and task.name.startswith(("repair", "consolidate", "erase")):
            self.replacing[key] = task
        if "/data/" in key:
            self.queue.object_created(key)

    def _deleted(self, key: str) -> None:
        self.buckets["deleted"] += 1
        stream = self._stream_of(key)
        if stream is not None:
            stream.oracle.deleted(key)

    def _lost(self, what: str) -> None:
        task = self.scheduler.task
        who = task.name.rpartition(" ")[0] if task is not None else ""
        if what == "commit" and who:
            what = who.partition(" ")[0]
        self.buckets[f"conflict of {what}"] += 1

    def _put(self, key: str) -> None:
        self.before_put(key)

    def _edge(self, what: str, where: str) -> None:
        if self.before_change is not None:
            self.before_change(what, where)

    def _landed(self, item: Any, what: str) -> None:
        self.buckets[what] += 1
        stream = self.streams[item.stream]
        if what in ("state deleting", "state deleted"):
            policies, _ = self.policies.load()
            stream.oracle.buried(item, held=effective(policies, item.stream, item.name).hold)
        before = stream.oracle.current
        replaced = self.catalog.replaced
        known = replaced is not None and replaced.table_id == item.table_id
        stream.oracle.landed(item, what, known=known)
        after = stream.oracle.current
        if before is None or after is None or after is before:
            return
        old, new = before.manifest, after.manifest
        task = self.scheduler.task
        if task is not None and task.owner in self.rules:
            retired(stream.oracle, old, new, *self.rules[task.owner])
        if new.quarantine != old.quarantine and what == "claim":
            self.buckets["begun anew" if new.first == new.next else "truncated"] += 1
        holes = [sum(e.kind == HOLE for e in each.leaves) for each in (old, new)]
        self.buckets["hole"] += max(0, holes[1] - holes[0])

    def post(self, stream: str) -> None:
        """An agent asks for a commit."""
        self.queue.ask(stream)

    # --- machines and agents ---

    def take_over(self, before: Scene) -> None:
        """Begin where another history has ended."""
        self.objects.take_over(before.objects)
        self.catalog.inner.items = dict(before.catalog.inner.items)
        self.scheduler.now = before.scheduler.now
        self._uid = before._uid
        for name, stream in before.streams.items():
            own = self.streams[name]
            own.cluster = own.oracle.cluster = stream.cluster.copy()
            self._place(name, own.cluster)
            own.oracle.take_over(stream.oracle)

    def busy_node(self) -> Node:
        """A machine whose agent is in the middle of something, if there is one."""
        busy = [each.node for each in self.agents if each.looking]
        if busy and self.choices.below(4):
            return self.choices.one_of(busy)
        return self.choices.one_of(self.nodes)

    def node_of(self, replica: Replica) -> Node:
        """The machine that a replica is on."""
        return next(node for node in self.nodes if node.name == replica.name)

    def start_agent(self, node: Node, settings: AgentSettings = SETTINGS) -> SimAgent:
        """An agent begins its life beside a broker."""
        self._lives += 1
        agent = SimAgent(
            self.scheduler,
            node,
            self._context_of_an_agent(),
            settings,
            f"agent {node.name}.{self._lives}",
            self.post,
            SimMembers(self.scheduler, self.clusters, node, self._asked),
            self.function,
        )
        agent.host.before_work = lambda: self.before_upload()
        agent.broker.answered = lambda: self.after_answer()
        self.agents.append(agent)
        agent.start()
        return agent

    def _context_of_an_agent(self) -> Context:
        """The view of one that may add fragments, and nothing else."""
        store, catalog = view_of_an_agent(self.store, self.catalog)
        return replace(self.fresh_context(), store=store, catalog=catalog)

    def fresh_context(self) -> Context:
        """The view of a process that has just begun."""
        return Context(
            self.store,
            self.catalog,
            PREFIX,
            self.new_uid,
            pool=Inline,
            hold_ms=TIMEOUT_MS,
            page_size=self.page_size,
        )

    def _asked(self, stream: str) -> None:
        self.streams[stream].oracle.asked = self.scheduler.now

    # --- time, Lambdas, workflows ---

    def advance(self, ms: int) -> None:
        """Let time pass: sleepers wake, events arrive, what takes too long is ended."""
        scheduler = self.scheduler
        scheduler.advance(ms)
        now = scheduler.now
        self.queue.deliver()
        for deadline, owner in self.running:
            if deadline <= now and scheduler.kill(owner):
                scheduler.say(f"{owner} times out")
                self.buckets["timed out"] += 1
        self.running = [each for each in self.running if each[0] > now]

    def pause(self, attempt: int) -> None:
        """What a use case waits before it tries a lost commit again."""
        self.scheduler.sleep(20 * attempt)

    def time_left(self) -> Callable[[], bool]:
        """Whether a step has time for more: for ever, or for some questions only."""
        if not self.choices.chance(20):
            return lambda: True
        questions = self.choices.below(4)

        def left() -> bool:
            nonlocal questions
            questions -= 1
            if questions < 0:
                self.buckets["out of time"] += 1
            return questions >= 0

        return left

    def spawn(self, name: str, act: Callable[[], object], *, ends: bool = True) -> str:
        """A Lambda or a step of a workflow: may fail, is ended when it takes too long.

        Args:
            name: of it.
            act: what it does.
            ends: whether it is ended; people and their programs are not.
        """
        self._lambdas += 1
        owner = f"{name} {self._lambdas}"

        def run() -> None:
            try:
                act()
                self.buckets[f"{name} done"] += 1
            except ColdstreamError as exc:
                self.scheduler.say(f"{type(exc).__name__}: {exc}")
                self.buckets[f"{name}: {type(exc).__name__}"] += 1

        if ends:
            self.running.append((self.scheduler.now + TIMEOUT_MS, owner))
        else:
            self.lasting.append(owner)
        self.scheduler.spawn(owner, run, owner)
        return owner

    def attempt(self, act: Callable[[], object]) -> ColdstreamError | None:
        """Alone, outside any task: nothing interferes."""
        try:
            act()
        except ColdstreamError as exc:
            self.scheduler.say(f"{type(exc).__name__}: {exc}")
            return exc
        return None

    def drain(self) -> None:
        """Run whatever can run now."""
        for _ in range(20_000):
            if not self.scheduler.step():
                return
        raise AssertionError("tasks that never rest")


def replicate_all(cluster: Cluster) -> None:
    """Let every replica copy all that it can."""
    for _ in range(400):
        news = [cluster.replicate(each, chunks=50) for each in cluster.replicas]
        if not any(news):
            return
