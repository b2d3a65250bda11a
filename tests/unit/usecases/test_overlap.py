"""A fragment that begins below the manifest's end and reaches over it: its part counts as data."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from coldstream.errors import ConflictError, UnavailableError
from coldstream.fragment import HEADER, TRAILER_SIZE, FragmentIndex, parse_trailer
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.names import DataKey, parse_data_key
from coldstream.reader.verify import verify_stream
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases import overlap
from coldstream.usecases.ahead import ahead
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from coldstream.usecases.holes import ChainGap
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.fragments import SyntheticFragment
from coldstream_devkit.generator import build_chunk
from tests.support.remote import PREFIX, STREAM, Remote, gap, log_of, no_pause
from tests.support.remote import piece as any_piece


def piece(first: int, next_offset: int, **more: Any) -> SyntheticFragment:
    """A cut of one log: a chunk has the same bytes, whatever it is cut with."""
    more.setdefault("timestamps", [1_000 + first // 10])
    return any_piece(first, next_offset, **more)


def chain(count: int, *, size: int = 10, start: int = 0, **more: Any) -> list[SyntheticFragment]:
    return [piece(start + n * size, start + (n + 1) * size, **more) for n in range(count)]


@pytest.fixture
def remote() -> Remote:
    return Remote().claimed()


def commit(remote: Remote, **settings: Any) -> CommitReport:
    return commit_runs(remote.new_context(), STREAM, pause=no_pause, **settings)


def hole(remote: Remote, first: int, next_offset: int, *, epoch: int = 1) -> str:
    path = DataKey(STREAM, first, next_offset, epoch, 7, "hole").path(PREFIX)
    remote.memory.put(path, b"", write_id=path)
    return path


def kinds(remote: Remote) -> list[tuple[int, int, str]]:
    return [(e.first_offset, e.next_offset, e.kind.name) for e in remote.root().entries]


def chunk_bytes(remote: Remote) -> bytes:
    """All chunks that the manifest has."""
    found = []
    for entry in remote.root().entries:
        if entry.kind is EntryKind.FRAGMENT:
            data = remote.memory.objects[entry.data_key(STREAM).path(PREFIX)]
            trailer = parse_trailer(data[-TRAILER_SIZE:])
            found.append(data[len(HEADER) : trailer.index_position])
    return b"".join(found)


def sound(remote: Remote) -> bool:
    return verify_stream(remote.memory, remote.items, PREFIX, STREAM, deep=True).sound


def damaged(given: SyntheticFragment, chunk: int) -> SyntheticFragment:
    """The object with a flipped bit in the data of one chunk."""
    index = FragmentIndex(given.index_section, given.trailer)
    at = len(HEADER) + index[chunk].position + 60
    data = given.data[:at] + bytes([given.data[at] ^ 1]) + given.data[at + 1 :]
    return replace(given, data=data)


def stalled(remote: Remote, *fragments: SyntheticFragment) -> list[str]:
    """A manifest up to 20, and what came after it had got there."""
    remote.upload(piece(0, 10), piece(10, 20))
    assert commit(remote).next_offset == 20
    return remote.upload(*fragments)


def test_a_manifest_moves_on_over_the_part_of_a_fragment_that_reaches_over_its_end(
    remote: Remote,
) -> None:
    whole = piece(0, 50, uid=9)
    stalled(remote, piece(10, 50))

    report = commit(remote)

    assert (report.next_offset, report.fragments, report.refused) == (50, 1, ())
    assert kinds(remote)[2:] == [(20, 50, "FRAGMENT")]
    assert chunk_bytes(remote) == whole.chunks
    assert sound(remote)


def test_the_part_has_the_epoch_and_the_floor_of_what_it_comes_from() -> None:
    remote = Remote().claimed(5, first_offset=0)
    remote.upload(piece(0, 10, epoch=5))
    commit(remote)
    original = piece(0, 30, epoch=5, chunk_epochs=[5], segment_offset=0, segment_position=8)
    remote.upload(original)

    commit(remote)

    entry = remote.root().entries[1]
    trailer = parse_trailer(
        remote.memory.objects[entry.data_key(STREAM).path(PREFIX)][-TRAILER_SIZE:]
    )
    index = FragmentIndex(original.index_section, original.trailer)
    assert (entry.epoch, trailer.epoch, trailer.floor) == (5, 5, 0)
    assert trailer.segment_position == 8 + index[1].position
    assert trailer.segment_offset == 0


def test_of_several_the_one_that_reaches_furthest_is_taken(remote: Remote) -> None:
    stalled(remote, piece(10, 40), piece(0, 70), piece(10, 50))

    commit(remote)

    assert kinds(remote)[2:] == [(20, 70, "FRAGMENT")]


def test_what_begins_where_the_part_ends_is_appended_with_it(remote: Remote) -> None:
    stalled(remote, piece(10, 40), piece(40, 60))

    assert commit(remote).next_offset == 60
    assert sound(remote)


def test_one_overlap_behind_the_other_is_followed_to_the_end(remote: Remote) -> None:
    stalled(remote, piece(10, 40), piece(30, 60), piece(50, 80))

    assert commit(remote).next_offset == 80
    assert sound(remote)


def test_a_commit_that_has_something_to_append_cuts_nothing(remote: Remote) -> None:
    """Another agent is at work, and what it uploads next may fit."""
    remote.upload(piece(0, 10))
    commit(remote)
    remote.upload(piece(10, 20), piece(0, 30))
    before = set(remote.memory.objects)

    report = commit(remote)

    assert report.next_offset == 20
    assert not [key for key in set(remote.memory.objects) - before if "/data/" in key]
    assert commit(remote).next_offset == 30


def test_an_ordinary_commit_costs_what_it_did(remote: Remote) -> None:
    remote.upload(*chain(100, size=1))
    commit(remote)
    remote.upload(*chain(3, start=100))
    remote.forget()

    commit_runs(remote.context, STREAM, pause=no_pause)

    assert (remote.store.calls["list"], remote.store.calls["get_suffix"]) == (1, 3)
    remote.forget()
    commit_runs(remote.context, STREAM, pause=no_pause)
    assert remote.store.calls == {"list": 1}


# What does not join.


@pytest.mark.parametrize(
    ("across", "why"),
    [
        (piece(5, 40, records_per_chunk=20), "no chunk"),
        (piece(15, 40), "inside chunk 10"),
        (piece(10, 40, records_per_chunk=15), "no chunk of it begins at 20"),
        (piece(0, 40, records_per_chunk=20), "it has no chunk 10"),
        (piece(0, 40).lying(floor=9), "floor"),
        (piece(10, 40).lying(floor=5), "says floor 5"),
        (replace(piece(10, 40), key=piece(10, 60).key), "says next offset 40"),
        (replace(piece(0, 40), data=b"rotten" * 100), "ends in"),
    ],
)
def test_what_is_another_history_or_damaged_stays_out_and_is_named(
    remote: Remote, across: SyntheticFragment, why: str
) -> None:
    (path,) = stalled(remote, across)
    before = set(remote.memory.objects)

    report = commit(remote)

    assert report.next_offset == 20
    (refused,) = report.refused
    assert (refused.key, refused.stream) == (path, STREAM)
    assert why in str(refused)
    assert set(remote.memory.objects) == before


def test_a_chunk_of_another_epoch_where_the_manifest_ends_is_another_history() -> None:
    remote = Remote().claimed(3)
    remote.upload(piece(0, 20, epoch=3, chunk_epochs=[1, 2]))
    commit(remote)
    remote.upload(piece(0, 40, epoch=3, chunk_epochs=[1, 1, 2, 3]))

    report = commit(remote)

    assert report.next_offset == 20
    assert "of epoch 1, the manifest's of 2" in str(report.refused[0])

    remote.upload(piece(10, 40, epoch=3, chunk_epochs=[2, 2, 3]))
    assert commit(remote).next_offset == 40
    assert sound(remote)


def test_bytes_that_are_no_chunk_say_nothing_about_the_history_of_what_reaches_over() -> None:
    """The chunk in which the manifest ends is the only witness; its header has the epoch."""
    remote = Remote().claimed(3)
    remote.upload(piece(0, 20, epoch=3, chunk_epochs=[1, 2]))
    commit(remote)
    given = piece(0, 40, epoch=3, chunk_epochs=[1, 2, 2, 3])
    start = len(HEADER) + FragmentIndex(given.index_section, given.trailer)[1].position
    remote.upload(replace(given, data=flipped(given.data, start)))

    report = commit(remote)

    assert report.next_offset == 20
    assert "no chunk begins here" in str(report.refused[0])


@pytest.mark.parametrize(
    ("across", "ledger"),
    [
        # It reaches above the floor of a higher epoch: none of it may come back.
        (piece(10, 60, epoch=1), [(1, 0), (2, 20)]),
        # It begins below the floor of its own epoch.
        (piece(10, 60, epoch=2, floor=10), [(1, 0), (2, 20)]),
        # Its epoch never claimed.
        (piece(10, 60, epoch=3), [(1, 0), (2, 20)]),
    ],
)
def test_what_the_ledger_rejects_gives_no_part(
    remote: Remote, across: SyntheticFragment, ledger: list[tuple[int, int]]
) -> None:
    stalled(remote)
    remote.claim(2)
    assert remote.root().ledger == Ledger.of(ledger)
    (path,) = remote.upload(across)
    before = set(remote.memory.objects)

    assert commit(remote).next_offset == 20
    found = gap(remote, 80)

    assert set(remote.memory.objects) == before
    assert found is not None
    assert found.holding == (path,)
    assert found.why == ("the ledger does not accept it",)


def test_an_overlap_below_the_ceiling_is_taken_although_a_higher_epoch_has_claimed() -> None:
    """A rebuilt ledger: the floor of the higher epoch lies above the manifest's end."""
    remote = Remote().claimed()
    stalled(remote)
    loaded = load(remote.new_context(), STREAM)
    root = replace(loaded.root, ledger=Ledger.of([(1, 0), (2, 60)]), epoch=2)
    publish(remote.new_context(), loaded, root, claim=True)
    remote.upload(piece(10, 60), piece(10, 70, uid=8))

    assert commit(remote).next_offset == 60


