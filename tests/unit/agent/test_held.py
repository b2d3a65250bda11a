"""What the broker removes stays readable while it is not durable; what it cuts off does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coldstream.agent.files import DISK
from coldstream.agent.held import Held
from coldstream.agent.log import StreamLog
from coldstream.osiris.index import INDEX_HEADER_SIZE
from coldstream_devkit.generator import write_stream

STREAM = "__orders_1745252105682952932"
_END = 2**64 - 1


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    held = Held(DISK, budget=2**30, most=100)
    write_stream(tmp_path / STREAM, messages=40, chunk_messages=2, segment_bytes=5_000)
    return StreamLog(tmp_path / STREAM, held)


def keep(log: StreamLog, since: int = 0, *, proved: int = _END) -> Held:
    held = log.files
    assert isinstance(held, Held)
    held.keep(log.directory, log.segments(), since, proved=proved)
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


def test_what_was_cut_off_written_anew_and_removed_between_two_looks_is_not_read(
    log: StreamLog,
) -> None:
    """Seed 733: the tail of epoch 1 was never committed, and nothing else shows that now."""
    keep(log, proved=log.segments()[-1])
    end = log.end()
    shutil.rmtree(log.directory)
    write_stream(log.directory, messages=40, chunk_messages=2, start_offset=end, epochs=((2, 0),))

    assert log.segments() == [end], "the newest held one is not proved, so none below it counts"


@pytest.mark.parametrize(("proved", "epoch"), [("all", 2), ("some", 1)])
def test_what_was_committed_when_it_was_last_there_or_goes_on_in_its_epoch_is_read(
    log: StreamLog, proved: str, epoch: int
) -> None:
    before = log.segments()
    end = log.end()
    keep(log, proved=end if proved == "all" else before[-1])
    shutil.rmtree(log.directory)
    write_stream(
        log.directory, messages=40, chunk_messages=2, start_offset=end, epochs=((epoch, 0),)
    )

    assert log.segments() == [*before, end]


def test_what_is_held_waits_until_the_first_chunk_above_it_says_whether_it_was_committed(
    log: StreamLog,
) -> None:
    """The only segment that is left has been begun this instant."""
    before, end = log.segments(), log.end()
    keep(log, proved=0)
    shutil.rmtree(log.directory)
    write_stream(log.directory, messages=40, chunk_messages=2, start_offset=end)
    index = log.index_path(end)
    data = index.read_bytes()
    index.write_bytes(data[:INDEX_HEADER_SIZE])

    with pytest.raises(BlockingIOError):
        log.segments()

    index.write_bytes(data)
    assert log.segments() == [*before, end]


def test_what_became_committed_while_it_was_there_is_read(log: StreamLog) -> None:
    before, end = log.segments(), log.end()
    keep(log, proved=0)
    keep(log, proved=end)
    shutil.rmtree(log.directory)
    write_stream(log.directory, messages=40, chunk_messages=2, start_offset=end, epochs=((2, 0),))

    assert log.segments() == [*before, end]


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
    assert (held.dropped, held.lacking > 0) == ((0, True) if most == 0 else (2, False))


def test_what_lacks_is_counted_as_it_is_now_and_forgotten_with_its_stream(log: StreamLog) -> None:
    held = Held(DISK, budget=2**30, most=3)
    few = StreamLog(log.directory, held)
    for _ in range(5):
        keep(few)
    assert held.lacking == 2 * len(log.segments()) - 3

    held.forget(log.directory)
    assert held.lacking == 0


def test_where_files_are_few_a_stream_whose_older_segment_waits_is_served_first(
    tmp_path: Path,
) -> None:
    held = Held(DISK, budget=2**30, most=8)
    idle = [StreamLog(tmp_path / f"__idle{number}_1", held) for number in range(10)]
    for number, each in enumerate(idle):
        write_stream(each.directory, messages=4, chunk_messages=2, seed=number)
        keep(each)
    assert held.lacking == 2 * 6
    busy = StreamLog(tmp_path / STREAM, held)
    write_stream(busy.directory, messages=8, chunk_messages=2, segment_bytes=5_000)
    before = busy.segments()
    assert len(before) <= 4

    keep(busy)
    retire(busy, 1)
    keep(busy)

    assert busy.segments() == before
    assert held.unlinked_bytes > 0
    for each in idle:
        keep(each)
    assert busy.segments() == before, "the idle ones take nothing back from it"
