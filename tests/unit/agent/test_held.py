"""What the broker removes stays readable while it is not durable; what it cuts off does not."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldstream.agent.disk.files import DISK, LogFile, Stamp
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.osiris.index import INDEX_HEADER_SIZE
from coldstream_devkit.generator import write_stream

from .disturbed import FailingFiles, Faults

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


@pytest.mark.parametrize(("epoch", "counts"), [(1, True), (2, False)])
def test_at_a_new_claim_that_it_was_committed_counts_no_more_but_that_its_epoch_goes_on(
    log: StreamLog, epoch: int, counts: bool
) -> None:
    """All members may have lost it with their power, and have written other messages since."""
    before, end = log.segments(), log.end()
    held = keep(log, proved=end)
    shutil.rmtree(log.directory)
    write_stream(
        log.directory, messages=40, chunk_messages=2, start_offset=end, epochs=((epoch, 0),)
    )
    assert log.segments() == [*before, end]

    held.doubt(log.directory)

    assert log.segments() == ([*before, end] if counts else [end])


def test_what_was_proved_since_the_first_claim_of_an_epoch_counts_at_every_later_one_of_it(
    log: StreamLog,
) -> None:
    """The store refuses, so it is claimed again and again; an epoch has one writer."""
    before, end, held = log.segments(), log.end(), keep(log)
    held.doubt(log.directory, epoch=2)
    keep(log, proved=end)
    shutil.rmtree(log.directory)
    write_stream(log.directory, messages=40, chunk_messages=2, start_offset=end, epochs=((2, 0),))

    held.doubt(log.directory, epoch=2)
    assert log.segments() == [*before, end]

    held.doubt(log.directory, epoch=3)
    assert log.segments() == [end]


def test_nothing_counts_of_a_file_that_reaches_above_where_a_member_made_anew_begins(
    tmp_path: Path,
) -> None:
    """Its log is its writer's, which begins within what is held; the rest of that was cut off."""
    log = StreamLog(tmp_path / STREAM, Held(DISK, budget=2**30, most=100))
    write_stream(log.directory, messages=200, chunk_messages=10, epochs=((5, 0),))
    keep(log, proved=60)
    shutil.rmtree(log.directory)

    write_stream(
        log.directory,
        messages=200,
        chunk_messages=10,
        start_offset=100,
        epochs=((5, 0), (6, 150)),
    )

    assert log.segments()[0] == 100
    assert {each.epoch for each in log.chunks_between(150, 200, committed=_END)} == {6}


def test_a_tail_that_was_cut_off_hides_nothing_that_is_held_below_it(log: StreamLog) -> None:
    *below, last = log.segments()
    shutil.rmtree(log.directory)
    # As if what is below had been gone on with in the new epoch before it was removed.
    write_stream(
        log.directory, messages=last, chunk_messages=2, segment_bytes=5_000, epochs=((2, 0),)
    )
    write_stream(log.directory, messages=4, chunk_messages=2, start_offset=last, epochs=((1, 0),))
    assert keep(log, proved=0).lacking == 0
    shutil.rmtree(log.directory)

    write_stream(
        log.directory, messages=2, chunk_messages=2, start_offset=last + 4, epochs=((2, 0),)
    )

    assert log.segments() == [*below, last + 4]


def test_a_segment_whose_index_the_broker_has_removed_just_now_is_held_on(log: StreamLog) -> None:
    """It removes the index first, and may be killed in between."""
    before = log.chunks_between(0, _END, committed=_END)
    held, first = keep(log), log.segments()[0]
    log.index_path(first).unlink()

    assert log.chunks_between(0, _END, committed=_END) == before
    for hold in (lambda: keep(log), lambda: held.keep_new(log.directory)):
        hold()
        log.segment_path(first).unlink(missing_ok=True)
        assert log.chunks_between(0, _END, committed=_END) == before


