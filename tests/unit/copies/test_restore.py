"""A stream as the broker's own files again: byte for byte, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.copies import restore as copies
from coldstream.copies.restore import HolesError, Progress, Restored, Target, planned, target
from coldstream.copies.runs import HistoryChangedError
from coldstream.copies.workplace import ForeignFilesError
from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError, LostRangeError
from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.policy import PolicySet
from coldstream.plans.restore import Run, Segment, segments
from coldstream.reader import First, Offset, StreamReader
from coldstream.reader.follow import RangeRead
from coldstream.remote.context import Context
from coldstream.usecases.erase import erase
from tests.support.tier import DATA, FIXTURES, PREFIX, SMALL, Slice, Tier, chunk, segments_of

WORDS = {"from": "first", "until": ""}


class Room(NamedTuple):
    """What a disk has left."""

    free: int


class KilledError(Exception):
    """Stands for a process that ends at any moment."""


def restored(
    reader: StreamReader,
    directory: Path,
    first: int = 0,
    end: int | None = None,
    *,
    after_holes: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Restored:
    def find() -> Target:
        bound = None if end is None else Offset(end)
        return target(reader, reader.begin(Offset(first), bound), after_holes=after_holes)[0]

    return copies.restore(reader, WORDS, find, directory, tell)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def killed_after(ranges: int) -> Callable[[Progress], None]:
    left = iter(range(ranges))

    def tell(_: Progress) -> None:
        if next(left, None) is None:
            raise KilledError

    return tell


def killed_at(offset: int) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        if progress.next_offset >= offset:
            raise KilledError

    return tell


@pytest.mark.parametrize("name", FIXTURES)
def test_files_are_those_of_the_broker_byte_for_byte(name: str, tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture(name)

    done = restored(tier.reader(stream), tmp_path)

    assert files(tmp_path / stream) == files(DATA / name)
    assert [path.name for path in tmp_path.iterdir()] == [stream]
    assert (done.segments, done.resumed_at) == (len(segments_of(name)), None)


@pytest.mark.parametrize("name", ["plain-3.10.8", "epochs-4.3.6"])
def test_a_restore_that_was_killed_anywhere_goes_on_and_comes_to_the_same(
    name: str, tmp_path: Path
) -> None:
    tier = Tier()
    stream = tier.add_fixture(name, chunks=3)
    reader = tier.reader(stream)
    for ranges in range(0, 1000, 9):
        directory = tmp_path / str(ranges)
        try:
            restored(reader, directory, tell=killed_after(ranges))
            break
        except KilledError:
            assert not (directory / stream).exists()

        restored(reader, directory)

        assert files(directory / stream) == files(DATA / name)
    else:
        pytest.fail("it was never done")
    assert ranges > 15


def test_a_restore_goes_on_behind_the_last_whole_segment(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8", chunks=3)
    reader = tier.reader(stream)
    with pytest.raises(KilledError):
        restored(reader, tmp_path, tell=killed_at(1000))

    assert restored(reader, tmp_path).resumed_at == 682


def test_a_restore_that_was_killed_before_its_last_step_is_finished(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    with pytest.raises(KilledError):
        restored(tier.reader(stream), tmp_path, tell=killed_after(1))
    restored(tier.reader(stream), tmp_path / "other")
    work = tmp_path / f".restore.{stream}"
    (work / stream).rename(tmp_path / "away")
    (tmp_path / "other" / stream).rename(tmp_path / stream)

    done = restored(tier.reader(stream), tmp_path)

    assert (done.first_offset, done.next_offset, done.segments) == (0, 2000, 3)
    assert not work.exists()


def test_a_restore_that_was_killed_before_it_made_room_for_files_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it meant was written down; each further run failed for want of the directory."""
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    mkdir = Path.mkdir

    def killed(path: Path, *given: Any, **more: Any) -> None:
        if path.name == stream:
            raise KilledError
        mkdir(path, *given, **more)

    with monkeypatch.context() as context:
        context.setattr(Path, "mkdir", killed)
        with pytest.raises(KilledError):
            restored(tier.reader(stream), tmp_path)
    assert (tmp_path / f".restore.{stream}" / "state.json").exists()

    assert restored(tier.reader(stream), tmp_path).next_offset == 2000
    assert files(tmp_path / stream) == files(DATA / "plain-3.10.8")


