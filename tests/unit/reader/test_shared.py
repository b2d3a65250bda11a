"""Ranges are fetched once for all readers of a stream, and memory stays bounded."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.manifest.entries import Entries
from coldstream.osiris.chunk import Chunk
from coldstream.reader import MemoryBudget, Offset, ReaderSettings
from coldstream.reader.cuts import shared_ranges
from coldstream.reader.eviction import distance
from coldstream.reader.fetch import Fetch, Span
from coldstream.reader.shared import UNUSED_SECONDS, Place, SharedRanges
from tests.support.tier import Tier, chunk, fragment_of

SIZE, COUNT, EACH = 1000, 400, 40
SETTINGS = ReaderSettings(range_size=4000, first_range_size=2000, in_flight=2, index_guess=1200)


class Counting:
    """Passes calls on and counts the bytes that leave the bucket, by object."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.fetched: Counter[str] = Counter()

    def get(self, key: str, start: int, end: int) -> bytes:
        self.fetched[key] += end - start
        return bytes(self._store.get(key, start, end))

    def get_suffix(self, key: str, length: int) -> bytes:
        self.fetched[key] += length
        return bytes(self._store.get_suffix(key, length))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@dataclass
class Site:
    tier: Tier = field(default_factory=Tier)
    budget: MemoryBudget = field(default_factory=MemoryBudget)

    def __post_init__(self) -> None:
        self.root = self.tier.add("s", groups(0, COUNT))
        self.tier.store = self.store = Counting(self.tier.store)

    def read(self, start: int = 0) -> Iterator[Chunk]:
        return self.tier.reader("s", SETTINGS, self.budget).chunks(Offset(start))

    @property
    def fetched(self) -> int:
        return sum(self.store.fetched.values())

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.root.entries)


def groups(first: int, end: int) -> list[list[bytes]]:
    return [[chunk(n, bytes(SIZE)) for n in range(k, k + EACH)] for k in range(first, end, EACH)]


def test_a_hundred_readers_of_a_stream_fetch_every_byte_once() -> None:
    site = Site()
    readers = [site.read() for _ in range(100)]

    for chunks in zip(*readers, strict=True):
        assert len({each.header.chunk_id for each in chunks}) == 1

    # Each index is fetched beside its data, as for a single reader.
    assert site.size <= site.fetched < 1.1 * site.size
    assert site.budget.held == 0


def test_a_reader_that_lags_less_than_memory_holds_fetches_nothing_again() -> None:
    site = Site(budget=MemoryBudget(200 * SIZE))
    ahead, behind = site.read(), site.read()
    next(behind)
    for _ in range(100):
        next(ahead)

    for _ in range(COUNT - 100):
        next(ahead)
        next(behind)
    list(ahead)
    list(behind)

    assert site.fetched < 1.1 * site.size
    assert site.budget.peak <= site.budget.total


def test_readers_farther_apart_than_memory_reaches_fetch_for_themselves_and_hold_no_more() -> None:
    budget = MemoryBudget(20 * SIZE)
    site = Site(budget=budget)
    ahead, behind = site.read(), site.read()
    next(behind)

    assert len(list(ahead)) == COUNT
    assert len(list(behind)) == COUNT - 1

    assert site.fetched < 2.2 * site.size
    # One range and one index a reader more, as without sharing.
    assert budget.peak <= budget.total + 2 * (4400 + 1200)
    assert budget.held == 0


def test_readers_that_begin_anywhere_share_what_lies_before_them() -> None:
    site = Site()
    first, second, third = site.read(), site.read(13), site.read(57)
    next(second), next(third)
    for _ in range(13):
        next(first)
    next(first)
    for _ in range(57 - 13):
        next(first), next(second)

    rest = list(zip(first, second, third, strict=False))

    assert len(rest) == COUNT - 58
    assert site.fetched < 1.15 * site.size


def test_a_reader_that_ends_early_takes_nothing_from_the_others_and_leaves_nothing() -> None:
    site = Site()
    stays, leaves = site.read(), site.read()
    next(stays)
    for _ in range(50):
        next(leaves)
    leaves.close()  # type: ignore[attr-defined]

    assert len(list(stays)) == COUNT - 1
    assert site.fetched < 1.2 * site.size
    assert site.budget.held == 0


