"""Ways in which a remote tier can be wrong, each planted in the same stream of fourteen fragments.

Where a CRC would give a change away, the CRCs above it are made right again, unless the change is
called raw: so only the check that is meant can see it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from coldstream.fragment import HEADER, INDEX_HEADER, TRAILER_SIZE, IndexRecord, parse_trailer
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.names import group_path
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, parse_chunk_header
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch
from coldstream.soundness.findings import FindingKind as K
from tests.support.scrub_site import STREAM, Anatomy, leaf, path_of, root_of
from tests.support.tier import PREFIX, Tier, headers_of

#: Fragment and chunk in which most of it is planted: neither the first nor the last of anything.
F, C = 4, 1
WITH_SUB_BATCH, WITH_BLOOM = 1, 2
_FIELD_AT = {
    "magic": 0, "type": 1, "entries": 3, "records": 7, "timestamp": 15, "epoch": 23, "id": 31,
    "crc": 33, "data_size": 39, "trailer_size": 43, "bloom_size": 44, "reserved": 46,
}  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """What must be found: one of `kinds`, in this object, within these offsets.

    Attributes:
        kinds: any of these says it.
        key: of the object, "" for any.
        first: first offset concerned.
        next_offset: one past the last.
        quick: whether a look without the data finds it, too.
        around: offsets that more may be told about; those of the finding by default.
    """

    kinds: tuple[K, ...]
    key: str
    first: int
    next_offset: int
    quick: bool = False
    around: tuple[int, int] | None = None


Plant = Callable[[Tier], Planted]
CORRUPTIONS: dict[str, Plant] = {}


def corruption(plant: Plant) -> Plant:
    """Put a function into the list."""
    CORRUPTIONS[plant.__name__.replace("_", " ")] = plant
    return plant


def store(tier: Tier, entry: Entry, data: bytes) -> None:
    tier.store.objects[path_of(entry)] = data


def take(tier: Tier, number: int = F) -> tuple[Entry, Anatomy]:
    entry = leaf(tier, number)
    return entry, Anatomy.of(tier.store.objects[path_of(entry)])


def in_chunk(entry: Entry, anatomy: Anatomy, chunk: int, *kinds: K, quick: bool = False) -> Planted:
    ids = [each.chunk_id for each in anatomy.records] + [entry.next_offset]
    return Planted(kinds, path_of(entry), ids[chunk], ids[chunk + 1], quick)


def in_fragment(entry: Entry, *kinds: K, quick: bool = False) -> Planted:
    return Planted(kinds, path_of(entry), entry.first_offset, entry.next_offset, quick)


# The chunks' bytes.


@corruption
def a_raw_flip_in_the_data(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    at = len(HEADER) + anatomy.records[C].position + anatomy.header_of(C).data_position + 9
    tier.flip(path_of(entry), at, 3)
    return in_chunk(entry, anatomy, C, K.CHUNK_CRC)


def _raw_header_flip(field: str, bit: int = 0) -> Plant:
    def plant(tier: Tier) -> Planted:
        entry, anatomy = take(tier)
        tier.flip(path_of(entry), len(HEADER) + anatomy.records[C].position + _FIELD_AT[field], bit)
        kinds = {
            "crc": (K.CHUNK_CRC,),
            "records": (K.CHUNK_ENTRIES, K.CHUNK_HEADER),
            "entries": (K.CHUNK_ENTRIES, K.CHUNK_HEADER),
            "type": (K.CHUNK_HEADER, K.CHUNK_TRACKING, K.CHUNK_ENTRIES),
            "epoch": (K.EPOCHS,),
        }.get(field, (K.CHUNK_HEADER,))
        return in_chunk(entry, anatomy, C, *kinds)

    return plant


for _field in _FIELD_AT:
    CORRUPTIONS[f"a raw flip in a chunk header's {_field}"] = _raw_header_flip(_field)
CORRUPTIONS["a raw flip of a chunk header's type into one that is not known"] = _raw_header_flip(
    "type", 3
)


def _header_lie(**fields: int) -> Plant:
    """Another value in a chunk's header under CRCs that hold."""

    def plant(tier: Tier) -> Planted:
        entry, anatomy = take(tier)
        header = anatomy.header_of(C)
        anatomy.set_header(C, **{name: getattr(header, name) + by for name, by in fields.items()})
        store(tier, entry, anatomy.whole())
        kinds = (K.CHUNK_HEADER, K.CHUNK_ENTRIES, K.CHUNK_TRACKING, K.INDEX_RECORD, K.EPOCHS)
        return in_chunk(entry, anatomy, C, *kinds)

    return plant