def test_streams_with_the_longest_names_are_restored_beside_one_another(tmp_path: Path) -> None:
    tier = Tier()
    names = ["a" * 254 + end for end in "bc"]
    for stream in names:
        tier.add(stream, [[chunk(0, stream.encode())]])
        with pytest.raises(KilledError):
            restored(tier.reader(stream), tmp_path, tell=killed_after(0))

    for stream in names:
        restored(tier.reader(stream), tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for stream in names:
        assert stream.encode() in (tmp_path / stream / f"{0:020d}.segment").read_bytes()


@pytest.mark.parametrize("end", [1300, 1999])
def test_bounds_lie_between_chunks_and_a_cut_segment_begins_anew(tmp_path: Path, end: int) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    reader = tier.reader(stream)

    done = restored(reader, tmp_path, 701, end)

    log = StreamLog(tmp_path / stream)
    made = log.segments()
    assert made == ([700] if end == 1300 else [700, 1350])
    assert done.next_offset == (1300 if end == 1300 else 2000)
    for each in made:
        assert log.view(each, since=each, closed=True) is not None
    whole = (DATA / "plain-3.10.8" / f"{682:020d}.segment").read_bytes()
    assert (tmp_path / stream / f"{700:020d}.segment").read_bytes()[8:] in whole


def test_the_plan_says_what_the_restore_then_does(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("epochs-4.3.6", chunks=2)
    reader = tier.reader(stream)
    for first, end in ((0, 2000), (50, 750), (101, 102)):
        wanted, root = target(reader, reader.begin(Offset(first), Offset(end)))
        plan = list(planned(reader, root, wanted))
        directory = tmp_path / str(first)

        restored(reader, directory, first, end)

        assert {f"{each.first_offset:020d}.segment": each.size for each in plan} == {
            path.name: path.stat().st_size for path in (directory / stream).glob("*.segment")
        }


def test_where_another_node_had_rolled_elsewhere_a_file_begins_anew(tmp_path: Path) -> None:
    tier = Tier()
    chunks = [chunk(at, b"a" * at) for at in range(10)]
    left = Slice.of(chunks, 0, 4)
    right = Slice.of(chunks[2:], 2, 6)  # its node had begun this segment at offset 2
    tier.add("s", [left, right])

    done = restored(tier.reader("s"), tmp_path)

    assert StreamLog(tmp_path / "s").segments() == [0, 4]
    assert done.next_offset == 10
    made = [path.read_bytes()[8:] for path in sorted((tmp_path / "s").glob("*.segment"))]
    assert b"".join(made) == b"".join(chunks)


@pytest.mark.parametrize("name", ["subgzip-4.3.6", "codecs-4.3.6", "plain-3.10.8"])
def test_a_stream_with_erased_messages_is_restored_as_it_is_remotely(
    name: str, tmp_path: Path
) -> None:
    """Compressed sub-batches have other sizes then, and a broker's position means nothing."""
    tier = Tier()
    stream = tier.add_fixture(name)
    reader = tier.reader(stream)
    ids = count(1 << 40)
    first, end = (reader.begin(First(), None).position, reader.snapshot().root.next_offset)
    erased = OffsetSet.of((each, each + 1) for each in range(first, end, 7))
    context = Context(tier.store, tier.catalog, PREFIX, lambda: next(ids))
    erase(
        context, stream, erased, PolicySet(()), reason="", now_ms=1, branching=1024,
        pause=lambda _: None,
    )  # fmt: skip
    reader = tier.reader(stream)

    restored(reader, tmp_path, first)

    made = [path.read_bytes()[8:] for path in sorted((tmp_path / stream).glob("*.segment"))]
    remote = b"".join(bytes(each.buffer) for each in tier.reader(stream).chunks(First()))
    assert b"".join(made) == remote
    log = StreamLog(tmp_path / stream)
    for each in log.segments():
        assert log.view(each, since=each, closed=True) is not None


def test_a_hole_is_refused_or_passed_over_if_that_is_asked_for(tmp_path: Path) -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")], [chunk(6, b"6")]])
    reader = tier.reader("s")

    with pytest.raises(HolesError, match="offsets 1 to 4 are lost"):
        restored(reader, tmp_path)
    assert list(tmp_path.glob("*")) == []

    assert restored(reader, tmp_path, after_holes=True).first_offset == 5
    assert restored(reader, tmp_path / "low", 0, 1).next_offset == 1


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    (tmp_path / stream).mkdir()

    with pytest.raises(ForeignFilesError):
        restored(tier.reader(stream), tmp_path)

    assert list(tmp_path.rglob("*")) == [tmp_path / stream]


def test_a_foreign_file_in_the_workplace_stops_it(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    with pytest.raises(KilledError):
        restored(tier.reader(stream), tmp_path, tell=killed_after(1))
    mine = tmp_path / f".restore.{stream}" / stream / "notes"
    mine.write_text("mine")

    with pytest.raises(CorruptDataError, match="foreign"):
        restored(tier.reader(stream), tmp_path)
    assert mine.read_text() == "mine"


def test_an_earlier_run_with_other_bounds_is_not_gone_on_with(tmp_path: Path) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))
    with pytest.raises(KilledError):
        restored(reader, tmp_path, tell=killed_after(1))

    with pytest.raises(ForeignFilesError, match="asked for otherwise"):
        copies.restore(reader, {"from": "5"}, lambda: Target(5, 9), tmp_path, lambda _: None)


def test_a_restore_for_which_there_is_no_room_leaves_nothing_that_refuses_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Room(free=20_000))

    with pytest.raises(OSError, match="the disk has 20000 left"):
        restored(reader, tmp_path)

    assert not list(tmp_path.iterdir())
    small = copies.restore(reader, {"until": "9"}, lambda: Target(0, 9), tmp_path, lambda _: None)
    assert small.first_offset == 0


