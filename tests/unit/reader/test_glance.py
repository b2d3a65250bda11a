"""Reads whose catalog item tells them enough of the manifest to begin without its root."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.outline import MOST, Outline
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.reader import First, Last, Next, Offset, ReaderSettings, Timestamp
from coldstream.remote.roots import Snapshots
from tests.support.tier import PREFIX, SMALL, Tier, chunk
from tests.unit.reader.test_look_up import FRAGMENTS, Stream

END = 4 * FRAGMENTS


@pytest.fixture
def stream() -> Stream:
    """A tree of four levels; every chunk has two messages, every fragment two chunks."""
    made = Stream()
    made.store.keys.clear()
    return made


def roots(stream: Stream) -> list[str]:
    """Keys of the roots that were read so far."""
    return [key for key in stream.store.keys if key.endswith(".manifest")]


def item_of(stream: Stream) -> CatalogItem:
    return stream.tier.catalog.items["s"]


def told(stream: Stream) -> int:
    """The offset up to which the item tells of the manifest."""
    part = item_of(stream).old_part()
    assert part is not None
    return part.next_offset


@pytest.mark.parametrize("spec", [First(), Offset(0), Offset(701), Timestamp(0)], ids=str)
def test_a_read_of_old_history_needs_no_root_for_its_first_chunk(
    stream: Stream, spec: Offset | First | Timestamp
) -> None:
    chunks = stream.tier.reader("s").chunks(spec)
    next(chunks)
    assert roots(stream) == []

    for _ in range(8):
        next(chunks)
    assert len(roots(stream)) == 1, "and then the item is held against its root, once"
    chunks.close()


class Ordered:
    """Passes everything on, and remembers in which order objects were asked for."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: list[str] = []

    def get(self, key: str, start: int, end: int) -> Any:
        self.asked.append("chunks")
        return self._store.get(key, start, end)

    def get_suffix(self, key: str, length: int) -> Any:
        self.asked.append("index")
        return self._store.get_suffix(key, length)

    def get_all(self, key: str, *, limit: int) -> Any:
        self.asked.append("root" if key.endswith(".manifest") else "group")
        return self._store.get_all(key, limit=limit)


def test_nothing_is_asked_for_before_what_the_first_chunk_needs(stream: Stream) -> None:
    """The indexes of the next two fragments were, and where they begin a group, that group."""
    stream.tier.store = store = Ordered(stream.tier.store)
    ranges = replace(SMALL, range_size=80, first_range_size=80, pool=lambda _: one_after_another())
    for offset in range(0, END, 37):
        store.asked.clear()
        chunks = stream.tier.reader("s", ranges).chunks(Offset(offset))
        next(chunks)
        chunks.close()

        before = store.asked[: store.asked.index("chunks")]
        assert before.count("index") == 1
        assert before.count("group") <= 3
        assert before.count("root") == (0 if offset < told(stream) else 1)


def test_the_first_three_ranges_are_asked_for_before_what_only_later_fragments_need() -> None:
    tier = Tier()
    tier.add("s", [[chunk(n, bytes(300)) for n in range(k, k + 20)] for k in (0, 20, 40)])
    tier.store = store = Ordered(tier.store)
    ranges = ReaderSettings(
        range_size=600, first_range_size=600, pool=lambda _: one_after_another()
    )

    found = tier.reader("s", ranges).chunks(First())
    assert sum(1 for _ in found) == 60

    begun = store.asked.index("index")
    assert store.asked[begun : begun + 5] == ["index", "chunks", "chunks", "chunks", "index"]


def one_after_another() -> Executor:
    return ThreadPoolExecutor(1)


@pytest.mark.parametrize("spec", [Last(), Next(), Offset(END - 1)], ids=str)
def test_what_the_item_does_not_tell_the_root_tells(
    stream: Stream, spec: Last | Next | Offset
) -> None:
    found = stream.tier.reader("s").locate(spec)

    assert found == {Last(): END - 2, Next(): END}.get(spec, END - 1)  # type: ignore[call-overload]


def test_a_read_over_the_end_of_what_the_item_tells_gives_each_chunk_once(stream: Stream) -> None:
    border = told(stream)
    assert 0 < border < END

    found = [each.header.chunk_id for each in stream.tier.reader("s").chunks(Offset(border - 99))]

    assert found == list(range(border - 100, END, 2))
    inside = stream.tier.reader("s").chunks(Offset(border - 9), Offset(border - 4))
    assert [each.header.chunk_id for each in inside] == list(range(border - 10, border - 4, 2))


