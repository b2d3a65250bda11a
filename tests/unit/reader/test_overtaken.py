"""A slow reader that follows, while the stream grows, is cut off and retained under it.

Each offset from its first message on is given once, in order, or told; whatever happens between two
messages, and however often within one pass.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from coldstream.manifest.root import Root
from coldstream.osiris.chunk import iter_chunks
from coldstream.reader import First, Gap, Last, Offset, OffsetSpec, ReaderSettings
from coldstream.reader.library import Stream
from tests.support.slow import in_part_and_in_full
from tests.support.tier import Tier
from tests.unit.reader.test_following import append, cut, data, followed, retain


@pytest.mark.parametrize("how", ["the manifest has grown old", "objects are gone"])
def test_all_that_retention_took_beyond_the_end_of_a_pass_is_told(how: str) -> None:
    """It was told up to the end that the reader had in mind, and it went on behind all of it."""
    tier, refresh = Tier(), 3600 if how == "objects are gone" else 0
    root = tier.add("s", [[data(at)] for at in range(0, 10, 2)])
    stream = Stream(tier.reader("s", ReaderSettings(in_flight=1, refresh_seconds=refresh)))
    found: list[int | Gap] = []
    with closing(stream.events("first", follow=True, poll_seconds=0.01)) as events:
        for each in events:
            found.append(each if isinstance(each, Gap) else each.offset)
            if found == [0, 1]:
                for at in range(10, 30, 2):
                    root = append(data(at))(tier, root)
                gone = [entry for entry in root.entries if entry.first_offset < 20]
                root = retain(20)(tier, root)
                for entry in gone if refresh else ():
                    tier.store.objects.pop(entry.data_key("s").path("rabbitmq/"), None)
            if found[-1] == 29:
                break

    assert not untold(found, 0)
    # What was fetched ahead may be given, too.
    given = [each for each in found if isinstance(each, int)]
    assert given == sorted(set(given))
    assert given[-10:] == [*range(20, 30)]


def test_a_second_cut_takes_no_reader_back() -> None:
    tier = Tier()
    root = tier.add("s", [[data(at)] for at in range(0, 10, 2)])
    changes = [
        cut(4),
        cut(2, data(2, 6, b"new", 3)),
        append(data(8, 4, b"new", 3), epoch=3),
    ]

    found = followed(tier, root, First(), changes)

    given = [each for each in found if isinstance(each, bytes)]
    assert given == [*(b"old%d" % n for n in range(10)), b"new10", b"new11"]


def test_no_offset_comes_twice_though_two_claims_come_in_one_pass() -> None:
    tier = Tier()
    root = tier.add("s", [[data(at)] for at in range(0, 20, 2)])
    looks = iter([True, False])
    found: list[int | Gap] = []
    reader = tier.reader("s", ReaderSettings(in_flight=1, refresh_seconds=0))
    with closing(reader.follow(First(), lambda: next(looks), on_gap=found.append)) as messages:
        for each in messages:
            found.append(each.offset)
            if each.offset == 2:
                root = cut(10)(tier, root)
            if each.offset == 6:
                root = cut(8, data(8, 6, b"new", 3))(tier, root)

    given = [each for each in found if isinstance(each, int)]
    assert given == sorted(set(given))
    assert not untold(found, 0)


def test_nothing_below_where_a_read_is_to_begin_is_given_though_it_is_not_there_yet() -> None:
    """Whoever began above the end was given what came first, from the end on."""
    tier = Tier()
    root = tier.add("s", [[data(0, 10)]])

    found = followed(tier, root, Offset(15), [append(data(10, 4)), append(data(14, 4))])

    assert found == [b"old15", b"old16", b"old17"]


def test_of_what_retention_takes_below_where_a_read_is_to_begin_nobody_is_told() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0, 4)]])

    found = followed(
        tier, root, Offset(8), [append(data(4, 2), data(6, 4)), retain(6), append(data(10))]
    )

    assert found == [b"old8", b"old9", b"old10", b"old11"]


def untold(found: list[int | Gap], first: int) -> set[int]:
    """The offsets up to the last that was given which were neither given nor told."""
    given = [each for each in found if isinstance(each, int)]
    told = [each for each in found if isinstance(each, Gap)]
    left = set(range(first, given[-1] + 1 if given else first)) - set(given)
    return left.difference(*(range(gap.first_offset, gap.next_offset) for gap in told))


@dataclass
class History:
    """A stream to which anything happens."""

    rng: random.Random
    tier: Tier = field(default_factory=Tier)

    def __post_init__(self) -> None:
        groups, at = [], 0
        for _ in range(self.rng.randint(1, 6)):
            groups.append(list(self._chunks(at, 1, self.rng.randint(1, 3))))
            at = end_of(groups[-1][-1])
        self.root: Root = self.tier.add("s", groups)

    def _chunks(self, at: int, epoch: int, count: int) -> Iterator[bytes]:
        for _ in range(count):
            made = data(at, self.rng.randint(1, 5), b"%d." % epoch, epoch)
            at = end_of(made)
            yield made

    def change(self) -> None:
        """A commit, a claim that cuts off, or retention."""
        self.rng.choices([self._append, self._cut, self._retain], [5, 3, 2])[0]()

    def _append(self) -> None:
        epoch = self.root.epoch
        made = self._chunks(self.root.next_offset, epoch, self.rng.randint(1, 3))
        self.root = append(*made, epoch=epoch)(self.tier, self.root)

    def _cut(self) -> None:
        floor = self.rng.choice([entry.next_offset for entry in self.root.entries][-4:])
        made = list(self._chunks(floor, self.root.epoch + 1, self.rng.randint(0, 3)))
        if made or self.root.entries[0].next_offset <= floor:
            self.root = cut(floor, *made)(self.tier, self.root)

    def _retain(self) -> None:
        if len(self.root.entries) > 1:
            at = self.rng.randint(1, len(self.root.entries) - 1)
            self.root = retain(self.root.entries[at].first_offset)(self.tier, self.root)


def end_of(data: bytes) -> int:
    return next(iter_chunks(data)).header.next_offset


def events(seed: int) -> tuple[list[int | Gap], int]:
    """What a reader is given and told in one history, and where it began."""
    rng = random.Random(seed)
    history = History(rng)
    settings = ReaderSettings(in_flight=rng.choice([1, 3]), refresh_seconds=rng.choice([0, 1e9]))
    spec: OffsetSpec = rng.choice(
        [First(), Last(), Offset(rng.randint(0, history.root.next_offset))]
    )
    looks = iter([*[True] * rng.randint(3, 12), False])
    found: list[int | Gap] = []

    def wait() -> bool:
        for _ in range(rng.randint(0, 2)):
            history.change()
        return next(looks)

    reader = history.tier.reader("s", settings)
    begin = reader.locate(spec)
    with closing(reader.follow(spec, wait, on_gap=found.append)) as messages:
        for each in messages:
            found.append(each.offset)
            if rng.random() < 0.25:
                history.change()
    return found, begin


@in_part_and_in_full
def test_whatever_happens_each_offset_is_given_once_and_in_order_or_told(full: bool) -> None:
    for seed in range(1500 if full else 150):
        found, begin = events(seed)
        given = [each for each in found if isinstance(each, int)]
        assert given == sorted(set(given)), seed
        assert not untold(found, begin), seed
