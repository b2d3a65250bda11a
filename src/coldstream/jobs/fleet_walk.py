"""What the workers of the job fleet do: walk subtrees of manifests, and LIST what lies beside them.

The work is cut into units. A small stream is one unit, and its root is read by the worker. Of a
stream of millions of fragments each entry of the root is a unit of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.errors import InvalidInputError
from coldstream.jobs.cut_off import CutOff
from coldstream.jobs.fleet_tables import FRAGMENTS, MAX_NUMBER, OBJECTS
from coldstream.jobs.materialise.times import MAX_MS, MIN_MS
from coldstream.jobs.snapshots import TIME
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.names import (
    MAX_OFFSET,
    DataKey,
    ErasureKey,
    GroupKey,
    QuarantineKey,
    RootKey,
    data_prefix,
    metadata_prefix,
    parse_data_key,
    parse_metadata_key,
)
from coldstream.ports import ObjectInfo, ObjectStore
from coldstream.remote.listing import pages

_SIZE = (1 << 56) - 1
_BEHIND_DIGITS = ":"


@dataclass(frozen=True, slots=True)
class WalkUnit:
    """A part of one stream's manifest, and of the keys beside it.

    Attributes:
        stream: directory name.
        root_key: of the root that everything is as of; "" for a stream without one.
        first_offset: first live offset of the stream.
        next_offset: of the stream's manifest.
        entries: the entries of the root that belong to it; None for all, which the worker reads.
        keys: data objects whose first offset lies in this range belong to it.
        first: whether it is the stream's first unit, which has its metadata, too.
        weight: about how many fragments it has.
        quarantine_key: of the root, where `entries` are given.
    """

    stream: str
    root_key: str
    first_offset: int
    next_offset: int
    entries: bytes | None
    keys: tuple[int, int]
    first: bool
    weight: int
    quarantine_key: str = ""


@dataclass(slots=True)
class Walked:
    """What came out of a unit.

    Attributes:
        fragments: live fragments and holes.
        holes: of these.
        hole_offsets: offsets in the holes.
        smallest: bytes of the smallest fragment, None if there is none.
        largest: bytes of the largest.
        groups: nodes that were read.
        uids: of all fragments and holes, to tell which objects are referred to.
        group_uids: of all nodes.
    """

    fragments: int = 0
    holes: int = 0
    hole_offsets: int = 0
    smallest: int | None = None
    largest: int | None = None
    groups: int = 0
    uids: set[int] = field(default_factory=set)
    group_uids: set[int] = field(default_factory=set)


def split(unit: WalkUnit, root: Root) -> list[WalkUnit]:
    """The units of a stream that is too large to be one: one for each group of the root."""
    units: list[WalkUnit] = []
    entries = root.entries
    leaves = next((n for n, each in enumerate(entries) if not each.kind.level), len(entries))
    bounds = [*range(leaves), leaves] if leaves < len(entries) else [*range(leaves)]
    for number in bounds:
        end = number + 1 if number < leaves else len(entries)
        part = entries.part(number, end)
        last = number == bounds[-1]
        units.append(
            WalkUnit(
                stream=unit.stream,
                root_key=unit.root_key,
                first_offset=unit.first_offset,
                next_offset=unit.next_offset,
                entries=bytes(part),
                keys=(
                    part[0].first_offset if units else 0,
                    MAX_OFFSET if last else part[-1].next_offset,
                ),
                first=not units,
                weight=part.summary().fragments,
                quarantine_key=root.quarantine_key,
            )
        )
    return units


def pack(units: list[WalkUnit], *, weight: int) -> list[list[WalkUnit]]:
    """Units in tasks of about `weight` fragments each, every stream counted as some."""
    tasks: list[list[WalkUnit]] = []
    room = 0
    for unit in sorted(units, key=lambda each: (-each.weight, each.stream, each.keys)):
        need = unit.weight + 200
        if need > room or not tasks:
            tasks.append([])
            room = weight
        tasks[-1].append(unit)
        room -= need
    return tasks


def fragment_rows(
    unit: WalkUnit, entries: Entries, fetch: Fetch, prefix: str, walked: Walked
) -> Iterator[pa.RecordBatch]:
    """Rows of `FRAGMENTS` below `entries`, a batch for each node; `walked` counts along."""

    def counted(entry: Entry) -> Node:
        walked.groups += 1
        walked.group_uids.add(entry.uid)
        return fetch(entry)

    for path, leaves in _leaves(entries, counted, unit.first_offset, ""):
        alive = leaves[leaves["next_offset"] > unit.first_offset]
        if not len(alive):
            continue
        columns = _columns(alive)
        _count(columns, walked)
        yield _batch(unit.stream, prefix, path, columns)


def _leaves(
    entries: Entries, fetch: Fetch, first: int, path: str
) -> Iterator[tuple[str, NDArray[np.void]]]:
    """The fragments and holes below `entries`, those of one node together, with the way there."""
    for number, entry in enumerate(entries):
        if not entry.kind.level:
            # Behind the first leaf there are only leaves.
            yield path, entries.part(number).array()
            return
        if entry.next_offset > first:
            below = f"{path}{entry.kind.level}:{entry.uid:016x}/"
            yield from _leaves(fetch(entry).entries, fetch, first, below)


def _columns(leaves: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    kinds = leaves["kind_size"].astype(np.uint64)
    return {
        "hole": (kinds >> np.uint64(56)).astype(np.int64) == EntryKind.HOLE,
        "bytes": (kinds & np.uint64(_SIZE)).astype(np.int64),
        "uid": leaves["uid"].astype(np.uint64),
        **{name: leaves[name].astype(np.uint64) for name in ("first_offset", "next_offset")},
        **{
            name: leaves[name].astype(np.int64)
            for name in ("min_timestamp", "max_timestamp", "records", "epoch")
        },
    }


def _count(columns: dict[str, NDArray[Any]], walked: Walked) -> None:
    holes, sizes = columns["hole"], columns["bytes"]
    walked.fragments += len(holes)
    walked.holes += int(holes.sum())
    lengths = columns["next_offset"] - columns["first_offset"]
    walked.hole_offsets = min(walked.hole_offsets + int(lengths[holes].sum()), MAX_NUMBER)
    walked.uids.update(columns["uid"].tolist())
    data = sizes[~holes]
    if len(data):
        low, high = int(data.min()), int(data.max())
        walked.smallest = low if walked.smallest is None else min(low, walked.smallest)
        walked.largest = high if walked.largest is None else max(high, walked.largest)


def _batch(stream: str, prefix: str, path: str, columns: dict[str, NDArray[Any]]) -> pa.RecordBatch:
    count = len(columns["uid"])
    uids = [f"{uid:016x}" for uid in columns["uid"].tolist()]
    kinds = ["hole" if hole else "fragment" for hole in columns["hole"].tolist()]
    under = data_prefix(prefix, stream)
    firsts, nexts = columns["first_offset"], columns["next_offset"]
    keys = [
        f"{under}{first:020d}-{next_offset:020d}.{epoch:010d}.{uid}.{kind}"
        for first, next_offset, epoch, uid, kind in zip(
            firsts.tolist(), nexts.tolist(), columns["epoch"].tolist(), uids, kinds, strict=True
        )
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([stream] * count, pa.string()),
            pa.array(kinds, pa.string()),
            signed(firsts),
            signed(nexts),
            times(columns["min_timestamp"]),
            times(columns["max_timestamp"]),
            pa.array(columns["bytes"]),
            pa.array(np.where(columns["hole"], 0, columns["records"])),
            pa.array(columns["epoch"]),
            pa.array(uids, pa.string()),
            pa.array(keys, pa.string()),
            pa.array([path] * count, pa.string()),
        ],
        schema=FRAGMENTS.schema,
    )


def signed(offsets: NDArray[np.uint64]) -> pa.Array:
    """Offsets as a column, whose numbers have a sign."""
    return pa.array(np.minimum(offsets, np.uint64(MAX_NUMBER)).astype(np.int64))


def times(milliseconds: NDArray[np.int64]) -> pa.Array:
    """Times of chunks as a column; what a wild clock has said becomes the nearest possible time."""
    return pa.array(np.clip(milliseconds, MIN_MS, MAX_MS) * 1000).cast(TIME)


def object_rows(
    store: ObjectStore,
    prefix: str,
    unit: WalkUnit,
    quarantine_key: str,
    fetch: Fetch,
    walked: Walked,
) -> Iterator[pa.RecordBatch]:
    """Rows of `OBJECTS` for the keys of a unit whose fragments were walked before."""
    cut_off = CutOff(store, prefix, quarantine_key, fetch)
    first, end = unit.keys
    data, metadata = data_prefix(prefix, unit.stream), metadata_prefix(prefix, unit.stream)
    # Keys of data and of groups begin with their first offset; all others sort behind the digits.
    spans = [(under, f"{first:020d}" if first else "", f"{end:020d}") for under in (data, metadata)]
    if unit.first:
        spans += [(under, _BEHIND_DIGITS, "") for under in (data, metadata)]
    for under, after, until in spans:
        begin, stop = after and under + after, until and under + until
        for page in filter(None, pages(store, under, after=begin, until=stop)):
            yield _objects(unit, page, prefix, quarantine_key, cut_off, walked)


def _objects(
    unit: WalkUnit,
    page: list[ObjectInfo],
    prefix: str,
    quarantine_key: str,
    cut_off: CutOff,
    walked: Walked,
) -> pa.RecordBatch:
    judged = [_classifier(row.key, prefix, unit, quarantine_key, walked) for row in page]
    told = [
        (each, not each[1] and cut_off.keeps(row.key))
        for each, row in zip(judged, page, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([unit.stream] * len(page), pa.string()),
            pa.array([row.key for row in page], pa.string()),
            pa.array([kind for kind, _, _ in judged], pa.string()),
            pa.array([row.size for row in page], pa.int64()),
            times(np.array([row.modified_ms for row in page], np.int64)),
            pa.array([referenced for _, referenced, _ in judged], pa.bool_()),
            pa.array([ahead and not kept for (_, _, ahead), kept in told], pa.bool_()),
            pa.array([kept for _, kept in told], pa.bool_()),
        ],
        schema=OBJECTS.schema,
    )


def _classifier(
    key: str, prefix: str, unit: WalkUnit, quarantine_key: str, walked: Walked
) -> tuple[str, bool, bool]:
    """(kind, whether it is referred to, whether it is ahead of the manifest)."""
    if key in (unit.root_key, quarantine_key):
        return ("root" if key == unit.root_key else "quarantine"), True, False
    try:
        parsed: object = parse_data_key(key, prefix)
    except InvalidInputError:
        try:
            parsed = parse_metadata_key(key, prefix)
        except InvalidInputError:
            return "other", False, False
    if isinstance(parsed, DataKey):
        referenced = parsed.uid in walked.uids
        return parsed.kind, referenced, parsed.first_offset >= unit.next_offset and not referenced
    if isinstance(parsed, RootKey):
        return "root", False, False
    if isinstance(parsed, GroupKey):
        return "group", parsed.uid in walked.group_uids, False
    if isinstance(parsed, ErasureKey):
        return "erasure", False, False
    return ("quarantine" if isinstance(parsed, QuarantineKey) else "marks"), False, False
