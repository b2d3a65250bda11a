from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import NotFoundError
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.manifest.root import Root
from coldstream.manifest.tree import nodes
from coldstream.manifest.walk import object_path
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream_devkit.bucket import compare, referenced
from coldstream_devkit.steps import immutability, nothing_leaked, publish_before_delete
from tests.support.tier import PREFIX, Tier, chunk


@pytest.fixture
def tier() -> Tier:
    return Tier()


@pytest.fixture
def root(tier: Tier) -> Root:
    """A tree whose first, flat root is still in the bucket."""
    return tier.add_tree("s", [[chunk(n, b"m")] for n in range(45)])


def found(tier: Tier, root: Root, *accounted_for: str) -> list[Violation]:
    item = tier.catalog.items["s"]
    return compare(
        tier.store, PREFIX, item, root, tier.fetch("s"), accounted_for=set(accounted_for)
    )


def old_root(tier: Tier) -> str:
    current = tier.catalog.items["s"].root_key
    return next(k for k in tier.store.objects if "/root." in k and k != current)


def test_a_bucket_as_it_was_filled_holds_what_is_referred_to_and_the_old_root(
    tier: Tier, root: Root
) -> None:
    (leak,) = found(tier, root)

    assert (leak.invariant, leak.key) == (Invariant.NOTHING_LEAKED, old_root(tier))
    assert found(tier, root, old_root(tier)) == []


def test_every_object_that_goes_is_missed_by_its_key(tier: Tier, root: Root) -> None:
    known = old_root(tier)
    keys = referenced(PREFIX, tier.catalog.items["s"], root, tier.fetch("s"))
    fragments = [key for key in keys if key.endswith((".fragment", ".manifest"))]
    assert len(keys) > len(fragments) > 45
    for key in fragments:
        kept = tier.store.objects.pop(key)
        (missing,) = found(tier, root, known)
        tier.store.objects[key] = kept

        assert (missing.invariant, missing.key) == (Invariant.PUBLISH_BEFORE_DELETE, key)


def test_what_lies_below_a_missing_group_cannot_be_known(tier: Tier, root: Root) -> None:
    group = next(e for e in nodes(root.entries, tier.fetch("s")))
    del tier.store.objects[object_path(PREFIX, "s", group)]

    with pytest.raises(NotFoundError):
        found(tier, root)


def test_fragments_below_the_first_offset_are_not_referred_to(tier: Tier, root: Root) -> None:
    leaves = tier.leaves("s", root)
    size = sum(each.size for each in leaves[3:])
    plan = plan_retention(root, RetentionLimits(max_bytes=size), now_ms=0, fetch=tier.fetch("s"))
    after = tier.commit("s", plan.root)

    leaked = {each.key for each in found(tier, after)}

    assert leaked >= {object_path(PREFIX, "s", each) for each in leaves[:3]}
    assert not leaked & {object_path(PREFIX, "s", each) for each in leaves[3:]}


def test_a_quarantine_record_is_referred_to(tier: Tier, root: Root) -> None:
    key = f"{PREFIX}stream/s/metadata/quarantine.1"
    after = tier.commit("s", replace(root, quarantine_key=key))

    assert [each.key for each in found(tier, after, old_root(tier)) if "quar" in each.key] == [key]


def test_keys_are_missing_leaked_or_accounted_for() -> None:
    assert publish_before_delete(["a", "b"], {"b", "c"})[0].key == "a"
    assert [each.key for each in nothing_leaked(["b", "c", "d"], {"b"}, {"d"})] == ["c"]


def test_an_object_may_come_and_go_but_never_change() -> None:
    before = {"a": (1, 10), "b": (2, 20), "gone": (3, 30)}

    assert immutability(before, {"a": (1, 10), "b": (2, 20), "new": (0, 0)}) == []
    assert [each.key for each in immutability(before, {"a": (1, 10), "b": (2, 21)})] == ["b"]
