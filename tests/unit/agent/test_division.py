"""Who uploads: the agent beside the writer, and another member's where that one does nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from coldstream.agent.broker.committed import AllCommitted, Known
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.heartbeat import heartbeat_of
from coldstream.errors import PermissionDeniedError
from coldstream.manifest.catalog import CatalogItem
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site
from .machine import EPOCH_MS, Machine

STREAM = "__orders_1745252105682952932"


class Role(AllCommitted):
    """As a broker: on which node the writer is."""

    def __init__(self, *, writer: bool) -> None:
        self.writer = writer
        self.max_bytes: int | None = None

    def known(self, stream: str) -> Known:
        return Known(writer=self.writer, max_bytes=self.max_bytes)


class Pair:
    """Two agents with the same log, one clock, and a tier; each runs as long as a test says."""

    def __init__(self, site: Site) -> None:
        self.site, self.machine = site, Machine()
        write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
        self.writer, self.other = Role(writer=True), Role(writer=False)
        self.agents = {"writer": self._agent(self.writer), "other": self._agent(self.other)}
        self.puts: list[str] = []

    def _agent(self, role: Role) -> Agent:
        return self.site.agent(
            committed=role, host=self.machine, once=False, poll_seconds=1, rescan_seconds=5,
            flush_ms=10_000, takeover_seconds=20, nudge_seconds=2,
        )  # fmt: skip

    def run(self, name: str, seconds: float) -> None:
        """One of them runs alone for so long; as after any restart it knows nothing of before."""
        agent = self.agents[name] = self._agent(getattr(self, name))
        until, before = self.machine.now + seconds, set(self.site.store.objects)

        def stop(rows: Any) -> None:
            if self.machine.now >= until:
                agent.stop()

        agent.report = stop
        agent.run()
        self.puts += [name for _ in set(self.site.store.objects) - before]

    def progress(self, name: str) -> Any:
        return self.agents[name].progress()[0]

    def item(self) -> CatalogItem | None:
        return self.site.catalog.get(STREAM)

    @property
    def next_offset(self) -> int:
        item = self.item()
        return 0 if item is None else item.next_offset

    def grow(self, first: int) -> None:
        chunk = build_chunk(first, 1, EPOCH_MS + int(self.machine.now * 1000), [b"m"] * 10)
        append_chunks(self.site.data_dir / STREAM, [chunk])


@pytest.fixture
def pair(site: Site) -> Pair:
    return Pair(site)


def test_an_agent_whose_node_has_not_the_writer_claims_and_uploads_nothing(pair: Pair) -> None:
    pair.run("writer", 40)
    pair.puts.clear()
    item = pair.item()

    pair.run("other", 600)

    assert pair.puts == []
    assert pair.item() == item
    assert not pair.progress("other").marks.writer
    assert pair.progress("other").marks.published.offset == 100
    assert pair.progress("other").error is None


def test_one_that_stands_by_tells_no_lag_and_no_race_before_it_has_read_the_manifest(
    pair: Pair,
) -> None:
    """After a restart all that was published counted as lost next, and raised an alarm."""
    pair.run("writer", 60)
    pair.other.max_bytes = 1

    for seconds, read in ((5, False), (60, True)):
        pair.run("other", seconds)
        row = pair.progress("other")
        assert row.marks.read is read
        assert (row.marks.headroom_seconds, row.marks.lag_bytes) == (None, 0)
        assert row.notices == []
        assert heartbeat_of([row], AgentSettings(), now_ms=0, pages=0).racing == 0


def test_one_whose_claims_fail_from_its_start_on_tells_its_lag_all_the_same(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read no manifest either; but that is no reason to say that nothing waits."""
    pair.run("writer", 60)
    pair.grow(100)

    def refused(*_: object, **__: object) -> None:
        raise PermissionDeniedError("the claim is refused")

    monkeypatch.setattr("coldstream.agent.stream.perform.open_stream", refused)
    pair.run("writer", 900)

    row = pair.progress("writer")
    assert row.error is not None
    assert row.marks.lag_bytes > 0
    assert heartbeat_of([row], AgentSettings(), now_ms=0, pages=0).lag_ms > 600_000


def test_where_the_writers_agent_does_nothing_another_one_does_within_the_stated_time(
    pair: Pair,
) -> None:
    pair.run("writer", 40)
    pair.grow(100)

    pair.run("other", 10 + 2 * 20 + 5)

    assert pair.next_offset == 110
    assert "does its work" in " ".join(pair.progress("other").notices)


def test_an_agent_that_took_over_stands_by_again(pair: Pair) -> None:
    pair.run("other", 40)
    assert pair.item() is not None, "nobody had claimed it"
    agent = pair.agents["other"]
    at = {}

    def look(rows: Any) -> None:
        follower = agent._followers[STREAM]
        at[follower.course.claim.epoch > 0] = pair.machine.now
        if pair.machine.now > 400:
            agent.stop()

    pair.agents["other"] = agent = pair._agent(pair.other)
    agent.report = look
    agent.run()

    assert agent._followers[STREAM].course.claim.epoch == 0


def test_while_the_writers_agent_moves_the_manifest_nobody_takes_over(pair: Pair) -> None:
    """A backlog of hours: what waits is old, but the manifest moves."""
    pair.run("writer", 40)
    pair.puts.clear()
    pair.grow(100)
    other = pair.agents["other"] = pair._agent(pair.other)
    moves_at = pair.machine.now

    def act(rows: Any) -> None:
        nonlocal moves_at
        if pair.machine.now > 160:
            other.stop()
        elif pair.machine.now >= moves_at:
            moves_at += 15
            item = pair.item()
            assert item is not None
            pair.site.catalog.items[STREAM] = replace(item, next_offset=item.next_offset + 1)

    other.report = act
    other.run()

    assert pair.next_offset < 110
    assert other._followers[STREAM].course.claim.epoch == 0
    assert not any("does its work" in each for each in other.progress()[0].notices)


def test_the_writer_that_comes_to_this_node_is_served_with_its_first_chunk(pair: Pair) -> None:
    pair.run("writer", 40)
    pair.grow(100)
    agent = pair.agents["other"] = pair._agent(pair.other)
    begun = pair.machine.now

    def act(rows: Any) -> None:
        if not pair.other.writer and pair.machine.now > begun + 5:
            pair.other.writer = True
            pair.grow(110)
        if pair.machine.now > begun + 20:
            agent.stop()

    agent.report = act
    agent.run()

    assert pair.next_offset == 120
    assert not any("does its work" in each for each in pair.progress("other").notices)


def test_a_deleted_stream_is_finished_by_whoever_has_its_files(pair: Pair) -> None:
    pair.run("writer", 40)
    pair.grow(100)
    agent = pair.agents["other"] = pair._agent(pair.other)

    def act(rows: Any) -> None:
        if 45 < pair.machine.now < 47:
            shutil.rmtree(pair.site.data_dir / STREAM, ignore_errors=True)
        if pair.machine.now > 80:
            agent.stop()

    agent.report = act
    agent.run()

    assert pair.next_offset == 110