# Damage.


def test_what_is_good_before_the_damage_is_taken_and_the_rest_becomes_reachable(
    remote: Remote,
) -> None:
    (path,) = stalled(remote, damaged(piece(10, 80), 3))  # chunk 40

    report = commit(remote)

    assert (report.next_offset, report.refused[0].key) == (40, path)
    assert "its chunk 40 is damaged" in str(report.refused[0])
    assert gap(remote, 100) == ChainGap(40, 50, 1, True, False, (path,))
    hole(remote, 40, 50)
    assert commit(remote).next_offset == 80
    assert kinds(remote)[3:] == [(40, 50, "HOLE"), (50, 80, "FRAGMENT")]
    assert sound(remote)


def test_a_damaged_chunk_is_taken_from_another_that_has_it(remote: Remote) -> None:
    stalled(remote, damaged(piece(10, 80), 3), piece(0, 60))

    assert commit(remote).next_offset == 80
    assert sound(remote)


def test_behind_damage_nothing_is_written_again_and_again(remote: Remote) -> None:
    stalled(remote, damaged(piece(10, 80), 1))
    commit(remote)
    before = set(remote.memory.objects)

    for _ in range(5):
        assert commit(remote).next_offset == 20

    assert set(remote.memory.objects) == before
    begins = [parse_data_key(k, PREFIX).first_offset for k in before if "/data/" in k]
    assert sorted(begins) == [0, 10, 10, 30]


