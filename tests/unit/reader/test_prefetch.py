from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.errors import CorruptDataError
from coldstream.reader import First, MemoryBudget, ReaderSettings
from coldstream.reader.fetch import Fetch
from coldstream.reader.prefetch import in_order, workers
from tests.support.tier import Tier, chunk


class Threads:
    """The reading threads of this test: what another one left to the collector is not its own."""

    def __init__(self) -> None:
        self._others = self._all()

    def now(self) -> set[threading.Thread]:
        return self._all() - self._others

    def end_soon(self) -> bool:
        """Whether all end: closing a generator does not wait for them."""
        deadline = time.monotonic() + 60
        while self.now() and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self.now()

    @staticmethod
    def _all() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith("coldstream-read")}


@pytest.fixture
def reading() -> Threads:
    return Threads()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with workers(4) as pool:
        yield pool


def test_results_come_in_order_whatever_finishes_first(pool: ThreadPoolExecutor) -> None:
    def late(n: int) -> int:
        time.sleep(0.002 * (n % 3))
        return n

    fetches = (Fetch(1, lambda n=n: late(n)) for n in range(40))

    assert list(in_order(fetches, pool, budget=MemoryBudget(10), in_flight=8)) == list(range(40))


def test_read_ahead_never_exceeds_the_budget(pool: ThreadPoolExecutor) -> None:
    budget = MemoryBudget(25)
    fetches = (Fetch(10, lambda n=n: n) for n in range(20))

    for _ in in_order(fetches, pool, budget=budget, in_flight=8):
        assert budget.held <= 25

    assert (budget.held, budget.peak) == (0, 20)


def test_what_is_needed_next_is_fetched_though_nothing_is_free(pool: ThreadPoolExecutor) -> None:
    budget = MemoryBudget(10)
    budget.take(10)

    results = in_order(iter([Fetch(7, lambda: 1), Fetch(7, lambda: 2)]), pool,
                       budget=budget, in_flight=8)  # fmt: skip

    assert list(results) == [1, 2]
    assert (budget.held, budget.peak) == (10, 17)


def test_a_reader_does_not_wait_for_the_memory_of_another_in_the_same_thread() -> None:
    tier = Tier()
    tier.add("s", [[chunk(n, bytes(600)) for n in range(k, k + 20)] for k in range(0, 100, 20)])
    budget = MemoryBudget(3000)
    settings = ReaderSettings(range_size=1000, first_range_size=1000, in_flight=8, index_guess=500)

    pairs = zip(
        tier.reader("s", settings, budget).chunks(First()),
        tier.reader("s", settings, budget).chunks(First()),
        strict=True,
    )

    assert sum(a.header.chunk_id == b.header.chunk_id for a, b in pairs) == 100
    assert budget.held == 0
    assert budget.peak <= 3000 + 2 * (1000 + 500)


def test_a_fetch_that_cannot_begin_keeps_no_memory() -> None:
    budget, ended = MemoryBudget(10), ThreadPoolExecutor(1)
    ended.shutdown()

    with pytest.raises(RuntimeError):
        list(in_order(iter([Fetch(5, lambda: 1)]), ended, budget=budget, in_flight=1))

    assert budget.held == 0


def test_an_error_comes_after_the_results_before_it(pool: ThreadPoolExecutor) -> None:
    def broken() -> int:
        raise CorruptDataError("broken")

    fetches = iter(
        [Fetch(1, lambda: 1), Fetch(1, lambda: 2), Fetch(1, broken), Fetch(1, lambda: 4)]
    )
    budget = MemoryBudget(10)
    results = in_order(fetches, pool, budget=budget, in_flight=8)

    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(CorruptDataError):
        next(results)
    assert budget.held == 0


def test_read_ahead_begins_small(pool: ThreadPoolExecutor) -> None:
    planned: list[int] = []

    def plan() -> Iterator[Fetch[int]]:
        for n in range(100):
            planned.append(n)
            yield Fetch(1, lambda n=n: n)

    results = in_order(plan(), pool, budget=MemoryBudget(), in_flight=64)
    next(results)

    assert len(planned) <= 2
    results.close()


class SlowStore:
    """Passes calls on after a while and remembers how many were under way at once.

    A call waits longer until three have met, for on a busy machine threads begin late.
    """

    def __init__(self, tier: Tier) -> None:
        self.store = tier.store
        self.gets = self.now = self.most = 0
        self.lock = threading.Lock()
        self.met = threading.Event()

    def get(self, key: str, start: int, end: int) -> bytes:
        with self.lock:
            self.gets += 1
            self.now += 1
            self.most = max(self.most, self.now)
            if self.most >= 3:
                self.met.set()
        self.met.wait(0.1)
        time.sleep(0.005)
        with self.lock:
            self.now -= 1
        return self.store.get(key, start, end)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


@pytest.fixture
def slow() -> tuple[Tier, SlowStore]:
    tier = Tier()
    tier.add("s", [[chunk(n, bytes(1000)) for n in range(k, k + 40)] for k in range(0, 200, 40)])
    tier.store = SlowStore(tier)
    return tier, tier.store


SETTINGS = ReaderSettings(range_size=4000, first_range_size=4000, in_flight=6)


def test_several_ranges_are_in_flight_but_not_more_than_allowed(
    slow: tuple[Tier, SlowStore],
) -> None:
    tier, store = slow

    assert sum(1 for _ in tier.reader("s", SETTINGS).chunks(First())) == 200
    assert 3 <= store.most <= 6


def test_a_consumer_that_stops_early_leaves_no_thread_and_no_memory_behind(
    slow: tuple[Tier, SlowStore],
    reading: Threads,
) -> None:
    tier, store = slow
    budget = MemoryBudget()
    chunks = tier.reader("s", SETTINGS, budget).chunks(First())
    for _ in range(30):
        next(chunks)
    assert reading.now()
    assert budget.held

    chunks.close()

    assert reading.end_soon()
    assert budget.held == 0
    assert store.gets < 25


def test_nothing_is_started_before_the_first_chunk_is_asked_for(
    slow: tuple[Tier, SlowStore],
    reading: Threads,
) -> None:
    tier, store = slow

    chunks = tier.reader("s", SETTINGS).chunks(First())

    assert store.gets == 0
    assert not reading.now()
    chunks.close()


def test_an_exception_of_the_consumer_ends_the_threads(
    slow: tuple[Tier, SlowStore],
    reading: Threads,
) -> None:
    tier, _ = slow

    def consume() -> None:
        for message in tier.reader("s", SETTINGS).messages(First()):
            raise RuntimeError(message.offset)

    with pytest.raises(RuntimeError):
        consume()
    assert reading.end_soon()


def test_a_reader_that_the_garbage_collector_closes_waits_for_nothing(
    slow: tuple[Tier, SlowStore],
    reading: Threads,
) -> None:
    """The collector runs anywhere, in the start of a thread too, with locks held that joining
    takes: a test run stood still for ever there."""
    tier, _ = slow
    lock = getattr(threading, "_shutdown_locks_lock", None)
    if lock is None:
        pytest.skip("this Python's threads have no such lock")
    chunks = tier.reader("s", SETTINGS).chunks(First())
    next(chunks)
    cycle: list[object] = [chunks]
    cycle.append(cycle)

    with lock:
        del chunks, cycle
        gc.collect()

    assert reading.end_soon()
