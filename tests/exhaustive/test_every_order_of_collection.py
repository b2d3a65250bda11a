"""Every order of a collection that may delete, a commit, and whatever else changes a stream.

The stream (`beside`) has spare uploads, old roots, a dead root that may be adopted, data over a
hole and data that reaches over the end; all were seen a grace time ago. Which keys may go is
written down by hand; whatever else goes in any history is an error, and so is anything that a
manifest names and that is not there, or not whole, chunk by chunk, after any change or delete.

What a clock that stands still cannot show, that a collector is stopped for days between its proof
and its deletes, is overheard instead: right before each batch it must have read the item, and by
what it has read there the batch must still be garbage.

Why that is enough: a collection meets others only through the item, the roots and LIST; one change
of each kind, with a commit that moves the version once more, makes every kind of difference between
what it has judged by and what is there when it deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from coldstream.errors import ConflictError, NotFoundError, UnknownOutcomeError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream_devkit.simulation.explore import Explored, Results, Scenario, explore
from coldstream_devkit.simulation.points import Place
from tests.exhaustive.bare import (
    Unharmed,
    batches,
    chunks_of,
    manifest_at,
    manifest_of,
    named_by,
    objects_below,
)
from tests.exhaustive.beside import (
    ACROSS_THE_END,
    OVER_HOLE,
    SPARE,
    TASKS,
    a_stream,
    collected_for_days,
    damaged,
    dead_roots,
    may_go,
    of_another_table,
    without_a_table,
)
from tests.support.stage import PREFIX, STREAM, context_of, once, piece

DAMAGED = piece(40, 50, uid=41).path(PREFIX)


class Watched(Unharmed):
    """Also: a dead root that may be adopted yet keeps all that it names."""

    def __call__(self, place: Place, before: CatalogItem | None) -> None:
        super().__call__(place, before)
        for key in dead_roots(self.begin) if self.begin.catalog.items else ():
            self._is_adoptable(place, key)

    def _is_adoptable(self, place: Place, key: str) -> None:
        assert named_by(manifest_at(place, key)) <= objects_below(place)


def in_all_orders(
    *tasks: str,
    begin: Callable[[], Place] = a_stream,
    keys: Callable[[Place], Collection[str]] = may_go,
    allowed: tuple[type[Exception], ...] = (ConflictError, UnknownOutcomeError),
    lost_answers: int = 0,
) -> Explored:
    place = begin()
    harmed = [DAMAGED] if begin is damaged else []
    watched = Watched(place, keys(place), harmed)
    first_state = _state(place.catalog.items.get(STREAM))

    def look(end: Place) -> str:
        item = end.catalog.items.get(STREAM)
        if item is None or item.state is not StreamState.LIVE:
            return str(item and item.state)
        if item.table_id == end.catalog.table_id():
            TASKS["commit"](context_of(end))
        return _rests(end, harmed)

    looked = once(look)

    def ended(end: Place, results: Results) -> str:
        for name, result in results.items():
            assert not isinstance(result, Exception) or isinstance(result, allowed), (name, result)
        if isinstance(results.get("collect"), list):
            _deleted_by_fresh_proof(results["collect"], end, first_state)
        return looked(end)

    explored = explore(
        Scenario(STREAM, PREFIX, place, {n: TASKS[n] for n in tasks}, watched, ended, lost_answers),
        most_states=100_000,
    )
    print(explored)
    return explored


def _state(item: CatalogItem | None) -> tuple[object, ...] | None:
    return (item.table_id, item.revision, item.state_token) if item else None


def _deleted_by_fresh_proof(looks: Any, end: Place, seen_under: object) -> None:
    """Each batch: by the item as it was read right before, it is garbage, and was seen as such."""
    for first, last, keys in batches(looks):
        assert last.state is StreamState.LIVE
        assert _state(first) == _state(last) == seen_under, "what was seen proves nothing any more"
        assert not named_by(manifest_at(end, last.root_key)) & set(keys)
        assert last.root_key not in keys


def _rests(place: Place, harmed: Collection[str]) -> str:
    """What is there is whole, and stays so for days of collection."""
    manifest = manifest_of(place)
    assert manifest is not None
    epochs = chunks_of(place, manifest, harmed)
    assert (manifest.first, manifest.next) in ((0, 90), (20, 90), (30, 90), (0, 45), (0, 75))
    at = {manifest.first + 5 * n: epoch for n, epoch in enumerate(epochs)}
    broken = {60, 65, *((40, 45) if DAMAGED in map(str, harmed) else ())}
    assert {offset for offset, epoch in at.items() if not epoch} <= broken
    if place.catalog.items[STREAM].table_id == place.catalog.table_id():
        after = collected_for_days(place)
        kept = manifest_of(after)
        assert kept is not None
        assert chunks_of(after, kept, harmed) == epochs
        assert OVER_HOLE in after.store.objects, "the only copy of what stands over a hole"
    said = "".join("h" if not at[offset] else str(at[offset]) for offset in sorted(at))
    return f"[{manifest.first}, {manifest.next}) {said}"


@pytest.mark.parametrize(
    "others",
    [
        ("commit",),
        ("rebalance", "commit"),
        ("consolidate",),
        ("retain", "commit"),
        ("claim", "commit"),
        ("claim that cuts at 45",),
        ("claim that cuts at 75",),
    ],
    ids=", ".join,
)
def test_a_collection_deletes_only_what_nobody_refers_to_in_any_order(
    others: tuple[str, ...],
) -> None:
    in_all_orders("collect", *others)


def test_a_collection_alone_deletes_all_that_may_go_and_nothing_that_only_looks_like_it() -> None:
    begin = a_stream()
    place = begin.copy()

    TASKS["collect"](context_of(place))

    assert objects_below(begin) - objects_below(place) == may_go(begin)
    assert {OVER_HOLE, ACROSS_THE_END, *dead_roots(begin)} <= objects_below(place)


def test_a_repair_beside_a_collection_names_nothing_that_is_gone_in_any_order() -> None:
    in_all_orders("collect", "repair", begin=damaged)


def test_a_rebuild_beside_a_collection_names_nothing_that_is_gone_in_any_order() -> None:
    in_all_orders("collect", "rebuild", "commit")


def test_a_rebuild_of_damage_beside_a_collection_names_nothing_that_is_gone_in_any_order() -> None:
    in_all_orders("collect", "rebuild", begin=damaged)


@pytest.mark.parametrize("begin", [of_another_table, without_a_table])
@pytest.mark.parametrize("how", ["adopt", "reconcile"])
def test_what_was_seen_before_an_adoption_proves_nothing_after_it_in_any_order(
    begin: Callable[[], Place], how: str
) -> None:
    in_all_orders(
        "collect",
        how,
        "commit",
        begin=begin,
        keys=lambda _: (),
        allowed=(ConflictError, NotFoundError, UnknownOutcomeError),
    )


def test_what_was_seen_before_a_deletion_proves_nothing_once_it_was_called_off() -> None:
    explored = in_all_orders("collect", "delete", "undelete", "commit")

    assert "deleting" in explored.outcomes


def test_an_adoption_never_names_what_is_gone_in_any_order() -> None:
    """The dead root lacks a fragment that it names: a collector took that for garbage."""

    def begin() -> Place:
        place = without_a_table()
        dead = max(key for key in place.store.objects if "/root." in key)
        names = named_by(manifest_at(place, dead))
        merged = max(key for key in names if "-00000000000000000060" in key)
        del place.store.objects[merged]
        return place

    in_all_orders(
        "adopt",
        "reconcile",
        "commit",
        begin=begin,
        keys=lambda _: (),
        allowed=(ConflictError, NotFoundError, UnknownOutcomeError),
    )


def test_a_collection_that_has_deleted_leaves_what_a_lost_table_needs() -> None:
    """Right after it the table is lost: the adoption finds a root that is whole."""
    for count in range(3):
        place = a_stream()
        for _ in range(count):
            TASKS["collect"](context_of(place))
        place.catalog.items.clear()

        TASKS["reconcile"](context_of(place))

        manifest = manifest_of(place)
        assert manifest is not None
        assert manifest.next == 90
        assert chunks_of(place, manifest) == [1] * 12 + [0, 0] + [1] * 4
        assert count == 0 or not set(SPARE) & objects_below(place)