def flipped(data: bytes, at: int, bits: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("what", "at", "bits"),
    [
        ("records", 7, 1),
        ("entries and type", 1, 3),
        ("timestamp", 15, 1),
        ("epoch", 23, 1),
        ("a higher epoch", 23, 2),
        ("chunk id", 31, 1),
        ("data", 60, 1),
        ("a trailer that is not there", 43, 1),
        ("filter", 44, 255),
        ("reserved", 46, 1),
    ],
)
def test_no_chunk_that_does_not_hold_is_carried_over(
    remote: Remote, what: str, at: int, bits: int
) -> None:
    """The CRC of a chunk covers its data alone; all else is compared with the index."""
    del what
    given = piece(10, 50)
    index = FragmentIndex(given.index_section, given.trailer)
    start = len(HEADER) + index[2].position  # chunk 30
    stalled(remote, replace(given, data=flipped(given.data, start + at, bits)))

    report = commit(remote)

    assert report.next_offset == 30
    assert report.refused
    assert sound(remote)


def test_a_chunk_that_says_it_begins_later_is_not_carried_over(remote: Remote) -> None:
    """One record less, from one offset later on: it ends where the index says."""
    given = piece(10, 50)
    index = FragmentIndex(given.index_section, given.trailer)
    start = len(HEADER) + index[2].position
    data = bytearray(given.data)
    data[start + 3], data[start + 7], data[start + 31] = 9, 9, 31
    stalled(remote, replace(given, data=bytes(data)))

    assert commit(remote).next_offset == 30


