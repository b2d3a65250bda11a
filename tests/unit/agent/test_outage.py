"""The remote tier is away for hours, and comes back: asked seldom, then little by little."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from coldstream.agent.host import ThisMachine
from coldstream.agent.sending import link
from coldstream.agent.telling.progress import Progress
from coldstream.errors import UnavailableError
from coldstream.ports.objects import CutShortError
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site
from .disturbed import Failing, Faults, Run, durable
from .machine import EPOCH_MS, Machine

STREAMS = [f"__stream{number}_1745252105682952932" for number in range(5)]
HOURS = 2 * 3600.0


class Outage(Faults):
    """Refuses from one moment to another; notes when it was asked meanwhile, and after."""

    def __init__(
        self, machine: Machine, begin: float, end: float, *, only: str | tuple[str, ...] = ""
    ) -> None:
        super().__init__()
        self.machine, self.begin, self.end, self.only = machine, begin, end, only
        self.refused: list[str] = []
        self.after: list[tuple[float, str]] = []

    def call(self, name: str) -> None:
        if self.begin <= self.machine.now < self.end and name.startswith(self.only):
            self.refused.append(name)
            raise UnavailableError("503 Slow Down")
        if self.machine.now >= self.end:
            self.after.append((self.machine.now, name))


def run_through(site: Site, outage: Outage, **more: Any) -> Run:
    for stream in STREAMS:
        write_stream(site.data_dir / stream, messages=30, chunk_messages=10)
    grown = dict.fromkeys(STREAMS, 30)

    def grow() -> None:
        for stream in STREAMS:
            chunk = build_chunk(grown[stream], 10, EPOCH_MS + 10_000_000, [b"x" * 200] * 10)
            append_chunks(site.data_dir / stream, [chunk])
            grown[stream] += 10

    settings = {"poll_seconds": 15, "rescan_seconds": 30.0, "uploads": 8, **more}
    run = Run(site, outage, machine=outage.machine, settings=settings, most_looks=4000)
    # Chunks come before, while and after it is away.
    run.happens = {3: grow, 40: grow, 200: grow, 400: grow}
    run.done = lambda rows: (  # type: ignore[method-assign]
        outage.machine.now > outage.end and all(durable(site, each) for each in STREAMS)
    )
    run.go()
    return run


@pytest.mark.parametrize("only", ["", "store", "store.put"])
def test_after_hours_without_the_remote_tier_all_is_there_and_it_was_asked_seldom(
    site: Site, only: str
) -> None:
    machine = Machine()
    outage = Outage(machine, 60.0, 60.0 + HOURS, only=only)

    run = run_through(site, outage)

    assert all(durable(site, each) for each in STREAMS)
    puts = [name for name in outage.refused if name == "store.put"]
    assert len(puts) < HOURS / 20  # of eight uploads that each try twice a minute: 2,880
    assert not any(row.error for row in run.agent.progress())
    if only == "store.put":
        assert any("S3 has refused" in each for each in run.agent.warnings)
        assert any("S3 takes uploads again" in each for each in run.agent.warnings)


def test_an_outage_makes_no_upload_twice_and_leaves_no_hole(site: Site) -> None:
    machine = Machine()

    run = run_through(site, Outage(machine, 60.0, 60.0 + HOURS, only="store.put"))

    keys = sorted(key for key in site.store.objects if "/data/" in key)
    ranges = [key.rsplit("/", 1)[1].split("-")[:2] for key in keys]
    assert len({(key.split("/")[2], *each) for key, each in zip(keys, ranges, strict=True)}) == len(
        keys
    )
    assert not any(row.holes for row in run.agent.progress())


def test_what_was_not_held_amid_what_was_is_declared_lost_and_the_stream_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more segments than may be held of one stream, the oldest and the newest are."""
    monkeypatch.setattr("coldstream.agent.disk.held._OF_ONE_STREAM", 4)
    directory, machine, end = site.data_dir / STREAMS[0], Machine(), 220
    write_stream(directory, messages=20, chunk_messages=10)
    rolled: list[int] = []

    def happens(rows: list[Progress]) -> bool:
        if not rolled and machine.now > outage.begin + 60:
            more = {"messages": end - 20, "chunk_messages": 10, "segment_bytes": 10_000}
            rolled.extend(write_stream(directory, start_offset=20, **more).segments)
        if machine.now > outage.begin + HOURS / 2:
            for path in sorted(directory.glob("*.segment"))[:-2]:
                path.with_suffix(".index").unlink()
                path.unlink()
        return site.catalog.items[STREAMS[0]].next_offset == end

    outage = Outage(machine, 20.0, 20.0 + HOURS, only="store.put")
    settings = {"poll_seconds": 15, "rescan_seconds": 30.0, "last_copy": True}
    run = Run(site, outage, machine=machine, settings=settings, most_looks=4000)
    run.done = happens  # type: ignore[method-assign]
    (row,) = run.go()

    assert row.error is None
    assert row.holes == [(rolled[3], rolled[-2])], "three are held below what is not"
    assert not any("damaged" in each for each in row.notices)


