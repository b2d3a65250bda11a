"""What collect keeps of lost timelines, what it lets go, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.tree import leaves
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.collect import ObjectKind
from coldstream.ports import NotLanded
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.quarantine import current_record, drop, lost_data
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.references import first_missing
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, chain, log_of, no_pause, piece
from tests.unit.usecases.test_collect import GRACE, Tier

#: As `Tier` has them: [0, 120) of epoch 1 in fragments of one chunk.
OLD = chain(12)


class Diverged(Tier):
    """A tier of which a claim of epoch 2 has cut off everything from `keep` on."""

    def __init__(self, keep: int = 70, branching: int = 0) -> None:
        super().__init__()
        if branching:
            rebalance(self.context, STREAM, branching=branching, pause=no_pause)
        self.old_root = self.items.items[STREAM].root_key
        self.truncate(keep)
        self.now += 2 * GRACE

    def truncate(self, keep: int, epoch: int = 2, **more: Any) -> None:
        common = [c for c in log_of(*OLD).chunks if c.next_offset <= keep]
        fresh = (LocalChunk(keep, keep + 10, epoch),)
        claim(
            self.new_context(), STREAM, epoch, log=KnownHistory((*common, *fresh)), pause=no_pause,
            now_ms=self.now, **more,
        )  # fmt: skip

    def go_on(self, count: int, start: int = 70, floor: int = 70) -> None:
        """Other data of epoch 2 in the place of what was cut off."""
        self.upload(*chain(count, start=start, epoch=2, floor=floor))
        commit_runs(self.new_context(), STREAM, pause=no_pause)

    def lost(self, start: int = 70) -> list[str]:
        return [each.path(PREFIX) for each in OLD if each.key.next_offset > start]

    def there(self, *paths: str) -> bool:
        return set(paths) <= set(self.memory.objects)

    def give_up(self, epoch: int = 2) -> None:
        drop(self.new_context(), STREAM, epoch, pause=no_pause)


def messages(tier: Diverged, epoch: int = 2) -> list[tuple[int, int]]:
    """Fragments of a lost timeline, as far as they can be read."""
    context = tier.new_context()
    timeline = current_record(context, STREAM)[1].timeline(epoch)
    assert timeline is not None
    data = lost_data(context, STREAM, timeline)
    assert data.root is not None
    found = list(leaves(data.root, context.fetch(STREAM), start=timeline.floor))
    assert tier.there(*(e.data_key(STREAM).path(PREFIX) for e in found))
    return [(e.first_offset, e.next_offset) for e in found]


@pytest.mark.parametrize("branching", [0, 2, 4])
def test_a_lost_timeline_stays_for_ever_whatever_happens_above_it(branching: int) -> None:
    tier = Diverged(branching=branching)
    tier.go_on(9)
    tier.settle()
    tier.go_on(5, start=160)

    report = tier.settle()

    assert tier.there(tier.old_root, tier.root().quarantine_key, *tier.lost())
    assert messages(tier) == [(n, n + 10) for n in range(70, 120, 10)]
    assert report.found[ObjectKind.QUARANTINED].objects >= 6
    assert first_missing(tier.new_context(), STREAM, tier.root()) is None


def test_a_lost_timeline_outlives_retention_of_everything_around_it() -> None:
    tier = Diverged(branching=2)
    tier.go_on(20)
    tier.retire(1)
    assert tier.root().first_offset > 120

    tier.settle()

    assert messages(tier) == [(n, n + 10) for n in range(70, 120, 10)]


def test_what_is_cut_in_two_keeps_the_whole_original() -> None:
    tier = Diverged.__new__(Diverged)
    Tier.__init__(tier)
    tier.upload(piece(120, 170))
    commit_runs(tier.context, STREAM, pause=no_pause)
    common = log_of(*OLD, piece(120, 150)).chunks
    log = KnownHistory((*common, LocalChunk(150, 160, 2)))
    claim(tier.new_context(), STREAM, 2, log=log, pause=no_pause)

    tier.settle()

    assert messages(tier) == [(120, 170)]
    assert tier.ranges()[-1][:2] == (120, 150)


def test_a_stream_that_began_anew_keeps_all_of_the_old_one() -> None:
    tier = Diverged.__new__(Diverged)
    Tier.__init__(tier)
    log = KnownHistory(tuple(LocalChunk(at, at + 10, 2) for at in range(60, 140, 10)))
    claim(tier.new_context(), STREAM, 2, log=log, pause=no_pause)
    (late,) = tier.upload(piece(0, 30, uid=99))
    tier.go_on(20, start=60, floor=60)

    tier.settle()

    assert messages(tier) == [(n, n + 10) for n in range(0, 120, 10)]
    assert not tier.there(late), "the quarantine holds its last chunk"


def test_a_late_upload_of_a_lost_timeline_is_kept_and_named_at_every_offset() -> None:
    tier = Diverged()
    tier.go_on(3)
    ahead, below = tier.upload(piece(120, 130), piece(75, 85, uid=3))

    report = tier.settle()

    assert tier.there(ahead, below)
    assert report.unique == [below]
    tier.go_on(10, start=100)
    assert tier.settle().unique == [below, ahead]
    tier.retire(1)
    assert tier.root().first_offset > 130
    assert tier.settle().unique == [below, ahead], "retention is no reason to lose it"


def test_a_late_copy_of_what_is_in_quarantine_is_garbage() -> None:
    tier = Diverged()
    tier.go_on(9)
    (copy,) = tier.upload(piece(60, 100, uid=5))

    tier.settle()

    assert not tier.there(copy)
    assert messages(tier) == [(n, n + 10) for n in range(70, 120, 10)]


def test_what_is_given_up_goes_and_nothing_else() -> None:
    tier = Diverged(branching=2)
    (stray,) = tier.upload(piece(120, 140))
    tier.go_on(20)
    live = set(tier.settle().unique)
    assert live == {stray}

    tier.give_up()
    (later,) = tier.upload(piece(140, 150, uid=4))
    tier.memory._written[later] = ("w", tier.now + 1)
    report = tier.settle()

    assert not any(tier.there(path) for path in (*tier.lost(), stray, tier.old_root))
    assert tier.there(later), "it came after a person had decided"
    assert report.unique == [later]
    assert first_missing(tier.new_context(), STREAM, tier.root()) is None
    assert tier.root().next_offset == 270
    metadata = [key for key in tier.memory.objects if key.endswith(".record")]
    assert metadata == [tier.root().quarantine_key]


def test_nothing_that_is_given_up_goes_before_it_was_seen_twice() -> None:
    tier = Diverged()
    tier.go_on(9)
    tier.settle()
    tier.give_up()

    tier.collect()
    tier.now += GRACE - 1
    tier.collect()

    assert tier.there(tier.old_root, *tier.lost())


def test_giving_up_one_timeline_keeps_another_one_that_overlaps_it() -> None:
    tier = Diverged(keep=70)
    tier.go_on(3)
    tier.truncate(30, epoch=3)
    tier.upload(*chain(20, start=30, epoch=3, floor=30))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)

    tier.give_up(3)
    tier.settle()

    assert messages(tier, 2) == [(n, n + 10) for n in range(70, 120, 10)]
    assert not tier.there(OLD[3].path(PREFIX)), "[30, 40) was cut off by epoch 3 only"


def test_a_legal_hold_keeps_what_was_given_up() -> None:
    tier = Diverged()
    tier.go_on(9)
    tier.give_up()
    for _ in range(3):
        tier.now += 2 * GRACE
        report = tier.collect(held=lambda _: True)

    assert tier.there(*tier.lost())
    assert report.held.objects == len(tier.lost())


def test_giving_up_a_stream_that_began_anew_takes_the_old_one_and_its_copies() -> None:
    tier = Diverged.__new__(Diverged)
    Tier.__init__(tier)
    log = KnownHistory(tuple(LocalChunk(at, at + 10, 2) for at in range(60, 140, 10)))
    claim(tier.new_context(), STREAM, 2, log=log, pause=no_pause)
    (stray,) = tier.upload(piece(5, 15, uid=99))
    tier.go_on(20, start=60, floor=60)
    assert tier.settle().unique == [stray], "below the new beginning, and no retention took it"

    for _ in range(2):  # the second time as after a lost answer
        tier.give_up()
    tier.settle()

    assert not tier.there(stray)
    assert not any(tier.there(each.path(PREFIX)) for each in OLD)
    assert tier.root().next_offset == 260


def test_a_claim_that_cut_off_only_late_uploads_can_be_given_up_too() -> None:
    tier = Diverged.__new__(Diverged)
    Tier.__init__(tier)
    claim(tier.new_context(), STREAM, 2, log=log_of(*OLD), pause=no_pause)
    tier.upload(*chain(3, start=120, epoch=2, floor=120))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)
    (stray,) = tier.upload(piece(125, 135, uid=99))
    assert tier.settle().unique == [stray]

    tier.give_up()
    tier.settle()

    assert not tier.there(stray)


def test_an_epoch_that_never_claimed_has_cut_off_nothing() -> None:
    tier = Diverged()

    with pytest.raises(NotFoundError):
        tier.give_up(7)


def test_what_can_still_be_appended_is_never_given_up() -> None:
    tier = Diverged()
    (ahead,) = tier.upload(piece(90, 100, epoch=2, floor=70))
    tier.give_up()

    tier.settle()
    tier.upload(piece(70, 90, epoch=2, floor=70))

    assert commit_runs(tier.new_context(), STREAM, pause=no_pause).next_offset == 100
    assert tier.there(ahead)


def test_a_record_that_no_root_names_goes_and_takes_nothing_along() -> None:
    tier = Diverged.__new__(Diverged)
    Tier.__init__(tier)
    real = tier.items.commit
    tier.items.commit = lambda commit: NotLanded(tier.items.get(STREAM))  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        tier.truncate(70, attempts=1)
    tier.items.commit = real  # type: ignore[method-assign]
    tier.upload(*chain(2, start=120))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)
    tier.upload(*chain(2, start=140))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)

    tier.settle()

    assert not [key for key in tier.memory.objects if key.endswith(".record")]
    assert tier.root().next_offset == 160
    assert first_missing(tier.new_context(), STREAM, tier.root()) is None


def test_what_a_truncating_root_that_never_landed_names_can_be_adopted_as_long_as_it_is_there() -> (
    None
):
    tier = Diverged.__new__(Diverged)
    Tier.__init__(tier)
    real = tier.items.commit
    tier.items.commit = lambda commit: NotLanded(tier.items.get(STREAM))  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        tier.truncate(70, attempts=1)
    tier.items.commit = real  # type: ignore[method-assign]
    tier.upload(*chain(1, start=120))
    commit_runs(
        tier.new_context(), STREAM, pause=no_pause
    )  # of the same version: it may be adopted
    for _ in range(4):
        tier.settle()
    context = replace(tier.new_context(), catalog=MemoryCatalog("restored"))

    adopt(context, STREAM)

    root = load(context, STREAM).root
    assert first_missing(context, STREAM, root) is None


@pytest.mark.parametrize("kind", ["record", "root"])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_without_the_record_or_the_root_that_it_names_nothing_is_deleted(
    kind: str, how: str
) -> None:
    tier = Diverged()
    tier.retire(1)
    path = tier.root().quarantine_key if kind == "record" else tier.old_root
    if how == "gone":
        del tier.memory.objects[path]
    else:
        tier.memory.objects[path] = b"x"
    before = tier.tampered()

    for _ in range(3):
        tier.now += 2 * GRACE
        with pytest.raises((NotFoundError, CorruptDataError)) as caught:
            collect(
                tier.new_context(), tier.memory, STREAM,
                grace_ms=GRACE, run_ms=tier.now, now_ms=tier.now, held=lambda _: False,
            )  # fmt: skip

    assert caught.value.key == path
    assert {k: v for k, v in tier.tampered().items() if "collect." not in k} == before


def test_a_claim_between_two_marks_protects_what_it_cuts_off() -> None:
    tier = Tier()
    tier.upload(piece(0, 120, uid=1))  # a copy that was superseded and seen as garbage
    tier.now += 2 * GRACE
    tier.collect()
    common = log_of(*OLD[:7]).chunks
    log = KnownHistory((*common, LocalChunk(70, 80, 2)))
    claim(tier.new_context(), STREAM, 2, log=log, pause=no_pause)

    tier.settle()

    assert {each.path(PREFIX) for each in OLD} <= set(tier.memory.objects)


# Holes.


def holed(tier: Tier) -> None:
    """The manifest says that [30, 50) is lost."""
    context = tier.new_context()
    loaded = load(context, STREAM)
    entries = list(loaded.root.entries)
    hole = Entry(30, 50, 0, 0, EntryKind.HOLE, 0, 0, 1, 77)
    tier.memory.put(hole.data_key(STREAM).path(PREFIX), b"", write_id="h")
    entries[3:5] = [hole]
    publish(context, loaded, replace(loaded.root, entries=Entries.of(entries)))
    for each in OLD[3:5]:
        del tier.memory.objects[each.path(PREFIX)]


@pytest.mark.parametrize(
    ("first", "next_offset"), [(30, 50), (30, 40), (35, 45), (20, 40), (40, 70), (20, 70)]
)
def test_a_fragment_over_a_hole_is_the_only_copy_and_is_kept(first: int, next_offset: int) -> None:
    tier = Tier()
    holed(tier)
    (late,) = tier.upload(piece(first, next_offset, uid=99, records_per_chunk=5))

    report = tier.settle()

    assert late in tier.memory.objects
    assert report.unique == [late]


def test_a_refused_fragment_over_a_hole_is_kept_although_the_manifest_has_its_last_chunk() -> None:
    tier = Tier()
    holed(tier)
    claim(tier.new_context(), STREAM, 2, log=log_of(*OLD[5:]), pause=no_pause)
    (late,) = tier.upload(piece(30, 60, uid=99, epoch=1, floor=7))
    ledger = tier.root().ledger
    assert ledger.accepts(1, 30, 60)

    tier.settle()

    assert late in tier.memory.objects


def test_a_fragment_beside_a_hole_is_garbage_as_ever() -> None:
    tier = Tier()
    holed(tier)
    copies = tier.upload(piece(10, 30, uid=98), piece(50, 70, uid=99))

    tier.settle()

    assert not set(copies) & set(tier.memory.objects)


def test_what_comes_after_a_drop_is_kept_whatever_the_clock_of_who_drops_says() -> None:
    tier = Diverged()
    drop(tier.new_context(), STREAM, 2, pause=no_pause)
    dropped = current_record(tier.new_context(), STREAM)[1].dropped

    assert [(each.epoch, each.until_ms) for each in dropped] == [(2, tier.now)]


def test_a_dry_drop_writes_nothing() -> None:
    tier = Diverged()
    before = set(tier.memory.objects)

    drop(tier.new_context(), STREAM, 2, pause=no_pause, dry_run=True)

    assert set(tier.memory.objects) == before
