"""Metadata tables: streams, fragments and chunks, without reading data.

    streams      an item of the catalog each; the bucket is not asked
    fragments    an entry of the manifest each: roots and groups are read
    chunks       a record of a fragment's index each: indexes are read, some 0.02 % of the bytes

A petabyte has 16.7 million fragments in 16,400 groups, so fragments become rows by numpy, a group
at a time, and groups are fetched ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.columns.reference import MAX_MS, MIN_MS, clamped_us
from coldstream.columns.schema import TIMESTAMP, Origin
from coldstream.errors import CorruptDataError, LostRangeError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import (
    ENTRY_SIZE,
    MAX_SIZE,
    Entries,
    Entry,
    EntryKind,
    entry_dtype,
)
from coldstream.reader.by_index import ChunkLayout
from coldstream.reader.fetch import Fetch
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.prefetch import in_order, workers
from coldstream.spark.options import Rows
from coldstream.spark.plan import EntryPart
from coldstream.spark.query import PlannedStream, QueryTask
from coldstream.spark.stream_read import StreamRead
from coldstream.spark.views import view_schema
from coldstream.spark.window import ALL_TIMES, Intervals, Window

#: Rows of one batch, about.
_BATCH = 32_768
_KINDS = pa.array(["fragment", "hole"])
_HOLE = int(EntryKind.HOLE)
_MAX_INT64 = 2**63 - 1

_T = TypeVar("_T")


def stream_rows(items: Sequence[CatalogItem], names: Sequence[str]) -> pa.RecordBatch:
    """A row for each stream, from its catalog item."""
    rows = [
        {
            **Origin(item.stream, *item.name.of_queue).columns(),
            "cluster": item.name.cluster,
            "state": str(item.state),
            "first_offset": min(item.first_offset, _MAX_INT64),
            "next_offset": min(item.next_offset, _MAX_INT64),
            "offsets": min(item.next_offset - item.first_offset, _MAX_INT64),
            "first_timestamp": clamped_us(item.first_timestamp) if item.fragments else None,
            "last_timestamp": clamped_us(item.last_timestamp) if item.fragments else None,
            "fragments": item.fragments,
            "size": min(item.total_size, _MAX_INT64),
            "epoch": item.epoch,
            "version": item.version,
            "root_key": item.root_key,
        }
        for item in items
    ]
    schema = view_schema(Rows.STREAMS, names)
    return pa.RecordBatch.from_pylist(rows, schema)


def fragment_rows(
    stream: StreamRead, parts: Sequence[EntryPart], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """A row for each fragment and hole that begins in these parts; reads only the manifest."""
    schema = view_schema(Rows.FRAGMENTS, names)
    waiting: list[NDArray[np.void]] = []
    for found in _leaves(stream, parts):
        waiting.append(found)
        if sum(map(len, waiting)) >= _BATCH:
            yield _fragments(np.concatenate(waiting), stream, schema)
            waiting = []
    if waiting:
        yield _fragments(np.concatenate(waiting), stream, schema)


def index_rows(
    stream: StreamRead, parts: Sequence[EntryPart], task: QueryTask
) -> Iterator[pa.RecordBatch]:
    """A row for each chunk of the fragments that begin in these parts, by their indexes.

    A fragment whose index cannot be read is one row with an error.

    Raises:
        LostRangeError: a fragment is nowhere any more, and failOnDataLoss is true.
        CorruptDataError: an index is damaged, and onCorrupt is fail.
    """
    schema = view_schema(Rows.INDEX, task.columns)
    for batch in _indexes(stream, parts, task, schema):
        if batch.num_rows:
            yield batch


def _indexes(
    stream: StreamRead, parts: Sequence[EntryPart], task: QueryTask, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    entries = (
        entry
        for found in _leaves(stream, parts, whole=False)
        for entry in _each(found)
        if entry.kind is EntryKind.FRAGMENT
    )
    fetches = (Fetch(0, partial(_looked, stream, entry)) for entry in entries)
    for entry, found in _ahead(stream, fetches):
        if isinstance(found, ChunkLayout):
            yield _chunks(entry, found, stream, schema)
            continue
        words = found.reason if found is not None else ""
        if found is None:
            gap = Gap(entry.first_offset, entry.next_offset, GapReason.RETENTION)
            words = str(gap)
            if task.fail_on_data_loss:
                raise LostRangeError(
                    f"{gap}; option failOnDataLoss=false makes it a row with an error",
                    stream=stream.planned.stream,
                    offset=entry.first_offset,
                )
        elif task.fail_on_corrupt:
            raise found
        yield _told(entry, words, stream, schema)


def _looked(
    stream: StreamRead, entry: Entry
) -> tuple[Entry, ChunkLayout | CorruptDataError | None]:
    """How a fragment's chunks lie, or why nobody can say."""
    try:
        return entry, stream.layout(entry)
    except CorruptDataError as error:
        return entry, error