def test_those_who_wait_at_the_end_fetch_what_comes_once() -> None:
    site = Site()
    readers = [
        site.tier.reader("s", SETTINGS, site.budget).follow(Offset(COUNT - 1), lambda: True)
        for _ in range(20)
    ]
    for each in readers:
        next(each)
    before = site.fetched

    new = site.tier.upload("s", groups(COUNT, COUNT + EACH)[0], epoch=1, floor=0)
    entries = Entries.of([*site.root.entries, new])
    site.tier.commit("s", replace(site.root, entries=entries, next_offset=new.next_offset))
    for _ in range(EACH):
        for each in readers:
            next(each)

    assert site.fetched - before < 1.3 * new.size


def test_a_stream_in_one_bucket_is_not_taken_for_that_of_another() -> None:
    budget = MemoryBudget()
    sites = [Site(budget=budget), Site(budget=budget)]

    for _ in zip(*[site.read() for site in sites], strict=True):
        pass

    assert all(site.fetched >= site.size for site in sites)


# What follows is about single ranges.


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def fetch(run: Callable[[], Any], first: int = 0, size: int = 10) -> Fetch[Any]:
    span = Span(("key", first), first, first + 10)
    return Fetch(size, run, span, lambda value: value != "damaged")


def two_places(ranges: SharedRanges) -> tuple[Place, Place]:
    tier = Tier()
    places = ranges.place(tier.store, "p/", "s"), ranges.place(tier.store, "p/", "s")
    for each in places:
        each.join(0)
    return places


class Never(Executor):
    """Takes work and begins none of it."""

    def __init__(self) -> None:
        self.taken: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.taken.append(Future())
        return self.taken[-1]


class Value:
    """A result whose end can be seen, and that comes when it may."""

    def __init__(self, when: threading.Event) -> None:
        when.wait(30)


def test_what_was_given_back_goes_at_once_and_not_when_garbage_is_collected() -> None:
    place, other = two_places(SharedRanges.of(MemoryBudget()))
    other.leave()
    leased = threading.Event()
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            lease = place.lease(fetch(lambda: Value(leased)), pool, needed=True)
            leased.set()
            assert lease is not None
            seen = weakref.ref(lease.result())
            place.move(1000)
            lease.release()
            del lease
        # Its thread has let go of it, too.
        assert seen() is None
    finally:
        gc.enable()


def test_who_waits_for_the_get_of_a_reader_that_has_gone_sends_it_himself(pool: Executor) -> None:
    one, other = two_places(SharedRanges.of(MemoryBudget()))
    never = Never()
    first = one.lease(fetch(lambda: "no"), never, needed=True)
    second = other.lease(fetch(lambda: "mine"), pool, needed=True)
    assert first is not None
    assert second is not None

    first.release()
    never.taken[0].cancel()

    assert second.result() == "mine"
    second.release()


def test_an_error_is_told_to_all_who_wait_and_to_nobody_later(pool: Executor) -> None:
    budget = MemoryBudget()
    one, other = two_places(SharedRanges.of(budget))
    go = threading.Event()

    def fails() -> str:
        go.wait(30)
        raise UnavailableError("no answer", key="k")

    leases = [each.lease(fetch(fails), pool, needed=True) for each in (one, other)]
    go.set()
    errors = []
    for lease in leases:
        assert lease is not None
        with pytest.raises(UnavailableError) as found:
            lease.result()
        errors.append(found.value)
        lease.release()

    assert errors[0] is not errors[1]
    assert errors[1].key == "k"
    assert budget.held == 0
    again = other.lease(fetch(lambda: "well"), pool, needed=True)
    assert again is not None
    assert again.result() == "well"
    again.release()


def test_damage_is_nobodys_but_his_who_fetched_it(pool: Executor) -> None:
    """A bit may have flipped on the way; another GET brings what is there."""
    one, other = two_places(SharedRanges.of(MemoryBudget()))
    go = threading.Event()
    first = one.lease(fetch(lambda: go.wait(30) and "damaged"), pool, needed=True)
    second = other.lease(fetch(lambda: "well"), pool, needed=True)
    assert first is not None
    assert second is not None
    go.set()

    assert first.result() == "damaged"
    assert second.result() == "well"

    third = one.lease(fetch(lambda: "well too"), pool, needed=True)
    assert third is not None
    assert third.result() == "well too"
    for each in (first, second, third):
        each.release()