CORRUPTIONS["too many records in a chunk header"] = _header_lie(records=1)
CORRUPTIONS["too few records in a chunk header"] = _header_lie(records=-1)
CORRUPTIONS["too many entries in a chunk header"] = _header_lie(entries=1)
CORRUPTIONS["too few entries in a chunk header"] = _header_lie(entries=-1)
CORRUPTIONS["another timestamp in a chunk header"] = _header_lie(timestamp=7)
CORRUPTIONS["another id in a chunk header"] = _header_lie(chunk_id=1)
CORRUPTIONS["an epoch too high in a chunk header"] = _header_lie(epoch=1)
CORRUPTIONS["an epoch too low in a chunk header"] = _header_lie(epoch=-1)
CORRUPTIONS["too long a trailer in a chunk header"] = _header_lie(trailer_size=1)
CORRUPTIONS["too much data in a chunk header"] = _header_lie(data_size=1)


@corruption
def reserved_bytes_that_are_not_zero(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    chunk = bytearray(anatomy.chunks[C])
    chunk[46] = 1
    anatomy.chunks[C] = bytes(chunk)
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, C, K.CHUNK_HEADER)


@corruption
def an_entry_length_that_reaches_over_the_chunk(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    data = bytearray(anatomy.data(0))
    data[0:4] = (len(data)).to_bytes(4, "big")
    anatomy.set_data(0, bytes(data))
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, 0, K.CHUNK_ENTRIES)


@corruption
def a_sub_batch_that_lies_about_its_records(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    data = bytearray(anatomy.data(WITH_SUB_BATCH))
    at = 4 + int.from_bytes(data[:4], "big")
    data[at + 2] -= 1
    anatomy.set_data(WITH_SUB_BATCH, bytes(data))
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, WITH_SUB_BATCH, K.CHUNK_ENTRIES)


@corruption
def a_sub_batch_whose_header_and_body_differ_while_the_sum_is_right(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    header = anatomy.header_of(WITH_SUB_BATCH)
    # 3 records inside, 5 claimed: 1 + 5 + 4 simple ones are the ten of the header.
    batch = bytearray(encode_sub_batch([b"12345678", b"1234567890", b"1"], Codec.NONE))
    batch[1:3] = (5).to_bytes(2, "big")
    used = len(batch) + 5 * 4
    rest = header.data_size - used
    sizes = [rest // 5] * 4 + [rest - 4 * (rest // 5)]
    data = b"".join([encode_simple(b"x" * sizes[0]), bytes(batch),
                     *(encode_simple(b"y" * size) for size in sizes[1:])])  # fmt: skip
    anatomy.set_data(WITH_SUB_BATCH, data)
    anatomy.set_header(WITH_SUB_BATCH, entries=6)
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, WITH_SUB_BATCH, K.CHUNK_ENTRIES)


@corruption
def a_sub_batch_that_does_not_inflate(tier: Tier) -> Planted:
    entry, anatomy = take(tier, 2)
    data = bytearray(anatomy.data(WITH_SUB_BATCH))
    at = 4 + int.from_bytes(data[:4], "big") + 11
    data[at : at + 4] = b"\xff\xff\xff\xff"
    anatomy.set_data(WITH_SUB_BATCH, bytes(data))
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, WITH_SUB_BATCH, K.CHUNK_ENTRIES)