def test_a_longer_chunk_than_the_index_says_is_not_carried_over(remote: Remote) -> None:
    """Its data section ends in the middle of what the index gives it, and its CRC holds."""
    given = piece(10, 50)
    index = FragmentIndex(given.index_section, given.trailer)
    start, end = (len(HEADER) + index[n].position for n in (2, 3))
    data = bytearray(given.data)
    shorter = bytes(data[start + 48 : end - 1])
    data[start + 32 : start + 40] = zlib.crc32(shorter).to_bytes(4, "big") + len(shorter).to_bytes(
        4, "big"
    )
    stalled(remote, replace(given, data=bytes(data)))

    assert commit(remote).next_offset == 30


def test_a_filter_of_impossible_size_is_not_carried_over(remote: Remote) -> None:
    given = piece(10, 50)
    index = FragmentIndex(given.index_section, given.trailer)
    start, end = (len(HEADER) + index[n].position for n in (2, 3))
    data = bytearray(given.data)
    rest = bytes(data[start + 53 : end])  # behind a filter of five bytes
    data[start + 32 : start + 40] = zlib.crc32(rest).to_bytes(4, "big") + len(rest).to_bytes(
        4, "big"
    )
    data[start + 44] = 5
    stalled(remote, replace(given, data=bytes(data)))

    assert commit(remote).next_offset == 30


