"""`asOfVersion`: which root was a stream's manifest, and when nobody can say."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.manifest.root import LastChunk
from coldstream.spark.earlier import SURE_MS
from tests.support.tier import Tier
from tests.unit.spark.context import query
from tests.unit.spark.test_read import in_groups, small_chunks

STREAM = "__orders_1"
CHUNKS = small_chunks(30)


class Clock:
    """S3's, set by a test."""

    def __init__(self) -> None:
        self.ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.ms


def tier_of_versions(*ages_ms: int) -> Tier:
    """A stream with a version of 30, one of 60 and one of 90 messages, PUT so long ago."""
    clock = Clock()
    now = clock.ms
    tier = Tier(MemoryObjectStore(clock))
    clock.ms = now - ages_ms[0]
    root = tier.add(STREAM, in_groups(CHUNKS[:10], 5))
    for number, age in enumerate(ages_ms[1:], 1):
        clock.ms = now - age
        chunks = CHUNKS[10 * number : 10 * number + 10]
        entry = tier.upload(STREAM, chunks, epoch=1, floor=0)
        last = LastChunk(entry.next_offset - 3, 1)
        root = tier.commit(STREAM, root.appended([entry], last))
    return tier


def count(tier: Tier, **given: str) -> int:
    return len(query(tier, stream=STREAM, columns="offset", **given).rows())


def roots(tier: Tier, version: int) -> list[str]:
    return [key for key in tier.store.objects if f".{version:012d}." in key and "/root." in key]


def uid(key: str) -> str:
    return key.split(".")[-2]


def lose(tier: Tier, version: int) -> str:
    """A root of that version that was PUT and never landed, of fewer messages; its key."""
    (key,) = roots(tier, version)
    other = key.replace(uid(key), "00000000000000ff")
    tier.store.put(other, tier.store.objects[roots(tier, version - 1)[0]], write_id="lost")
    return other


def test_an_earlier_version_is_read_as_it_was() -> None:
    tier = tier_of_versions(3000, 2000)

    assert (count(tier), count(tier, asOfVersion="2"), count(tier, asOfVersion="1")) == (60, 60, 30)
    with pytest.raises(NotFoundError, match="no version 3 yet, the latest is 2"):
        count(tier, asOfVersion="3")
    tier.store.delete(roots(tier, 1))
    with pytest.raises(NotFoundError, match="version 1 is no longer there"):
        count(tier, asOfVersion="1")


def test_of_two_roots_of_one_version_somebody_must_say_which() -> None:
    tier = tier_of_versions(3000, 2000, 1000)
    (landed,) = roots(tier, 2)
    lost = lose(tier, 2)

    with pytest.raises(InvalidInputError, match=f"2.{uid(landed)}, 2.{uid(lost)}"):
        count(tier, asOfVersion="2")
    assert count(tier, asOfVersion=f"2.{uid(landed)}") == 60


def test_a_root_that_never_landed_is_not_taken_for_one_that_was_collected() -> None:
    tier = tier_of_versions(4 * SURE_MS, 3 * SURE_MS, 2 * SURE_MS)
    (landed,) = roots(tier, 2)
    lost = lose(tier, 2)
    tier.store.delete([landed])

    with pytest.raises(InvalidInputError, match="nobody can say whether") as failed:
        count(tier, asOfVersion="2")
    assert f"2.{uid(lost)}" in str(failed.value)


def test_a_version_is_sure_only_as_long_as_collect_keeps_what_it_was_replaced_by() -> None:
    # Version 1 is old, but what came after it is not: nobody can have collected anything of it.
    sure = tier_of_versions(9 * SURE_MS, SURE_MS - 60_000, 1000)
    assert count(sure, asOfVersion="1") == 30
    assert count(sure, asOfVersion="2") == 60
    # Version 2 was replaced a moment ago, version 1 long ago.
    half = tier_of_versions(9 * SURE_MS, 2 * SURE_MS, 1000)
    assert count(half, asOfVersion="2") == 60
    with pytest.raises(InvalidInputError, match="nobody can say whether"):
        count(half, asOfVersion="1")
    assert count(half, asOfVersion=f"1.{uid(roots(half, 1)[0])}") == 30


def test_a_version_that_an_adoption_has_passed_over_is_not_taken_for_one_that_landed() -> None:
    tier = tier_of_versions(3000, 2000, 1000)
    item: Any = tier.catalog.items[STREAM]
    tier.catalog.items[STREAM] = replace(item, revision=1, state_token=item.uid)

    assert count(tier, asOfVersion="3") == 90
    with pytest.raises(InvalidInputError, match="nobody can say whether"):
        count(tier, asOfVersion="2")