def _ahead(stream: StreamRead, fetches: Iterator[Fetch[_T]]) -> Iterator[_T]:
    """The results in order, some of them fetched ahead."""
    objects = stream.objects
    in_flight = objects.settings.at_once
    with (
        workers(in_flight) as pool,
        closing(in_order(fetches, pool, budget=objects.budget, in_flight=in_flight)) as results,
    ):
        yield from results


def _leaves(
    stream: StreamRead, parts: Sequence[EntryPart], *, whole: bool = True
) -> Iterator[NDArray[np.void]]:
    """The fragments and holes that begin in these parts and are asked for, as arrays of entries.

    Args:
        stream: to read.
        parts: of a split.
        whole: whether an entry is asked for by its first offset, or by any that it has.
    """
    alive = stream.planned.alive
    fetches = (
        Fetch(entry.records * ENTRY_SIZE, partial(_below, stream, part, entry, begin))
        for part in parts
        for entry, begin in _groups(part, part.entry, 0, alive, stream)
    )
    for part, entries, begin in _ahead(stream, fetches):
        found = entries[_asked(entries, part, begin, stream.planned, whole=whole)]
        if len(found):
            yield found


def _groups(
    part: EntryPart, entry: Entry, begin: int, window: Window, stream: StreamRead
) -> Iterator[tuple[Entry, int]]:
    """The groups of fragments, and single entries, below an entry that touch a part of it.

    Each with where its bytes begin among those of the part's entry; see `plan.leaves`.
    """
    if not window.overlaps(entry) or begin > part.end or begin + entry.size < part.start:
        return
    if entry.kind.level <= 1:
        yield entry, begin
        return
    for child in stream.objects.groups(entry).entries:
        yield from _groups(part, child, begin, window, stream)
        begin += child.size


def _below(
    stream: StreamRead, part: EntryPart, entry: Entry, begin: int
) -> tuple[EntryPart, NDArray[np.void], int]:
    """The entries of a group, or the entry itself."""
    entries = stream.objects.groups(entry).entries if entry.kind.level else Entries.of([entry])
    return part, entries.array(), begin


def _each(entries: NDArray[np.void]) -> Iterator[Entry]:
    """Entries, which need not be neighbours, as values; slow."""
    data = entries.astype(entry_dtype()).tobytes()  # numpy may have changed the order of bytes
    for at in range(0, len(data), ENTRY_SIZE):
        yield Entries(data[at : at + ENTRY_SIZE])[0]


def _asked(
    entries: NDArray[np.void], part: EntryPart, begin: int, planned: PlannedStream, *, whole: bool
) -> NDArray[np.bool_]:
    """Which entries begin in a part by their first byte, and are asked for.

    Args:
        entries: neighbours.
        part: of a split.
        begin: where the bytes of the first of them begin among those of the part's entry.
        planned: the stream.
        whole: as for `_leaves`.
    """
    size = (entries["kind_size"] & MAX_SIZE).astype(np.int64)
    first_byte = begin + np.cumsum(size) - size
    inside = (first_byte >= part.start) & (first_byte < part.end)
    if part.end == part.entry.size:  # a hole at the end has no byte of its own
        inside |= (size == 0) & (first_byte == part.end)
    offsets = np.maximum(entries["first_offset"], np.uint64(planned.first_offset))
    alive = planned.alive
    if whole:
        chosen = _within(offsets, alive.offsets)
    else:
        chosen = _touching(offsets, entries["next_offset"], alive.offsets)
    return inside & chosen & _times(entries, alive.times)


def _within(values: NDArray[np.uint64], spans: Intervals) -> NDArray[np.bool_]:
    """Which offsets lie in spans of offsets."""
    lows = np.array([low for low, _ in spans], np.uint64)
    highs = np.array([high for _, high in spans], np.uint64)
    if not len(lows):
        return np.zeros(len(values), bool)
    number = np.searchsorted(lows, values, side="right") - 1
    return (number >= 0) & (values < highs[np.maximum(number, 0)])


def _touching(
    firsts: NDArray[np.uint64], ends: NDArray[np.uint64], spans: Intervals
) -> NDArray[np.bool_]:
    """Which ranges of offsets have one in common with spans of offsets."""
    lows = np.array([low for low, _ in spans], np.uint64)
    lasts = np.array([high - 1 for _, high in spans], np.uint64)
    if not len(lows):
        return np.zeros(len(firsts), bool)
    number = np.searchsorted(lasts, firsts, side="left")
    return (number < len(lows)) & (lows[np.minimum(number, len(lows) - 1)] < ends)


