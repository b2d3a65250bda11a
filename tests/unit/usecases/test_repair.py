"""A damaged stream reads back as the broker wrote it; nothing is lost but what was given up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coldstream.cli.repair_replica import LogReplica
from coldstream.errors import ConflictError, CorruptDataError, UnavailableError
from coldstream.fragment import HEADER, parse_trailer
from coldstream.manifest.entries import EntryKind
from coldstream.osiris.chunk import iter_chunks
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.policy import PolicySet
from coldstream.plans.repair import Known, chunks_in
from coldstream.reader import First
from coldstream.reader.gap import Gap
from coldstream.remote.context import Context
from coldstream.soundness.findings import FindingKind
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.erase import erase
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.repair import repair
from coldstream.usecases.repair_report import Action, RepairReport
from coldstream_devkit.generator import append_chunks
from tests.support.corruptions import CORRUPTIONS, Planted
from tests.support.crashes import Crash, OverWire, Wire
from tests.support.remote import STREAM as CHAIN
from tests.support.remote import Remote, chain, log_of, no_pause, piece
from tests.support.scrub_site import (
    STREAM,
    a_tier,
    chunk_of,
    groups_of,
    leaf,
    path_of,
    root_of,
    scrub_all,
)
from tests.support.tier import PREFIX, Tier

#: Corruptions of an object or of the entry that names it.
OF_OBJECTS = [
    name
    for name in CORRUPTIONS
    if not any(
        word in name
        for word in ("root", "catalog", "ledger", "second object", "not ours", "border", "hole")
    )
]
_SEEDS = iter(range(10_000))


def context_of(tier: Tier, **changes: Any) -> Context:
    ids = random.Random(next(_SEEDS))
    return Context(
        changes.get("store", tier.store),
        changes.get("catalog", tier.catalog),
        PREFIX,
        lambda: ids.getrandbits(64),
    )


def mend(tier: Tier, planted: Planted | None = None, **more: Any) -> RepairReport:
    settings = {
        "ranges": [(planted.first, planted.next_offset)] if planted else None,
        "branching": 4,
        "pause": lambda _: None,
        **more,
    }
    return repair(context_of(tier, **settings.pop("context", {})), STREAM, **settings)


def read(tier: Tier) -> bytes:
    return b"".join(bytes(each.buffer) for each in tier.reader(STREAM).chunks(First()))


def copy_of(tier: Tier) -> None:
    """A second, good upload of every fragment's range, two by two: what consolidate leaves."""
    leaves = tier.leaves(STREAM, root_of(tier))
    chunks = {each: chunks_of(tier, path_of(each)) for each in leaves}
    for one, other in zip(leaves[::2], leaves[1::2], strict=True):
        tier.upload(STREAM, chunks[one] + chunks[other], epoch=one.epoch, floor=0)


def chunks_of(tier: Tier, path: str) -> list[bytes]:
    data = tier.store.objects[path]
    end = parse_trailer(data).index_position
    return [bytes(each.buffer) for each in iter_chunks(data, len(HEADER), end)]


def directory(tmp_path: Path, groups: Sequence[Sequence[bytes]]) -> LogReplica:
    told: list[str] = []
    for number, group in enumerate(groups):
        append_chunks(tmp_path / STREAM, group, roll=number % 3 == 0)
    return LogReplica(tmp_path, STREAM, told.append)


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize("name", OF_OBJECTS)
def test_another_upload_of_the_range_repairs_it_byte_for_byte(name: str, tree: bool) -> None:
    tier = a_tier(tree=tree)
    wanted = read(tier)
    copy_of(tier)
    planted = CORRUPTIONS[name](tier)
    old = dict(tier.store.objects)

    report = mend(tier, planted)

    assert report.landed
    assert not report.left
    assert read(tier) == wanted
    outcome = scrub_all(tier)
    assert outcome.bad == []
    assert {key: tier.store.objects[key] for key in old} == old  # nothing was overwritten
    assert mend(tier, planted).repairs == []


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_replica_repairs_it_byte_for_byte(name: str, tmp_path: Path) -> None:
    tier = a_tier()
    wanted = read(tier)
    replica = directory(tmp_path, groups_of(14))
    planted = CORRUPTIONS[name](tier)

    report = mend(tier, planted, replicas=[replica])

    assert report.landed
    assert read(tier) == wanted
    assert scrub_all(tier).bad == []


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_what_no_source_has_stays_unless_it_is_given_up(name: str) -> None:
    tier = a_tier()
    planted = CORRUPTIONS[name](tier)

    report = mend(tier, planted)

    if report.left:
        assert not report.landed
        again = mend(tier, ranges=report.left[0].missing or None, lost=True)
        assert again.landed
        assert again.lost == list(report.left[0].missing)
        gaps: list[Gap] = []
        seen = [
            offset
            for chunk in tier.reader(STREAM).chunks(First(), on_gap=gaps.append)
            for offset in range(chunk.header.chunk_id, chunk.header.next_offset)
        ]
        lost = [offset for gap in gaps for offset in range(gap.first_offset, gap.next_offset)]
        root = root_of(tier)
        assert sorted(seen + lost) == list(range(root.first_offset, root.next_offset))
        assert len(lost) == sum(next_offset - first for first, next_offset in again.lost)
    assert scrub_all(tier).bad == []


