"""Which of bucket, disk and memory answers a read, by its policy; and what stays of it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.adapters.disk_cache import CachedStore, DiskCache
from coldstream.errors import NotKeptError
from coldstream.reader import (
    AsyncRemoteTier,
    First,
    Last,
    MemoryBudget,
    ReaderSettings,
    ReadPolicy,
    RemoteTier,
)
from coldstream.reader.policy import answering
from tests.support.tier import PREFIX, Tier, chunk
from tests.unit.reader.test_shared import Counting

FRAGMENTS, BODY = 6, b"x" * 300
ALL = [10 * n for n in range(2 * FRAGMENTS)]
WHOLE = ReaderSettings(range_size=2**20, first_range_size=2**20, in_flight=2)
BY_RANGES = ReaderSettings(range_size=4000, first_range_size=4000, in_flight=2, index_guess=512)


class Site:
    """A bucket that is counted, a disk, and the memory of one process."""

    def __init__(self, path: Path, settings: ReaderSettings) -> None:
        self.tier = Tier()
        self.tier.add(
            "s", [[chunk(20 * n + c, *[BODY] * 10) for c in (0, 10)] for n in range(FRAGMENTS)]
        )
        self.bucket = Counting(self.tier.store)
        self.path = path / "cache"
        self.open_disk()
        self.settings = settings
        self.memory = MemoryBudget()

    def open_disk(self) -> None:
        """Take over the directory, which nobody has."""
        self.disk = DiskCache(self.path, 2**20)
        self.store = CachedStore(self.bucket, self.disk, "bucket")  # type: ignore[arg-type]

    def opened(self) -> RemoteTier:
        return RemoteTier(
            self.store, self.tier.catalog, PREFIX, settings=self.settings, budget=self.memory
        )

    def read(self, policy: ReadPolicy) -> list[int]:
        """Ids of all chunks, read by a reader of its own."""
        return [each.header.chunk_id for each in self.opened().stream("s", policy=policy).chunks()]

    def asked(self) -> int:
        """Bytes of fragments that the bucket gave since the last time."""
        fetched = sum(self.bucket.fetched.values())
        self.bucket.fetched.clear()
        return fetched

    def restarted(self) -> None:
        """Another process: what was in memory is gone."""
        self.memory = MemoryBudget()

    @contextmanager
    def waiting_reader(self) -> Iterator[Generator[object, None, None]]:
        """One that stands at the begin, so that memory keeps for it what others fetch."""
        chunks = self.opened().stream("s").chunks()
        next(chunks)
        yield chunks
        chunks.close()


@pytest.fixture(params=[WHOLE, BY_RANGES], ids=["whole", "by ranges"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, request.param)
    yield made
    made.disk.close()


def test_not_in_disk_asks_the_bucket_for_what_neither_memory_nor_disk_has(site: Site) -> None:
    assert site.read(ReadPolicy.NOT_IN_DISK) == ALL
    assert site.asked() > 0

    site.restarted()

    assert site.read(ReadPolicy.NOT_IN_DISK) == ALL
    assert site.asked() == 0


@pytest.mark.parametrize("policy", [ReadPolicy.NOT_IN_MEM, ReadPolicy.FORCE])
def test_without_the_disk_the_bucket_gives_all_and_the_disk_stays_as_it_was(
    site: Site, policy: ReadPolicy
) -> None:
    assert site.read(policy) == ALL
    cold = site.asked()
    assert (cold > 0, site.disk.held, site.disk.misses) == (True, 0, 0)
    site.read(ReadPolicy.NOT_IN_DISK)
    site.asked()
    held = site.disk.held
    site.restarted()

    assert site.read(policy) == ALL
    assert site.asked() == cold
    assert (site.disk.held, site.disk.hits) == (held, 0)


def test_what_is_in_memory_answers_all_but_force(site: Site) -> None:
    with site.waiting_reader():
        assert site.read(ReadPolicy.NOT_IN_DISK) == ALL
        site.asked()
        for policy in (ReadPolicy.NOT_IN_DISK, ReadPolicy.NOT_IN_MEM, ReadPolicy.DISABLE):
            hits = site.disk.hits
            assert site.read(policy) == ALL
            assert (site.asked(), site.disk.hits) == (0, hits), policy

        assert site.read(ReadPolicy.FORCE) == ALL
        assert site.asked() > 0


def test_what_force_fetches_is_nobody_elses(site: Site) -> None:
    with site.waiting_reader() as behind:
        site.asked()
        assert site.read(ReadPolicy.FORCE) == ALL
        forced = site.asked()

        assert len(list(behind)) == len(ALL) - 1
        assert site.asked() > forced / 2
    assert site.memory.held == 0


def test_disable_reads_what_the_disk_has_with_no_word_to_the_bucket(site: Site) -> None:
    site.read(ReadPolicy.NOT_IN_DISK)
    site.asked()
    site.restarted()

    assert site.read(ReadPolicy.DISABLE) == ALL
    assert site.asked() == 0
    assert site.memory.held == 0


def test_disable_says_what_is_not_kept_and_that_waiting_does_not_help(site: Site) -> None:
    with pytest.raises(NotKeptError, match="read policy disable") as caught:
        site.read(ReadPolicy.DISABLE)

    error = caught.value
    assert (error.stream, error.may_retry) == ("s", False)
    assert error.key is not None
    assert error.key.endswith(".fragment")
    assert error.offset is not None
    assert site.asked() == 0


def test_what_disable_does_not_find_fails_for_nobody_else(site: Site) -> None:
    with site.waiting_reader() as behind:
        with pytest.raises(NotKeptError):
            site.read(ReadPolicy.DISABLE)
        assert len(list(behind)) == len(ALL) - 1


def test_a_disk_whose_bytes_are_damaged_is_no_answer_to_disable(site: Site, tmp_path: Path) -> None:
    site.read(ReadPolicy.NOT_IN_DISK)
    site.restarted()
    site.asked()
    for path in (tmp_path / "cache").iterdir():
        if path.name != ".lock":
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)

    with pytest.raises(NotKeptError):
        site.read(ReadPolicy.DISABLE)
    assert site.read(ReadPolicy.NOT_IN_DISK) == ALL, "and is fetched again where that is allowed"


def test_a_look_at_an_index_keeps_to_the_policy_too(site: Site) -> None:
    stream = site.opened().stream("s", policy=ReadPolicy.DISABLE)
    with pytest.raises(NotKeptError):
        stream.locate(Last())
    forced = site.opened().stream("s", policy=ReadPolicy.FORCE)
    forced.locate(Last())
    once = site.asked()
    forced.locate(Last())
    assert site.asked() == once > 0


def test_without_a_disk_memory_and_bucket_are_what_there_is(site: Site) -> None:
    bucket = site.tier.store
    for policy in ReadPolicy:
        if policy is not ReadPolicy.DISABLE:
            assert answering(bucket, policy) is bucket
    nothing = answering(bucket, ReadPolicy.DISABLE)
    for call in (
        lambda: nothing.get("k", 0, 1),
        lambda: nothing.get_all("k", limit=1),
        lambda: nothing.get_suffix("k", 1),
        lambda: nothing.list("k"),
        lambda: nothing.level("k"),
        lambda: nothing.put("k", b"", write_id="1"),
    ):
        with pytest.raises(NotKeptError):
            call()


def test_the_library_for_asyncio_has_the_same_policies(site: Site) -> None:
    async def read(policy: ReadPolicy) -> list[int]:
        site.disk.close()
        site.open_disk()  # the tier before has left its cache
        async with AsyncRemoteTier(site.opened()) as tier:
            stream = await tier.stream("s", policy=policy)
            return [each.header.chunk_id async for each in stream.chunks(First())]

    with pytest.raises(NotKeptError):
        asyncio.run(read(ReadPolicy.DISABLE))
    assert asyncio.run(read(ReadPolicy.NOT_IN_DISK)) == ALL
    assert asyncio.run(read(ReadPolicy.DISABLE)) == ALL
