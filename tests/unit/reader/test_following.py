"""A read without an end: every offset once, in order, while others commit, cut off and retain."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coldstream.errors import LostRangeError, NotFoundError, UnavailableError
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.osiris.bloom import FilterMatcher, encode_bloom
from coldstream.reader import First, Gap, GapReason, Next, Offset, OffsetSpec, ReaderSettings
from coldstream.reader.stream import StreamReader
from coldstream.remote.nodes import NodeCache
from coldstream_devkit.generator import build_chunk
from tests.support.tier import PREFIX, Tier, chunk

Change = Callable[[Tier, Root], Root]
ONE_BY_ONE = ReaderSettings(in_flight=1)


def data(at: int, count: int = 2, word: bytes = b"old", epoch: int = 1) -> bytes:
    return chunk(at, *[word + b"%d" % n for n in range(at, at + count)], epoch=epoch)


def append(*chunks: bytes, epoch: int = 1) -> Change:
    def change(tier: Tier, root: Root) -> Root:
        entry = tier.upload("s", list(chunks), epoch=epoch, floor=0)
        entries = Entries.of([*root.entries, entry])
        return tier.commit("s", replace(root, next_offset=entry.next_offset, entries=entries))

    return change


def cut(at: int, *chunks: bytes) -> Change:
    """A claim of the next epoch that cuts off all from an offset on, and begins anew there."""

    def change(tier: Tier, root: Root) -> Root:
        epoch = root.epoch + 1
        kept = [each for each in root.entries if each.next_offset <= at]
        fresh = [tier.upload("s", [each], epoch=epoch, floor=at) for each in chunks]
        ledger = Ledger.of([*((c.epoch, c.floor) for c in root.ledger.claims), (epoch, at)])
        entries = Entries.of([*kept, *fresh])
        end = fresh[-1].next_offset if fresh else at
        return tier.commit(
            "s", replace(root, next_offset=end, epoch=epoch, ledger=ledger, entries=entries)
        )

    return change


def retain(first: int) -> Change:
    def change(tier: Tier, root: Root) -> Root:
        kept = [each for each in root.entries if each.next_offset > first]
        return tier.commit("s", replace(root, first_offset=first, entries=Entries.of(kept)))

    return change


def followed(
    tier: Tier, root: Root, spec: OffsetSpec, changes: Iterable[Change]
) -> list[bytes | Gap]:
    """What a reader gets that looks again after each change."""
    left, found = iter(changes), list[bytes | Gap]()

    def wait() -> bool:
        nonlocal root
        change = next(left, None)
        if change is None:
            return False
        root = change(tier, root)
        return True

    with closing(tier.reader("s").follow(spec, wait, on_gap=found.append)) as messages:
        found += (bytes(each.body) for each in messages)
    return found


def test_what_comes_is_given_once_and_a_look_in_vain_changes_nothing() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)]])
    idle: Change = lambda _, root: root  # noqa: E731

    found = followed(tier, root, First(), [idle, append(data(2)), idle, append(data(4))])

    assert found == [b"old%d" % n for n in range(6)]


def test_a_reader_that_waits_at_the_end_gets_only_what_comes() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)]])

    assert followed(tier, root, Next(), [append(data(2))]) == [b"old2", b"old3"]


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.DELETED])
def test_who_waits_at_the_end_is_told_when_the_stream_is_deleted_and_gets_all_before(
    state: StreamState,
) -> None:
    """He waited for ever, also when a queue of that name was declared anew."""
    tier, found = Tier(), list[bytes]()
    root = tier.add("s", [[data(0)]])

    def delete(tier: Tier, root: Root) -> Root:
        root = append(data(2))(tier, root)
        tier.catalog.items["s"] = replace(tier.catalog.items["s"], state=state)
        return root

    changes = iter([delete, lambda _, root: root])
    messages = tier.reader("s").follow(First(), lambda: bool(next(changes)(tier, root)))
    with pytest.raises(NotFoundError, match="was deleted"):
        found.extend(bytes(each.body) for each in messages)

    assert found == [b"old0", b"old1", b"old2", b"old3"]


def test_what_was_read_and_is_cut_off_is_told_and_no_offset_comes_twice() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)], [data(2)], [data(4)]])
    changes = [
        cut(2, data(2, 2, b"new", 2)),  # ends below what was read
        append(data(4, 4, b"new", 2), epoch=2),  # and grows beyond it inside a chunk
    ]

    found = followed(tier, root, First(), changes)

    assert found == [
        *(b"old%d" % n for n in range(6)), Gap(2, 6, GapReason.TRUNCATION), b"new6", b"new7",
    ]  # fmt: skip


def test_what_a_deleted_stream_had_lost_before_is_told_before_its_end() -> None:
    tier, found = Tier(), list[bytes | Gap]()
    root = tier.add("s", [[data(0)], [data(2)]])

    def cut_and_delete() -> bool:
        cut(2)(tier, root)
        tier.catalog.items["s"] = replace(tier.catalog.items["s"], state=StreamState.DELETING)
        return True

    messages = tier.reader("s").follow(First(), cut_and_delete, on_gap=found.append)
    with pytest.raises(NotFoundError, match="was deleted"):
        found.extend(bytes(each.body) for each in messages)

    assert found == [*(b"old%d" % n for n in range(4)), Gap(2, 4, GapReason.TRUNCATION)]


def test_a_cut_above_what_the_read_is_about_is_no_news() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)], [data(2)]])
    changes = [cut(2, data(2, 2, b"new", 2)), append(data(4, 2, b"new", 2), epoch=2)]

    assert followed(tier, root, Offset(4), changes) == [b"new4", b"new5"]


def test_a_second_cut_is_told_as_the_first_was() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)], [data(2)]])
    changes = [cut(2, data(2, 2, b"b", 2), data(4, 2, b"b", 2)), cut(4, data(4, 4, b"c", 3))]

    found = followed(tier, root, First(), changes)

    assert found == [
        b"old0", b"old1", b"old2", b"old3", Gap(2, 4, GapReason.TRUNCATION), b"b4", b"b5",
        Gap(4, 6, GapReason.TRUNCATION), b"c6", b"c7",
    ]  # fmt: skip


def test_what_retention_takes_before_it_was_read_is_told() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)]])
    late: Change = lambda tier, root: retain(6)(  # noqa: E731
        tier, append(data(6))(tier, append(data(2), data(4))(tier, root))
    )

    found = followed(tier, root, First(), [late])

    assert found == [b"old0", b"old1", Gap(2, 6, GapReason.RETENTION), b"old6", b"old7"]


def test_a_hole_in_what_comes_is_told_or_refused() -> None:
    tier = Tier()
    root = tier.add("s", [[data(0)]])

    def hole(tier: Tier, root: Root) -> Root:
        entries = [*root.entries, tier.hole(2, 5), tier.upload("s", [data(5)], epoch=1, floor=0)]
        return tier.commit("s", replace(root, next_offset=7, entries=Entries.of(entries)))

    assert followed(tier, root, First(), [hole]) == [b"old0", b"old1", Gap(2, 5), b"old5", b"old6"]
    with closing(tier.reader("s").follow(First(), lambda: False)) as messages:
        assert [next(messages).offset, next(messages).offset] == [0, 1]
        with pytest.raises(LostRangeError):
            next(messages)


def test_a_filter_passes_over_chunks_that_come() -> None:
    tier = Tier()
    made = [
        build_chunk(at, 1, 1, [b"x"], bloom=encode_bloom([v])) for at, v in enumerate([b"a", b"b"])
    ]
    tier.add("s", [[each] for each in made])
    matcher = FilterMatcher((b"b",))

    with closing(tier.reader("s").follow(First(), lambda: False, matcher=matcher)) as messages:
        assert [each.offset for each in messages] == [1]


@dataclass
class Failing:
    """A store or catalog that gives no answer to some of its calls, counted from when it is told.

    Attributes:
        whole: what answers all others.
        calls: so far, of both that share this.
        fails: which of them.
    """

    whole: Any
    calls: list[int]
    fails: Container[int]

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self.whole, name)

        def call(*args: Any, **named: Any) -> Any:
            self.calls[0] += 1
            if self.calls[0] in self.fails:
                raise UnavailableError("no answer")
            return answer(*args, **named)

        return call if callable(answer) else answer


def followed_through(fails: Container[int], again: bool) -> tuple[list[bytes | Gap], int]:
    """What comes of a stream that grows, is cut off and retained; and how many calls it took."""
    tier, found, calls = Tier(), list[bytes | Gap](), [-(10**6)]
    root = tier.add("s", [[data(0), data(2)], [data(4)]])
    changes = iter(
        [
            append(data(6), data(8)),
            cut(6, data(6, 4, b"new", 2)),
            append(data(10, 2, b"new", 2), data(12, 2, b"new", 2), epoch=2),
        ]
    )

    def wait() -> bool:
        nonlocal root
        change = next(changes, None)
        if change is not None:
            root = change(tier, root)
        return change is not None

    store, catalog = (Failing(each, calls, fails) for each in (tier.store, tier.catalog))
    reader = StreamReader(store, catalog, PREFIX, "s", settings=ONE_BY_ONE, nodes=NodeCache())
    messages = reader.follow(First(), wait, on_gap=found.append, again=lambda _: again)
    calls[0] = 0
    with closing(messages):
        found += (bytes(each.body) for each in messages)
    return found, calls[0]


def test_each_offset_comes_once_whichever_calls_get_no_answer() -> None:
    whole, calls = followed_through((), again=False)
    assert whole == [
        *(b"old%d" % n for n in range(10)), Gap(6, 10, GapReason.TRUNCATION),
        *(b"new%d" % n for n in range(10, 14)),
    ]  # fmt: skip
    for first in range(1, calls + 1):
        for more in (1, 2, 5):
            assert followed_through(range(first, first + more), again=True)[0] == whole
        with pytest.raises(UnavailableError):
            followed_through((first,), again=False)
