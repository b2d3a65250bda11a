"""An agent whose rules ask for names, and which nobody has told them yet."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryHeartbeats
from coldstream.agent.broker.committed import AllCommitted, Known
from coldstream.agent.selection import Selection, StreamRule
from coldstream.agent.settings import AgentSettings
from coldstream.agent.steering import SteeredAgent, Steering
from coldstream.agent.telling.progress import Progress
from coldstream.manifest.catalog import QueueName
from coldstream.plans.heartbeats import Heartbeat
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.told_by_agents import told_by_agents
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site, no_pause
from .machine import EPOCH_MS, Machine

UNKNOWN, LEFT = "__orders_1745252105682952932", "__left_1745252105682952932"


class Named(AllCommitted):
    """Says of every stream that its name is not settled, and why."""

    trouble = "the management API at x does not answer"

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, stream: str) -> None:
        self.forgotten.append(stream)

    def known(self, stream: str) -> Known:
        return Known(local=True, trouble=self.trouble)


class Scene:
    """An agent that leaves the stream `audit` alone, and knows the names that a test says."""

    def __init__(self, site: Site, committed: AllCommitted) -> None:
        write_stream(site.data_dir / UNKNOWN, messages=10)
        self.heard, context = MemoryHeartbeats(), site.context()
        settings = AgentSettings(node="a", poll_seconds=1.0)
        rules = Selection((StreamRule(name="audit", tier=False),))
        self.names: dict[str, QueueName] = {}
        steering = Steering(settings, rules, self.names, lambda stream: None)

        class Here(Machine):
            def scan(self, data_dir: Path, known: Any) -> Any:
                return steering.chosen(Machine.scan(self, data_dir, known))

        self.machine = Here()
        self.agent = SteeredAgent(
            context=context,
            function=OwnRights(context, no_pause, lambda: 0),
            data_dir=site.data_dir,
            committed=committed,
            settings=settings,
            requests=site,
            names=self.names,
            pause=no_pause,
            heartbeats=self.heard,
            host=self.machine,
            steering=steering,
        )

    def steer(self, flush: int) -> None:
        """As a reload of the file does; seconds."""
        steering = self.agent.steering
        steering.change(replace(steering.settings, flush_ms=flush * 1000), steering.selection)
        self.agent.steer()

    def run(self, seconds: float) -> list[Progress]:
        self.agent._stop = self.machine.flag()
        until = self.machine.now + seconds

        def report(rows: list[Progress]) -> None:
            if self.machine.now >= until:
                self.rows = rows
                self.agent.stop()

        self.agent.report = report
        self.agent.run()
        return self.rows


def test_a_stream_that_waits_for_its_name_is_not_told_to_be_gone(site: Site) -> None:
    """After a start with such rules every stream of the table was `gone` for a minute."""
    scene = Scene(site, Named())

    assert scene.run(2) == []

    told = told_by_agents(scene.heard, now_ms=EPOCH_MS + 1000)
    assert told.complete
    assert not told.is_gone(UNKNOWN)
    assert told.is_gone(LEFT)


def test_a_stream_that_a_rule_leaves_alone_is_not_told_to_be_gone(site: Site) -> None:
    """It is on every node; who reads `gone` may delete what the remote tier has of it."""
    scene = Scene(site, Named())
    write_stream(site.data_dir / LEFT, messages=10)
    scene.names[LEFT] = QueueName("", "/", "audit")

    assert scene.run(2) == []

    told = told_by_agents(scene.heard, now_ms=EPOCH_MS + 1000)
    assert told.complete
    assert told.is_gone(LEFT) is None


@pytest.mark.parametrize("committed", [Named(), AllCommitted()])
def test_a_stream_that_waits_for_its_name_for_minutes_is_told_again_and_again(
    site: Site, committed: AllCommitted
) -> None:
    """Nothing of it is uploaded, and no metric, no heartbeat and no second line said so."""
    scene = Scene(site, committed)

    (row,) = scene.run(3600)

    assert row.stream == UNKNOWN
    assert row.standstill is not None
    assert "asks for the name of its queue" in row.standstill.reason
    assert len(row.notices) > 2
    (beat,) = scene.heard.all()
    assert isinstance(beat, Heartbeat)
    assert (beat.streams, beat.standing) == (1, 1)


def test_a_stream_without_a_message_waits_for_its_name_and_is_not_told_of(site: Site) -> None:
    committed = Named()
    committed.trouble = ""

    assert Scene(site, committed).run(3600) == []


def test_a_stream_that_has_its_name_is_followed_and_counted_once(site: Site) -> None:
    scene = Scene(site, Named())
    scene.run(600)
    scene.names[UNKNOWN] = QueueName("", "/", "orders")

    (row,) = scene.run(600)

    assert row.standstill is None
    assert row.next_offset == 10


def test_what_waits_for_a_flush_time_that_is_made_shorter_waits_no_longer_than_that(
    site: Site,
) -> None:
    """It waited for as long as was said before, in a stream to which nothing more came."""
    scene = Scene(site, AllCommitted())
    scene.names[UNKNOWN] = QueueName("", "/", "orders")
    scene.steer(3600)
    scene.run(20)
    append_chunks(site.data_dir / UNKNOWN, [build_chunk(10, 1, EPOCH_MS, [b"x"] * 5)])

    (row,) = scene.run(20)
    assert row.next_offset == 10
    scene.steer(5)

    (row,) = scene.run(20)
    assert row.next_offset == 15


@pytest.mark.parametrize("queue", ["", "audit"])
def test_of_a_directory_that_was_never_followed_nothing_is_known_once_it_is_gone(
    site: Site, queue: str
) -> None:
    """It was warned of for ever, and with streams that come and go what is known only grew."""
    committed = Named()
    scene = Scene(site, committed)
    if queue:
        scene.names[UNKNOWN] = QueueName("", "/", queue)
    scene.run(5)
    assert committed.forgotten == []

    shutil.rmtree(site.data_dir / UNKNOWN)
    scene.run(5)

    assert committed.forgotten == [UNKNOWN]
