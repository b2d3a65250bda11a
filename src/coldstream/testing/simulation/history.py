"""One history: a while of trouble, decided by a seed, then peace, then the last checks.

Each history has its own mixture of troubles, so that some go deep where others go wide. All times
are far shorter than in life, in the same proportions: the grace time is longer than twice what any
Lambda, workflow or transfer may take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.agent.settings import AgentSettings
from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import EntryKind
from coldstream.plans.policy import PolicySet, Rule
from coldstream.testing.simulation.choices import Choices
from coldstream.testing.simulation.cluster import Cluster, Replica
from coldstream.testing.simulation.inline import Inline
from coldstream.testing.simulation.last_checks import arrived, nothing_leaks, reads_back, rebuilds
from coldstream.testing.simulation.net import Net
from coldstream.testing.simulation.nodes import SimAgent, SimMembers
from coldstream.testing.simulation.oracle import BrokenError, Oracle
from coldstream.testing.simulation.readers import read
from coldstream.testing.simulation.scheduler import Scheduler
from coldstream.testing.simulation.services import SimCatalog, SimStore
from coldstream.usecases import collect as collecting
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.load import World
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.retention import retain

STREAM = "__orders_1"
PREFIX = "rabbitmq/"
BRANCHING = 4
GRACE_MS = 120_000
#: Things that happen in a history, before peace.
ACTIONS = 60
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


@dataclass
class Trouble:
    """Which troubles a history has; each field is a weight or a percentage."""

    net_percent: float
    event_percent: float
    weights: list[int]


class History:
    """One history of one stream.

    Args:
        choices: decide everything.
        actions: how many things happen before peace.
        trace: told of everything, or None.

    Attributes:
        buckets: what kinds of events it had, for coverage.
    """

    def __init__(
        self,
        choices: Choices,
        *,
        actions: int = ACTIONS,
        trace: Callable[[str], None] | None = None,
        fresh: bool = False,
    ) -> None:
        self.choices = choices
        self.actions = actions
        self.scheduler = Scheduler(choices, trace)
        self.net = Net(self.scheduler)
        self.objects = MemoryObjectStore(lambda: self.scheduler.now)
        shape = choices.one_of((3, 3, 5)), choices.one_of((6, 3, 20))
        self.cluster = Cluster(
            [f"n{number}" for number in range(shape[0])], segment_chunks=shape[1], skews=_SKEWS_MS
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
        self._rounds = choices.below(3) if not fresh else 0
        self._shape = shape
        self.trouble = Trouble(0, 0, [])
        self.agents: list[SimAgent] = []
        self.events: list[int] = []  # when each is due
        self.running: list[tuple[int, str]] = []  # deadline and owner of Lambdas and workflows
        self.buckets: Counter[str] = Counter()
        self._lives = 0
        self._lambdas = 0

    # --- the world ---

    def new_uid(self) -> int:
        """Ids that look random and are not."""
        self._uid += 1
        return (self._uid * 0x9E3779B97F4A7C15) & (2**64 - 1)

    def world(self) -> World:
        """A process's own view: nothing is cached across processes."""
        return World(
            self.store, self.catalog, PREFIX, self.new_uid, pool=Inline, hold_ms=TIMEOUT_MS
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
        if self.trouble.event_percent and choices.chance(self.trouble.event_percent):
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

    # --- a run ---

    def begin(self) -> None:
        """Have a past."""
        if self._rounds:
            self._take_over(prehistory(*self._shape, self._rounds))

    def run(self) -> None:
        """All of it.

        Raises:
            BrokenError: an invariant does not hold.
        """
        choices = self.choices
        swarm = [weight * choices.below(3) for _, weight, _ in _ACTIONS]
        swarm[0] = swarm[0] or _ACTIONS[0][1]
        self.trouble = Trouble(
            choices.one_of((0.0, 2.0, 8.0)),
            choices.one_of((0.0, 15.0, 60.0)),
            [
                weight if name in _ALWAYS else swarm[n]
                for n, (name, weight, _) in enumerate(_ACTIONS)
            ],
        )
        self.net.percent = self.trouble.net_percent
        try:
            writer = self.cluster.writer or self.cluster.elect(self.cluster.reachable)
            for replica in self.cluster.replicas:
                if replica is writer or choices.below(4) == 3:
                    self._start_agent(replica)
            for _ in range(self.actions):
                self._act()
            self._peace()
        finally:
            self.scheduler.close()

    def _take_over(self, before: History) -> None:
        """Begin where another history has ended."""
        self.cluster = before.cluster.copy()
        self.oracle.cluster = self.cluster
        self.objects.take_over(before.objects)
        self.catalog.inner.items = dict(before.catalog.inner.items)
        self.oracle.take_over(before.oracle)
        self.scheduler.now = before.scheduler.now
        self._uid = before._uid

    def _act(self) -> None:
        scheduler = self.scheduler
        if scheduler.ready and self.choices.below(10) < 7:
            scheduler.step()
            return
        name, _, act = _ACTIONS[self.choices.weighted(self.trouble.weights)]
        if act(self) is not False:
            self.buckets[name] += 1

    # --- actions: the brokers ---

    def _writes(self) -> bool:
        leaders = [r for r in self.cluster.replicas if r.up and r.leads]
        if not leaders:
            return False
        writer = self.choices.one_of(leaders)
        for _ in range(1 + self.choices.below(4)):
            self.cluster.write(writer, self.scheduler.now, records=1 + self.choices.below(3))
        return True

    def _replicates(self) -> bool:
        news = False
        for replica in self.cluster.replicas:
            if self.choices.below(4) < 3:
                news = self.cluster.replicate(replica, chunks=1 + self.choices.below(6)) or news
        return news

    def _elects(self) -> bool:
        among = self.cluster.reachable
        if len(among) > self.cluster.majority:
            among = list(among)
            while len(among) > self.cluster.majority and self.choices.below(2):
                among.pop(self.choices.below(len(among)))
        best = self.cluster.elect(among)
        if best is not None:
            self.scheduler.say(f"{best.name} writes epoch {best.epoch} from {best.tail} on")
        return best is not None

    def _node(self) -> Replica:
        return self.choices.one_of(self.cluster.replicas)

    def _busy_node(self) -> Replica:
        """A node whose agent is in the middle of something, if there is one: the worst moment."""
        busy = [each.replica for each in self.agents if each.looking]
        return self.choices.one_of(busy) if busy and self.choices.below(4) else self._node()

    def _stops(self) -> bool:
        replica = self._busy_node()
        if not replica.up:
            return False
        self.cluster.stop(replica, keep=None)
        self.scheduler.say(f"{replica.name} stops")
        return True

    def _loses_power(self) -> bool:
        """One node, or all of them at once: then committed messages may be lost."""
        victims = self.cluster.replicas if self.choices.below(4) == 3 else [self._busy_node()]
        for replica in victims:
            if not replica.up:
                continue
            lost = self.choices.below(replica.tail - replica.synced + 1)
            self.cluster.stop(replica, keep=replica.tail - lost)
            self.scheduler.say(f"{replica.name} loses power, and {lost} offsets")
        return True

    def _starts(self) -> bool:
        down = [each for each in self.cluster.replicas if not each.up]
        for replica in down:
            self.cluster.start(replica, self.scheduler.now)
            self.scheduler.say(f"{replica.name} starts")
        return bool(down)

    def _cuts_off(self) -> None:
        replica = self._node()
        replica.cut_off = not replica.cut_off
        replica.reachable_since = self.scheduler.now
        self.scheduler.say(f"{replica.name} cut off: {replica.cut_off}")

    def _syncs(self) -> None:
        for replica in self.cluster.replicas:
            replica.synced = replica.tail

    def _retires(self) -> bool:
        return self._retires_on(self._busy_node())

    def _retires_on(self, replica: Replica) -> bool:
        done = self.cluster.retire(replica)
        if done:
            self.scheduler.say(f"{replica.name} begins at {replica.begin}")
        return done

    def _fails_over(self) -> bool:
        """The writer stops, another one is elected, writes on, and is copied."""
        writer = self.cluster.writer
        if writer is not None:
            self.cluster.stop(writer, keep=None)
            self.scheduler.say(f"{writer.name} stops")
        return self._goes_on()

    def _forgets(self) -> bool:
        """All nodes lose power and their latest chunks, and go on with what they have."""
        for replica in self.cluster.replicas:
            if replica.up:
                lost = self.choices.below(min(replica.tail - replica.synced, 12) + 1)
                self.cluster.stop(replica, keep=replica.tail - lost)
                self.scheduler.say(f"{replica.name} loses power, and {lost} offsets")
        for replica in self.cluster.replicas:
            self.cluster.start(replica, self.scheduler.now)
        done = self._goes_on()
        if done and self.choices.below(3) == 2:
            # One member keeps as little as it may: perhaps nothing that shows where they parted.
            for _ in range(1 + self.choices.below(3)):
                self._goes_on()
            replica = self._node()
            while self.cluster.retire(replica):
                self.scheduler.say(f"{replica.name} begins at {replica.begin}")
        return done

    def _forgets_while_claiming(self) -> bool:
        """The cluster forgets, and a member again, or retires, in the middle of its new claim."""
        if not self._forgets():
            return False
        self._advance(2000)
        for _ in range(1 + self.choices.below(12)):
            self.scheduler.step()
        busy = [each.replica for each in self.agents if each.looking]
        if not busy:
            return False
        replica = self.choices.one_of(busy)
        if self.choices.below(2):
            return self._retires_on(replica)
        lost = self.choices.below(min(replica.tail - replica.begin, 12) + 1)
        self.cluster.stop(replica, keep=replica.tail - lost)
        self.cluster.start(replica, self.scheduler.now)
        self.scheduler.say(f"{replica.name} loses power, and {lost} offsets, and starts")
        return True

    def _goes_on(self) -> bool:
        if not self._elects():
            return False
        writer = self.cluster.writer
        if writer is None:
            return False
        for _ in range(1 + self.choices.below(4)):
            self.cluster.write(writer, self.scheduler.now, records=1 + self.choices.below(3))
        self._replicate_all()
        return True

    # --- actions: the agents ---

    def _start_agent(self, replica: Replica) -> None:
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

    def _agent_dies(self) -> bool:
        if not self.agents:
            return False
        agent = self.agents.pop(self.choices.below(len(self.agents)))
        self.scheduler.say(f"{agent.owner} dies")
        self.scheduler.kill(agent.owner)
        return True

    def _agent_begins(self) -> None:
        """Another agent; perhaps the second one on its node."""
        self._start_agent(self._node())

    def _agent_sleeps(self) -> bool:
        if not self.agents:
            return False
        agent = self.choices.one_of(self.agents)
        ms = self.choices.one_of((3000, 30_000, 3 * GRACE_MS))
        self.scheduler.say(f"{agent.owner} is stopped for {ms} ms")
        self.scheduler.freeze(agent.owner, ms)
        return True

    # --- actions: AWS ---

    def _waits(self) -> None:
        self._advance(self.choices.one_of((200, 1000, 5000, 30_000)))

    def _advance(self, ms: int) -> None:
        scheduler = self.scheduler
        scheduler.advance(ms)
        now = scheduler.now
        due = [each for each in self.events if each <= now]
        if due:
            self.events = [each for each in self.events if each > now]
            # A batching window makes one call of many events.
            self._spawn("commit", lambda: commit_runs(self.world(), STREAM, pause=self._pause))
        for deadline, owner in self.running:
            if deadline <= now and scheduler.kill(owner):
                scheduler.say(f"{owner} times out")
        self.running = [each for each in self.running if each[0] > now]

    def _pause(self, attempt: int) -> None:
        self.scheduler.sleep(20 * attempt)

    def _spawn(self, name: str, act: Callable[[], object]) -> None:
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

    def _commits(self) -> None:
        self._spawn("commit", lambda: commit_runs(self.world(), STREAM, pause=self._pause))

    def _rebalances(self) -> None:
        self._spawn(
            "rebalance",
            lambda: rebalance(self.world(), STREAM, branching=BRANCHING, pause=self._pause),
        )

    def _retains(self) -> None:
        limits = Rule("r", max_bytes=self.choices.one_of((6000, 2000, 800)))
        self._spawn(
            "retain",
            lambda: retain(
                self.world(),
                STREAM,
                PolicySet((limits,)),
                now_ms=self.scheduler.now,
                pause=self._pause,
            ),
        )

    def _consolidates(self) -> None:
        self._spawn(
            "consolidate",
            lambda: consolidate(
                self.world(),
                self.store,
                STREAM,
                target_size=2000,
                branching=BRANCHING,
                pause=self._pause,
            ),
        )

    def _collects(self) -> None:
        self._spawn("collect", self._collect)

    def _collect(self) -> object:
        now = self.scheduler.now
        return collecting.collect(
            self.world(), self.store, STREAM, grace_ms=GRACE_MS, run_ms=now, now_ms=now
        )

    def _rebuilds(self) -> None:
        """An operator installs a manifest that is made anew from the bucket."""
        self._spawn(
            "rebuild",
            lambda: rebuild(self.world(), STREAM, branching=BRANCHING, dry_run=False),
        )

    def _reconciles(self) -> None:
        self._spawn("reconcile", lambda: reconcile(self.world(), STREAM, pause=self._pause))

    def _lambda_dies(self) -> bool:
        if not self.running:
            return False
        _, owner = self.running.pop(self.choices.below(len(self.running)))
        died = self.scheduler.kill(owner) > 0
        if died:
            self.scheduler.say(f"{owner} dies")
        return died

    def _backs_up(self) -> None:
        self.catalog.back_up()

    def _table_is_restored(self) -> bool:
        if not self.objects.objects:
            return False
        self.catalog.restore(self.choices.below(3))
        self.oracle.restored()
        self.scheduler.say("the table is restored from a backup")
        return True

    def _reads(self) -> None:
        current = self.oracle.current
        following = 1 if current is None else current.root.next_offset + 1
        start = self.choices.below(following)

        def act() -> object:
            got = read(
                self.store,
                self.catalog,
                self.cluster,
                prefix=PREFIX,
                stream=STREAM,
                start=start,
                clock=lambda: self.scheduler.now / 1000,
                refresh_seconds=GRACE_MS / 4000,
            )
            if got is not None:
                self.buckets["read to the end"] += 1
                for gap in got.gaps:
                    self.buckets[f"gap by {gap.reason.value}"] += 1
            return got

        self._spawn("read", act)

    # --- peace ---

    def _peace(self) -> None:
        """No more trouble: everything must come to rest, and then hold."""
        self.scheduler.say("peace")
        self.net.percent = 0
        self.trouble.event_percent = 0
        cluster = self.cluster
        for replica in cluster.replicas:
            replica.cut_off = False
            cluster.start(replica, self.scheduler.now)
        for agent in self.agents:
            self.scheduler.kill(agent.owner)
        self.agents.clear()
        for _, owner in self.running:
            self.scheduler.kill(owner)
        self.running.clear()
        self._drain()
        self._finish_rebuild()
        self._try(lambda: reconcile(self.world(), STREAM, pause=self._pause))
        if cluster.writer is None:
            cluster.elect(cluster.reachable)
        writer = cluster.writer
        assert writer is not None
        cluster.write(writer, self.scheduler.now, records=1)
        self._replicate_all()
        self._start_agent(writer)
        for second in range(120):
            self._drain()
            self._advance(1000)
            self._finish_rebuild()
            if second == 12:
                # Only another member may have what the writer's own log has lost.
                for replica in cluster.replicas:
                    if replica is not writer:
                        self._start_agent(replica)
            if self._arrived(writer):
                break
        self._drain()
        self._checks(writer)

    def _finish_rebuild(self) -> None:
        """A rebuild that died, or whose first write came late, is made again, as its error says."""
        item = self.catalog.inner.items.get(STREAM)
        if item is not None and item.state is StreamState.REBUILDING:
            self._try(lambda: rebuild(self.world(), STREAM, branching=BRANCHING, dry_run=False))

    def _replicate_all(self) -> None:
        for _ in range(400):
            news = [self.cluster.replicate(each, chunks=50) for each in self.cluster.replicas]
            if not any(news):
                return

    def _try(self, act: Callable[[], object]) -> None:
        """Alone, outside any task: nothing interferes."""
        try:
            act()
        except ColdstreamError as exc:
            self.scheduler.say(f"{type(exc).__name__}: {exc}")

    def _drain(self) -> None:
        """Run whatever can run now."""
        for _ in range(20_000):
            if not self.scheduler.step():
                return
        raise AssertionError("tasks that never rest")

    def _arrived(self, writer: Replica) -> bool:
        try:
            arrived(self.oracle, self.oracle.current, writer, ())
        except BrokenError:
            return False
        return True

    def _checks(self, writer: Replica) -> None:
        errors = [str(each.follower.progress.error) for each in self.agents]
        current = self.oracle.current
        arrived(self.oracle, current, writer, errors)
        if current is None:
            return
        store, catalog = self.objects, self.catalog.inner
        if self.choices.below(3):  # the rest takes as long as all before it
            reads_back(store, catalog, self.cluster, current, PREFIX)
            return
        for agent in self.agents:
            self.scheduler.kill(agent.owner)
        for _ in range(5):
            self.scheduler.now += 2 * GRACE_MS
            self._collect()
        current = self.oracle.current or current
        nothing_leaks(store, self.oracle, current)
        reads_back(store, catalog, self.cluster, current, PREFIX)
        rebuilds(self.world(), current, branching=BRANCHING)


@cache
def prehistory(nodes: int, segment_chunks: int, rounds: int) -> History:
    """A while in which all goes well, so that there is a tree for the trouble to come."""
    history = History(Choices(0, replay=[]), fresh=True)
    history.cluster = history.oracle.cluster = Cluster(
        [f"n{n}" for n in range(nodes)], segment_chunks=segment_chunks, skews=_SKEWS_MS
    )
    writer = history.cluster.elect(history.cluster.reachable)
    assert writer is not None
    history._start_agent(writer)
    for _ in range(rounds):
        for number in range(14):
            history.cluster.write(writer, history.scheduler.now, records=1 + number % 3)
        history._replicate_all()
        for _ in range(4):
            history._advance(1000)
            history._drain()
        history._rebalances()
        history._drain()
    history.scheduler.close()
    return history


#: Name, weight, what. The first one is always possible.
_ACTIONS: tuple[tuple[str, int, Callable[[History], bool | None]], ...] = (
    ("time passes", 20, History._waits),
    ("chunks are written", 20, History._writes),
    ("replicas copy", 25, History._replicates),
    ("election", 3, History._elects),
    ("fail-over", 2, History._fails_over),
    ("cluster forgets", 1, History._forgets),
    ("cluster forgets in a claim", 1, History._forgets_while_claiming),
    ("broker stops", 2, History._stops),
    ("broker loses power", 2, History._loses_power),
    ("broker starts", 5, History._starts),
    ("broker is cut off", 2, History._cuts_off),
    ("disks are synced", 2, History._syncs),
    ("local retention", 3, History._retires),
    ("agent dies", 2, History._agent_dies),
    ("agent begins", 3, History._agent_begins),
    ("agent is stopped", 2, History._agent_sleeps),
    ("commit", 3, History._commits),
    ("rebalance", 3, History._rebalances),
    ("retention", 2, History._retains),
    ("consolidate", 2, History._consolidates),
    ("collect", 4, History._collects),
    ("rebuild", 1, History._rebuilds),
    ("reconcile", 2, History._reconciles),
    ("read", 3, History._reads),
    ("Lambda dies", 2, History._lambda_dies),
    ("backup", 1, History._backs_up),
    ("table is restored", 1, History._table_is_restored),
)
_ALWAYS = frozenset({"time passes", "chunks are written", "replicas copy", "agent begins"})