@corruption
def a_raw_flip_in_a_filter(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    at = len(HEADER) + anatomy.records[WITH_BLOOM].position + CHUNK_HEADER_SIZE + 3
    tier.flip(path_of(entry), at)
    return in_fragment(entry, K.DATA_CRC)


@corruption
def a_filter_of_a_size_that_none_has(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    header = anatomy.header_of(WITH_BLOOM)
    chunk = anatomy.chunks[WITH_BLOOM]
    data, trailer = anatomy.data(WITH_BLOOM), chunk[header.data_position + header.data_size :]
    grown = chunk[48 + 15 : 48 + 16] + trailer  # one byte moves from the filter to the trailer
    anatomy.chunks[WITH_BLOOM] = (
        replace(header, bloom_size=15, trailer_size=len(grown)).encode()
        + chunk[48 : 48 + 15] + data + grown
    )  # fmt: skip
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, WITH_BLOOM, K.CHUNK_FILTER, K.CHUNK_TRACKING)


@corruption
def a_raw_flip_in_the_name_of_a_tracked_publisher(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    end = anatomy.records[WITH_BLOOM + 1].position
    tier.flip(path_of(entry), len(HEADER) + end - 10)
    return in_fragment(entry, K.DATA_CRC)


@corruption
def tracking_data_that_is_cut(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    header = anatomy.header_of(WITH_BLOOM)
    chunk = bytearray(anatomy.chunks[WITH_BLOOM])
    chunk[header.data_position + header.data_size + 1] += 1  # the name's length
    anatomy.chunks[WITH_BLOOM] = bytes(chunk)
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, WITH_BLOOM, K.CHUNK_TRACKING)


@corruption
def a_tracking_chunk_with_damaged_values(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    data = bytearray(anatomy.data(3))
    data[4] = 9  # no such type
    anatomy.set_data(3, bytes(data))
    store(tier, entry, anatomy.whole())
    return in_chunk(entry, anatomy, 3, K.CHUNK_TRACKING)


@corruption
def two_chunks_that_have_changed_places(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    anatomy.chunks[1], anatomy.chunks[2] = anatomy.chunks[2], anatomy.chunks[1]
    store(tier, entry, anatomy.whole())
    ids = [each.chunk_id for each in anatomy.records]
    return Planted((K.OFFSETS, K.CHUNK_HEADER), path_of(entry), ids[1], ids[3])


@corruption
def two_damaged_chunks_of_one_fragment(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    for number in (0, 2):
        at = len(HEADER) + anatomy.records[number].position + CHUNK_HEADER_SIZE + 20
        tier.flip(path_of(entry), at)
    return in_chunk(entry, anatomy, 2, K.CHUNK_CRC)


@corruption
def a_chunk_of_zeros(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    data = bytearray(tier.store.objects[path_of(entry)])
    at = len(HEADER) + anatomy.records[C].position
    data[at : at + len(anatomy.chunks[C])] = bytes(len(anatomy.chunks[C]))
    store(tier, entry, bytes(data))
    return in_chunk(entry, anatomy, C, K.CHUNK_HEADER)


# The index and the trailer.


def _index_lie(raw: bool, **changes: int) -> Plant:
    def plant(tier: Tier) -> Planted:
        entry, anatomy = take(tier)
        record = anatomy.records[C]
        values = {name: getattr(record, name) + by for name, by in changes.items()}
        if raw:
            section = len(HEADER) + sum(map(len, anatomy.chunks)) + len(INDEX_HEADER)
            changed = replace(record, **values)
            data = bytearray(tier.store.objects[path_of(entry)])
            data[section + 20 * C : section + 20 * C + 20] = (
                changed.chunk_id.to_bytes(8, "big") + changed.timestamp.to_bytes(8, "big")
                + changed.position.to_bytes(4, "big")
            )  # fmt: skip
            store(tier, entry, bytes(data))
        else:
            planted = in_chunk(entry, anatomy, C, K.INDEX_RECORD)
            anatomy.records[C] = replace(record, **values)
            store(tier, entry, anatomy.whole())
            return planted
        return in_chunk(entry, anatomy, C, K.INDEX_RECORD, quick=True)

    return plant


for _raw in (True, False):
    _how = "a raw change of" if _raw else "another"
    CORRUPTIONS[f"{_how} chunk id in an index record"] = _index_lie(_raw, chunk_id=1)
    CORRUPTIONS[f"{_how} timestamp in an index record"] = _index_lie(_raw, timestamp=1)
    CORRUPTIONS[f"{_how} position in an index record"] = _index_lie(_raw, position=-1)


@corruption
def an_index_without_one_of_its_records(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    planted = in_chunk(entry, anatomy, C, K.INDEX_RECORD, quick=True)
    around = (entry.first_offset, entry.next_offset)
    del anatomy.records[C]
    anatomy.trailer = replace(
        anatomy.trailer,
        chunks=anatomy.trailer.chunks - 1,
        index_size=anatomy.trailer.index_size - 20,
    )
    store(tier, entry, anatomy.whole())
    return replace(planted, around=around)


@corruption
def a_raw_flip_in_the_index_magic(tier: Tier) -> Planted:
    entry, anatomy = take(tier)
    tier.flip(path_of(entry), anatomy.trailer.index_position + 1)
    return in_fragment(entry, K.INDEX, quick=True)


@corruption
def a_raw_flip_in_the_fragment_magic(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    tier.flip(path_of(entry), 2)
    return in_fragment(entry, K.FRAGMENT_HEADER)


@corruption
def a_raw_flip_in_the_fragment_version(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    tier.flip(path_of(entry), 7, 1)
    return in_fragment(entry, K.FRAGMENT_HEADER)


@corruption
def a_raw_flip_in_the_trailer(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    tier.flip(path_of(entry), entry.size - TRAILER_SIZE + 40)
    return in_fragment(entry, K.TRAILER, quick=True)


@corruption
def a_raw_flip_in_the_trailer_magic(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    tier.flip(path_of(entry), entry.size - 1)
    return in_fragment(entry, K.TRAILER, quick=True)


def _trailer_lie(field: str, by: int, *kinds: K) -> Plant:
    def plant(tier: Tier) -> Planted:
        entry = leaf(tier, F)
        data = tier.store.objects[path_of(entry)]
        trailer = parse_trailer(data)
        lying = replace(trailer, **{field: getattr(trailer, field) + by})
        store(tier, entry, data[:-TRAILER_SIZE] + lying.encode())
        return in_fragment(entry, *(kinds or (K.TRAILER, K.TRAILER_KEY, K.TRAILER_ENTRY)))

    return plant


for _name, _by in (
    ("first_offset", 1), ("next_offset", 1), ("first_timestamp", 1), ("last_timestamp", -1),
    ("min_timestamp", -1), ("max_timestamp", 1), ("epoch", 1), ("first_chunk_epoch", -1),
    ("last_chunk_epoch", -1), ("last_chunk_id", -1), ("chunks", 1), ("records", 1),
    ("data_size", 1), ("index_position", 1), ("index_size", 20),
):  # fmt: skip
    CORRUPTIONS[f"another {_name.replace('_', ' ')} in the trailer"] = _trailer_lie(_name, _by)
CORRUPTIONS["another floor in the trailer"] = _trailer_lie("floor", 1, K.TRAILER_LEDGER)
CORRUPTIONS["another data crc in the trailer"] = _trailer_lie("data_crc", 1, K.DATA_CRC)
CORRUPTIONS["another index crc in the trailer"] = _trailer_lie("index_crc", 1, K.INDEX)


# Whole objects.


@corruption
def an_object_that_is_cut(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    data = tier.store.objects[path_of(entry)]
    store(tier, entry, data[: len(data) // 2])
    return in_fragment(entry, K.OBJECT_SIZE, quick=True)


@corruption
def an_object_with_bytes_behind_its_end(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    store(tier, entry, tier.store.objects[path_of(entry)] + b"more")
    return in_fragment(entry, K.OBJECT_SIZE, quick=True)


@corruption
def an_object_without_bytes(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    store(tier, entry, b"")
    return in_fragment(entry, K.OBJECT_SIZE, quick=True)


@corruption
def an_object_that_is_gone(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    del tier.store.objects[path_of(entry)]
    return in_fragment(entry, K.OBJECT_MISSING, quick=True)


@corruption
def the_object_of_another_range(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    store(tier, entry, tier.store.objects[path_of(leaf(tier, F + 1))])
    return in_fragment(entry, K.TRAILER_KEY, K.OBJECT_SIZE, quick=True)


@corruption
def a_second_object_for_a_range(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    double = replace(entry, uid=entry.uid + 2**40)
    tier.store.put(path_of(double), tier.store.objects[path_of(entry)], write_id="double")
    return Planted((K.UNREFERENCED,), path_of(double), entry.first_offset, entry.next_offset, True)


@corruption
def an_object_that_is_not_ours(tier: Tier) -> Planted:
    path = path_of(leaf(tier, F)) + ".bak"
    tier.store.put(path, b"who knows", write_id="foreign")
    return Planted((K.UNREFERENCED,), path, 0, 1, True)


@corruption
def a_fragment_that_the_ledger_refuses(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    late = replace(entry, uid=entry.uid + 2**40, epoch=entry.epoch + 7)
    tier.store.put(path_of(late), tier.store.objects[path_of(entry)], write_id="late")
    return Planted((K.UNREFERENCED,), path_of(late), entry.first_offset, entry.next_offset, True)


# The manifest: an entry that lies, wherever it is, under nodes that agree with it.


def amended(tier: Tier, change: Callable[[list[Entry]], None]) -> None:
    """The manifest with other entries, all sums above them made right."""
    root = root_of(tier)
    if not root.entries[0].kind.level:
        entries = list(root.entries)
        change(entries)
        tier.commit(STREAM, replace(root, entries=Entries.of(entries)))
        return
    fetch = tier.fetch(STREAM)
    top = list(root.entries)
    count = 0
    for number, entry in enumerate(top):
        below = len(fetch(entry).entries) if entry.kind.level else 1
        if count <= F < count + below and entry.kind.level:
            children = [None] * count + list(fetch(entry).entries)
            change(children)  # type: ignore[arg-type]
            node = Node(entry.kind, next(tier.uids), Entries.of(children[count:]))  # type: ignore[arg-type]
            top[number] = node.entry()
            key = group_path(PREFIX, STREAM, top[number].first_offset, node.uid, node.kind)
            tier.store.put(key, node.encode(), write_id=str(node.uid))
        count += below
    tier.commit(STREAM, replace(root, entries=Entries.of(top)))


def _entry_lie(field: str, by: int, *kinds: K) -> Plant:
    def plant(tier: Tier) -> Planted:
        entry = leaf(tier, F)
        lying = replace(entry, **{field: getattr(entry, field) + by})

        def change(entries: list[Entry]) -> None:
            entries[F] = lying

        amended(tier, change)
        return in_fragment(lying, *kinds, quick=True)

    return plant


CORRUPTIONS["another size in a manifest entry"] = _entry_lie("size", 3, K.OBJECT_SIZE)
CORRUPTIONS["other records in a manifest entry"] = _entry_lie("records", 1, K.TRAILER_ENTRY)
CORRUPTIONS["another epoch in a manifest entry"] = _entry_lie("epoch", -1, K.OBJECT_MISSING)
CORRUPTIONS["another uid in a manifest entry"] = _entry_lie("uid", 2**50, K.OBJECT_MISSING)
CORRUPTIONS["another minimum time in a manifest entry"] = _entry_lie(
    "min_timestamp", -1, K.TRAILER_ENTRY
)
CORRUPTIONS["another maximum time in a manifest entry"] = _entry_lie(
    "max_timestamp", 1, K.TRAILER_ENTRY
)


@corruption
def a_border_between_manifest_entries_that_lies_elsewhere(tier: Tier) -> Planted:
    entry = leaf(tier, F)

    def change(entries: list[Entry]) -> None:
        entries[F] = replace(entries[F], next_offset=entry.next_offset - 1)
        entries[F + 1] = replace(entries[F + 1], first_offset=entry.next_offset - 1)

    amended(tier, change)
    following = leaf(tier, F + 1)
    return Planted((K.OBJECT_MISSING,), "", entry.first_offset, following.next_offset, True)


@corruption
def a_hole_where_data_is(tier: Tier) -> Planted:
    entry = leaf(tier, F)
    hole = replace(entry, kind=EntryKind.HOLE, size=0, records=0, uid=entry.uid + 2**40)
    tier.store.put(path_of(hole), b"", write_id="hole")

    def change(entries: list[Entry]) -> None:
        entries[F] = hole

    amended(tier, change)
    return in_fragment(entry, K.HOLE_OVER_DATA, quick=True)


def _resealed(data: bytes) -> bytes:
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "big")


def _root_entries(tier: Tier, change: Callable[[list[Entry]], None]) -> tuple[str, list[Entry]]:
    """Other entries in the root as it lies in the bucket, whatever rules they break."""
    key = tier.catalog.items[STREAM].root_key
    entries = list(root_of(tier).entries)
    data = tier.store.objects[key]
    begin = len(data) - 4 - 56 * len(entries)
    change(entries)
    body = b"".join(each.encode() for each in entries)
    assert len(body) == len(data) - 4 - begin
    tier.store.objects[key] = _resealed(data[:begin] + body + data[-4:])
    return key, entries


@corruption
def a_gap_between_entries_of_the_root(tier: Tier) -> Planted:
    before = leaf_of_root(tier)

    def change(entries: list[Entry]) -> None:
        at = entries.index(before)
        entries[at] = replace(before, next_offset=before.next_offset - 2)

    key, _ = _root_entries(tier, change)
    around = (before.first_offset, before.next_offset)
    return Planted((K.OFFSETS,), key, around[1] - 2, around[1], True, around)


@corruption
def two_entries_of_the_root_that_overlap(tier: Tier) -> Planted:
    before = leaf_of_root(tier)

    def change(entries: list[Entry]) -> None:
        at = entries.index(before)
        entries[at] = replace(before, next_offset=before.next_offset + 3)

    key, _ = _root_entries(tier, change)
    around = (before.first_offset, before.next_offset + 3)
    return Planted((K.OFFSETS,), key, around[1] - 3, around[1], True, around)


def leaf_of_root(tier: Tier) -> Entry:
    """A fragment that the root itself names, and not the last."""
    return [each for each in root_of(tier).entries if not each.kind.level][-2]


@corruption
def a_root_that_is_gone(tier: Tier) -> Planted:
    item = tier.catalog.items[STREAM]
    del tier.store.objects[item.root_key]
    return Planted((K.ROOT,), item.root_key, item.first_offset, item.next_offset, True)


@corruption
def a_raw_flip_in_the_root(tier: Tier) -> Planted:
    item = tier.catalog.items[STREAM]
    tier.flip(item.root_key, 30)
    return Planted((K.ROOT,), item.root_key, item.first_offset, item.next_offset, True)


@corruption
def a_catalog_item_that_says_something_else_than_its_root(tier: Tier) -> Planted:
    item = tier.catalog.items[STREAM]
    tier.catalog.items[STREAM] = replace(item, total_size=item.total_size + 1)
    return Planted((K.CATALOG_ITEM,), item.root_key, item.first_offset, item.next_offset, True)


@corruption
def a_manifest_entry_that_the_ledger_refuses(tier: Tier) -> Planted:
    root = root_of(tier)
    claims = [(each.epoch, each.floor) for each in root.ledger.claims]
    entry = leaf_of_root(tier)
    # A higher epoch has claimed from inside the last but one fragment on.
    ledger = type(root.ledger).of([*claims, (claims[-1][0] + 1, entry.first_offset + 1)])
    changed: Root = replace(root, ledger=ledger, epoch=ledger.epoch)
    tier.commit(STREAM, changed)
    return Planted(
        (K.LEDGER,),
        tier.catalog.items[STREAM].root_key,
        entry.first_offset,
        root.next_offset,
        True,
    )


# Groups, which only a tree has.

GROUP_CORRUPTIONS: dict[str, Plant] = {}


def group_corruption(plant: Plant) -> Plant:
    """Put a function into the list of those that need a tree."""
    GROUP_CORRUPTIONS[plant.__name__.replace("_", " ")] = plant
    return plant


def a_group(tier: Tier) -> tuple[Entry, str]:
    entry = root_of(tier).entries[0]
    assert entry.kind is EntryKind.GROUP
    return entry, group_path(PREFIX, STREAM, entry.first_offset, entry.uid, entry.kind)


def in_group(entry: Entry, path: str, *kinds: K) -> Planted:
    return Planted(kinds, path, entry.first_offset, entry.next_offset, True)


@group_corruption
def a_group_that_is_gone(tier: Tier) -> Planted:
    entry, path = a_group(tier)
    del tier.store.objects[path]
    return in_group(entry, path, K.OBJECT_MISSING)


@group_corruption
def a_raw_flip_in_a_group(tier: Tier) -> Planted:
    entry, path = a_group(tier)
    tier.flip(path, 50)
    return in_group(entry, path, K.GROUP)


@group_corruption
def a_group_that_is_cut(tier: Tier) -> Planted:
    entry, path = a_group(tier)
    tier.store.objects[path] = tier.store.objects[path][:-30]
    return in_group(entry, path, K.GROUP)


def _group_lie(change: Callable[[list[Entry]], None], *kinds: K) -> Plant:
    def plant(tier: Tier) -> Planted:
        entry, path = a_group(tier)
        data = tier.store.objects[path]
        children = list(tier.fetch(STREAM)(entry).entries)
        begin = len(data) - 4 - 56 * len(children)
        change(children)
        body = b"".join(each.encode() for each in children)
        tier.store.objects[path] = _resealed(data[:begin] + body + data[-4:])
        return in_group(entry, path, *kinds)

    return plant


def _child(field: str, by: int) -> Callable[[list[Entry]], None]:
    def change(children: list[Entry]) -> None:
        children[1] = replace(children[1], **{field: getattr(children[1], field) + by})

    return change


for _name, _by in (("size", 5), ("max_timestamp", 10**6), ("min_timestamp", -(10**6))):
    GROUP_CORRUPTIONS[f"a child with another {_name} than the group's parent knows"] = _group_lie(
        _child(_name, _by), K.GROUP
    )
GROUP_CORRUPTIONS["a gap in a group"] = _group_lie(_child("next_offset", -1), K.OFFSETS)
GROUP_CORRUPTIONS["an overlap in a group"] = _group_lie(_child("first_offset", -1), K.OFFSETS)


@group_corruption
def a_group_that_nothing_refers_to(tier: Tier) -> Planted:
    entry, path = a_group(tier)
    other = group_path(PREFIX, STREAM, entry.first_offset, entry.uid + 2**40, entry.kind)
    tier.store.put(other, tier.store.objects[path], write_id="other")
    return Planted((K.UNREFERENCED,), other, entry.first_offset, entry.first_offset + 1, True)


def check_headers(tier: Tier) -> None:
    """The places that the functions above count on."""
    _, anatomy = take(tier)
    headers = headers_of(anatomy.chunks)
    assert parse_chunk_header(anatomy.chunks[WITH_SUB_BATCH]).entries < headers[1].records
    assert headers[WITH_BLOOM].bloom_size == 16
    assert headers[WITH_BLOOM].trailer_size > 10
    assert headers[3].chunk_type == 1
    assert isinstance(anatomy.records[0], IndexRecord)
