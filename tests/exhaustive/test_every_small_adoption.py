"""Every small bucket and table that an adoption may find: which root it takes, if it takes one.

A stream has come to four roots: a claim, a commit, the claim of a later writer with a commit, and
one more. All subsets of the roots are there, each of them may be damaged, all subsets of the three
fragments are there, and the table has no item, this table's own, or one that was restored, of each
version and in each state. What must come of it is said here in the words of docs/workflows.md: the
newest root that lacks nothing, written again above all versions; and nothing is written at all
where that root cannot be the one that landed.

Why that is enough: the choice looks at the order of the roots, at what each lacks, and at the item;
with four roots every relation of two of them occurs, one and more versions apart, across a claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, count

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.ports import CommitOutcome
from coldstream.usecases.adopt import adopt
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.reconcile import reconcile
from coldstream_devkit.simulation.points import Place
from tests.exhaustive.bare import METADATA, manifest_at, named_by, objects_below
from tests.support.stage import (
    PREFIX,
    STREAM,
    anchored,
    claiming,
    context_of,
    history,
    no_pause,
    piece,
    upload,
)

PARTS = (piece(0, 10, uid=1), piece(10, 20, uid=11), piece(20, 30, epoch=2, uid=21, floor=20))
#: By version: epochs of the ledger, and how many fragments the root names.
ROOTS = {1: (1, 0), 2: (1, 1), 3: (2, 2), 4: (2, 3)}


@cache
def grown() -> tuple[Place, dict[int, CatalogItem]]:
    """The stream at its end, and its item at each version."""
    place = anchored()
    items = {1: place.catalog.items[STREAM]}
    ids = count(5000)
    upload(place, PARTS[0])
    commit_runs(context_of(place, ids), STREAM, pause=no_pause)
    items[2] = place.catalog.items[STREAM]
    upload(place, PARTS[1])
    claiming(context_of(place, ids), 2, history((0, 20, 1), (20, 25, 2)))
    items[3] = place.catalog.items[STREAM]
    upload(place, PARTS[2])
    commit_runs(context_of(place, ids), STREAM, pause=no_pause)
    items[4] = place.catalog.items[STREAM]
    assert [each.version for each in items.values()] == [1, 2, 3, 4]
    return place, items


def subsets(of: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(of) + 1):
        yield from combinations(of, size)


def restored() -> Iterator[CatalogItem | None]:
    """What the table may have."""
    yield None
    _, items = grown()
    for version, state in ((2, StreamState.LIVE), (3, StreamState.DELETING), (4, StreamState.LIVE)):
        yield replace(items[version], table_id="lost", state=state, revision=7)
    yield replace(items[4], table_id="lost", state=StreamState.DELETED, revision=7)
    yield replace(items[2], revision=7)  # of this very table


def place_with(
    roots: tuple[int, ...], parts: tuple[int, ...], damaged: int, item: CatalogItem | None
) -> Place:
    begin, items = grown()
    place = replace(begin.copy(), catalog=MemoryCatalog())
    for version in ROOTS:
        if version not in roots:
            place.store.delete([items[version].root_key])
    for number, part in enumerate(PARTS):
        if number not in parts:
            place.store.delete([part.path(PREFIX)])
    if damaged:
        place.store.objects[items[damaged].root_key] = b"damaged"
    if item is not None:
        place.catalog.items[STREAM] = item
    return place


def winner(
    roots: tuple[int, ...], parts: tuple[int, ...], damaged: int, item: CatalogItem | None
) -> int | None:
    """The version that is adopted; None if a person has to look."""
    passed: list[int] = []
    for version in sorted(roots, reverse=True):
        if version == damaged:
            return None
        epoch, named = ROOTS[version]
        if not set(range(named)) <= set(parts):
            passed.append(version)
            continue
        may_have_landed = all(
            version >= each - 1 and ROOTS[each][0] <= epoch for each in passed
        ) and (item is None or version >= item.version)
        return version if may_have_landed else None
    return None


def look_at(
    roots: tuple[int, ...], parts: tuple[int, ...], damaged: int, item: CatalogItem | None
) -> str:
    place = place_with(roots, parts, damaged, item)
    objects = dict(place.store.objects)
    taken = winner(roots, parts, damaged, item)
    error: type[Exception] | None = None
    if item is not None and item.table_id == "memory":
        said = "good"
    elif item is not None and item.state is StreamState.DELETED:
        said = "moved over"
    elif not roots and (parts or item is None):
        said, error = "stuck", CorruptDataError if parts else NotFoundError
    elif not roots:
        said = "moved over"
    elif taken is None:
        said, error = "stuck", CorruptDataError
    else:
        said = f"adopted {taken}"
    context = context_of(place, count(9000))
    if error is not None:
        with pytest.raises(error):
            adopt(context, STREAM)
        assert place.catalog.items.get(STREAM) == item
        assert place.store.objects == objects, "nothing was written"
        return said
    adopted = adopt(context, STREAM)
    now = place.catalog.items[STREAM]
    if said == "good":
        assert (adopted, now) == (None, item)
    elif said == "moved over":
        assert item is not None
        token = now.state_token
        assert now == replace(item, table_id="memory", revision=8, state_token=token)
        assert token not in (0, item.state_token)
    else:
        _is_adopted(place, now, item, taken, max([*roots, item.version if item else 0]))
    assert objects.items() <= place.store.objects.items()
    assert said.startswith("adopted") or place.store.objects == objects
    assert adopted in (None, now)
    return said


def _is_adopted(
    place: Place, now: CatalogItem, item: CatalogItem | None, taken: int | None, highest: int
) -> None:
    assert taken is not None
    manifest = manifest_at(place, now.root_key)
    epoch, named = ROOTS[taken]
    assert (manifest.version, manifest.next, manifest.epoch) == (highest + 1, 10 * named, epoch)
    assert (now.version, now.next_offset, now.epoch) == (highest + 1, 10 * named, epoch)
    assert named_by(manifest) == {part.path(PREFIX) for part in PARTS[:named]}
    assert named_by(manifest) <= objects_below(place)
    assert (now.table_id, now.state) == ("memory", StreamState.LIVE)
    assert now.revision == (8 if item else 1)
    assert now.state_token
    assert now.root_key.startswith(f"{METADATA}root.{epoch:010d}.{highest + 1:012d}.")


@pytest.mark.parametrize("damaged", [0, *ROOTS])
def test_the_newest_root_that_lacks_nothing_is_adopted_if_it_can_have_landed(damaged: int) -> None:
    said: set[str] = set()
    for item in restored():
        for roots in subsets(tuple(ROOTS)):
            if damaged and damaged not in roots:
                continue
            for parts in subsets((0, 1, 2)):
                try:
                    said.add(look_at(roots, parts, damaged, item))
                except Exception as exc:
                    raise AssertionError(f"roots {roots}, parts {parts}, item {item}") from exc

    wanted = {"good", "moved over", "stuck", *(f"adopted {v}" for v in ROOTS if v > damaged)}
    assert said == wanted


class Late(MemoryCatalog):
    """A table in which somebody else is faster."""

    def __init__(self, faster: CatalogItem) -> None:
        super().__init__()
        self._faster = faster

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        self.items[STREAM] = self._faster
        return super().adopt(item, replacing=replacing)


def test_an_item_that_another_has_written_meanwhile_is_left_alone() -> None:
    """In between the item is adopted, is deleted for good, or comes back from an older table."""
    for item in restored():
        if item is not None and (item.table_id == "memory" or item.version < 4):
            continue
        for meanwhile in restored():
            place = place_with((1, 2, 3, 4), (0, 1, 2), 0, item)
            if meanwhile is None or meanwhile == item:
                continue

            late = replace(meanwhile, revision=8)
            catalog = Late(late)
            catalog.items.update(place.catalog.items)
            with pytest.raises(ConflictError):
                adopt(context_of(replace(place, catalog=catalog), count(9000)), STREAM)
            assert catalog.items[STREAM] == late


def test_a_reconcile_adopts_only_what_a_commit_cannot_be_made_to() -> None:
    """The commit's error comes back where the item is good; an adopted tombstone gets no commit."""
    for item in restored():
        place = place_with((1, 2, 3, 4), (0, 1, 2), 0, item)
        mine = item is not None and item.table_id == "memory"
        if mine:
            assert item is not None
            place.catalog.items[STREAM] = replace(item, state=StreamState.DELETING)
            with pytest.raises(ConflictError):
                reconcile(context_of(place, count(9000)), STREAM, pause=no_pause)
            continue
        done = reconcile(context_of(place, count(9000)), STREAM, pause=no_pause)
        now = place.catalog.items[STREAM]
        dead = item is not None and item.state is StreamState.DELETED
        assert done.adopted
        assert now.state is (StreamState.DELETED if dead else StreamState.LIVE)
        assert (done.commits.commits, done.commits.next_offset) == (0, 30)
        assert (done.commits.version, now.version) == (now.version, 4 if dead else 5)
