"""Look-ups in a tree of all four levels: where they lead, and how many groups they cost."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from coldstream.manifest.root import Root
from coldstream.reader import First, Last, Offset, ReaderSettings, StreamReader, Timestamp
from coldstream.remote.nodes import NodeCache
from tests.support.tier import BRANCHING, Tier, chunk

FRAGMENTS = 2 * BRANCHING**4


class CountingStore:
    """Passes everything on and remembers the keys of what was read whole: roots and groups."""

    def __init__(self, store: object) -> None:
        self.store = store
        self.keys: list[str] = []

    def get_all(self, key: str, *, limit: int) -> bytes:
        self.keys.append(key)
        return self.store.get_all(key, limit=limit)  # type: ignore[attr-defined,no-any-return]

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def groups(self) -> list[str]:
        """Keys of the groups that were read since the last time."""
        found = [key for key in self.keys if key.endswith("group")]
        self.keys.clear()
        return found


class Stream:
    """A tree of four levels whose clock jumps; every fragment has two chunks of two messages."""

    def __init__(self) -> None:
        chance = random.Random(5)
        self.times: list[int] = []
        clock = 1_000_000
        for _ in range(2 * FRAGMENTS):
            clock += chance.choice([1, 5, 20, -7, -300])
            self.times.append(clock)
        self.tier = Tier()
        self.root: Root = self.tier.add_tree(
            "s",
            (
                [chunk(4 * n + 2 * c, b"a", b"b", timestamp=self.times[2 * n + c]) for c in (0, 1)]
                for n in range(FRAGMENTS)
            ),
        )
        self.store = CountingStore(self.tier.store)
        self.tier.store = self.store


@pytest.fixture(scope="module")
def shared() -> Stream:
    return Stream()


@pytest.fixture
def stream(shared: Stream) -> Stream:
    shared.store.keys.clear()
    return shared


def test_the_tree_has_all_four_levels(stream: Stream) -> None:
    assert {entry.kind.level for entry in stream.root.entries} == {0, 1, 2, 3}


def test_any_offset_is_found_with_three_groups_at_the_most(stream: Stream) -> None:
    counts = []
    for offset in range(0, 4 * FRAGMENTS, 3):
        found = next(stream.tier.reader("s").chunks(Offset(offset), Offset(offset + 1)))

        assert found.header.chunk_id == offset - offset % 2
        counts.append(len(stream.store.groups()))
    assert max(counts) == 3
    assert counts[-1] == 0  # the tail lies in the root itself


def test_any_time_is_found_with_three_groups_at_the_most_though_the_clock_jumps(
    stream: Stream,
) -> None:
    counts = []
    for time in range(min(stream.times) - 1, max(stream.times) + 2, 11):
        found = stream.tier.reader("s").locate(Timestamp(time))

        first = next((2 * n for n, each in enumerate(stream.times) if each >= time), None)
        assert found == (4 * FRAGMENTS if first is None else first)
        counts.append(len(stream.store.groups()))
    assert 1 <= max(counts) <= 3


def test_the_last_chunk_costs_no_group(stream: Stream) -> None:
    assert stream.tier.reader("s").locate(Last()) == 4 * FRAGMENTS - 2
    assert stream.store.groups() == []


def test_the_second_look_up_of_any_reader_with_the_same_cache_costs_no_group(
    stream: Stream,
) -> None:
    nodes = NodeCache()
    stream.tier.reader("s", nodes=nodes).locate(Timestamp(stream.times[40]))
    next(stream.tier.reader("s", nodes=nodes).chunks(Offset(0)))
    assert stream.store.groups()

    next(stream.tier.reader("s", nodes=nodes).chunks(Offset(0)))

    assert stream.store.groups() == []


def test_a_read_comes_to_the_groups_one_by_one_and_reads_each_once(stream: Stream) -> None:
    few = ReaderSettings(in_flight=1)
    chunks = stream.tier.reader("s", few).chunks(First())
    next(chunks)
    at_first = stream.store.groups()
    seen = 1 + sum(1 for _ in islice(chunks, 50))
    later = stream.store.groups()
    seen += sum(1 for _ in chunks)
    rest = stream.store.groups()

    assert len(at_first) <= 4
    assert len(later) <= 25
    assert seen == 2 * FRAGMENTS
    everything = [*at_first, *later, *rest]
    assert len(everything) == len(set(everything)) > 80


def test_a_read_that_ends_with_a_group_does_not_ask_for_the_next(stream: Stream) -> None:
    end = 4 * BRANCHING
    chunks = list(stream.tier.reader("s").chunks(First(), Offset(end)))

    assert chunks[-1].header.next_offset == end
    assert len(stream.store.groups()) == 3


def test_readers_share_one_cache_unless_they_are_given_one() -> None:
    tier = Tier()
    tier.add_tree("only_here", [[chunk(n, b"x", timestamp=77)] for n in range(40)])
    tier.store = store = CountingStore(tier.store)

    for _ in range(2):
        reader = StreamReader(tier.store, tier.catalog, "rabbitmq/", "only_here")
        assert len(list(reader.chunks(First()))) == 40

    groups = store.groups()
    assert len(groups) == len(set(groups)) > 0
