"""What a directory's files say: what is a segment, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.disk import log as module
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.log import StreamLog
from coldstream.errors import CorruptDataError
from coldstream_devkit.generator import append_chunks, build_chunk

STREAM = "__orders_1"


def chunks(first: int, count: int, *, epoch: int = 1) -> list[bytes]:
    return [build_chunk(first + 10 * n, epoch, 1000 + n, [b"x"] * 10) for n in range(count)]


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    """Chunks of ten offsets: 0 and 10, and in a second segment 20 and 30."""
    append_chunks(tmp_path / STREAM, chunks(0, 2))
    append_chunks(tmp_path / STREAM, chunks(20, 2), roll=True)
    return StreamLog(tmp_path / STREAM)


def index(log: StreamLog, first: int) -> Path:
    return log.index_path(first)


@pytest.mark.parametrize(
    "name",
    [
        "0000000000000000002x",
        "00000000000000000\u0660\u0661\u0662",  # digits, and not ours
        "99999999999999999999",
        "000000000000000002",
        "+0000000000000000020",
    ],
)
def test_files_with_other_names_are_no_segments(log: StreamLog, name: str) -> None:
    for suffix in (".segment", ".index"):
        (log.directory / f"{name}{suffix}").write_bytes(b"?")

    assert log.segments() == [0, 20]
    log.check_indexes(0)


def test_a_segment_whose_index_retention_has_taken_already_is_none(log: StreamLog) -> None:
    """The broker removes the index first; what is below the uploaded part is no damage."""
    index(log, 0).unlink()

    assert log.segments() == [20]
    log.check_indexes(20)
    log.check_indexes(1)
    with pytest.raises(CorruptDataError, match="without its index"):
        log.check_indexes(0)


def test_an_index_that_was_only_just_created_has_no_chunk_yet(log: StreamLog) -> None:
    for content in (b"", b"OSI"):
        index(log, 20).write_bytes(content)
        assert log.view(20, since=20, closed=False) is None


def test_an_index_of_impossible_size_is_not_read(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INDEX_SIZE", 60)

    with pytest.raises(CorruptDataError, match="is not the broker's"):
        log.view(0, since=0, closed=True)


def test_a_first_record_that_is_not_the_files_name_is_told(log: StreamLog) -> None:
    content = index(log, 0).read_bytes()
    index(log, 0).write_bytes(content[:8] + content[8 + 29 :])

    with pytest.raises(CorruptDataError, match="not the file's name"):
        log.view(0, since=0, closed=True)


def test_records_out_of_order_are_told(log: StreamLog) -> None:
    content = index(log, 0).read_bytes()
    record = content[8:37]
    index(log, 0).write_bytes(content[:8] + record + record + content[37:])

    with pytest.raises(CorruptDataError):
        log.view(0, since=0, closed=True)


@pytest.mark.parametrize("since", [5, 15])
def test_an_offset_inside_a_chunk_is_told(log: StreamLog, since: int) -> None:
    with pytest.raises(CorruptDataError, match="no chunk begins here"):
        log.view(0, since=since, closed=True)


def test_what_begins_above_where_it_should_is_told(log: StreamLog) -> None:
    with pytest.raises(CorruptDataError, match="nothing from here up to 20"):
        log.view_at(20, 12, closed=False)
    assert log.view_at(0, 20, closed=True) is None


def test_a_file_that_was_truncated_and_rewritten_is_read_from_its_begin(log: StreamLog) -> None:
    """What an earlier look has skipped is another history by now."""
    view = log.view(20, since=30, closed=False, skip=1)
    assert view is not None
    assert view.skipped == 1
    for path in log.directory.glob("*20.*"):
        path.unlink()
    append_chunks(log.directory, [build_chunk(20, 2, 5, [b"y"] * 4)], roll=True)
    append_chunks(log.directory, [build_chunk(24, 2, 6, [b"y"] * 6)])
    append_chunks(log.directory, [build_chunk(30, 2, 6, [b"y"] * 6)])

    view = log.view(20, since=30, closed=False, skip=1)

    assert view is not None
    assert (view.skipped, view.chunk(0).epoch) == (2, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: b"XXXX" + data[4:], "no whole chunk"),
        (lambda data: data[:-1], "up to byte"),
        (lambda data: data[:-20], "up to byte|no whole chunk"),
        (
            lambda data: data[:8] + data[8:].replace(b"\0" * 7 + b"\x0a", b"\0" * 7 + b"\x0b"),
            "chunk 11",
        ),
    ],
)
def test_a_segment_that_is_not_what_its_index_says_is_told(
    log: StreamLog, change: Any, words: str
) -> None:
    path = log.segment_path(0)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(CorruptDataError, match=words) as caught:
        log.view(0, since=0, closed=True)

    assert caught.value.stream == STREAM


def test_only_whole_committed_chunks_count_in_a_history(log: StreamLog) -> None:
    assert [c.chunk_id for c in log.chunks_near(2**64 - 1, committed=39)] == [20]
    assert [c.chunk_id for c in log.chunks_near(2**64 - 1, committed=40)] == [30]
    assert [c.chunk_id for c in log.chunks_near(25, committed=40)] == [20, 30]
    assert [c.chunk_id for c in log.chunks_near(20, committed=30)] == [10, 20]
    assert log.chunks_near(2**64 - 1, committed=9) == []
    assert [c.chunk_id for c in log.chunks_between(0, 40, committed=39)] == [0, 10, 20]


def test_no_more_of_an_index_is_read_than_its_size_was(log: StreamLog) -> None:
    """The broker appends while it is looked at."""

    class Growing:
        def names(self, directory: Path) -> Any:
            return DISK.names(directory)

        def open(self, directory: Path, name: str) -> Any:
            if name.endswith(".index") and name.startswith(f"{20:020d}"):
                grown.append(1)
                if len(grown) == 1:
                    opened = DISK.open(directory, name)
                    append_chunks(log.directory, chunks(40, 1))
                    return opened
            return DISK.open(directory, name)

    grown: list[int] = []
    other = StreamLog(log.directory, Growing())

    view = other.view(20, since=20, closed=False)

    assert view is not None
    assert view.next_offset in (40, 50)


def test_the_last_chunk_is_found_below_a_segment_that_has_none_yet(log: StreamLog) -> None:
    """The broker has just begun it: a log that seems to be empty would contradict nothing."""
    for suffix, header in ((".segment", b"OSIL\0\0\0\1"), (".index", b"OSII\0\0\0\1")):
        (log.directory / f"{40:020d}{suffix}").write_bytes(header)

    assert log.segments() == [0, 20, 40]
    assert [each.chunk_id for each in log.chunks_near(15, committed=40)] == [10, 30]
