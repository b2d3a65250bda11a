"""Objects with odd keys below a stream, whole pages of them: nothing stops, and none is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.plans.collect import ObjectKind
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream_devkit.claims import claim
from coldstream_devkit.odd_keys import odd_keys
from tests.support.remote import PREFIX, STREAM, chain, log_of, no_pause, piece
from tests.unit.usecases.test_collect import GRACE, Tier
from tests.unit.usecases.test_collect_busy import step

UNDER = f"{PREFIX}stream/{STREAM}/"


def littered(seed: int, page_size: int) -> tuple[Tier, Context, set[str]]:
    """A stream of 12 fragments in the tree and 3 behind it, among odd keys of every kind."""
    tier = Tier()
    litter = {
        *odd_keys(seed, PREFIX, STREAM, 80),
        # Whole pages between two of ours, and before and behind all of them.
        *(f"{UNDER}data/{120:020d}-{n}" for n in range(10)),
        *(f"{UNDER}data//{n}" for n in range(10)),
        *(f"{UNDER}data/~{n}" for n in range(10)),
        *(f"{UNDER}metadata/root.{n}" for n in range(10)),
        *(f"{UNDER}metadata/root.{1:010d}.{n:012d}.x/" for n in range(10)),
    }
    for key in litter:
        tier.memory.put(key, b"not ours", write_id="litter")
    tier.upload(*chain(3, start=120))
    return tier, replace(tier.new_context(), page_size=page_size), litter


def committed(tier: Tier, context: Context) -> None:
    del tier
    assert commit_runs(context, STREAM, pause=no_pause).fragments == 3


def reconciled(tier: Tier, context: Context) -> None:
    del tier
    assert reconcile(context, STREAM, pause=no_pause).commits.fragments == 3


def claimed(tier: Tier, context: Context) -> None:
    del tier
    log = log_of(*chain(15))
    assert claim(context, STREAM, 2, log=log, pause=no_pause).loaded.root.next_offset == 150


def adopted(tier: Tier, context: Context) -> None:
    del tier
    restored = replace(context, catalog=MemoryCatalog("restored"))
    adopt(restored, STREAM)
    assert load(restored, STREAM).root.next_offset == 120


def rebuilt(tier: Tier, context: Context) -> None:
    del tier
    assert rebuild(context, STREAM, branching=4, dry_run=True).rebuilt.root.next_offset == 150


def collected(tier: Tier, context: Context) -> None:
    for _ in range(3):
        tier.now += 2 * GRACE
        cursor: str | None = None
        found = []
        for _ in range(400):
            report = step(tier, context, cursor=cursor, time_left=lambda: False,
                          time_to_list=lambda: False)  # fmt: skip
            found.append(report)
            cursor = report.cursor
            if cursor is None:
                break
        assert cursor is None
    foreign = sum(
        each.found[ObjectKind.FOREIGN].objects for each in found if ObjectKind.FOREIGN in each.found
    )
    not_ours = [key for key, body in tier.memory.objects.items() if body == b"not ours"]
    assert foreign == sum(key.startswith(UNDER) for key in not_ours)


@pytest.mark.parametrize("page_size", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "act",
    [committed, reconciled, claimed, adopted, rebuilt, collected],
    ids=lambda act: act.__name__,
)
def test_odd_keys_stop_nothing_and_stay(
    act: Callable[[Tier, Context], None], seed: int, page_size: int
) -> None:
    tier, context, litter = littered(seed, page_size)

    act(tier, context)

    assert litter <= set(tier.memory.objects)
    assert all(tier.memory.objects[key] == b"not ours" for key in litter)


def test_a_folder_marker_with_the_name_of_a_fragment_is_no_fragment() -> None:
    tier = Tier()
    key = piece(120, 130).path(PREFIX)
    tier.memory.put(f"{key}/", b"", write_id="console")

    assert not commit_runs(tier.new_context(), STREAM, pause=no_pause).fragments