def _times(entries: NDArray[np.void], spans: Intervals) -> NDArray[np.bool_]:
    """Which entries have a time that lies in spans of times, from their least to their greatest."""
    if spans == ALL_TIMES:
        return np.ones(len(entries), bool)
    lows = np.array([low for low, _ in spans], np.int64)
    last = np.array([high - 1 for _, high in spans], np.int64)
    if not len(lows):
        return np.zeros(len(entries), bool)
    number = np.searchsorted(last, entries["min_timestamp"], side="left")
    there = number < len(lows)
    return there & (lows[np.minimum(number, len(lows) - 1)] <= entries["max_timestamp"])


def _fragments(entries: NDArray[np.void], stream: StreamRead, schema: pa.Schema) -> pa.RecordBatch:
    """Entries as rows."""
    planned, kind_size = stream.planned, entries["kind_size"]
    first = np.maximum(entries["first_offset"], np.uint64(planned.first_offset))

    def column(name: str) -> pa.Array:
        match name:
            case "stream" | "vhost" | "queue" | "super_stream" | "routing_key":
                return _same(planned.origin.columns()[name], len(entries))
            case "offset":
                return _signed(first)
            case "next_offset":
                return _signed(entries["next_offset"])
            case "min_timestamp" | "max_timestamp":
                return _moments(entries[name])
            case "kind":
                return _KINDS.take(pa.array((kind_size >> 56 == _HOLE).astype(np.int8)))
            case "size":
                return _signed(kind_size & MAX_SIZE)
            case "records" | "epoch":
                return _signed(entries[name])
            case "uid":
                return pa.array([f"{uid:016x}" for uid in entries["uid"].tolist()])
            case _:
                return pa.array([stream.objects.fragments.path(each) for each in _each(entries)])

    return pa.RecordBatch.from_arrays([column(name) for name in schema.names], schema=schema)


def _chunks(
    entry: Entry, layout: ChunkLayout, stream: StreamRead, schema: pa.Schema
) -> pa.RecordBatch:
    """The chunks of a fragment that are asked for, as rows."""
    alive, origin = stream.planned.alive, stream.planned.origin.columns()
    ids = np.array(layout.chunk_ids, np.uint64)
    ends = np.array([*layout.positions, layout.size], np.int64)
    times = np.array(layout.timestamps, np.int64)
    chosen = _within(ids[:-1], alive.offsets)
    if alive.times != ALL_TIMES:
        spans = np.zeros(len(times), entry_dtype())
        spans["min_timestamp"] = spans["max_timestamp"] = times
        chosen &= _times(spans, alive.times)
    count = int(chosen.sum())
    found: dict[str, Callable[[], pa.Array]] = {
        "offset": lambda: _signed(ids[:-1][chosen]),
        "next_offset": lambda: _signed(ids[1:][chosen]),
        "timestamp": lambda: _moments(times[chosen]),
        "records": lambda: _signed(np.diff(ids)[chosen]),
        "size": lambda: _signed(np.diff(ends)[chosen]),
        **{each: partial(_same, text, count) for each, text in origin.items()},
        "fragment": lambda: _same(stream.objects.fragments.path(entry), count),
        "error": lambda: pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([found[name]() for name in schema.names], schema=schema)


def _told(entry: Entry, words: str, stream: StreamRead, schema: pa.Schema) -> pa.RecordBatch:
    """One row for a fragment whose chunks nobody can tell."""
    alive, low, high = stream.planned.alive, entry.min_timestamp, entry.max_timestamp
    row = {
        **stream.planned.origin.columns(),
        "offset": min(max(entry.first_offset, stream.planned.first_offset), _MAX_INT64),
        "next_offset": min(entry.next_offset, _MAX_INT64),
        "timestamp": clamped_us(next(alive.times.within(low, high + 1), (low, high))[0]),
        "fragment": stream.objects.fragments.path(entry),
        "error": words,
    }
    return pa.RecordBatch.from_pylist([row], schema)


def _same(value: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _signed(values: NDArray[np.generic]) -> pa.Array:
    return pa.array(np.minimum(values.astype(np.uint64), np.uint64(_MAX_INT64)).astype(np.int64))


def _moments(milliseconds: NDArray[np.generic]) -> pa.Array:
    us = np.clip(milliseconds.astype(np.int64), MIN_MS, MAX_MS) * 1000
    return pa.array(us).cast(TIMESTAMP)