def test_a_part_that_no_commit_would_take_is_not_even_written(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every look would write it again."""

    def bad(run: Any, index: Any, floor: int) -> Any:
        return real(run, index, floor + 1)

    real = overlap.part_of
    monkeypatch.setattr(overlap, "part_of", bad)
    stalled(remote, piece(10, 50))
    before = set(remote.memory.objects)

    report = commit(remote)

    assert (report.next_offset, set(remote.memory.objects)) == (20, before)
    assert report.refused


def test_a_tracking_chunk_that_does_not_hold_is_not_carried_over(remote: Remote) -> None:
    given = piece(10, 50)
    index = FragmentIndex(given.index_section, given.trailer)
    start, end = (len(HEADER) + index[n].position for n in (2, 3))
    data = bytearray(given.data)
    shorter = bytes(data[start + 48 : end - 3])  # and a trailer of three bytes that mean nothing
    data[start + 32 : start + 44] = b"".join(
        number.to_bytes(4, "big") for number in (zlib.crc32(shorter), len(shorter), 3)
    )
    stalled(remote, replace(given, data=bytes(data)))

    assert commit(remote).next_offset == 30


@pytest.mark.parametrize("what", ["index", "cut"])
def test_one_whose_index_does_not_hold_or_that_is_cut_is_left_and_named(
    remote: Remote, what: str
) -> None:
    given = piece(10, 50)
    data = flipped(given.data, given.trailer.index_position + 12)
    (path,) = stalled(remote, replace(given, data=data if what == "index" else given.data[200:]))

    report = commit(remote)

    assert (report.next_offset, report.refused[0].key) == (20, path)


def test_one_that_vanishes_is_no_reason_to_fail(remote: Remote) -> None:
    gone, _ = stalled(remote, piece(10, 90), piece(10, 50))
    remote.store.before["get_suffix"] = lambda *_: remote.memory.objects.pop(gone)

    assert commit(remote).next_offset == 50


def test_no_answer_while_a_part_is_taken_is_no_reason_for_a_hole(remote: Remote) -> None:
    stalled(remote, piece(10, 50), piece(90, 99))
    hole(remote, 20, 90)

    def fails(*_: Any) -> None:
        raise UnavailableError("no answer")

    remote.store.before["get"] = fails
    with pytest.raises(UnavailableError):
        commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.root().next_offset == 20
    commit(remote)
    assert kinds(remote)[2:] == [(20, 50, "FRAGMENT")]


# Holes.


def test_a_hole_that_lies_there_already_is_not_taken_over_data(remote: Remote) -> None:
    stalled(remote, piece(10, 60), piece(60, 70))
    hole(remote, 20, 60)

    commit(remote)

    assert kinds(remote)[2:] == [(20, 60, "FRAGMENT"), (60, 70, "FRAGMENT")]


def test_a_hole_is_only_for_what_no_fragment_holds(remote: Remote) -> None:
    stalled(remote, piece(10, 40), piece(60, 70))
    hole(remote, 20, 60)

    report = commit(remote)

    assert (report.next_offset, report.holes) == (40, ())
    assert gap(remote, 60) == ChainGap(40, 60, 1, True, False, ())
    hole(remote, 40, 60)
    assert commit(remote).next_offset == 70


def test_a_hole_amid_a_run_is_no_hole_where_a_fragment_of_the_run_reaches_in(
    remote: Remote,
) -> None:
    remote.upload(piece(0, 10), piece(10, 20), piece(20, 30), piece(10, 40), piece(60, 70))
    hole(remote, 30, 60)
    hole(remote, 40, 60)

    commit(remote)

    covered = [(e[0], e[1]) for e in kinds(remote) if e[2] == "HOLE"]
    assert covered == [(40, 60)]
    assert sound(remote)


def test_a_hole_behind_what_was_just_appended_is_kept_out_and_the_part_taken_at_once(
    remote: Remote,
) -> None:
    remote.upload(piece(0, 20), piece(20, 30), piece(10, 40), piece(60, 70))
    hole(remote, 30, 60)

    report = commit(remote)

    assert (report.next_offset, report.holes) == (40, ())
    assert [each[:2] for each in kinds(remote)] == [(0, 20), (20, 30), (30, 40)]


def test_a_hole_is_taken_where_what_reaches_in_cannot_join(remote: Remote) -> None:
    (path, _) = stalled(remote, piece(15, 50), piece(60, 70))
    hole(remote, 20, 60)

    report = commit(remote)

    assert (report.next_offset, report.holes) == (70, ((20, 60),))
    assert [each.key for each in report.refused] == [path], "and it is named"
    assert path in remote.memory.objects


@pytest.mark.parametrize("branching", [4, 1024])
def test_before_a_hole_all_is_looked_for_however_many_entries_back_it_begins(
    remote: Remote, branching: int
) -> None:
    """Thousands of tiny fragments of a second agent over one large one of the first."""
    remote.upload(*chain(300, size=1, records_per_chunk=1))
    commit(remote)
    while (
        branching < 1024
        and rebalance(remote.new_context(), STREAM, branching=branching, pause=no_pause).landed
    ):
        pass
    remote.upload(piece(2, 340, records_per_chunk=1), piece(400, 410))
    hole(remote, 300, 400)

    commit(remote)

    assert remote.root().next_offset == 340
    assert gap(remote, 400) == ChainGap(340, 400, 1, True, False, ())


def test_before_a_gap_is_told_all_is_looked_for(remote: Remote) -> None:
    remote.upload(*chain(300, size=1, records_per_chunk=1))
    commit(remote)
    remote.upload(piece(2, 340, records_per_chunk=1))
    assert commit(remote).next_offset == 300, "an event looks at the last few only"

    assert gap(remote, 400) == ChainGap(340, 400, 1, False, False, ())


def test_a_gap_is_looked_at_with_what_was_appended_meanwhile(remote: Remote) -> None:
    stalled(remote, piece(20, 30), piece(10, 60))

    assert gap(remote, 60) is None
    assert remote.root().next_offset == 60


def test_a_preview_shows_no_hole_that_no_commit_would_take(remote: Remote) -> None:
    stalled(remote, piece(10, 60), piece(60, 70))
    hole(remote, 20, 60)

    assert ahead(remote.new_context(), STREAM).next_offset == 20


def test_a_hole_at_the_end_of_the_manifest_is_no_obstacle(remote: Remote) -> None:
    """Repair has declared the last fragment lost; what reaches over it joins where a chunk ends."""
    from coldstream.usecases.repair import repair

    stalled(remote)
    gone = remote.root().entries[1].data_key(STREAM).path(PREFIX)
    del remote.memory.objects[gone]
    repair(
        remote.new_context(), STREAM, ranges=[(10, 20)], lost=True, branching=1024, pause=no_pause
    )
    assert kinds(remote)[-1] == (10, 20, "HOLE")
    remote.upload(piece(10, 50))
    commit(remote)
    assert remote.root().next_offset == 50


# Claims.


def test_a_claim_takes_what_reaches_over_the_end_before_it_sets_its_floor(remote: Remote) -> None:
    """A fail-over between two nodes that cut differently: the floor would shut the rest out."""
    stalled(remote, piece(10, 60))

    item = remote.claim(2)

    assert (item.next_offset, item.ledger.floor(2)) == (60, 60)
    assert sound(remote)


def test_a_claim_looks_as_far_back_as_it_takes(remote: Remote) -> None:
    remote.upload(*chain(300, size=1, records_per_chunk=1))
    commit(remote)
    remote.upload(piece(2, 340, records_per_chunk=1))

    assert remote.claim(2).ledger.floor(2) == 340


def test_a_claim_cuts_off_again_what_its_log_shows_to_be_another_history(remote: Remote) -> None:
    lost = piece(10, 60)
    stalled(remote, lost)
    mine = [*log_of(piece(0, 10), piece(10, 20)).chunks]
    from coldstream.plans.claim import LocalChunk

    item = remote.claim(2, *mine, LocalChunk(20, 30, 2))

    assert (item.next_offset, item.ledger.floor(2)) == (20, 20)
    assert remote.root().quarantine_key
    assert lost.path(PREFIX) in remote.memory.objects


def test_a_claim_never_sets_its_floor_below_what_it_had_no_patience_for(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled(remote, piece(10, 60))
    monkeypatch.setattr(overlap, "_MAX_TURNS", 0)

    with pytest.raises(ConflictError):
        remote.claim(2)

    assert remote.root().ledger.epoch == 1


# Bounds, crashes, races.


def test_right_after_a_claim_there_is_nothing_to_look_back_for(remote: Remote) -> None:
    """No fragment that the ledger accepts begins below the floor of its epoch."""
    remote.upload(*chain(30))
    commit(remote)
    remote.claim(2)
    remote.forget()

    assert overlap.reaching_over(remote.context, STREAM, remote.root()) == []
    assert remote.store.calls["list"] == 0


def test_the_look_back_is_as_long_as_an_object_can_be_and_no_longer(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.upload(*chain(300, size=1, records_per_chunk=1))
    commit(remote)
    far, near = remote.upload(
        piece(100, 310, records_per_chunk=1), piece(290, 320, records_per_chunk=1)
    )
    root = remote.root()
    context = replace(remote.new_context(), page_size=10)

    def found(size: int) -> list[str]:
        monkeypatch.setattr(overlap, "LOOK_BYTES", size)
        remote.forget()
        return [each.path for each in overlap.reaching_over(context, STREAM, root)]

    of_one = root.entries[-1].size
    assert found(20 * of_one) == [near]
    assert remote.store.calls["list"] <= 4
    assert found(10 * of_one) == [near]
    assert found(9 * of_one) == []
    assert found(10**9) == [near, far]


def test_no_object_has_six_bytes_for_one_byte_of_chunks() -> None:
    """What the length of the look back stands on: the least chunk, alone in a fragment."""
    least = build_chunk(0, 1, 1, [b""])
    made = any_piece(0, 1, records_per_chunk=1)
    overhead = len(made.data) - len(made.chunks)

    assert overhead + len(least) < 6 * len(least)


def test_more_than_a_thousand_that_reach_over_are_looked_at_in_turns(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_MAX_FOUND", 5)
    stalled(remote, *(piece(15, 40 + n, uid=n + 1) for n in range(20)), piece(10, 30))

    assert gap(remote, 100) == ChainGap(30, 100, 1, False, False, ANY)
    assert remote.root().next_offset == 30


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_PIECE", 700)


@pytest.mark.usefixtures("small")
def test_a_large_fragment_is_taken_in_pieces(remote: Remote) -> None:
    stalled(remote, piece(10, 200))

    report = commit(remote)

    assert report.next_offset == 200
    assert report.fragments > 3
    assert chunk_bytes(remote) == piece(0, 200).chunks
    assert sound(remote)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("puts", range(1, 8))
def test_one_who_dies_in_the_middle_is_followed_by_one_who_goes_on(
    remote: Remote, puts: int
) -> None:
    stalled(remote, piece(10, 200))
    left = puts

    class Dies(BaseException):
        pass

    put = remote.memory.put

    def dying(*given: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Dies
        put(*given, **named)

    remote.memory.put = dying  # type: ignore[method-assign]
    with suppress(Dies):
        commit(remote)
    remote.memory.put = put  # type: ignore[method-assign]

    commit(remote)  # what is there already
    assert commit(remote).next_offset == 200
    assert chunk_bytes(remote) == piece(0, 200).chunks
    assert sound(remote)


@pytest.mark.usefixtures("small")
def test_one_who_has_no_time_left_says_that_more_is_there(remote: Remote) -> None:
    stalled(remote, piece(10, 200))
    asked: list[int] = []

    def time_left() -> bool:
        asked.append(1)
        return len(asked) < 3

    report = commit(remote, time_left=time_left)

    assert 20 <= report.next_offset < 200
    assert report.more
    for _ in range(40):
        commit(remote)
    assert remote.root().next_offset == 200


def test_without_any_time_nothing_is_cut_and_no_hole_is_taken(remote: Remote) -> None:
    stalled(remote, piece(10, 60), piece(60, 70))
    hole(remote, 20, 60)
    before = set(remote.memory.objects)

    report = commit(remote, time_left=lambda: False)

    assert (report.next_offset, report.more) == (20, True)
    assert set(remote.memory.objects) == before


def test_a_chunk_too_large_to_be_copied_is_left_and_named(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_MAX_CHUNK", 100)
    (path,) = stalled(remote, piece(10, 60))

    report = commit(remote)

    assert (report.next_offset, report.refused[0].key) == (20, path)


def test_two_committers_at_once_end_in_one_manifest(remote: Remote) -> None:
    stalled(remote, piece(10, 60))
    remote.store.before["put"] = lambda *_: commit(remote)

    commit(remote)

    assert remote.root().next_offset == 60
    assert len(kinds(remote)) == 3
    assert sound(remote)


def test_a_manifest_that_has_moved_on_meanwhile_takes_no_part_twice(remote: Remote) -> None:
    stalled(remote, piece(10, 60))

    def other(*_: Any) -> None:
        remote.upload(piece(20, 40))
        commit(remote)

    remote.store.before["get_suffix"] = other

    commit(remote)

    assert remote.root().next_offset == 60
    assert chunk_bytes(remote) == piece(0, 60).chunks


def test_what_reaches_over_the_end_and_cannot_join_ends_after_one_look(remote: Remote) -> None:
    stalled(remote, *(piece(15, 40 + n, uid=n + 1) for n in range(20)))
    remote.forget()

    report = commit(remote)

    assert len(report.refused) == 20
    assert remote.store.calls["list"] == 2
    assert remote.store.calls["get_suffix"] == 20
