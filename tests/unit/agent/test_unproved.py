"""A stream of which the broker proves nothing shows: as lag, as a standstill, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.agent.broker.gate import Gate
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.run import Agent
from coldstream.agent.telling.progress import Progress
from coldstream.errors import PermissionDeniedError, UnavailableError
from coldstream.osiris.chunk import ChunkType
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site
from .machine import EPOCH_MS, Machine
from .test_gate import ORDERS, STREAM, Scripted

SILENT = UnavailableError("the broker at 127.0.0.1:5552 does not answer")
REFUSED = PermissionDeniedError("the broker refuses the user 'tier' in the virtual host /")


class Scene:
    """An agent with a real gate at a scripted broker, on a machine that stands still."""

    def __init__(self, site: Site) -> None:
        self.site, self.machine, self.broker = site, Machine(), Scripted()
        write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
        self.next = 100
        self.agent = self.begin()

    def begin(self, **settings: Any) -> Agent:
        """A new agent, which knows nothing of before."""
        self.gate = Gate(self.site.data_dir, self.broker, clock=self.machine.monotonic)
        defaults: dict[str, Any] = {"flush_ms": 5000, "poll_seconds": 15, "nudge_seconds": 2}
        self.agent = self.site.agent(
            committed=self.gate, host=self.machine, once=False, **(defaults | settings)
        )
        return self.agent

    def grow(self, kind: ChunkType = ChunkType.USER) -> None:
        count = 5 if kind is ChunkType.USER else 1
        at_ms = EPOCH_MS + int(self.machine.now * 1000)
        chunk = build_chunk(self.next, 1, at_ms, [b"\0\0\0"] * count, chunk_type=kind)
        append_chunks(self.site.data_dir / STREAM, [chunk])
        self.next += count
        if kind is ChunkType.USER:
            self.delivered = chunk[:48]

    def delivers(self) -> None:
        self.broker.headers[ORDERS] = self.delivered

    def refuses(self, error: Exception) -> None:
        """As a connection that breaks."""
        self.broker.headers[ORDERS] = error
        self.broker.number += 1

    def run(self, seconds: float, often: Callable[[], object] = lambda: None) -> Progress:
        until = self.machine.now + seconds

        def report(rows: list[Progress]) -> None:
            often()
            if self.machine.now >= until:
                self.agent.stop()

        self.agent.report = report
        self.agent.run()
        (row,) = self.agent.progress()
        return row


@pytest.fixture
def scene(site: Site) -> Scene:
    return Scene(site)


def told(row: Progress) -> list[str]:
    return [each for each in row.notices if "no progress for" in each]


@pytest.mark.parametrize("error", [SILENT, REFUSED])
def test_a_stream_of_which_nothing_was_ever_proved_is_told_again_and_again(
    scene: Scene, error: Exception
) -> None:
    scene.refuses(error)

    row = scene.run(3600)

    assert row.marks.unproved_seconds > 3500
    assert row.marks.lag_seconds > 3500
    assert row.marks.lag_bytes > 0
    assert 9 <= len(told(row)) <= 13
    assert "100 offsets are not in the manifest: not proved to be committed" in told(row)[-1]
    assert str(error) in told(row)[-1]
    assert row.standstill is not None


def test_a_broker_that_is_down_for_an_hour_shows_and_is_taken_back_when_it_is_there(
    scene: Scene,
) -> None:
    scene.grow()
    scene.delivers()
    assert scene.run(60).marks.published.offset == 105

    scene.begin()
    scene.grow()
    scene.refuses(SILENT)
    row = scene.run(3600)
    assert row.marks.unproved_seconds > 3000
    assert "5 offsets are not in the manifest" in told(row)[-1]

    scene.begin()
    scene.delivers()
    row = scene.run(120)
    assert (row.marks.unproved_seconds, row.standstill) == (0, None)
    assert row.marks.published.offset == 110


def test_a_tail_that_no_majority_has_is_told(scene: Scene) -> None:
    scene.grow()
    scene.delivers()
    scene.run(60)
    scene.begin()
    scene.grow()  # the broker goes on delivering the chunk before it

    row = scene.run(600)

    assert "this node's broker delivers no more of it" in told(row)[-1]
    assert row.marks.published.offset == 105


@pytest.mark.parametrize("writer", [True, False])
def test_a_quiet_stream_that_is_level_is_not_told_whatever_the_broker_does(
    scene: Scene, writer: bool
) -> None:
    scene.grow()
    scene.delivers()
    scene.run(60)
    scene.grow(ChunkType.TRACKING_DELTA)
    scene.broker.leader = writer

    for error in (None, SILENT, REFUSED):
        scene.begin()
        if error is not None:
            scene.refuses(error)
        row = scene.run(1800)
        assert told(row) == []
        assert row.marks.unproved_seconds == 0
        assert row.marks.lag_seconds == 0


def test_a_stand_by_whose_broker_dies_before_it_has_proved_the_tail_looks_at_the_manifest(
    scene: Scene,
) -> None:
    scene.grow()
    scene.delivers()
    scene.broker.leader = False
    scene.run(60)

    scene.broker.leader = True
    scene.begin()
    scene.grow()
    scene.delivers()
    scene.run(60)  # the writer's agent
    scene.broker.leader = False
    scene.begin()
    scene.refuses(SILENT)
    puts = set(scene.site.store.objects)

    row = scene.run(1800)

    assert told(row) == []
    assert row.marks.published.offset == scene.next
    assert set(scene.site.store.objects) == puts


def test_a_busy_stream_whose_fragments_take_long_to_fill_is_not_told(scene: Scene) -> None:
    """At every look something has just been written that is not proved yet."""
    scene.grow()
    scene.delivers()
    scene.run(60)
    scene.begin(flush_ms=3_600_000, target_size=10**6, memory_budget=4 * 2**20)

    def often() -> None:
        scene.delivers()
        scene.grow()

    row = scene.run(1800, often)

    assert row.marks.cut.offset < row.marks.committed.offset < scene.next
    assert told(row) == []
    assert row.marks.unproved_seconds < 60


@pytest.mark.parametrize("end", [60, 100])
def test_what_a_new_epoch_has_written_is_uploaded_though_its_log_ends_below_the_manifest(
    scene: Scene, end: int
) -> None:
    """After a loss of power: for two hours it was neither uploaded nor told of, and lag was 0."""
    log = StreamLog(scene.site.data_dir / STREAM)
    scene.broker.headers[ORDERS] = log.header_at(90)
    assert scene.run(60).next_offset == 100
    lost: list[int] = []

    def lose() -> None:
        if lost:
            return
        lost.append(end)
        scene.broker.number += 1
        write_stream(log.directory, messages=end, chunk_messages=10, epochs=((1, 0), (2, 40)))
        scene.broker.headers[ORDERS] = log.header_at(end - 10)

    scene.agent._stop = scene.machine.flag()
    row = scene.run(300, lose)

    assert row.next_offset == end
    assert scene.site.remote_chunks(STREAM) == scene.site.local_chunks(STREAM)
    assert any("epoch 2 has truncated the stream to 40" in each for each in row.notices)