def test_a_restore_for_which_there_is_no_room_any_more_goes_on_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))
    with pytest.raises(KilledError):
        restored(reader, tmp_path, tell=killed_after(3))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: Room(free=0))
        with pytest.raises(OSError, match="the disk has 0 left"):
            restored(reader, tmp_path)

    again = restored(reader, tmp_path)
    whole = restored(reader, tmp_path / "whole")
    assert files(again.directory) == files(whole.directory)


@pytest.mark.parametrize(
    "said",
    [
        None,
        {"first": "x", "end": 9, "holes": []},
        {"first": 0, "end": None, "holes": []},
        {"first": 0, "end": 9, "holes": [["a", 1]]},
        {"first": 0, "end": 9, "of": 1},
    ],
)
def test_a_state_that_nobody_wrote_is_told_and_not_gone_on_with(
    said: object, tmp_path: Path
) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8", chunks=3)
    with pytest.raises(KilledError):
        restored(tier.reader(stream), tmp_path, tell=killed_after(5))
    (state,) = tmp_path.glob("*/state.json")
    state.write_text(json.dumps({**json.loads(state.read_text()), "target": said}))

    with pytest.raises(ForeignFilesError):
        restored(tier.reader(stream), tmp_path)


def test_two_restores_of_a_stream_do_not_mix(tmp_path: Path) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))

    def meanwhile(_: Progress) -> None:
        with pytest.raises(ConflictError, match="another process"):
            restored(reader, tmp_path)

    assert restored(reader, tmp_path, tell=meanwhile).next_offset == 2000


@pytest.mark.parametrize("late", [False, True])
def test_history_that_was_cut_off_meanwhile_is_not_continued_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """It may come at the very moment at which the rest is to be read."""
    tier = Tier()
    chunks = [chunk(at, b"a" * 50) for at in range(6)]
    root = tier.add("s", [Slice.of(chunks[:3], 0, 3), Slice.of(chunks[3:], 0, 3)])
    with pytest.raises(KilledError):
        restored(tier.reader("s"), tmp_path, tell=killed_after(1))
    other = [chunk(at, b"b" * 50, epoch=2) for at in range(2, 7)]
    entries = [
        tier.upload("s", Slice.of(chunks[:3], 0, 2), epoch=1, floor=0),
        tier.upload("s", Slice.of(other, 0, 5), epoch=2, floor=2),
    ]
    ledger = Ledger.of([(1, 0), (2, 2)])
    cut = replace(root, next_offset=7, epoch=2, ledger=ledger, entries=Entries.of(entries))
    reader = tier.reader("s")

    def begin(first: Offset, *end: Offset) -> RangeRead:
        if first == Offset(3):
            tier.commit("s", cut)
        return StreamReader.begin(reader, first, *end)

    if late:
        monkeypatch.setattr(reader, "begin", begin)
    else:
        tier.commit("s", cut)

    with pytest.raises(HistoryChangedError):
        restored(reader, tmp_path)


