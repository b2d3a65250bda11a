"""A real broker alone, with the real agent, with plain PUTs; and how soon messages are durable."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.agent_process import AgentProcess
from bench.cloud import There
from bench.durable import Seen, percentiles
from bench.flood import MESSAGE_SIZE, Flood, flood
from bench.limits import Limits
from bench.plain_puts import plain_puts
from coldstream.names import FRAGMENT_SUFFIX
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import ClientError, StreamClient

FLUSH_SECONDS = 5
#: For the first look of an agent, and the broker's answers to it.
_SETTLE_SECONDS = 5.0


@dataclass(slots=True)
class Durable:
    """How soon messages of one rate were durable, seconds.

    Attributes:
        rate: messages a second that were confirmed.
        p50: of all messages.
        p99: of all messages.
    """

    rate: float
    p50: float
    p99: float


@dataclass(slots=True)
class Beside:
    """What publishing at full speed has come to, by turn.

    Attributes:
        alone: messages a second without the agent.
        beside: with it.
        puts: with a process beside it that PUTs as many bytes and does nothing else.
        late: of the messages that were published beside it.
        cpu: share of a core that the agent took.
        uploaded: share of what was published that was in S3 when publishing ended.
        memory: the most that an agent had resident, bytes.
    """

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    puts: list[float] = field(default_factory=list)
    late: list[Durable] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    uploaded: list[float] = field(default_factory=list)
    memory: int = 0


@dataclass(slots=True)
class Scene:
    """A broker, a stand-in of AWS, and the limits of all.

    Args:
        node: the broker.
        there: the stand-in.
        work: directory for logs.
        agents: limits of agents.
        others: limits of whoever publishes, which are the broker's.
    """

    node: BrokerNode
    there: There
    work: Path
    agents: Limits
    others: Limits
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def agent(self) -> Iterator[AgentProcess]:
        """An agent that has had its first look."""
        arguments = ["--committed", "broker", "--stream-uri", self.node.stream_uri]
        arguments += ["--management-uri", self.node.management_uri]
        arguments += ["--flush-seconds", str(FLUSH_SECONDS)]
        log = self.work / f"agent{next(self._numbers)}.log"
        environment = self.there.environment
        made = AgentProcess(self.node.data_dir, arguments, environment, self.agents, log)
        with made as agent:
            time.sleep(_SETTLE_SECONDS)
            agent.check()
            yield agent

    def flood(self, stream: str, seconds: float, rate: int = 0) -> Flood:
        """Publish to a new stream."""
        return flood(self.node.ports.stream, stream, seconds, self.others, rate=rate)

    def delete(self, stream: str) -> None:
        """Delete a stream, and have its disk back."""
        client = StreamClient(self.node.ports.stream, seconds=30)
        with suppress(ClientError):
            client.delete(stream)
        client.close()

    def durable(self, seen: Seen, came: Flood, stream: str, agent: AgentProcess) -> Durable:
        """Wait until all is durable that was published, and say how late it was."""
        (directory,) = self.node.data_dir.glob(f"__{stream}_*")
        seen.wait_for({directory.name: came.messages}, agent, 600)
        rows = [(at, directory.name, count) for at, count in came.samples]
        counts = [0, *(count for _, count in came.samples)]
        weights = [count - before for before, count in itertools.pairwise(counts)]
        return Durable(came.rate, *percentiles(seen.durable_after(rows), weights))


def beside(scene: Scene, turns: int, seconds: float) -> Beside:
    """Publish at full speed alone, with the agent, with plain PUTs; in turns: A B C, C B A, …"""
    found = Beside()
    for number in range(turns):
        alone, both, puts = f"alone{number}", f"beside{number}", f"puts{number}"
        order = (alone, both, puts)
        for stream in order if number % 2 == 0 else reversed(order):
            if stream is alone:
                found.alone.append(scene.flood(stream, seconds).rate)
            elif stream is both:
                _with_agent(scene, stream, seconds, found)
            else:
                found.puts.append(_with_puts(scene, stream, seconds, found.alone[-1]))
            scene.delete(stream)
            time.sleep(1)
    return found


def _with_puts(scene: Scene, stream: str, seconds: float, rate: float) -> float:
    with plain_puts(rate * MESSAGE_SIZE, scene.there.environment, scene.agents):
        time.sleep(_SETTLE_SECONDS)
        return scene.flood(stream, seconds).rate


def _with_agent(scene: Scene, stream: str, seconds: float, found: Beside) -> None:
    with scene.agent() as agent:
        cpu, seen = agent.cpu, Seen(scene.there)
        came = scene.flood(stream, seconds)
        found.cpu.append((agent.cpu - cpu) / came.seconds)
        seen.look()
        sent = sum(size for _, key, size in seen.puts if key.endswith(FRAGMENT_SUFFIX))
        found.uploaded.append(sent / (came.messages * (MESSAGE_SIZE + 5)))
        found.beside.append(came.rate)
        found.late.append(scene.durable(seen, came, stream, agent))
        found.memory = max(found.memory, agent.peak)


def at_rates(scene: Scene, rates: tuple[int, ...], seconds: float) -> list[Durable]:
    """How soon messages are durable at some rates, all at the same time, one agent beside."""
    seen = Seen(scene.there)
    with scene.agent() as agent, ThreadPoolExecutor(len(rates)) as pool:
        began = [pool.submit(scene.flood, f"rate{rate}", seconds, rate) for rate in rates]
        came = [each.result() for each in began]
        return [
            scene.durable(seen, each, f"rate{rate}", agent)
            for rate, each in zip(rates, came, strict=True)
        ]
