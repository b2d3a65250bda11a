"""Which streams have changed: none is missed, and none that is idle is looked at."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coldstream.agent.disk.changes import Changes
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.log import StreamLog
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

STREAM = "__orders_1745252105682952932"


def chunk(offset: int) -> bytes:
    return build_chunk(offset, 1, 1_800_000_000_000, [b"x"])


def aged(directory: Path, seconds: int = 1) -> None:
    """As if its files had come and gone long ago."""
    os.utime(directory, (seconds, seconds))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_stream(tmp_path / STREAM, messages=30, chunk_messages=10)
    aged(tmp_path / STREAM)
    return tmp_path


def test_a_stream_is_told_once_and_again_when_a_chunk_or_a_segment_comes(data_dir: Path) -> None:
    changes = Changes(data_dir, DISK)

    assert list(changes.look([STREAM], 0.0)) == [STREAM]
    assert list(changes.look([STREAM], 1.0)) == []
    append_chunks(data_dir / STREAM, [chunk(30)])
    assert list(changes.look([STREAM], 2.0)) == [STREAM]
    assert list(changes.look([STREAM], 3.0)) == []
    append_chunks(data_dir / STREAM, [chunk(31)], roll=True)
    assert list(changes.look([STREAM], 4.0)) == [STREAM]


def test_a_segment_that_comes_within_a_tick_of_the_directorys_clock_is_seen(data_dir: Path) -> None:
    changes, directory = Changes(data_dir, DISK), data_dir / STREAM
    list(changes.look([STREAM], 0.0))
    stamp = time.time_ns()
    os.utime(directory, ns=(stamp, stamp))
    list(changes.look([STREAM], 1.0))

    append_chunks(directory, [chunk(30)], roll=True)
    os.utime(directory, ns=(stamp, stamp))

    assert list(changes.look([STREAM], 2.0)) == [STREAM]


def test_a_stream_whose_newest_segment_is_cut_off_is_told_once(data_dir: Path) -> None:
    changes, directory = Changes(data_dir, DISK), data_dir / STREAM
    append_chunks(directory, [chunk(30)], roll=True)
    list(changes.look([STREAM], 0.0))
    newest = StreamLog(directory).segments()[-1]

    StreamLog(directory).index_path(newest).unlink()
    StreamLog(directory).segment_path(newest).unlink()
    aged(directory, 2)

    assert list(changes.look([STREAM], 1.0)) == [STREAM]
    list(changes.look([STREAM], 2.0))
    assert list(changes.look([STREAM], 3.0)) == []


def test_a_directory_that_cannot_be_looked_at_is_told(data_dir: Path) -> None:
    assert list(Changes(data_dir, DISK).look(["__gone_1"], 0.0)) == ["__gone_1"]


def test_an_idle_stream_is_seen_within_a_few_passes(data_dir: Path) -> None:
    changes = Changes(data_dir, DISK)
    list(changes.look([STREAM], 0.0))
    append_chunks(data_dir / STREAM, [chunk(30)])

    found = [list(changes.look([STREAM], 1000.0 + number)) for number in range(3)]

    assert found.count([STREAM]) == 1


def test_a_new_segment_is_watched_from_then_on(data_dir: Path) -> None:
    changes = Changes(data_dir, DISK)
    list(changes.look([STREAM], 0.0))
    append_chunks(data_dir / STREAM, [chunk(30)], roll=True)
    aged(data_dir / STREAM, 2)
    list(changes.look([STREAM], 1.0))
    last = StreamLog(data_dir / STREAM).segments()[-1]
    assert last == 30

    append_chunks(data_dir / STREAM, [chunk(31)])

    assert list(changes.look([STREAM], 2.0)) == [STREAM]