@pytest.mark.parametrize("ranges", [0, 1, 4, 12, 20])
def test_fragments_that_are_joined_meanwhile_make_the_same_files(
    tmp_path: Path, ranges: int
) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8", chunks=3)
    reader = tier.reader(stream, replace(SMALL, in_flight=1, refresh_seconds=0))
    root = reader.snapshot().root
    left = iter(range(ranges))

    def meanwhile(_: Progress) -> None:
        if next(left, None) is None and tier.key(root, stream, 0) in tier.store.objects:
            segments = segments_of("plain-3.10.8")
            whole = [Slice.of(each, 0, len(each)) for each in segments]
            entries = [tier.upload(stream, each, epoch=1, floor=0) for each in whole]
            tier.commit(stream, replace(root, entries=Entries.of(entries)))
            tier.store.delete([tier.key(root, stream, n) for n in range(len(root.entries))])

    restored(reader, tmp_path, tell=meanwhile)

    assert files(tmp_path / stream) == files(DATA / "plain-3.10.8")


def test_damage_is_told_and_nothing_of_it_gets_a_name(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    root = tier.reader(stream).snapshot().root
    tier.flip(tier.key(root, stream, 5), 200)

    with pytest.raises(CorruptDataError):
        restored(tier.reader(stream), tmp_path)
    assert not (tmp_path / stream).exists()


def test_an_empty_range_is_an_error(tmp_path: Path) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))

    with pytest.raises(InvalidInputError):
        target(reader, reader.begin(Offset(2000)))


def test_what_retention_took_between_two_runs_is_told(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8", chunks=3)
    root = tier.reader(stream).snapshot().root
    with pytest.raises(KilledError):
        restored(tier.reader(stream), tmp_path, tell=killed_after(2))
    tier.commit(
        stream,
        replace(
            root,
            first_offset=root.entries[2].first_offset,
            entries=Entries.of(list(root.entries)[2:]),
        ),
    )

    with pytest.raises(LostRangeError):
        restored(tier.reader(stream), tmp_path)


@pytest.mark.parametrize("left", [0, 1])
def test_retention_beyond_what_was_restored_is_not_told_as_another_history(
    tmp_path: Path, left: int
) -> None:
    """Who is told so removes what he has, and it is nowhere else any more."""
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8", chunks=1000)
    root = tier.reader(stream).snapshot().root
    assert len(root.entries) > 2, "each is a segment"
    with pytest.raises(KilledError):
        restored(tier.reader(stream), tmp_path, tell=killed_at(root.entries[1].next_offset))
    first = root.entries[1 + left].first_offset
    tier.commit(
        stream,
        replace(root, first_offset=first, entries=Entries.of(list(root.entries)[1 + left :])),
    )

    with pytest.raises(LostRangeError, match=f"to {first - 1} are not in the remote tier any more"):
        restored(tier.reader(stream), tmp_path)
    assert list(tmp_path.glob("*/*/*.segment"))


def test_what_is_small_is_restored_though_all_before_it_was_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused for what as many offsets take on average."""
    tier = Tier()
    large = [chunk(n, b"x" * 100_000) for n in range(8)]
    small = [chunk(n, b"x") for n in range(8, 24)]
    tier.add_tree("s", [[each] for each in [*large, *small]])
    reader = tier.reader("s")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Room(free=50_000))

    assert restored(reader, tmp_path, first=8).next_offset == 24
    with pytest.raises(OSError, match="the disk has 50000 left"):
        restored(reader, tmp_path / "all")


def test_very_small_fragments_are_restored_where_their_files_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each a broker's files have neither headers nor trailer, which are most of it."""
    tier = Tier()
    tier.add_tree("s", [[chunk(n, b"x")] for n in range(100)])
    written = restored(tier.reader("s"), tmp_path / "one").directory
    free = sum(len(each) for each in files(written).values())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Room(free))

    assert restored(tier.reader("s"), tmp_path / "other").next_offset == 100


def test_no_file_grows_beyond_what_an_index_can_point_into() -> None:
    runs = [Run(0, 1, 0, 8, 3 * 2**30, 1), Run(1, 2, 0, 8 + 3 * 2**30, 2**30, 1)]

    assert [each.first_offset for each in segments(runs)] == [0, 1]
    assert Segment.begin(runs[0]).original


def test_first_is_where_the_stream_begins() -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("retention-3.10.8"))

    assert target(reader, reader.begin(First()))[0].first == 1592