@pytest.mark.parametrize("look", ["keep", "keep_new"])
def test_what_is_committed_is_held_on_while_a_deletion_removes_files_in_any_order(
    log: StreamLog, look: str
) -> None:
    """It goes as the directory lists them, and takes seconds; a look sees the middle gone."""
    before = log.chunks_between(0, _END, committed=_END)
    held = keep(log, proved=log.end())
    for first in log.segments()[1:3]:
        log.index_path(first).unlink()
        log.segment_path(first).unlink()

    if look == "keep":
        keep(log, proved=log.end())
    else:
        held.keep_new(log.directory)
    shutil.rmtree(log.directory)

    assert log.chunks_between(0, _END, committed=_END) == before


def remove(log: StreamLog, first: int) -> None:
    log.index_path(first).unlink()
    log.segment_path(first).unlink()


def test_a_claim_while_a_deletion_goes_on_lets_go_of_nothing(log: StreamLog) -> None:
    before = log.chunks_between(0, _END, committed=_END)
    held = keep(log, proved=log.end())
    remove(log, log.segments()[2])

    held.doubt(log.directory)
    keep(log, proved=log.end())
    shutil.rmtree(log.directory)

    assert log.chunks_between(0, _END, committed=_END) == before


@pytest.mark.parametrize("look", [False, True])
def test_an_index_that_a_deletion_has_left_below_all_that_is_held_hides_nothing(
    log: StreamLog, look: bool
) -> None:
    first, second, third, *_ = log.segments()
    before, end = log.chunks_between(third, _END, committed=_END), log.end()
    keep(log, third, proved=end)
    log.segment_path(first).unlink()
    remove(log, second)
    remove(log, third)

    if look:
        keep(log, third, proved=end)
        shutil.rmtree(log.directory)

    assert log.chunks_between(third, _END, committed=_END) == before


def test_a_newest_segment_that_is_committed_in_part_is_held_on_through_a_deletion(
    log: StreamLog,
) -> None:
    last = log.segments()[-1]
    limit = last + 2
    before = log.chunks_between(0, limit, committed=limit)
    assert log.end() > limit
    keep(log, proved=limit)
    remove(log, last)

    keep(log, proved=limit)
    shutil.rmtree(log.directory)

    assert log.chunks_between(0, limit, committed=limit) == before


def test_while_nobody_looks_the_durable_segment_below_is_held_too_where_a_deletion_goes_on(
    log: StreamLog,
) -> None:
    third, end = log.segments()[2], log.end()
    before = log.chunks_between(third, _END, committed=_END)
    held = keep(log, third + 1, proved=end)
    remove(log, third)

    held.keep_new(log.directory, proved=end)
    shutil.rmtree(log.directory)

    assert log.chunks_between(third, _END, committed=_END) == before


def test_a_segment_that_goes_before_its_index_is_read_as_before(log: StreamLog) -> None:
    before = log.chunks_between(0, _END, committed=_END)
    segments = log.segments()
    keep(log)
    for first in segments[:2]:
        log.segment_path(first).unlink()
    log.index_path(segments[0]).unlink()

    assert log.chunks_between(0, _END, committed=_END) == before
    assert log.segments() == segments


def test_an_index_made_anew_before_its_segment_brings_no_other_segment_back(
    log: StreamLog,
) -> None:
    *_, last = log.segments()
    keep(log)
    kept = log.index_path(last).read_bytes()[:INDEX_HEADER_SIZE]
    log.segment_path(last).unlink()
    log.index_path(last).rename(log.directory / "away")  # its number is given to no other file
    log.index_path(last).write_bytes(kept)

    assert last not in log.segments()


def test_a_segment_is_held_with_its_index_or_not_at_all(log: StreamLog) -> None:
    """A lone segment would be taken for damage, once the others are gone."""
    odd = StreamLog(log.directory, Held(DISK, budget=2**30, most=7))
    keep(odd)
    segments = odd.segments()
    shutil.rmtree(log.directory)

    assert odd.segments() == segments[:3]
    odd.check_indexes(0)