@pytest.mark.parametrize("begin", [0.0, 20.0])
def test_what_retention_takes_while_the_remote_tier_is_away_is_uploaded_when_it_is_back(
    site: Site, begin: float
) -> None:
    """Before the first claim, and after it: each try to claim anew goes on with what is held."""
    stream, machine, size = STREAMS[0], Machine(), 20
    directory = site.data_dir / stream
    write_stream(directory, messages=size, chunk_messages=10)

    def happens() -> None:
        if not everything and machine.now > outage.begin + 60:
            write_stream(
                directory, messages=400, chunk_messages=10, segment_bytes=50_000, start_offset=size
            )
            everything.append(site.local_chunks(stream))
        if machine.now > outage.begin + HOURS / 2:
            for path in sorted(directory.glob("*.segment"))[:-3]:
                path.with_suffix(".index").unlink()
                path.unlink()

    outage = Outage(machine, begin, begin + HOURS, only="catalog")
    settings = {"poll_seconds": 15, "rescan_seconds": 30.0}
    run = Run(site, outage, machine=machine, settings=settings, most_looks=4000)
    everything: list[bytes] = []

    def done(rows: object) -> bool:
        happens()
        return machine.now > outage.end + 600

    run.done = done  # type: ignore[method-assign]
    run.go()

    assert site.remote_chunks(stream) == everything[0]
    assert not any(row.holes for row in run.agent.progress())


class Hangs(Faults):
    """Answers for the table only where `open` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.asked = Event(), Event()
        self.open.set()

    def call(self, name: str) -> None:
        if name.startswith("catalog") and not self.open.is_set():
            self.asked.set()
            assert self.open.wait(60)


def test_what_comes_and_goes_while_all_looks_wait_for_a_table_that_hangs_is_uploaded(
    site: Site,
) -> None:
    for stream in STREAMS:
        write_stream(site.data_dir / stream, messages=40, chunk_messages=10)
    agent = site.agent(once=False, flush_ms=0, looks=1, watch_seconds=0.05, host=ThisMachine())
    hangs, last = Hangs(), STREAMS[-1]
    agent.context = replace(agent.context, catalog=Failing(site.catalog, hangs, "catalog"))
    stages = ["begin", "grow", "wait", "wait", "wait", "retire", "end"]
    everything: list[bytes] = []

    def report(rows: list[Progress]) -> None:
        if stages[0] == "begin":
            if len(rows) < len(STREAMS) or any(row.next_offset < 40 for row in rows):
                return
            hangs.open.clear()
            for stream in STREAMS[:-1]:
                chunk = build_chunk(40, 10, EPOCH_MS, [b"x" * 200] * 10)
                append_chunks(site.data_dir / stream, [chunk])
        elif stages[0] == "grow":
            if len(agent._turns.busy) < 2:
                return
            more = {"messages": 400, "chunk_messages": 10, "segment_bytes": 50_000}
            write_stream(site.data_dir / last, start_offset=40, **more)  # type: ignore[arg-type]
        elif stages[0] == "retire":
            everything.append(site.local_chunks(last))
            for path in sorted((site.data_dir / last).glob("*.segment"))[:-2]:
                path.with_suffix(".index").unlink()
                path.unlink()
            hangs.open.set()
        elif stages[0] == "end":
            if any(row.next_offset == 440 for row in rows) or any(row.error for row in rows):
                agent.stop()
            return
        del stages[0]

    agent.report = report
    agent.run()

    assert site.remote_chunks(last) == everything[0]


class Brittle:
    """A store on a link whose connections break after so many bytes."""

    def __init__(self, store: Any, most: int) -> None:
        self._store, self.most = store, most
        self.cut_short: list[int] = []

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        if "/data/" in key and len(body) > self.most:
            self.cut_short.append(len(body))
            raise CutShortError("reset", key=key, sent=self.most)
        self._store.put(key, body, write_id=write_id, crc=crc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_where_full_fragments_never_pass_smaller_ones_are_cut_of_the_same_data(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LEAST_PIECE", 500)
    write_stream(site.data_dir / STREAMS[0], messages=400, chunk_messages=5, message_size=100)
    run = Run(site, machine=Machine(), settings={"target_size": 60_000, "poll_seconds": 5})
    run.agent.context = replace(
        run.agent.context, store=(brittle := Brittle(run.agent.context.store, 9_000))
    )
    run.done = lambda rows: durable(site, STREAMS[0])  # type: ignore[method-assign]
    run.go()

    assert durable(site, STREAMS[0])
    assert max(brittle.cut_short) > 30_000
    assert len(brittle.cut_short) < 40
    assert not run.agent.progress()[0].holes