@pytest.mark.parametrize(
    "name", ["an object that is gone", "a raw flip in the data", "a raw flip in the trailer"]
)
def test_a_replica_that_still_has_what_was_erased_does_not_bring_it_back(
    name: str, tmp_path: Path
) -> None:
    tier = a_tier()
    erased = OffsetSet.of((each, each + 1) for each in range(0, root_of(tier).next_offset, 3))
    erase(
        context_of(tier), STREAM, erased, PolicySet(()), reason="", now_ms=1, branching=4,
        pause=no_pause,
    )  # fmt: skip
    wanted = read(tier)
    planted = CORRUPTIONS[name](tier)

    report = mend(tier, planted, replicas=[directory(tmp_path, groups_of(14))])

    assert report.landed
    assert read(tier) == wanted
    assert scrub_all(tier).bad == []


def test_only_the_damaged_chunk_is_lost_and_the_rest_of_its_fragment_stays() -> None:
    tier = a_tier()
    planted = CORRUPTIONS["a raw flip in the data"](tier)
    before = tier.leaves(STREAM, root_of(tier))

    report = mend(tier, planted, lost=True)

    assert report.lost == [(planted.first, planted.next_offset)]
    after = tier.leaves(STREAM, root_of(tier))
    new = [each for each in after if each not in before]
    assert [each.kind for each in new] == [EntryKind.FRAGMENT, EntryKind.HOLE, EntryKind.FRAGMENT]
    assert (new[1].first_offset, new[1].next_offset) == (planted.first, planted.next_offset)
    assert root_of(tier).version == 2


def test_no_more_is_given_up_than_was_asked_for() -> None:
    tier = a_tier()
    planted = CORRUPTIONS["two damaged chunks of one fragment"](tier)

    report = mend(tier, planted, lost=True)

    assert not report.landed
    assert len(report.left[0].missing) == 2


def test_nothing_is_given_up_when_some_source_has_it(tmp_path: Path) -> None:
    tier = a_tier()
    wanted = read(tier)
    planted = CORRUPTIONS["an object that is gone"](tier)

    report = mend(tier, planted, lost=True, replicas=[directory(tmp_path, groups_of(14))])

    assert report.lost == []
    assert read(tier) == wanted


def test_a_replica_of_another_history_is_not_asked(tmp_path: Path) -> None:
    tier = a_tier()
    planted = CORRUPTIONS["an object that is gone"](tier)
    other = [
        [_of_epoch(chunk, 9) for chunk in group] for group in groups_of(14)
    ]  # the same offsets, written by another leader

    report = mend(tier, planted, replicas=[directory(tmp_path, other)])

    assert [each.action for each in report.left] == [Action.LEAVE]
    assert report.left[0].taken == {}


def _of_epoch(chunk: bytes, epoch: int) -> bytes:
    return chunk[:16] + epoch.to_bytes(8, "big") + chunk[24:]


def test_damage_in_the_replica_is_not_copied(tmp_path: Path) -> None:
    tier = a_tier()
    planted = CORRUPTIONS["an object that is gone"](tier)
    groups = groups_of(14)
    bad = bytearray(groups[4][1])
    bad[-5] ^= 1
    groups[4][1] = bytes(bad)

    report = mend(tier, planted, replicas=[directory(tmp_path, groups)], lost=True)

    [lost] = report.lost
    assert planted.first < lost[0] < lost[1] < planted.next_offset
    assert scrub_all(tier).bad == []


def test_a_hole_over_data_is_filled_again() -> None:
    tier = a_tier()
    wanted = read(tier)
    planted = CORRUPTIONS["a hole where data is"](tier)
    assert [each.kind for each in scrub_all(tier).bad] == [FindingKind.HOLE_OVER_DATA]

    report = mend(tier, planted)

    assert report.landed
    assert report.lost == []
    assert read(tier) == wanted


def test_a_hole_that_nobody_can_fill_stays_as_it_is() -> None:
    tier = a_tier()
    CORRUPTIONS["an object that is gone"](tier)
    mend(tier, lost=True)
    before = root_of(tier)

    report = mend(tier, lost=True)

    assert (report.repairs, report.landed) == ([], False)
    assert root_of(tier) == before