def test_what_counted_once_counts_no_more_when_what_follows_it_is_written_anew(
    log: StreamLog,
) -> None:
    """A leader alone has removed what it never had committed; then its whole log is cut off."""
    first, second, *_ = log.segments()
    keep(log, proved=0)
    retire(log, 1)
    assert log.segments()[0] == first
    shutil.rmtree(log.directory)

    write_stream(
        log.directory, messages=40, chunk_messages=2, start_offset=second, epochs=((2, 0),)
    )

    assert log.segments() == [second]


def test_a_segment_whose_index_could_not_be_held_hides_nothing_that_is_held_below_it(
    tmp_path: Path,
) -> None:
    files = Flaky(why=PermissionError)
    log = StreamLog(tmp_path / STREAM, Held(files, budget=2**30, most=100))
    write_stream(log.directory, messages=40, chunk_messages=2, segment_bytes=5_000)
    first, second, *more = log.segments()
    files.bad = log.index_path(second).name
    keep(log)
    files.bad = ""

    retire(log, 2)

    assert log.segments() == [first, *more]


def test_a_segment_made_anew_is_not_read_by_the_index_of_another(log: StreamLog) -> None:
    """Its own index is removed at the moment in which the two are looked at."""
    first, second, *_ = log.segments()
    held = keep(log)
    shutil.rmtree(log.directory)
    more = {"chunk_messages": 2, "segment_bytes": 5_000}
    write_stream(log.directory, messages=4, start_offset=first, **more)
    write_stream(log.directory, messages=40, start_offset=second, **more)
    files = Vanishing(log.index_path(first))
    held._files = files
    keep(log)
    log.segment_path(first).unlink()

    assert first not in log.segments()


def test_a_tail_that_was_cut_off_while_nobody_looked_is_gone_once_the_stream_is_deleted(
    log: StreamLog,
) -> None:
    """What was written in its place is in fewer segments, and all of it is committed."""
    *_, first, second, last = log.segments()
    held = keep(log, proved=first)
    for each in (first, second, last):
        log.index_path(each).unlink()
        log.segment_path(each).unlink()
    write_stream(log.directory, messages=40, chunk_messages=2, start_offset=first, epochs=((2, 0),))

    held.keep_new(log.directory)
    shutil.rmtree(log.directory)

    assert log.segments()[-1] == first
    assert {each.epoch for each in log.chunks_between(first, _END, committed=_END)} == {2}


def test_a_tail_that_was_cut_off_before_a_look_takes_no_disk_and_does_not_count_after_a_deletion(
    log: StreamLog,
) -> None:
    """Once nothing is there any more, what was committed below it would speak for it."""
    last = log.segments()[-1]
    held = keep(log, proved=last)
    remove(log, last)

    keep(log, proved=last)

    assert held.unlinked_bytes == 0
    shutil.rmtree(log.directory)
    assert log.segments()
    assert last not in log.segments()


@dataclass
class Flaky:
    """Files of which one cannot be opened."""

    bad: str = ""
    why: type[OSError] = FileNotFoundError

    def names(self, directory: Path) -> Sequence[str]:
        return DISK.names(directory)

    def stamp(self, directory: Path, name: str) -> Stamp:
        return DISK.stamp(directory, name)._replace(fresh=False)

    def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
        if name == self.bad:
            raise self.why(name)
        return DISK.open(directory, name)


