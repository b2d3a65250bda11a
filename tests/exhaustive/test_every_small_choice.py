"""Every small set of roots: which one is adopted, or why none is.

Scope: `adopt` over every set of one or two roots (versions 1 to 3, epochs 1 and 2, of two lengths,
whole, missing an object or damaged) and every set of three (of one length, whole or not), beside
every item that a table may have: none, one of this table, and one of another table that knows
version 0 to 4 or names one of the roots (8,544 cases); every object of every small tree, with
its record and its lost timeline, gone alone; every listing of roots in pages of every size.

Why it is enough: the rule steps down from one root to the next and compares each with those passed
and with the item. With three roots there is one that wins, one that was passed, and one further
down; versions 1 to 3 lie next to each other, two apart, or together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product
from typing import Any, Literal

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.outline import Outline
from coldstream.manifest.quarantine import ListedData, QuarantineRecord, Timeline
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.names import DataKey, RootKey, group_path, quarantine_path, root_path, stream_prefix
from coldstream.plans.reconcile import ListedRoot, next_version, preferred, ranked, step_back
from coldstream.remote.context import Context
from coldstream.usecases import references
from coldstream.usecases.adopt import adopt
from coldstream.usecases.references import first_missing, list_roots, list_roots_from, rivals
from tests.exhaustive.small_trees import BASE, PREFIX, STREAM, Tree, row, trees

Health = Literal["whole", "missing", "damaged"]
HERE, THERE = "here", "elsewhere"


@dataclass(frozen=True, order=True)
class Made:
    """A root that somebody has written."""

    version: int
    epoch: int
    length: int
    health: Health


def data_key(offset: int, uid: int) -> str:
    return DataKey(STREAM, offset, offset + 1, 1, uid).path(PREFIX)


def root_of(made: Made) -> Root:
    """One fragment an offset; the last of one that misses something is not there."""
    entries = [
        Entry(n, n + 1, 7, 7 + n, EntryKind.FRAGMENT, 1, 1, 1, 50 + n) for n in range(made.length)
    ]
    if made.health == "missing":
        entries[-1] = replace(entries[-1], uid=99)
    return Root(
        0,
        made.length,
        epoch=made.epoch,
        version=made.version,
        ledger=Ledger.of([(epoch, 0) for epoch in range(1, made.epoch + 1)]),
        entries=Entries.of(entries),
        last_chunk=LastChunk(made.length - 1, 1),
    )


_ENCODED: dict[Made, bytes] = {}


def encoded(made: Made) -> bytes:
    if made not in _ENCODED:
        _ENCODED[made] = b"?" if made.health == "damaged" else root_of(made).encode()
    return _ENCODED[made]


def path_of(made: Made, uid: int) -> str:
    return root_path(PREFIX, STREAM, made.epoch, made.version, uid)


def place(roots: Sequence[Made]) -> tuple[Context, MemoryObjectStore, MemoryCatalog]:
    """A bucket with these roots, the first with the smallest uid, and an empty table."""
    store, items = MemoryObjectStore(), MemoryCatalog(HERE)
    for offset in range(2):
        store.put(data_key(offset, 50 + offset), b"x", write_id="w")
    for uid, made in enumerate(roots, 1):
        store.put(path_of(made, uid), encoded(made), write_id="w")
    uids = iter(range(1000, 2000))
    return Context(store, items, PREFIX, lambda: next(uids)), store, items


def best_first(roots: Sequence[Made], item: CatalogItem | None) -> list[int]:
    """Numbers of the roots, of the one that is the newest by all that can be seen first."""
    return sorted(
        range(len(roots)),
        key=lambda n: (
            -roots[n].version,
            -roots[n].epoch,
            -roots[n].length,
            not (item is not None and item.root_key == path_of(roots[n], n + 1)),
            n,
        ),
    )


def right_one(roots: Sequence[Made], item: CatalogItem | None) -> int | None:
    """Number of the root that becomes the current one; None if a person has to look.

    The highest version, then epoch, then length, then what the item names, then the smallest uid.
    One that misses something did not land: then the next one did, but only if no root before it
    says that more has happened, and never one that the table knows to be old.
    """
    order = best_first(roots, item)
    for at, number in enumerate(order):
        it = roots[number]
        beside = [one for one in roots if one.version == it.version]
        if any(one.health == "damaged" for one in beside):
            return None
        if it.health != "whole":
            continue
        passed = [roots[n] for n in order[:at]]
        landed_later = any(one.version > it.version + 1 for one in passed)
        claimed_later = any(one.epoch > it.epoch for one in passed)
        # Epochs never fall from one version to the next, so these tell of two histories.
        claimed_later |= any(one.epoch > two.epoch for one, two in combinations(passed, 2))
        known_later = item is not None and item.version > it.version
        return None if landed_later or claimed_later or known_later else number
    return None


def check(roots: Sequence[Made], item: CatalogItem | None) -> None:
    context, store, items = place(roots)
    if item is not None:
        items.items[STREAM] = item
    before = dict(store.objects)
    number = right_one(roots, item)
    if number is None:
        with pytest.raises(CorruptDataError) as caught:
            adopt(context, STREAM)
        assert (items.get(STREAM), store.objects) == (item, before)
        if all(each.health != "damaged" for each in roots):
            best = roots[best_first(roots, item)[0]]
            old = item is not None and item.version > best.version
            assert caught.value.key == ("" if old else data_key(best.length - 1, 99))
        return
    adopted = adopt(context, STREAM)
    assert adopted is not None
    assert adopted == items.items[STREAM]
    newest = max([each.version for each in roots] + ([item.version] if item else []))
    root = parse_root(store.objects[adopted.root_key])
    assert {**before, adopted.root_key: root.encode()} == store.objects
    assert adopted.root_key not in before
    expected = root_of(roots[number])
    name = item.name if item else QueueName()  # no root here says one
    assert root == replace(expected, version=newest + 1, name=name)
    assert adopted.root_key == root_path(PREFIX, STREAM, expected.epoch, newest + 1, adopted.uid)
    assert adopted == CatalogItem(
        STREAM,
        HERE,
        uid=adopted.uid,
        root_key=adopted.root_key,
        epoch=expected.epoch,
        version=newest + 1,
        first_offset=0,
        next_offset=expected.next_offset,
        first_timestamp=7,
        last_timestamp=6 + expected.next_offset,
        total_size=expected.next_offset,
        fragments=expected.next_offset,
        ledger=expected.ledger,
        outline=Outline(adopted.uid),
        name=name,
        state=StreamState.LIVE,
        revision=item.revision + 1 if item else 1,
        state_token=adopted.state_token,
    )
    assert adopted.state_token
    assert adopt(context, STREAM) is None


def old_item(version: int, root_key: str = "") -> CatalogItem:
    """The item of a restored table; also one that says that the stream is being deleted."""
    return CatalogItem(
        STREAM,
        THERE,
        version=version,
        root_key=root_key,
        name=QueueName("c", "v", "q"),
        state=StreamState.DELETING if version % 2 else StreamState.LIVE,
        revision=4,
        state_token=3,
    )


def old_items(roots: Sequence[Made]) -> Iterator[CatalogItem | None]:
    yield None
    for version in range(5):
        yield old_item(version)
    for uid, made in enumerate(roots, 1):
        yield old_item(made.version, path_of(made, uid))


def alphabet(lengths: Iterable[int], healths: Iterable[Health]) -> list[Made]:
    return [Made(*each) for each in product((1, 2, 3), (1, 2), lengths, healths)]


@pytest.mark.parametrize("number", [1, 2])
def test_of_every_two_roots_the_newest_whole_one_is_adopted_that_nothing_says_is_old(
    number: int,
) -> None:
    both: list[Health] = ["whole", "missing", "damaged"]
    for roots in combinations_with_replacement(alphabet((1, 2), both), number):
        for item in old_items(roots):
            check(roots, item)
            if len(roots) == 2 and roots[0].version == roots[1].version:
                check(roots[::-1], item)


def test_of_every_three_roots_the_newest_whole_one_is_adopted_that_nothing_says_is_old() -> None:
    for roots in combinations_with_replacement(alphabet((1,), ["whole", "missing"]), 3):
        for item in (None, old_item(1), old_item(2)):
            check(roots, item)


def test_roots_are_ranked_by_version_then_epoch_and_of_equals_by_length_name_and_uid() -> None:
    for roots in combinations_with_replacement(alphabet((1, 2), ["whole"]), 3):
        listed = [
            ListedRoot(RootKey(STREAM, one.epoch, one.version, uid), path_of(one, uid))
            for uid, one in enumerate(roots)
        ]
        groups = ranked(listed)
        heads = [each[0].key.version for each in groups]
        assert heads == sorted({one.version for one in roots}, reverse=True)
        for group, head in zip(groups, heads, strict=True):
            mine = [e for e in listed if e.key.version == head]
            assert group == sorted(mine, key=lambda e: -e.key.epoch)
        for named in (None, *range(3)):
            item = None if named is None else old_item(1, listed[named].path)
            pairs = [(root_of(one), each) for one, each in zip(roots, listed, strict=True)]
            first = preferred(pairs, item, {})
            assert [each[1].key.uid for each in first] == sorted(
                range(3), key=lambda n: (-roots[n].epoch, -roots[n].length, n != named, n)
            )


def test_nobody_steps_back_behind_what_the_table_or_a_passed_root_knows() -> None:
    for one, passed, version in product(
        alphabet((1,), ["whole"]),
        [list(each) for n in range(3) for each in combinations(alphabet((1,), ["missing"]), n)],
        (None, 0, 1, 2, 3, 4),
    ):
        item = None if version is None else old_item(version)
        why = step_back(root_of(one), [root_of(each) for each in passed], item, {})
        old = version is not None and version > one.version
        landed = any(each.version - one.version > 1 for each in passed)
        claimed = any(each.epoch > one.epoch for each in passed)
        assert bool(why) == (old or landed or claimed)


def test_a_new_version_is_above_all_that_anybody_has_seen() -> None:
    for number in range(4):
        for versions, known in product(product(range(4), repeat=number), (None, 0, 1, 4)):
            item = None if known is None else old_item(known)
            new = next_version(item, versions)
            seen = [*versions, *([known] if known is not None else [0])]
            assert new == 1 + sorted([*seen, 0])[-1]


def test_an_item_of_this_table_is_good_whatever_the_bucket_holds() -> None:
    for roots in combinations(alphabet((1,), ["whole", "damaged"]), 2):
        for state in StreamState:
            context, store, items = place(roots)
            item = replace(old_item(1), table_id=HERE, state=state)
            items.items[STREAM] = item
            before = dict(store.objects)
            assert adopt(context, STREAM) is None
            assert (items.items[STREAM], store.objects) == (item, before)


def test_a_tombstone_for_ever_stays_one_whatever_the_bucket_holds() -> None:
    for roots in combinations(alphabet((1,), ["whole", "missing"]), 2):
        context, store, items = place(roots)
        item = replace(old_item(1), state=StreamState.DELETED)
        items.items[STREAM] = item
        before = dict(store.objects)
        adopted = adopt(context, STREAM)
        assert adopted is not None
        assert adopted == items.items[STREAM]
        assert adopted == replace(item, table_id=HERE, revision=5, state_token=adopted.state_token)
        assert adopted.state_token not in (0, item.state_token)
        assert store.objects == before


def test_without_a_root_only_an_item_beside_nothing_of_ours_is_taken_over() -> None:
    for known, ours, foreign in product((False, True), repeat=3):
        context, store, items = place(())
        if not ours:
            store.objects.clear()
        if foreign:
            store.put(f"{stream_prefix(PREFIX, STREAM)}data/x", b"x", write_id="w")
        item = old_item(0) if known else None
        if item:
            items.items[STREAM] = item
        before = dict(store.objects)
        if ours:
            with pytest.raises(CorruptDataError):
                adopt(context, STREAM)
        elif not item:
            with pytest.raises(NotFoundError) as caught:
                adopt(context, STREAM)
            assert (caught.value.key is not None) == foreign
        else:
            adopted = adopt(context, STREAM)
            assert adopted is not None
            assert (adopted.table_id, adopted.revision) == (HERE, 5)
        assert store.objects == before
        if ours or not item:
            assert items.get(STREAM) == item


def test_whoever_comes_second_adopts_nothing() -> None:
    for item in (None, old_item(0), old_item(1)):
        context, store, items = place([Made(1, 1, 1, "whole")])
        if item:
            items.items[STREAM] = item
        rival = replace(old_item(2), table_id=HERE, uid=5)

        class Late(MemoryObjectStore):
            """Between the PUT of a root and the item, somebody else is faster."""

            def put(
                self,
                *args: Any,
                items: MemoryCatalog = items,
                rival: CatalogItem = rival,
                **more: Any,
            ) -> None:
                super().put(*args, **more)
                items.items[STREAM] = rival

        late = Late()
        late.take_over(store)
        context = replace(context, store=late)
        with pytest.raises(ConflictError):
            adopt(context, STREAM)
        assert items.items[STREAM] == rival


# --- what a root refers to --------------------------------------------------------------------


def keys_of(made: Tree, *, above: int) -> set[str]:
    """What a tree names above an offset: leaves, and groups that have one of them below."""
    alive = [each for each in made.flat if each.next_offset > above]
    named = {each.data_key(STREAM).path(PREFIX) for each in alive}
    for uid, node in made.nodes.items():
        entry = node.entry()
        if any(each in alive for each in made.below(entry)):
            named.add(group_path(PREFIX, STREAM, entry.first_offset, uid, int(node.kind)))
    return named


def put_tree(store: MemoryObjectStore, made: Tree) -> None:
    for each in made.flat:
        store.put(each.data_key(STREAM).path(PREFIX), b"x", write_id="w")
    for uid, node in made.nodes.items():
        entry = node.entry()
        path = group_path(PREFIX, STREAM, entry.first_offset, uid, int(node.kind))
        store.put(path, node.encode(), write_id="w")


def check_missing(store: MemoryObjectStore, root: Root, wanted: set[str]) -> None:
    for page_size in (1, 1000):
        for gone in ("", *sorted(store.objects)):
            less = MemoryObjectStore()
            less.objects = {key: data for key, data in store.objects.items() if key != gone}
            context = Context(less, MemoryCatalog(), PREFIX, lambda: 1, page_size=page_size)
            expected = gone if gone in wanted else None
            assert first_missing(context, STREAM, root) == expected


def test_whatever_a_live_leaf_needs_is_missed_when_it_is_gone_and_nothing_else_is() -> None:
    for number in (1, 2, 3):
        for made in trees(row([1] * number, [n == 1 for n in range(number)])):
            store = MemoryObjectStore()
            put_tree(store, made)
            store.put(data_key(0, 77), b"x", write_id="w")
            check_missing(store, made.root, keys_of(made, above=made.root.first_offset))


def test_whatever_a_record_names_is_missed_when_it_is_gone_and_nothing_else_is() -> None:
    current = next(iter(trees(row([1]))))
    record_key = quarantine_path(PREFIX, STREAM, 2, 31)
    cut_key = root_path(PREFIX, STREAM, 1, 4, 42)
    for number in (1, 2):
        flat = [replace(each, uid=each.uid + 400) for each in row([1] * number)]
        for made in trees(flat):
            for floor, listed, rooted in product(
                range(BASE, BASE + number + 1), (False, True), (False, True)
            ):
                store = MemoryObjectStore()
                put_tree(store, current)
                put_tree(store, made)
                store.put(cut_key, made.root.encode(), write_id="w")
                one = data_key(9, 600)
                store.put(one, b"x", write_id="w")
                timeline = Timeline(
                    2,
                    floor,
                    99,
                    root_key=cut_key if rooted else "",
                    listed=(ListedData(one, 1),) if listed else (),
                )
                later = Timeline(3, 50, 99, listed=(ListedData(data_key(8, 601), 1),))
                store.put(later.listed[0].key, b"x", write_id="w")
                record = QuarantineRecord((timeline, later))
                store.put(record_key, record.encode(), write_id="w")
                wanted = {record_key, later.listed[0].key}
                wanted |= keys_of(current, above=current.root.first_offset)
                wanted |= {one} if listed else set()
                if rooted:
                    above = max(floor, made.root.first_offset)
                    wanted |= {cut_key, *keys_of(made, above=above)}
                check_missing(store, replace(current.root, quarantine_key=record_key), wanted)


def test_a_long_root_is_looked_through_in_pages_and_groups_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(references, "_FRAGMENTS_AT_ONCE", 2)
    monkeypatch.setattr(references, "_SPANS_AT_ONCE", 1)
    for number in range(1, 6):
        made = next(iter(trees(row([1] * number), levels=0)))
        store = MemoryObjectStore()
        put_tree(store, made)
        check_missing(store, made.root, keys_of(made, above=BASE))


def test_roots_from_a_version_on_are_found_in_pages_of_every_size() -> None:
    kinds = [(epoch, version) for epoch in (1, 2) for version in (1, 2, 3)]
    for number in range(5):
        for chosen in combinations(kinds, number):
            store = MemoryObjectStore()
            paths: dict[str, int] = {}
            for uid, (epoch, version) in enumerate(chosen):
                for twin in (0, 100):
                    path = root_path(PREFIX, STREAM, epoch, version, uid + twin)
                    paths[path] = version
                    store.put(path, b"x", write_id="w")
            under = f"{stream_prefix(PREFIX, STREAM)}metadata/root."
            store.put(f"{under}0000000001.x", b"x", write_id="w")
            for page_size, version in product((1, 2, 3, 100), (1, 2, 3)):
                context = Context(store, MemoryCatalog(), PREFIX, lambda: 1, page_size=page_size)
                assert [each.path for each in list_roots(context, STREAM)] == sorted(paths)
                found = [each and each.path for each in list_roots_from(context, STREAM, version)]
                assert found == sorted(path for path, its in paths.items() if its >= version)
                late = [*list_roots_from(context, STREAM, version, time_left=lambda: False)]
                assert (None in late) == (page_size <= len(paths) + 1)


def test_rivals_are_the_other_roots_from_the_items_version_on_if_they_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(references, "MAX_RIVALS", 2)
    kinds = alphabet((1,), ["whole", "damaged"])
    for number in range(4):
        for roots in combinations(kinds, number):
            context, _, _ = place(roots)
            for current, version in product(range(-1, number), (1, 2, 3)):
                if current >= 0 and roots[current].version != version:
                    continue
                key = path_of(roots[current], current + 1) if current >= 0 else ""
                found = rivals(context, replace(old_item(version), root_key=key))
                others = [
                    (one.epoch, one.version, one)
                    for n, one in enumerate(roots)
                    if n != current and one.version >= version
                ]
                whole = [root_of(one[2]) for one in sorted(others) if one[2].health == "whole"]
                assert found == (None if len(others) > 2 else whole)
