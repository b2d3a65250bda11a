"""What the broker removes stays readable while it is not durable; what it cuts off does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coldstream.agent.files import DISK
from coldstream.agent.held import Held
from coldstream.agent.log import StreamLog
from coldstream_devkit.generator import write_stream

STREAM = "__orders_1745252105682952932"
_END = 2**64 - 1


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    held = Held(DISK, budget=2**30, most=100)
    write_stream(tmp_path / STREAM, messages=40, chunk_messages=2, segment_bytes=5_000)
    return StreamLog(tmp_path / STREAM, held)


def keep(log: StreamLog, since: int = 0) -> Held:
    held = log.files
    assert isinstance(held, Held)
    held.keep(log.directory, log.segments(), since)
    return held


def retire(log: StreamLog, count: int) -> list[int]:
    """The oldest segments go; their first offsets."""
    gone = StreamLog(log.directory).segments()[:count]
    for first in gone:
        log.index_path(first).unlink()
        log.segment_path(first).unlink()
    return gone


def test_what_retention_removes_is_read_as_before(log: StreamLog) -> None:
    before = log.chunks_between(0, _END, committed=_END)
    assert len(log.segments()) > 4
    held = keep(log)

    retire(log, 3)

    assert log.chunks_between(0, _END, committed=_END) == before
    keep(log)
    assert held.unlinked_bytes > 0


def test_what_a_deletion_removes_is_read_as_before(log: StreamLog) -> None:
    before = log.chunks_between(0, _END, committed=_END)
    held = keep(log)

    shutil.rmtree(log.directory)

    assert log.chunks_between(0, _END, committed=_END) == before
    held.forget(log.directory)
    with pytest.raises(FileNotFoundError):
        log.segments()


def test_a_tail_that_the_broker_cuts_off_is_gone(log: StreamLog) -> None:
    keep(log)
    last = log.segments()[-1]

    log.index_path(last).unlink()
    log.segment_path(last).unlink()

    assert last not in log.segments()


def test_a_file_made_anew_under_the_same_name_replaces_the_held_one(log: StreamLog) -> None:
    first = log.segments()[0]
    keep(log)
    for path in (log.segment_path(first), log.index_path(first)):
        path.unlink()
        path.write_bytes(b"another")
    keep(log)
    retire(log, 1)

    with log.files.open(log.directory, log.segment_path(first).name) as file:
        assert file.read(0, 7) == b"another"


def test_what_is_durable_is_let_go(log: StreamLog) -> None:
    segments = log.segments()
    held = keep(log)
    retire(log, 2)
    keep(log, segments[2])

    assert log.segments() == segments[2:]
    assert held.unlinked_bytes == 0


def test_an_open_file_outlives_that_it_is_let_go(log: StreamLog) -> None:
    first = log.segments()[0]
    held = keep(log)
    retire(log, 1)

    with log.files.open(log.directory, log.segment_path(first).name) as file:
        held.forget(log.directory)
        assert file.read(0, 4) == b"OSIL"


@pytest.mark.parametrize(("budget", "most"), [(0, 100), (2**30, 0)])
def test_neither_disk_nor_files_are_held_beyond_their_bounds(
    tmp_path: Path, budget: int, most: int
) -> None:
    held = Held(DISK, budget=budget, most=most)
    log = StreamLog(tmp_path / STREAM, held)
    write_stream(log.directory, messages=40, chunk_messages=2, segment_bytes=5_000)
    segments = log.segments()
    keep(log)
    retire(log, 2)
    keep(log)

    assert log.segments() == segments[2:]
    assert held.unlinked_bytes == 0
    assert held.lacking > 0
