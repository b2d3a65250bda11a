"""What a campaign plays with: cluster, agents, streams with their publishers and taps, counts."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.campaign.agents import AgentProcess
from coldstream_devkit.campaign.life import ARGUMENTS, Kind, Life, leader_of, wait_until
from coldstream_devkit.campaign.link import Link
from coldstream_devkit.campaign.traffic import Publisher, Tap
from coldstream_devkit.stream_client import ClientError, StreamClient
from coldstream_devkit.wrong_clock import WrongClock, build

_ENDPOINT = "AWS_ENDPOINT_URL"
_DAY = 86_400


class CampaignError(RuntimeError):
    """The campaign itself cannot go on; nothing is said of what it tries."""


@dataclass(slots=True)
class Running:
    """One life of a stream, its publisher and its tap."""

    life: Life
    publisher: Publisher
    tap: Tap


@dataclass(slots=True)
class Scene:
    """Everything that runs.

    Attributes:
        cluster: of three nodes.
        agents: one beside each.
        links: between each agent and AWS.
        clocks: each that may be set; None is right.
        log: what was done and when.
        rng: of whatever is chosen.
        counts: what was done how often.
        running: the living life of each queue.
        past: lives that have ended.
    """

    cluster: Cluster
    agents: list[AgentProcess]
    links: list[Link]
    clocks: list[WrongClock | None]
    log: Path
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    running: dict[str, Running] = field(default_factory=dict)
    past: list[Life] = field(default_factory=list)
    _lives: int = 0

    @classmethod
    def of(
        cls, cluster: Cluster, environment: Mapping[str, str], directory: Path, seed: int
    ) -> Scene:
        """Agents for a cluster, not started yet, and links, which are."""
        target = urlsplit(environment[_ENDPOINT]).port
        assert target is not None, environment[_ENDPOINT]
        links = [Link(target) for _ in cluster.nodes]
        agents = []
        for node, link in zip(cluster.nodes, links, strict=True):
            link.start()
            # The URL of the queue has the port, too.
            through = {
                name: value.replace(f":{target}", f":{link.port}")
                for name, value in environment.items()
            }
            agents.append(AgentProcess(node, through, directory / f"agent-{node.name}.log"))
        clocks: list[WrongClock | None] = [None]
        library = build(directory)
        if library is not None:
            clocks += [WrongClock(library.resolve(), seconds) for seconds in (-_DAY, _DAY)]
        rng = random.Random(seed)
        return cls(cluster, agents, links, clocks, directory / "acts.log", rng)

    def discard(self) -> None:
        """End agents and links."""
        for agent in self.agents:
            agent.discard()
        for link in self.links:
            link.close()

    def say(self, words: str) -> None:
        """Write down what was done."""
        with self.log.open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {words}\n")

    def create(self, kind: Kind) -> None:
        """Create a stream from a node by chance, which then leads it, and publish to it.

        Raises:
            CampaignError: it cannot be created in a minute.
        """
        queue, nodes = f"s.{kind}", self.cluster.nodes
        self._lives += 1
        life = Life(queue, f"{kind}{self._lives}", kind)
        before = self._directories(queue)

        def created() -> bool:
            # Without its founder, 3.10 elects nobody for minutes: not from the first node.
            node = self.rng.choice(nodes[1:])
            try:
                client = StreamClient(node.ports.stream, seconds=10)
                client.create(queue, ARGUMENTS[kind])
                client.close()
            except ClientError as exc:
                self.say(f"create {queue}: {exc}")
                return False
            return True

        if not wait_until(created, 60) or not wait_until(
            lambda: self._directories(queue) - before, 60
        ):
            raise CampaignError(f"{queue} cannot be created")
        self.cluster.flush()
        (life.directory,) = self._directories(queue) - before
        seed = self.rng.randrange(2**32)
        made = Running(life, Publisher(life, nodes, seed), Tap(life, nodes, seed))
        made.publisher.start()
        made.tap.start()
        self.running[queue] = made
        self.say(f"created {life.directory} as {life.uid}")

    def _directories(self, queue: str) -> set[str]:
        pattern = f"__{queue.replace('.', '_')}_*"
        return {path.name for node in self.cluster.nodes for path in node.data_dir.glob(pattern)}

    def delete(self, queue: str) -> None:
        """Delete a stream while it is published to, and tapped."""
        run = self.running.pop(queue)
        run.life.quiet.set()

        def deleted() -> bool:
            node = self.rng.choice(self.cluster.nodes)
            try:
                client = StreamClient(node.ports.stream, seconds=10)
                client.delete(queue)
                client.close()
            except ClientError as exc:
                return exc.code == 2  # an earlier try has come through
            return True

        gone = wait_until(deleted, 60)
        run.life.deleted.set()
        run.publisher.join(20)
        run.tap.join(90)
        self.past.append(run.life)
        self.counts["deletions"] += 1
        self.say(f"deleted {run.life.directory}: {gone}")

    def leaders(self) -> dict[str, str]:
        """Name of the leader's node of each queue that has one."""
        found = {queue: leader_of(self.cluster.nodes, queue) for queue in self.running}
        return {queue: node.name for queue, node in found.items() if node is not None}

    def confirms(self, since: float) -> bool:
        """Whether every stream has had a confirm since that moment."""
        return all(run.publisher.last_confirm > since for run in self.running.values())

    def confirmed(self) -> int:
        """How many messages are confirmed."""
        lives = [*self.past, *(run.life for run in self.running.values())]
        return sum(len(life.confirmed) for life in lives)