def _with_a_lost_end(tmp_path: Path, epoch: int) -> tuple[Remote, LogReplica]:
    """A stream whose last fragment, of epoch 2, is gone; a node with this epoch's chunk there."""
    remote = Remote().claimed()
    remote.upload(*chain(3))
    commit_runs(remote.context, CHAIN, pause=no_pause)
    remote.claim(2, *log_of(*chain(3)).chunks)
    (lost,) = remote.upload(piece(30, 40, epoch=2, floor=30))
    commit_runs(remote.context, CHAIN, pause=no_pause)
    del remote.memory.objects[lost]
    log = [*chain(3), piece(30, 40, epoch=epoch)]
    chunks = [bytes(each.buffer) for one in log for each in iter_chunks(one.chunks)]
    append_chunks(tmp_path / CHAIN, chunks)
    return remote, LogReplica(tmp_path, CHAIN, lambda _: None)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_replica_that_shares_only_what_lies_below_a_hole_does_not_fill_it(
    epoch: int, tmp_path: Path
) -> None:
    """What a leader had written before it was deposed, nobody has ever confirmed."""
    remote, replica = _with_a_lost_end(tmp_path, epoch)
    del remote.memory.objects[remote.items.items[CHAIN].root_key]
    rebuild(remote.new_context(), CHAIN, branching=4, dry_run=False, accept_less=True)
    before, told = remote.root(), list[str]()
    assert before.entries[-1].kind is EntryKind.HOLE

    report = repair(
        remote.new_context(), CHAIN, ranges=None, replicas=[replica], branching=4,
        pause=no_pause, tell=told.append,
    )  # fmt: skip

    assert report.repairs == []
    assert remote.root() == before
    assert any("is not asked" in each for each in told)


@pytest.mark.parametrize("by", ["repair", "rebuild"])
@pytest.mark.parametrize(("epoch", "filled"), [(1, False), (2, True)])
def test_a_hole_at_the_end_is_filled_by_who_has_the_chunk_that_the_manifest_remembers(
    by: str, epoch: int, filled: bool, tmp_path: Path
) -> None:
    remote, replica = _with_a_lost_end(tmp_path, epoch)
    settings: dict[str, Any] = {"ranges": None, "branching": 4, "pause": no_pause}
    if by == "repair":
        repair(remote.new_context(), CHAIN, lost=True, **settings)
    else:
        rebuild(remote.new_context(), CHAIN, branching=4, dry_run=False, accept_less=True)
    assert remote.root().entries[-1].kind is EntryKind.HOLE

    repair(remote.new_context(), CHAIN, replicas=[replica], **settings)

    assert (remote.root().entries[-1].kind is EntryKind.FRAGMENT) == filled


def test_all_damage_of_a_stream_is_repaired_in_one_commit_without_being_told_where() -> None:
    tier = a_tier(tree=True)
    wanted = read(tier)
    copy_of(tier)
    for number in (0, 3, 4, 13):
        tier.flip(path_of(leaf(tier, number)), 100)
    before = root_of(tier).version

    report = mend(tier)

    assert (len(report.repairs), report.looked_at) == (4, 14)
    assert root_of(tier).version == before + 1
    assert read(tier) == wanted


def test_a_dry_run_changes_nothing() -> None:
    tier = a_tier()
    planted = CORRUPTIONS["an object that is gone"](tier)
    before = dict(tier.store.objects), dict(tier.catalog.items)

    report = mend(tier, planted, lost=True, dry_run=True)

    assert (dict(tier.store.objects), dict(tier.catalog.items)) == before
    assert report.lost == [(planted.first, planted.next_offset)]


def test_whoever_replaced_the_fragment_meanwhile_is_not_undone() -> None:
    tier = a_tier()
    copy_of(tier)
    planted = CORRUPTIONS["a raw flip in the data"](tier)

    def other() -> None:
        mend(tier, planted)

    wire = Wire(25, meanwhile=other)
    for calls in range(40):
        tier = a_tier()
        copy_of(tier)
        planted = CORRUPTIONS["a raw flip in the data"](tier)
        wire = Wire(calls, meanwhile=other)
        store, catalog = OverWire(tier.store, wire), OverWire(tier.catalog, wire)
        mend(tier, planted, context={"store": store, "catalog": catalog})
        assert scrub_all(tier).bad == []


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_a_repair_can_be_killed_between_any_two_of_its_calls(carried_out: bool, lost: bool) -> None:
    for calls in range(60):
        tier = a_tier(tree=True)
        if not lost:
            copy_of(tier)
        wanted = read(tier)
        planted = CORRUPTIONS["a raw flip in the data"](tier)
        wire = Wire(calls, carried_out=carried_out)
        store, catalog = OverWire(tier.store, wire), OverWire(tier.catalog, wire)
        try:
            mend(tier, planted, lost=lost, context={"store": store, "catalog": catalog})
        except Crash:
            mend(tier, planted, lost=lost)
            assert scrub_all(tier).bad == []
            if not lost:
                assert read(tier) == wanted
            continue
        break
    else:
        raise AssertionError("the repair never ended by itself")
    assert calls > 8