class Vanishing(Flaky):
    """A file goes after its name was read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def stamp(self, directory: Path, name: str) -> Stamp:
        self.path.unlink(missing_ok=True)
        return super().stamp(directory, name)


def test_a_file_that_goes_while_it_is_asked_makes_nothing_count_that_was_cut_off(
    tmp_path: Path,
) -> None:
    """Retention took it; that it is gone says nothing about what is held below it."""
    files = Flaky()
    log = StreamLog(tmp_path / STREAM, Held(files, budget=2**30, most=100))
    write_stream(log.directory, messages=40, chunk_messages=2, segment_bytes=5_000)
    keep(log, proved=0)
    end = log.end()
    shutil.rmtree(log.directory)
    write_stream(log.directory, messages=4, chunk_messages=2, start_offset=end, epochs=((2, 0),))
    files.bad = log.index_path(end).name

    with pytest.raises(FileNotFoundError):
        log.segments()
    files.bad = ""
    assert log.segments() == [end]


def test_what_could_not_be_held_is_tried_again_though_nothing_has_changed(tmp_path: Path) -> None:
    files = Flaky(why=PermissionError)
    held = Held(files, budget=2**30, most=100)
    log = StreamLog(tmp_path / STREAM, held)
    write_stream(log.directory, messages=40, chunk_messages=2, segment_bytes=5_000)
    before = log.chunks_between(0, _END, committed=_END)
    files.bad = log.segment_path(0).name

    held.keep_new(log.directory)
    files.bad = ""
    held.keep_new(log.directory)
    retire(log, 2)

    assert log.chunks_between(0, _END, committed=_END) == before


def test_while_nobody_looks_a_file_that_is_made_anew_under_its_name_is_held(
    log: StreamLog,
) -> None:
    held, (*_, first, last) = keep(log), log.segments()
    for each in (first, last):
        log.index_path(each).unlink()
        log.segment_path(each).unlink()
    write_stream(
        log.directory, messages=20, chunk_messages=2, start_offset=first, segment_bytes=2_000
    )
    whole = log.chunks_between(first, _END, committed=_END)
    assert len(log.segments()) > 4

    held.keep_new(log.directory)
    there = StreamLog(log.directory).segments()
    retire(log, len(there) - 1)

    assert log.chunks_between(first, _END, committed=_END) == whole


def test_of_a_stream_that_nobody_has_looked_at_everything_is_held_and_files_lack_once(
    log: StreamLog,
) -> None:
    for most, lacking in ((100, 0), (4, 2 * len(log.segments()) - 4)):
        held = Held(DISK, budget=2**30, most=most)
        for _ in range(3):
            held.keep_new(log.directory)
            assert held.lacking == lacking
        held.close()
    held.keep_new(log.directory)


def test_more_segments_of_a_stream_than_may_be_held_are_told(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.agent.disk.held._OF_ONE_STREAM", 3)
    count = len(log.segments())
    assert count > 3

    for looks in (True, False):
        held = Held(DISK, budget=2**30, most=100)
        other = StreamLog(log.directory, held)
        for _ in range(2):
            if looks:
                keep(other)
            else:
                held.keep_new(log.directory)
            assert held.lacking == 2 * (count - 3)
        assert any("segments of one stream" in each for each in held.words())
        held.close()


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


def test_what_comes_and_goes_while_a_look_waits_for_the_store_is_held(log: StreamLog) -> None:
    keep(log)
    before, end = log.segments(), log.end()
    more = {"messages": 20, "chunk_messages": 2, "segment_bytes": 5_000}
    write_stream(log.directory, start_offset=end, **more)
    everything = log.segments()
    assert len(everything) > len(before) + 2
    held = log.files
    assert isinstance(held, Held)

    held.keep_new(log.directory)
    retire(log, len(everything) - 1)

    assert log.segments() == everything
    held.keep_new(log.directory)
    assert held.unlinked_bytes > 0


def test_while_a_look_waits_no_more_of_the_disk_is_held_than_may_be(tmp_path: Path) -> None:
    write_stream(tmp_path / STREAM, messages=40, chunk_messages=2, segment_bytes=5_000)
    log = StreamLog(tmp_path / STREAM, Held(DISK, budget=12_000, most=100))
    held = keep(log)
    retire(log, len(log.segments()) - 1)

    held.keep_new(log.directory)

    assert 0 < held.unlinked_bytes <= 12_000
    assert held.dropped > 0


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


def test_a_stream_that_fills_what_the_disk_may_take_costs_no_other_stream_anything(
    tmp_path: Path,
) -> None:
    held = Held(DISK, budget=20_000, most=100)
    small, large = (StreamLog(tmp_path / f"__{name}_1", held) for name in ("small", "large"))
    for log, messages in ((small, 30), (large, 60)):
        write_stream(log.directory, messages=messages, chunk_messages=2, segment_bytes=5_000)
        keep(log)
    retire(large, 3)
    keep(large)
    assert held.dropped == 0, "it has nearly all of it"

    (first,) = retire(small, 1)
    keep(small)

    assert (held.dropped, small.segments()[0]) == (1, first)
    assert 15_000 < held.unlinked_bytes <= 20_000


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
    assert held.lacking == 2 * len(log.segments()) - 2

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


@pytest.mark.parametrize("gone", [True, False])
def test_a_stream_that_is_deleted_gives_its_files_to_no_other(tmp_path: Path, gone: bool) -> None:
    """Neither when its directory is gone, nor while it is there without a file."""
    held = Held(DISK, budget=2**30, most=2)
    deleted, busy = (StreamLog(tmp_path / f"__{each}_1", held) for each in ("deleted", "busy"))
    for each in (deleted, busy):
        write_stream(each.directory, messages=8, chunk_messages=2, segment_bytes=5_000)
    keep(deleted, since=7)
    newest = deleted.segments()[-1]
    shutil.rmtree(deleted.directory)
    if gone:
        held.gone(deleted.directory)
    else:
        deleted.directory.mkdir()
        keep(deleted, since=7)

    keep(busy)

    assert deleted.segments() == [newest]
    assert held.lacking > 0


def test_of_a_stream_that_is_gone_a_tail_that_was_cut_off_while_a_look_hung_does_not_count(
    log: StreamLog,
) -> None:
    """It lies below what was proved since; nothing that is held goes on from it."""
    *_, stale = StreamLog(log.directory).segments()
    keep(log, proved=stale)
    log.index_path(stale).unlink()
    log.segment_path(stale).unlink()
    end = stale + 100
    write_stream(
        log.directory, messages=100, chunk_messages=2, segment_bytes=5_000,
        start_offset=stale, epochs=((1, 0), (2, stale)),
    )  # fmt: skip
    retire(log, len([each for each in StreamLog(log.directory).segments() if each < end - 20]))
    held = log.files
    assert isinstance(held, Held)
    held.keep_new(log.directory, proved=end)

    shutil.rmtree(log.directory)

    assert stale not in log.segments()
    assert log.chunks_between(0, _END, committed=_END)[-1].next_offset == end
    assert held.sure(log.directory) == end


def test_a_newest_segment_without_a_chunk_hides_nothing_of_a_stream_that_is_gone(
    log: StreamLog,
) -> None:
    before = StreamLog(log.directory).segments()
    write_stream(log.directory, messages=2, chunk_messages=2, start_offset=40)
    for path, size in ((log.index_path(40), INDEX_HEADER_SIZE), (log.segment_path(40), 8)):
        with path.open("r+b") as file:
            file.truncate(size)
    keep(log, proved=0)

    shutil.rmtree(log.directory)

    assert log.segments() == before


def test_what_a_deletion_took_first_is_held_on_though_an_index_goes_between_two_listings(
    log: StreamLog,
) -> None:
    segments = log.segments()
    held = keep(log, proved=40)
    for first in (segments[2], *segments[:2]):
        seen = log.segments()
        log.index_path(first).unlink()
        log.segment_path(first).unlink()
        held.keep(log.directory, seen, 0, proved=40)

    shutil.rmtree(log.directory)

    assert log.segments() == segments


@pytest.mark.parametrize("since", [0, None])
def test_what_was_proved_since_is_known_of_what_is_held_though_no_file_has_come(
    log: StreamLog, since: int | None
) -> None:
    """Else a deletion that begins with the newest segment looks like a tail that was cut off."""
    segments, held = log.segments(), log.files
    assert isinstance(held, Held)
    if since is not None:
        keep(log, since, proved=0)
    os.utime(log.directory, (0, 0))  # the directory has not changed for long
    held.keep_new(log.directory, proved=0)
    held.keep_new(log.directory, proved=40)
    log.index_path(segments[-1]).unlink()
    log.segment_path(segments[-1]).unlink()
    held.keep_new(log.directory, proved=40)

    shutil.rmtree(log.directory)

    assert log.segments() == segments


@pytest.mark.parametrize("looks", [True, False])
def test_an_index_that_cannot_be_looked_at_lets_nothing_go(tmp_path: Path, looks: bool) -> None:
    """A deletion has removed its segment; nobody can say yet."""
    files = Unreadable()
    held = Held(files, budget=2**30, most=100)
    log = StreamLog(tmp_path / STREAM, held)
    write_stream(log.directory, messages=40, chunk_messages=2, segment_bytes=5_000)
    segments = log.segments()
    held.keep(log.directory, segments, 0, proved=40)
    log.segment_path(segments[-1]).unlink()
    files.name = log.index_path(segments[-1]).name
    if looks:
        held.keep(log.directory, segments, 0, proved=40)
    else:
        held.keep_new(log.directory, proved=40)

    shutil.rmtree(log.directory)

    assert log.segments() == segments
    held.forget(log.directory)
    assert held.lacking == 0


class Unreadable:
    """The disk, of which one file cannot be looked at."""

    name = ""

    def names(self, directory: Path) -> Sequence[str]:
        return DISK.names(directory)

    def stamp(self, directory: Path, name: str) -> Stamp:
        if self.name and name == self.name:
            raise OSError(errno.EIO, "Input/output error")
        return DISK.stamp(directory, name)

    def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
        return DISK.open(directory, name)


@pytest.mark.parametrize("looks", [True, False])
def test_a_held_index_that_cannot_be_read_lets_nothing_go_and_ends_no_agent(
    tmp_path: Path, looks: bool
) -> None:
    """A deletion has begun with the newest; the main thread holds while looks hang."""
    faults = Faults(10**9, 10**9, lambda: OSError(errno.EIO, "bad disk"), breaks=("file.read",))
    held = Held(FailingFiles(faults), budget=2**30, most=100)
    log = StreamLog(tmp_path / STREAM, held)
    write_stream(log.directory, messages=40, chunk_messages=2, segment_bytes=5_000)
    keep(log)
    segments = log.segments()
    for first in segments[-2:]:
        log.index_path(first).unlink()
        log.segment_path(first).unlink()

    faults.first = faults.calls
    if looks:
        held.keep(log.directory, segments, 0, proved=_END)
    else:
        held.keep_new(log.directory, proved=_END)
    faults.length = 0
    shutil.rmtree(log.directory)

    assert log.segments() == segments
    assert held.lacking == 0


def test_a_directory_that_cannot_be_listed_costs_no_stream_what_is_held(tmp_path: Path) -> None:
    """Its files counted as removed, and took the disk's budget from those that really are."""
    faults = Faults(
        10**9, 10**9, lambda: OSError(errno.EMFILE, "Too many open files"), breaks=("files.names",)
    )
    held = Held(FailingFiles(faults), budget=20_000, most=100)
    there, behind = (StreamLog(tmp_path / f"__{name}_1", held) for name in ("there", "behind"))
    for log in (there, behind):
        write_stream(log.directory, messages=60, chunk_messages=2, segment_bytes=5_000)
        keep(log)
    segments = there.segments(), behind.segments()
    retire(behind, 3)
    keep(behind)

    faults.first = faults.calls
    held.keep(there.directory, segments[0], 0, proved=_END)
    faults.length = 0

    assert held.dropped == 0
    assert (there.segments(), behind.segments()) == segments
