"""Many streams: what is done for each is not paid by all, and each can go on at every look."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.disk.directory import Directories
from coldstream.agent.stream.follower import StreamFollower
from coldstream.agent.telling.progress import Progress
from coldstream_devkit.generator import write_stream

from .conftest import Site
from .disturbed import Run, durable
from .machine import Machine

STREAMS = [f"__many{number}_1" for number in range(12)]


@pytest.fixture
def run(site: Site) -> Run:
    for number, name in enumerate(STREAMS):
        write_stream(site.data_dir / name, messages=20, chunk_messages=10, seed=number)
    return Run(site)


def test_every_look_may_cut_while_uploads_keep_up_however_many_wait_for_their_turn(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[int] = []
    step = StreamFollower.step

    def spy(self: StreamFollower, now: float, now_ms: int, *, most: int) -> Any:
        allowed.append(most)
        return step(self, now, now_ms, most=most)

    monkeypatch.setattr(StreamFollower, "step", spy)
    run.go()

    assert min(allowed[: 2 * run.agent.settings.looks]) >= 1
    assert all(durable(site, name) for name in STREAMS)


def test_more_streams_than_files_are_uploaded_all_the_same_and_it_is_told(
    run: Run, site: Site
) -> None:
    run.agent._held._all._most = len(STREAMS)  # of twice as many that should be held
    run.happens = {6: lambda: None}

    run.go()

    assert all(durable(site, name) for name in STREAMS)
    assert run.agent.figures()["agent_held_lacking_files"] == 0, "it holds nothing any more"
    assert any("LimitNOFILE" in each for each in run.agent.warnings)


def test_all_streams_are_reported_once_a_poll_and_not_at_every_look(run: Run) -> None:
    times: list[float] = []
    report = run.agent.report

    def timed(rows: list[Progress]) -> None:
        times.append(run.machine.now)
        report(rows)

    run.agent.report = timed
    run.go()

    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps
    assert min(gaps) >= run.agent.settings.poll_seconds


def test_what_is_reported_follows_streams_that_come_and_go(run: Run, site: Site) -> None:
    told: list[set[str]] = []
    report = run.agent.report
    come = site.data_dir / "__come_1"

    def noted(rows: list[Progress]) -> None:
        told.append({row.stream for row in rows})
        report(rows)

    run.agent.report = noted
    run.happens = {
        2: lambda: write_stream(come, messages=10),
        8: lambda: _vanish(site.data_dir / STREAMS[0]),
        20: lambda: None,
    }
    run.go()

    assert told[0] == set(STREAMS)
    assert told[-1] == {*STREAMS, "__come_1"}  # what became of one that went is told, too
    assert STREAMS[0] not in run.agent._followers


def test_an_upload_that_ends_after_its_stream_was_left_alone_ends_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule of the file that is read again leaves a stream alone whose upload is under way."""
    for name in STREAMS[:2]:
        write_stream(site.data_dir / name, messages=20, chunk_messages=10)
    run = Run(site, machine=Machine(held=True))
    scan = run.machine.scan
    left: set[str] = set()

    def chosen(data_dir: Path, known: Collection[str]) -> Directories:
        found = scan(data_dir, known)
        return replace(found, streams=tuple(each for each in found.streams if each not in left))

    monkeypatch.setattr(run.machine, "scan", chosen)
    run.happens = {
        5: lambda: left.add(STREAMS[0]),
        10: lambda: setattr(run.machine, "held", False),
        20: lambda: None,
    }
    run.go()

    assert set(run.agent._followers) == {STREAMS[1]}
    assert durable(site, STREAMS[1])


def _vanish(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