def test_a_store_that_does_not_answer_loses_nothing() -> None:
    tier = a_tier()
    before = dict(tier.catalog.items)

    class Deaf:
        def __getattr__(self, name: str) -> Any:
            return getattr(tier.store, name)

        def get(self, *_: Any) -> bytes:
            raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        mend(tier, lost=True, context={"store": Deaf()})
    assert dict(tier.catalog.items) == before


def test_a_damaged_root_is_no_case_for_repair() -> None:
    tier = a_tier()
    CORRUPTIONS["a raw flip in the root"](tier)

    with pytest.raises(CorruptDataError):
        mend(tier)


def test_what_a_higher_epoch_has_cut_off_is_not_repaired() -> None:
    tier = a_tier()
    copy_of(tier)
    tier.flip(path_of(leaf(tier, 12)), 100)
    CORRUPTIONS["a manifest entry that the ledger refuses"](tier)

    with pytest.raises(ConflictError):
        mend(tier, lost=True)


def test_the_chunks_of_the_tier_are_as_the_generator_makes_them() -> None:
    assert chunk_of(0, 0) == groups_of(1)[0][0]


def test_an_empty_manifest_has_nothing_to_repair() -> None:
    remote = Remote().claimed()

    report = repair(remote.context, CHAIN, ranges=None, branching=4, pause=no_pause)

    assert (report.looked_at, report.repairs) == (0, [])


@pytest.mark.parametrize(("bytes_at_once", "commits"), [(2**20, 1), (1, 4), (3000, 2)])
def test_a_repair_holds_and_commits_a_bounded_number_of_bytes(
    bytes_at_once: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.usecases.repair._BYTES_AT_ONCE", bytes_at_once)
    remote = Remote().claimed()
    fragments = chain(4, size=50)
    remote.upload(*fragments, *(piece(50 * n, 50 * n + 50, uid=n + 9) for n in range(4)))
    commit_runs(remote.context, CHAIN, pause=no_pause)
    for entry in remote.root().entries:
        path = entry.data_key(CHAIN).path(PREFIX)
        data = remote.memory.objects[path]
        remote.memory.objects[path] = data[:70] + b"\xff" + data[71:]
    assert 1000 < len(fragments[0].data) < 2000
    version = remote.items.items[CHAIN].version

    report = repair(remote.new_context(), CHAIN, ranges=None, branching=4, pause=no_pause)

    assert [str(each.action) for each in report.repairs] == ["replace"] * 4
    assert remote.items.items[CHAIN].version == version + commits


def test_without_index_and_trailer_a_chunk_counts_where_it_joins_its_neighbours() -> None:
    known = Known(0, 50, None, None, {}, lowest_epoch=0, highest_epoch=1)
    whole = piece(0, 50).data[: piece(0, 50).trailer.index_position]
    ends = piece(0, 20).data[: piece(0, 20).trailer.index_position]
    far = piece(30, 50).data[len(HEADER) : piece(30, 50).trailer.index_position]

    def ids(data: bytes) -> list[int]:
        return [each.header.chunk_id for each in chunks_in(memoryview(data), known)]

    assert ids(whole) == [0, 10, 20, 30, 40]
    assert ids(ends + far) == [0], "nothing shows where chunk 10 ends"
    assert ids(HEADER + far) == [], "nothing shows where chunk 30 begins"


def test_at_the_end_no_chunk_of_a_newer_epoch_than_the_manifests_last_takes_the_place_of_one() -> (
    None
):
    """Without its trailer nothing else tells that the other upload is of another history."""
    remote = Remote().claimed(epoch=3)
    (path,) = remote.upload(piece(0, 20, epoch=3, chunk_epochs=[1]))
    commit_runs(remote.context, CHAIN, pause=no_pause)
    del remote.memory.objects[path]
    remote.upload(piece(0, 20, epoch=3, uid=9, chunk_epochs=[1, 2]))

    report = repair(remote.new_context(), CHAIN, ranges=None, branching=4, pause=no_pause)

    assert [str(each.action) for each in report.repairs] == ["leave"]
    assert remote.root().entries[0].data_key(CHAIN).path(PREFIX) == path
