"""A shadow differs where one side is wrong, and nowhere else; LIST in parallel is LIST."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from coldstream.errors import ConflictError
from coldstream.jobs.rebuild_differences import DIFFERENCES, DifferenceKind, differences_batch
from coldstream.jobs.rebuild_shadow import Shadow, compare_part, parts_of, shadow
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entries, EntryKind
from coldstream.names import group_path
from coldstream.remote.context import Context
from coldstream.remote.roots import load_item
from coldstream.usecases.repair import repair
from tests.support.corruptions import CORRUPTIONS, GROUP_CORRUPTIONS
from tests.support.remote import no_pause
from tests.support.scrub_site import STREAM, a_tier, leaf, path_of, root_of
from tests.support.tier import PREFIX, Tier, chunk

_SEEDS = iter(range(10_000))


def context_of(tier: Tier) -> Context:
    ids = random.Random(next(_SEEDS))
    return Context(tier.store, tier.catalog, PREFIX, lambda: ids.getrandbits(64))


def compared(tier: Tier, *, trailers: bool = True, meanwhile: Any = None) -> Shadow:
    context = context_of(tier)

    def perform(parts: Any) -> Any:
        if meanwhile is not None:
            meanwhile()
        return [compare_part(context_of(tier), p, branching=4, trailers=trailers) for p in parts]

    return shadow(context, STREAM, perform)


@pytest.mark.parametrize("trailers", [False, True])
@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
def test_a_sound_stream_has_no_difference(tree: bool, trailers: bool) -> None:
    found = compared(a_tier(tree=tree, fragments=40), trailers=trailers)

    assert (found.differences, found.fragments, found.repeats) == ([], 40, 0)


def test_parts_tile_the_stream_and_have_about_a_group_each() -> None:
    tier = a_tier(tree=True, fragments=40)
    root = root_of(tier)

    parts = parts_of(context_of(tier), tier.catalog.items[STREAM])

    assert parts[0].first == root.first_offset
    assert parts[-1].next_offset == root.next_offset
    assert all(a.next_offset == b.first for a, b in pairwise(parts))
    assert sum(part.fragments for part in parts) == 40


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("an object that is gone", DifferenceKind.ABSENT),
        ("another size in a manifest entry", DifferenceKind.ENTRY),
        ("another uid in a manifest entry", DifferenceKind.ABSENT),
        ("another epoch in a manifest entry", DifferenceKind.ENTRY),
        ("other records in a manifest entry", DifferenceKind.ENTRY),
        ("another minimum time in a manifest entry", DifferenceKind.ENTRY),
    ],
)
def test_what_the_manifest_has_and_the_bucket_has_not_is_a_difference(
    name: str, kind: DifferenceKind, tree: bool
) -> None:
    tier = a_tier(tree=tree)
    planted = CORRUPTIONS[name](tier)

    found = compared(tier)

    assert [each.kind for each in found.differences] == [kind]
    [difference] = found.differences
    assert difference.first_offset < planted.next_offset
    assert planted.first < difference.next_offset
    assert differences_batch(found.differences, 1).schema == DIFFERENCES.schema


def test_a_second_upload_of_a_range_is_no_difference() -> None:
    tier = a_tier()
    old = leaf(tier, 4)
    tier.store.put(path_of(replace(old, uid=0)), tier.store.objects[path_of(old)], write_id="x")

    assert compared(tier).differences == []


def test_a_damaged_object_beside_a_whole_one_is_a_difference() -> None:
    tier = a_tier()
    old = leaf(tier, 4)
    good = tier.store.objects[path_of(old)]
    tier.store.put(path_of(replace(old, uid=0)), good, write_id="x")
    tier.store.objects[path_of(old)] = good[:-9] + b"x" + good[-8:]  # in the trailer

    assert [each.kind for each in compared(tier).differences] == [DifferenceKind.OTHER_OBJECT]


def test_a_damaged_trailer_that_nothing_can_replace_is_a_difference() -> None:
    tier = a_tier()
    path = path_of(leaf(tier, 4))
    tier.store.objects[path] = tier.store.objects[path][:-9] + b"x" + tier.store.objects[path][-8:]

    assert [each.kind for each in compared(tier).differences] == [DifferenceKind.ABSENT]


def test_what_is_ahead_of_the_manifest_plays_no_part() -> None:
    tier = a_tier()
    last = leaf(tier, 13)
    ahead = replace(last, next_offset=last.next_offset + 50, uid=last.uid + 1)
    tier.store.put(path_of(ahead), b"later", write_id="ahead")

    assert compared(tier).differences == []


def test_a_hole_is_no_difference_and_the_data_behind_it_is_compared() -> None:
    tier = a_tier()
    CORRUPTIONS["a raw flip in the data"](tier)
    repair(context_of(tier), STREAM, ranges=None, lost=True, branching=4, pause=no_pause)
    assert EntryKind.HOLE in {each.kind for each in tier.leaves(STREAM, root_of(tier))}
    assert compared(tier).differences == []

    del tier.store.objects[path_of(leaf(tier, 14))]

    assert [each.kind for each in compared(tier).differences] == [DifferenceKind.ABSENT]


@pytest.mark.parametrize("name", ["a root that is gone", "a raw flip in the root"])
def test_a_root_that_cannot_be_read_is_a_difference(name: str) -> None:
    tier = a_tier()
    CORRUPTIONS[name](tier)

    assert [each.kind for each in compared(tier).differences] == [DifferenceKind.UNREADABLE]


def test_a_damaged_group_does_not_hide_what_lies_behind_it() -> None:
    tier = a_tier(tree=True)
    planted = GROUP_CORRUPTIONS["a raw flip in a group"](tier)
    gone = leaf_behind(tier)
    del tier.store.objects[gone[0]]

    found = compared(tier)

    kinds = [(each.kind, each.first_offset) for each in found.differences]
    assert kinds == [
        (DifferenceKind.UNREADABLE, planted.first),
        (DifferenceKind.ABSENT, gone[1]),
    ]


def leaf_behind(tier: Tier) -> tuple[str, int]:
    entry = [each for each in root_of(tier).entries if not each.kind.level][1]
    return path_of(entry), entry.first_offset


def test_a_commit_meanwhile_is_no_difference() -> None:
    tier = a_tier()
    times = iter([True])

    def retire() -> None:
        if next(times, False):
            root = root_of(tier)
            gone = root.entries[0]
            tier.commit(
                STREAM, replace(root, first_offset=gone.next_offset, entries=root.entries.part(1))
            )
            del tier.store.objects[path_of(gone)]

    found = compared(tier, meanwhile=retire)

    assert (found.differences, found.repeats) == ([], 1)


def test_what_differs_each_time_is_a_difference_though_the_manifest_never_stands_still() -> None:
    """A stream that grows all the time could have lost anything."""
    tier = a_tier()
    gone = leaf(tier, 3)
    del tier.store.objects[path_of(gone)]

    found = compared(tier, meanwhile=lambda: tier.commit(STREAM, root_of(tier)))

    assert [(each.kind, each.first_offset) for each in found.differences] == [
        (DifferenceKind.ABSENT, gone.first_offset)
    ]


def test_a_group_that_cannot_be_read_is_a_difference_though_the_stream_grows_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tier = a_tier(tree=True, fragments=40)
    entry = next(each for each in root_of(tier).entries if each.kind.level > EntryKind.GROUP)
    del tier.store.objects[group_path(PREFIX, STREAM, entry.first_offset, entry.uid, entry.kind)]

    def grown(context: Context, stream: str) -> CatalogItem:
        item, root = load_item(context, stream), root_of(tier)
        end = root.next_offset
        more = tier.upload(STREAM, [chunk(end, b"x", epoch=root.epoch)], epoch=root.epoch, floor=0)
        grown = Entries.of([*root.entries, more])
        tier.commit(STREAM, replace(root, next_offset=end + 1, entries=grown))
        return item

    monkeypatch.setattr("coldstream.jobs.rebuild_shadow.load_item", grown)
    found = compared(tier)

    assert [each.kind for each in found.differences] == [DifferenceKind.UNREADABLE]


def test_a_manifest_that_never_stands_still_and_differs_elsewhere_each_time_is_an_error() -> None:
    tier = a_tier()

    def retire() -> None:
        root = root_of(tier)
        gone = root.entries[0]
        tier.commit(
            STREAM, replace(root, first_offset=gone.next_offset, entries=root.entries.part(1))
        )
        del tier.store.objects[path_of(gone)]

    with pytest.raises(ConflictError):
        compared(tier, meanwhile=retire)
