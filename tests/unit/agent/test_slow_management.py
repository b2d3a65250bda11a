"""A management API that trickles stops no agent's loop, and is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.agent.broker.gate import Gate
from coldstream.agent.host import ThisMachine
from coldstream.agent.run import Agent
from coldstream.agent.selection import Selection, StreamRule
from coldstream.agent.settings import AgentSettings
from coldstream.agent.steering import Steered, SteeredAgent, Steering
from coldstream.agent.telling.progress import Progress
from coldstream.broker.connection import StreamUri
from coldstream.broker.management import Management
from coldstream.broker.node import Node
from coldstream.usecases.claim_function import OwnRights
from coldstream_devkit.generator import write_stream
from tests.support.probe_stack import eventually
from tests.support.trickle import ANSWER, Trickle

from .conftest import Site, no_pause

STREAM = "__orders_1795444148462839326"
#: How much faster than the world's an agent's clock is here.
HURRY = 100.0


def hurried() -> float:
    return time.monotonic() * HURRY


class Hurried(ThisMachine):
    """Threads as they are, and minutes that are over in a second."""

    def monotonic(self) -> float:
        return hurried()


class HurriedSteered(Steered):
    def monotonic(self) -> float:
        return hurried()


@pytest.fixture
def server() -> Iterator[Trickle]:
    made = Trickle(ANSWER)
    yield made
    made.close()


@contextmanager
def running(agent: Agent) -> Iterator[list[Progress]]:
    """An agent at work, and what it has told last; it is to end once it is asked to."""
    told: list[Progress] = []

    def report(rows: list[Progress]) -> None:
        told[:] = rows

    def work() -> None:
        try:
            agent.run()
        except Exception as error:
            died.append(error)
        ended.set()

    died: list[Exception] = []
    agent.report, ended = report, threading.Event()
    threading.Thread(target=work, daemon=True).start()
    try:
        yield told
    finally:
        agent.stop()
        assert ended.wait(60), "it does not end"
        assert not died


def gate_at(server: Trickle, data_dir: Path, seconds: float) -> Gate:
    management = Management("127.0.0.1", server.port, "u", "p", seconds=seconds)
    return Gate(data_dir, Node(StreamUri("127.0.0.1", 1, "u", "p"), management), clock=hurried)


def steered(site: Site, ask: Callable[[str], object], gate: Gate) -> SteeredAgent:
    """An agent one of whose rules asks for a name."""
    settings = AgentSettings(node="a", poll_seconds=0.05)
    rules = Selection((StreamRule(name="audit", tier=False),))
    steering, context = Steering(settings, rules, gate.names, ask), site.context()
    return SteeredAgent(
        context=context,
        function=OwnRights(context, no_pause, lambda: 0),
        data_dir=site.data_dir,
        committed=gate,
        settings=settings,
        requests=site,
        names=gate.names,
        pause=no_pause,
        host=HurriedSteered(steering),
        steering=steering,
    )


@pytest.mark.parametrize("rules", [False, True])
def test_a_management_api_that_trickles_is_told_as_a_standstill_and_ends_with_the_agent(
    site: Site, server: Trickle, rules: bool
) -> None:
    """For minutes nothing was told, and no signal but one that kills ended the agent."""
    write_stream(site.data_dir / STREAM, messages=100)
    gate = gate_at(server, site.data_dir, 0.2)
    agent = (
        steered(site, gate.ask, gate)
        if rules
        else site.agent(committed=gate, host=Hurried(), once=False)
    )

    with running(agent) as told:
        (reason,) = eventually(
            lambda: [each.standstill.reason for each in told if each.standstill], seconds=60
        )

    assert "has not answered within 0.6 s" in reason


def test_the_agents_own_thread_asks_nobody_for_a_name(site: Site, server: Trickle) -> None:
    """It stood still while the broker was silent, and with it all that it had to tell."""
    write_stream(site.data_dir / STREAM, messages=100)
    answers, reports = threading.Event(), [0]
    gate = gate_at(server, site.data_dir, 10)
    agent = steered(site, lambda stream: answers.wait(60), gate)

    with running(agent):
        took = agent.report

        def counted(rows: list[Progress]) -> None:
            reports[0] += 1
            took(rows)

        agent.report = counted
        told = eventually(lambda: reports[0] > 5, seconds=30)
        answers.set()

    assert told
