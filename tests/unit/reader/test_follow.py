"""The one loop that reads a range of offsets: what it gives where a manifest or an object changes.

A live read, which is told what was cut off and goes on in the new history, is tested by what the
reader makes of it (`test_change`, `test_truncated`); here are planned reads and damage.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from coldstream.columns.damage import CorruptRange
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.fragment import HEADER, TRAILER_SIZE
from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.reader import Gap, GapReason, ReaderSettings
from coldstream.reader.follow import Followed, RangeRead
from coldstream.reader.objects import StreamObjects
from coldstream.remote.nodes import NodeCache
from coldstream.remote.roots import Snapshots
from coldstream.soundness.chunks import Checked
from tests.support.tier import PREFIX, Tier, chunk
from tests.unit.reader.test_damage import BY_RANGES, WHOLE, a_stream

ONE_BY_ONE = ReaderSettings(in_flight=1)


@dataclass
class Planned:
    """A read of what a manifest had, whatever the stream has become since."""

    tier: Tier
    root: Root
    settings: ReaderSettings = ONE_BY_ONE

    def __post_init__(self) -> None:
        item = self.tier.catalog.get("s")
        assert item is not None
        self.root_key = item.root_key

    def read(self, position: int, end: int) -> list[object]:
        """What comes, in order: ids of chunks, gaps, damage."""
        store = self.tier.store
        objects = StreamObjects.of(store, PREFIX, "s", self.settings, nodes=NodeCache())
        snapshots = Snapshots(store, self.tier.catalog, PREFIX)
        manifest = Followed(lambda: snapshots.load("s"), plan=(self.root, self.root_key))
        found: list[object] = []
        read = RangeRead(objects, manifest, position, end)
        with closing(read.found()) as pieces:
            for each in pieces:
                if isinstance(each, Gap | CorruptRange):
                    found.append(each)
                else:
                    for part in each.sound_and_damaged(read.position):
                        found += (
                            [each.header.chunk_id for each in part]
                            if isinstance(part, Checked)
                            else [part]
                        )
        return found


def stream_of(tier: Tier, fragments: int = 4) -> Root:
    """Fragments of two chunks of ten messages."""
    return tier.add(
        "s",
        [
            [chunk(at, *[b"x"] * 10), chunk(at + 10, *[b"x"] * 10)]
            for at in range(0, 20 * fragments, 20)
        ],
    )


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
@pytest.mark.parametrize("start", [0, 13, 16, 20])
def test_a_damaged_chunk_hides_no_other(settings: ReaderSettings, start: int) -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    at = len(HEADER) + len(chunk(12, b"a12", b"b12", b"c" * 40, trailer=b"trailer"))
    tier.flip(key, at + CHUNK_HEADER_SIZE + 6)  # in a body of the chunk at offset 15

    found = Planned(tier, root, settings).read(start, 36)

    begins = range(start // 3 * 3, 36, 3)
    whole = settings is WHOLE
    chunks = [each for each in found if not isinstance(each, CorruptRange)]
    # Of a fragment that is fetched as a whole the chunks before the first that counts may come too.
    assert [each for each in chunks if not whole or each >= begins[0]] == [
        each for each in begins if each != 15
    ]
    told = [each for each in found if isinstance(each, CorruptRange)]
    assert [(each.first_offset, each.next_offset) for each in told] == (
        [(15, 18)] if start < 18 else []
    )
    assert all((each.error.stream, each.error.key) == ("s", key) for each in told)


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
def test_a_fragment_that_says_nothing_true_is_one_range_in_its_turn(
    settings: ReaderSettings,
) -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    tier.flip(key, len(tier.store.objects[key]) - TRAILER_SIZE)

    found = Planned(tier, root, settings).read(0, 36)

    assert found[:4] == [0, 3, 6, 9]
    assert isinstance(found[4], CorruptRange)
    assert (found[4].first_offset, found[4].next_offset) == (12, 24)
    assert found[5:] == [24, 27, 30, 33]


def test_damage_that_is_of_no_fragment_is_raised() -> None:
    tier = Tier()
    chunks = [[chunk(at, *[b"x"] * 10)] for at in range(0, 200, 10)]
    root = tier.add_tree("s", chunks)
    group = next(key for key in tier.store.objects if key.endswith("group"))
    tier.flip(group, 100)

    with pytest.raises(CorruptDataError) as caught:
        Planned(tier, root).read(0, 200)
    assert caught.value.key == group


def test_a_planned_read_is_told_in_its_turn_what_was_written_anew_and_is_given_none_of_it() -> None:
    """It was told at once, before what lies between had been read."""
    tier = Tier()
    root = stream_of(tier)
    planned = Planned(tier, root)

    merged = tier.upload(
        "s", [chunk(at, *[b"x"] * 10) for at in range(0, 60, 10)], epoch=1, floor=0
    )
    anew = tier.upload("s", [chunk(60, *[b"new"] * 20, epoch=2)], epoch=2, floor=60)
    ledger = Ledger.of([(1, 0), (2, 60)])
    tier.commit("s", replace(root, epoch=2, ledger=ledger, entries=Entries.of([merged, anew])))
    tier.store.delete([tier.key(root, "s", number) for number in range(4)])

    assert planned.read(0, 80) == [*range(0, 60, 10), Gap(60, 80, GapReason.TRUNCATION)]
    assert planned.read(65, 80) == [Gap(65, 80, GapReason.TRUNCATION)]


def test_a_planned_read_below_the_cut_hears_of_none() -> None:
    tier = Tier()
    root = stream_of(tier)
    planned = Planned(tier, root)
    tier.commit(
        "s",
        replace(
            root,
            epoch=2,
            next_offset=60,
            ledger=Ledger.of([(1, 0), (2, 60)]),
            entries=Entries.of(list(root.entries)[:3]),
        ),
    )

    assert planned.read(0, 60) == list(range(0, 60, 10))


def test_a_planned_read_is_told_what_retention_has_taken() -> None:
    tier = Tier()
    root = stream_of(tier)
    planned = Planned(tier, root)
    size = sum(entry.size for entry in list(root.entries)[2:])
    plan = plan_retention(root, RetentionLimits(max_bytes=size), now_ms=0, fetch=tier.fetch("s"))
    tier.commit("s", plan.root)
    tier.store.delete([tier.key(root, "s", number) for number in range(2)])

    assert planned.read(5, 80) == [Gap(5, 40, GapReason.RETENTION), 40, 50, 60, 70]
    assert planned.read(5, 30) == [Gap(5, 30, GapReason.RETENTION)]


def test_a_planned_read_does_not_look_at_the_manifest_while_it_needs_not() -> None:
    tier = Tier()
    root = stream_of(tier)
    planned = Planned(tier, root)
    tier.catalog = None  # type: ignore[assignment]

    assert planned.read(0, 80) == list(range(0, 80, 10))


def test_an_object_that_is_missing_although_nothing_has_changed_is_an_error() -> None:
    tier = Tier()
    root = stream_of(tier)
    tier.store.delete([tier.key(root, "s", 2)])

    with pytest.raises(NotFoundError) as caught:
        Planned(tier, root).read(0, 80)
    assert (caught.value.offset, caught.value.key) == (40, tier.key(root, "s", 2))