def test_a_read_goes_on_though_its_root_was_collected_before_it_was_needed(stream: Stream) -> None:
    first_root = item_of(stream).root_key
    chunks = stream.tier.reader("s").chunks(First())
    assert next(chunks).header.chunk_id == 0

    stream.tier.commit("s", stream.root)
    del stream.tier.store.store.objects[first_root]

    assert [each.header.chunk_id for each in chunks] == list(range(2, END, 2))


def test_an_item_that_its_root_contradicts_is_found_out_behind_the_first_chunks(
    stream: Stream,
) -> None:
    item = item_of(stream)
    stream.tier.catalog.items["s"] = replace(item, next_offset=item.next_offset + 2)

    chunks = stream.tier.reader("s").chunks(First())
    with pytest.raises(CorruptDataError, match="the catalog item says") as caught:
        list(chunks)

    assert caught.value.key == item.root_key


def test_an_item_that_tells_other_entries_than_its_root_has_is_found_out(stream: Stream) -> None:
    item = item_of(stream)
    entries = item.outline.entries
    forged = replace(item, outline=Outline(item.uid, entries.part(0, len(entries) - 1)))
    stream.tier.catalog.items["s"] = forged
    assert Snapshots(stream.store, stream.tier.catalog, PREFIX).load("s").item == forged

    stream.tier.catalog.items["s"] = replace(
        item, outline=Outline(item.uid, entries.part(1)), first_offset=entries[1].first_offset
    )
    with pytest.raises(CorruptDataError):
        Snapshots(stream.store, stream.tier.catalog, PREFIX).load("s")


def test_an_item_that_another_release_has_moved_tells_nothing_of_the_old_root(
    stream: Stream,
) -> None:
    """It has set all but the outline, which it does not know."""
    old = item_of(stream).outline
    stream.tier.commit("s", stream.root)
    stream.tier.catalog.items["s"] = replace(item_of(stream), outline=old)

    assert item_of(stream).old_part() is None
    assert next(stream.tier.reader("s").chunks(Offset(7))).header.chunk_id == 6
    assert len(roots(stream)) == 1


def test_what_retention_has_ended_within_is_not_read_though_the_item_tells_its_group(
    stream: Stream,
) -> None:
    limits = RetentionLimits(max_bytes=stream.root.total_size * 2 // 3)
    plan = plan_retention(stream.root, limits, now_ms=0, fetch=stream.tier.fetch("s"))
    root = stream.tier.commit("s", plan.root)
    part = item_of(stream).old_part()
    assert part is not None
    assert part.entries[0].first_offset < root.first_offset < part.entries[0].next_offset

    chunks = stream.tier.reader("s").chunks(First())

    assert next(chunks).header.chunk_id == root.first_offset
    chunks.close()


def test_an_item_without_kilo_groups_tells_nothing() -> None:
    item = CatalogItem("s", "t")
    assert item.old_part() is None
    assert Outline.parse(item.outline.encode()) == Outline()


def test_an_outline_comes_back_as_it_was_and_never_has_more_than_it_may(stream: Stream) -> None:
    outline = Outline.of(7, stream.root)

    assert Outline.parse(outline.encode()) == outline
    assert {entry.kind.level for entry in outline.entries} == {2, 3}
    assert len(outline.entries) <= MOST
    assert outline.begins(stream.root)


@pytest.mark.parametrize(
    "text",
    ["", "A", "AAAA", "é" * 12, "AAAAAAAAAAA=" * 2, "A" * 2**18],
    ids=["nothing", "no base64", "cut", "no ASCII", "padding within", "too long"],
)
def test_what_is_no_outline_is_refused(text: str) -> None:
    with pytest.raises(CorruptDataError, match="an outline"):
        Outline.parse(text)


def test_an_outline_of_groups_or_fragments_is_refused(stream: Stream) -> None:
    tail = stream.root.entries.part(len(stream.root.entries) - 1)
    with pytest.raises(CorruptDataError, match="other entries"):
        Outline.parse(Outline(1, tail).encode())


def test_an_item_that_tells_entries_outside_its_offsets_is_refused(stream: Stream) -> None:
    item = item_of(stream)
    for wrong in (
        replace(item, next_offset=1),
        replace(item, first_offset=item.outline.entries[0].next_offset),
    ):
        stream.tier.catalog.items["s"] = wrong
        with pytest.raises(CorruptDataError, match="repeats other entries"):
            next(stream.tier.reader("s").chunks(First()))
