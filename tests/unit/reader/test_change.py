"""Reads while others change the manifest: nothing twice, nothing missing, nothing silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from coldstream.errors import CorruptDataError, LostRangeError, NotFoundError, UnavailableError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entry
from coldstream.manifest.root import Root
from coldstream.manifest.tree import nodes
from coldstream.manifest.walk import object_path
from coldstream.osiris.chunk import iter_chunks
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.plans.splice import splice
from coldstream.reader import First, Gap, GapReason, Offset, ReaderSettings, Timestamp
from coldstream.reader.follow import Followed
from coldstream.remote.roots import Snapshot
from tests.support.tier import BRANCHING, PREFIX, SMALL, Tier, chunk

FRAGMENTS = 45
CHUNKS = 2 * FRAGMENTS
END = 4 * FRAGMENTS
ONE_BY_ONE = replace(SMALL, in_flight=1)
BY_RANGES = ReaderSettings(range_size=1, first_range_size=1, in_flight=1, index_guess=1)


class Stream:
    """Two chunks of two messages a fragment, in groups and kilo-groups of four."""

    def __init__(self) -> None:
        self.tier = Tier()
        self.chunks = [
            chunk(2 * n, b"a%d" % n, b"b", timestamp=1000 + 10 * n) for n in range(CHUNKS)
        ]
        self.root = self.tier.add_tree("s", [self.chunks[n : n + 2] for n in range(0, CHUNKS, 2)])
        self.referred: set[str] = self.keys(self.root)

    def keys(self, root: Root) -> set[str]:
        fetch = self.tier.fetch("s")
        entries = [*nodes(root.entries, fetch), *self.tier.leaves("s", root)]
        return {object_path(PREFIX, "s", entry) for entry in entries}

    def change(self, root: Root) -> None:
        """What `collect` does in the end: everything that only older roots refer to is gone."""
        self.root = root
        now = self.keys(root)
        for key in self.referred - now:
            self.tier.store.objects.pop(key, None)
        self.referred = now

    def consolidate(self, length: int = 3) -> None:
        """Every `length` neighbours become one fragment."""
        tier, new = self.tier, list[Entry]()
        for at in range(0, CHUNKS, 2 * length):
            new.append(tier.upload("s", self.chunks[at : at + 2 * length], epoch=1, floor=0))
        change = splice(self.root, new, branching=BRANCHING, fetch=tier.fetch("s"), uids=tier.uids)
        self.change(tier.publish("s", change))

    def retain(self, fragments: int) -> None:
        """All but the last `fragments` go."""
        size = sum(e.size for e in self.tier.leaves("s", self.root)[-fragments:])
        fetch = self.tier.fetch("s")
        plan = plan_retention(self.root, RetentionLimits(max_bytes=size), now_ms=0, fetch=fetch)
        self.change(self.tier.commit("s", plan.root))


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_the_tree_under_test_has_kilo_groups(stream: Stream) -> None:
    assert {entry.kind.level for entry in stream.root.entries} == {0, 1, 2}


@pytest.mark.parametrize("settings", [ONE_BY_ONE, SMALL, BY_RANGES], ids=["one", "few", "ranges"])
@pytest.mark.parametrize("length", [2, 3, 20])
def test_consolidation_under_a_read_at_any_chunk_leaves_every_byte_once(
    settings: ReaderSettings, length: int
) -> None:
    for position in range(0, CHUNKS + 1, 1 if length == 3 else 7):
        stream = Stream()
        chunks = stream.tier.reader("s", settings).chunks(First())
        seen = [bytes(next(chunks).buffer) for _ in range(position)]

        stream.consolidate(length)
        seen += [bytes(each.buffer) for each in chunks]

        assert seen == stream.chunks, position


def test_messages_go_on_at_the_very_message_after_consolidation() -> None:
    for position in range(0, END, 5):
        stream = Stream()
        messages = stream.tier.reader("s", ONE_BY_ONE).messages(Offset(3), Offset(END - 1))
        seen = [next(messages).offset for _ in range(min(position, END - 4))]

        stream.consolidate()
        seen += [each.offset for each in messages]

        assert seen == list(range(3, END - 1))


@pytest.mark.parametrize("left", [1, 7, 30, 44])
def test_retention_under_a_read_is_a_gap_that_the_new_manifest_proves(left: int) -> None:
    for position in range(1, CHUNKS, 4):
        stream = Stream()
        gaps: list[Gap] = []
        chunks = stream.tier.reader("s", ONE_BY_ONE).chunks(First(), on_gap=gaps.append)
        seen = [(0, 0)] * 0
        seen += [_range(next(chunks).buffer) for _ in range(position)]

        stream.retain(left)
        seen += [_range(each.buffer) for each in chunks]

        told = [(gap.first_offset, gap.next_offset) for gap in gaps]
        _assert_tiled(sorted(seen + told))
        assert seen == sorted(seen)
        assert {gap.reason for gap in gaps} <= {GapReason.RETENTION}
        assert all(gap.next_offset == stream.root.first_offset for gap in gaps)


def _range(buffer: object) -> tuple[int, int]:
    header = next(iter_chunks(bytes(buffer))).header  # type: ignore[call-overload]
    return header.chunk_id, header.next_offset


def _assert_tiled(ranges: list[tuple[int, int]]) -> None:
    at = 0
    for first, next_offset in ranges:
        assert first == at
        at = next_offset
    assert at == END


def test_retention_under_a_read_stops_it_unless_somebody_listens(stream: Stream) -> None:
    messages = stream.tier.reader("s", ONE_BY_ONE).messages(First())
    next(messages)

    stream.retain(2)

    with pytest.raises(LostRangeError, match="removed by retention"):
        list(messages)


def test_a_read_goes_on_when_only_its_groups_were_collected(stream: Stream) -> None:
    for position in range(0, CHUNKS, 9):
        stream = Stream()
        chunks = stream.tier.reader("s", ONE_BY_ONE).chunks(First())
        seen = [bytes(next(chunks).buffer) for _ in range(position)]

        # The same fragments under other groups: the old ones are gone, the fragments are not.
        same = stream.tier.leaves("s", stream.root)
        change = splice(
            stream.root, same, branching=3, fetch=stream.tier.fetch("s"), uids=stream.tier.uids
        )
        stream.change(stream.tier.publish("s", change))
        seen += [bytes(each.buffer) for each in chunks]

        assert seen == stream.chunks


def test_a_look_up_by_time_goes_on_when_its_groups_are_collected_under_it(
    stream: Stream,
) -> None:
    reader = stream.tier.reader("s")
    get_all = stream.tier.store.get_all

    def consolidate_first(key: str, *, limit: int) -> bytes:
        if key.endswith("group"):
            stream.tier.store.get_all = get_all
            stream.consolidate()
        return get_all(key, limit=limit)

    stream.tier.store.get_all = consolidate_first

    assert reader.locate(Timestamp(1195)) == 40


@pytest.fixture(params=["group", "fragment"])
def missing(request: pytest.FixtureRequest, stream: Stream) -> str:
    """The key of an object that is gone although the manifest refers to it."""
    leaf = stream.tier.leaves("s", stream.root)[8]
    group = next(
        e
        for e in nodes(stream.root.entries, stream.tier.fetch("s"))
        if e.first_offset == leaf.first_offset and e.kind.level == 1
    )
    key = object_path(PREFIX, "s", group if request.param == "group" else leaf)
    del stream.tier.store.objects[key]
    return key


@pytest.mark.parametrize("settings", [ONE_BY_ONE, SMALL, BY_RANGES], ids=["one", "few", "ranges"])
def test_an_object_that_is_missing_from_the_newest_manifest_is_an_error_in_its_turn(
    stream: Stream, missing: str, settings: ReaderSettings
) -> None:
    seen: list[int] = []

    with pytest.raises(NotFoundError) as caught:
        seen.extend(m.offset for m in stream.tier.reader("s", settings).messages(First()))

    assert seen == list(range(32))
    assert (caught.value.stream, caught.value.offset, caught.value.key) == ("s", 32, missing)


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.DELETED])
def test_an_object_that_is_missing_from_a_deleted_stream_is_no_loss_of_data(
    stream: Stream, missing: str, state: StreamState
) -> None:
    """It was said that an object was gone, as if it had been lost."""
    items, seen = stream.tier.catalog.items, list[int]()

    def read() -> None:
        for message in stream.tier.reader("s", ONE_BY_ONE).messages(First()):
            items["s"] = replace(items["s"], state=state)
            seen.append(message.offset)

    with pytest.raises(NotFoundError, match="was deleted") as caught:
        read()

    assert seen == list(range(32))
    assert (caught.value.stream, caught.value.key) == ("s", None)


def test_a_refresh_that_leads_to_the_same_missing_object_is_an_error(
    stream: Stream, missing: str
) -> None:
    stream.tier.catalog = Restless(stream)  # type: ignore[assignment]

    with pytest.raises(NotFoundError) as caught:
        list(stream.tier.reader("s").chunks(First()))
    with pytest.raises(NotFoundError):
        stream.tier.reader("s").locate(Timestamp(1160))

    assert caught.value.key == missing
    assert stream.tier.catalog.looks < 10  # type: ignore[attr-defined]


class Restless:
    """A catalog of which every look shows another root, as under a busy writer."""

    def __init__(self, stream: Stream) -> None:
        self.catalog = stream.tier.catalog
        self.commit: Callable[[], object] = lambda: Tier.commit(inner, "s", stream.root)
        inner = Tier(stream.tier.store, self.catalog, stream.tier.uids)
        self.looks = 0

    def get(self, name: str) -> object:
        self.looks += 1
        self.commit()
        return self.catalog.get(name)


def test_a_read_gives_up_when_every_manifest_leads_to_another_missing_object(
    stream: Stream,
) -> None:
    looks = 0
    get = stream.tier.catalog.get

    def consolidate_and_lose(name: str) -> object:
        nonlocal looks
        looks += 1
        if looks > 1:
            stream.tier.catalog.get = get  # type: ignore[method-assign]
            stream.consolidate(1)
            stream.tier.catalog.get = consolidate_and_lose  # type: ignore[method-assign,assignment]
            for key in [k for k in stream.tier.store.objects if k.endswith(".fragment")]:
                del stream.tier.store.objects[key]
        return get(name)

    stream.tier.catalog.get = consolidate_and_lose  # type: ignore[method-assign,assignment]
    chunks = stream.tier.reader("s", ONE_BY_ONE).chunks(First())
    for key in [k for k in stream.tier.store.objects if k.endswith(".fragment")]:
        del stream.tier.store.objects[key]

    with pytest.raises(NotFoundError):
        next(chunks)
    assert looks < 30


def test_a_damaged_group_is_told_after_everything_before_it(stream: Stream) -> None:
    entry = next(
        e for e in nodes(stream.root.entries, stream.tier.fetch("s")) if e.first_offset == 32
    )
    key = object_path(PREFIX, "s", entry)
    stream.tier.flip(key, 100)
    seen: list[int] = []

    with pytest.raises(CorruptDataError) as caught:
        seen.extend(m.offset for m in stream.tier.reader("s").messages(First()))

    assert seen == list(range(32))
    assert (caught.value.stream, caught.value.offset, caught.value.key) == ("s", 32, key)


def test_a_manifest_that_has_grown_old_is_refreshed_at_the_next_fragment(stream: Stream) -> None:
    hour = 0.0
    reader = stream.tier.reader("s", ONE_BY_ONE, clock=lambda: 3600 * hour)
    gaps: list[Gap] = []
    chunks = reader.chunks(First(), on_gap=gaps.append)
    seen = [next(chunks).header.chunk_id]
    first, stream.referred = stream.root, set()  # nothing is collected: the old manifest would do
    stream.retain(10)

    seen += [next(chunks).header.chunk_id for _ in range(4)]
    assert seen == [0, 2, 4, 6, 8]
    hour = 1.0
    seen += [each.header.chunk_id for each in chunks]

    begin = stream.root.first_offset
    assert first.first_offset < begin == END - 40
    assert seen == [0, 2, 4, 6, 8, 10, *range(begin, END, 2)]  # the fragment is read to its end
    assert gaps == [Gap(12, begin, GapReason.RETENTION)]


def test_a_refresh_that_shows_the_same_root_changes_nothing(stream: Stream) -> None:
    looks = 0
    get = stream.tier.catalog.get

    def counting(name: str) -> object:
        nonlocal looks
        looks += 1
        return get(name)

    stream.tier.catalog.get = counting  # type: ignore[method-assign,assignment]
    clock = count(0, 1800)
    reader = stream.tier.reader("s", ONE_BY_ONE, clock=lambda: float(next(clock)))

    assert [bytes(each.buffer) for each in reader.chunks(First())] == stream.chunks
    assert FRAGMENTS // 3 <= looks <= FRAGMENTS


def test_a_read_comes_to_its_end_though_every_refresh_shows_another_root(stream: Stream) -> None:
    stream.tier.catalog = Restless(stream)  # type: ignore[assignment]
    settings = replace(ONE_BY_ONE, refresh_seconds=0)

    chunks = stream.tier.reader("s", settings).chunks(First())

    assert [bytes(each.buffer) for each in chunks] == stream.chunks


def test_an_object_that_is_gone_is_asked_for_in_a_newer_manifest_though_one_question_got_no_answer(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, it came to the same object, and took it for one that no manifest explains."""
    catalog = stream.tier.catalog
    get, lost = catalog.get, [UnavailableError("the table does not answer")]

    def answered(name: str) -> CatalogItem | None:
        if lost:
            raise lost.pop()
        return get(name)

    messages = stream.tier.reader("s", ONE_BY_ONE).follow(
        First(), lambda: False, again=lambda _: True
    )
    seen = [next(messages).offset for _ in range(10)]
    stream.consolidate()
    monkeypatch.setattr(catalog, "get", answered)
    seen += [each.offset for each in messages]

    assert not lost
    assert seen == list(range(END))


def test_a_manifest_is_as_old_as_it_was_where_the_question_for_a_newer_one_got_no_answer(
    stream: Stream,
) -> None:
    now, reader = [0.0], stream.tier.reader("s")
    lost: list[UnavailableError] = []

    def load() -> Snapshot:
        if lost:
            raise lost.pop()
        return reader.snapshot()

    manifest = Followed(load, lambda: now[0], 10)
    stream.consolidate()
    now[0], lost = 10, [UnavailableError("the table does not answer")]
    with pytest.raises(UnavailableError):
        manifest.grown_old()

    assert manifest.grown_old()