def test_what_nobody_has_used_for_a_minute_goes_though_a_reader_behind_may_want_it(
    pool: Executor,
) -> None:
    now, budget = [0.0], MemoryBudget()
    ranges = SharedRanges(budget, lambda: now[0])
    ahead, stalled = two_places(ranges)
    use(ahead, fetch(lambda: 1), pool)
    ahead.move(10)
    assert budget.held == 10

    now[0] = UNUSED_SECONDS + 1
    use(ahead, fetch(lambda: 1, first=10), pool)
    ahead.move(20)

    assert budget.held == 10, "the second one"
    stalled.leave()
    assert budget.held == 0


def test_read_ahead_drops_only_what_is_needed_later_than_itself(pool: Executor) -> None:
    budget = MemoryBudget(20)
    ranges = SharedRanges.of(budget)
    ahead, behind = two_places(ranges)
    behind.join(0)
    use(ahead, fetch(lambda: 1, first=10), pool)  # wanted in 10 bytes, by both
    use(ahead, fetch(lambda: 1, first=50), pool)
    assert budget.held == 20

    assert ahead.lease(fetch(lambda: 1, first=60), pool, needed=False) is None
    assert budget.held == 20

    nearer = ahead.lease(fetch(lambda: 1, first=20), pool, needed=False)
    assert nearer is not None
    nearer.release()
    kept = behind.lease(fetch(lambda: pytest.fail("fetched again"), first=10), pool, needed=False)
    assert kept is not None
    assert kept.result() == 1
    kept.release()


def test_what_is_kept_gives_way_to_other_users_of_the_budget(pool: Executor) -> None:
    budget = MemoryBudget(20)
    ahead, behind = two_places(SharedRanges.of(budget))
    use(ahead, fetch(lambda: 1), pool)
    use(ahead, fetch(lambda: 1, first=10), pool)
    ahead.move(20)

    assert budget.take(20)
    assert budget.held == 20
    behind.leave()


def use(place: Place, wanted: Fetch[Any], pool: Executor) -> None:
    lease = place.lease(wanted, pool, needed=True)
    assert lease is not None
    lease.result()
    lease.release()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [([], math.inf), ([20], math.inf), ([19], 0), ([0], 50), ([0, 15, 40], 0), ([0, 5, 40], 25)],
)
def test_a_range_is_as_far_away_as_the_nearest_reader_that_has_not_passed_it(
    positions: list[int], expected: float
) -> None:
    assert distance(10, 20, 50, positions) == expected


def sizes() -> Iterator[int]:
    return chain([1000, 2000, 4000], repeat(8000))


def index_of(lengths: list[int]) -> Any:
    tier = Tier()
    chunks = [chunk(n, bytes(length)) for n, length in enumerate(lengths)]
    entry = tier.upload("s", chunks, epoch=1, floor=0)
    assert fragment_of(chunks, epoch=1)[1].chunks == len(lengths)
    return tier.reader("s").objects.fragments.open(entry).index


@pytest.mark.parametrize("length", [1, 300, 950, 3000, 20_000])
def test_readers_from_anywhere_cut_a_fragment_at_the_same_places(length: int) -> None:
    lengths = [length + n % 7 for n in range(120)]
    index = index_of(lengths)
    full = list(shared_ranges(index, 0, 119, repeat(8000), 1000))

    for start in (0, 1, 17, 59, 118):
        cut = list(shared_ranges(index, start, 119, sizes(), 1000))
        assert [n for first, last in cut for n in range(first, last + 1)] == [*range(start, 120)]
        assert set(cut[8:]) <= set(full)
    for first, last in full:
        begin, _ = index.data_range(first, last)
        start_of_last, _ = index.data_range(last, last)
        assert start_of_last - begin < 8000 or first == last, "a range exceeds by its last chunk"


@pytest.mark.parametrize("length", [300, 470, 600, 900])
def test_ranges_are_as_long_as_asked_whatever_the_size_of_chunks(length: int) -> None:
    index = index_of([length] * 120)

    cut = list(shared_ranges(index, 0, 119, repeat(8000), 1000))

    assert len(cut) <= index.trailer.data_size / 8000 + 1


def test_a_range_ends_where_the_read_ends() -> None:
    index = index_of([300] * 60)

    assert list(shared_ranges(index, 5, 7, repeat(8000), 1000))[-1][1] == 7
