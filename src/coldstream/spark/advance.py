"""How far a streaming query has come, and how far its next batch goes. Pure.

A position is written into the query's checkpoint as JSON:

    {"streams": {"__orders_1745": 1200}, "began": {"__orders_1745": 0}, "epochs": {...}}

`streams` has the next offset of every stream. `began` has the offsets at which the batch that ends
here began in streams that the batch before did not know: a batch must be the same when it is done
again after a crash, though retention may have moved by then, or clocks. `epochs` has the epoch of
the manifest in which a stream's position was found: a claim of a higher one may have cut off what
lies below it since. Checkpoints of releases before there was such a thing have no epochs; nothing
can be said about their positions, until the next batch has moved them. A stream that was deleted
ends where its tombstone says; one that nobody knows any more loses its epoch, and so each is told
in one batch (`gone`).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaves
from coldstream.names import MAX_OFFSET


@dataclass(frozen=True, slots=True)
class Position:
    """Where a batch ends, and where it began in streams that were new to it.

    Attributes:
        streams: next offset of each stream, by directory.
        began: first offset of the batch in streams that the position before does not have.
        epochs: of the manifest that each stream was looked up in, if that is known.
    """

    streams: Mapping[str, int] = field(default_factory=dict)
    began: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)

    def cut(self, stream: str, root: Root) -> int | None:
        """Where what was read of a stream was cut off since; None if it was not."""
        epoch = self.epochs.get(stream)
        if epoch is None or stream not in self.streams:
            return None
        ceiling = root.ledger.ceiling(epoch)
        return ceiling if ceiling < self.streams[stream] else None

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it. It compares the text, so the order is always the same."""
        found: dict[str, Any] = {"streams": dict(sorted(self.streams.items()))}
        if self.began:
            found["began"] = dict(sorted(self.began.items()))
        if self.epochs:
            found["epochs"] = dict(sorted(self.epochs.items()))
        return found


def parse_position(value: Any) -> Position:
    """A position out of a checkpoint.

    Raises:
        CorruptDataError: it is none that this source wrote.
    """
    try:
        streams, began = value["streams"], value.get("began", {})
        epochs = value.get("epochs", {})
        numbers = [*streams.values(), *began.values(), *epochs.values()]
        names = [*streams, *began, *epochs]
        fine = all(type(n) is int and 0 <= n <= MAX_OFFSET for n in numbers)
        if fine and all(isinstance(name, str) for name in names):
            return Position(streams, began, epochs)
    except (KeyError, TypeError, AttributeError):
        pass
    raise CorruptDataError(f"not an offset of this source: {json.dumps(value)[:200]}")


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one stream has that no batch has read yet.

    Attributes:
        stream: directory.
        root: its manifest.
        groups: of its manifest.
        start: offset from which on nothing was read.
    """

    stream: str
    root: Root
    groups: Fetch
    start: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one batch; None for none.

    Attributes:
        max_bytes: of fragments.
        max_offsets: of all streams together; holes do not count.
    """

    max_bytes: int | None = None
    max_offsets: int | None = None


def advance(backlogs: Sequence[Backlog], limits: Limits) -> dict[str, int]:
    """Where the next batch ends in each stream, never before its start.

    The oldest fragments of all streams go first, so no stream waits for ever, and streams that are
    read together stay together in time. A fragment that does not fit is cut, in proportion where
    the limit is one of bytes. A batch has at least one offset if there is one.

    Raises:
        What a fetch raises.
    """
    ends = {each.stream: each.start for each in backlogs}
    if limits.max_bytes is None and limits.max_offsets is None:
        return {each.stream: max(each.start, each.root.next_offset) for each in backlogs}
    ahead: list[tuple[int, str, Entry, Iterator[Entry]]] = []
    for each in backlogs:
        _push(ahead, each.stream, leaves(each.root, each.groups, start=each.start))
    left_bytes = float("inf") if limits.max_bytes is None else limits.max_bytes
    left_offsets = float("inf") if limits.max_offsets is None else limits.max_offsets
    progress = False
    while ahead:
        _, stream, entry, rest = heapq.heappop(ahead)
        begin = max(ends[stream], entry.first_offset)
        if entry.kind is not EntryKind.HOLE:
            offsets = entry.next_offset - begin
            size = entry.size * offsets // (entry.next_offset - entry.first_offset)
            if size > left_bytes or offsets > left_offsets:
                part = min(left_bytes / max(size, 1), left_offsets / offsets)
                taken = max(int(offsets * part), 0 if progress else 1)
                if taken:
                    ends[stream] = begin + min(taken, offsets)
                return ends
            left_bytes -= size
            left_offsets -= offsets
            progress = True
        ends[stream] = entry.next_offset
        _push(ahead, stream, rest)
    return ends


def _push(
    ahead: list[tuple[int, str, Entry, Iterator[Entry]]], stream: str, rest: Iterator[Entry]
) -> None:
    entry = next(rest, None)
    if entry is not None:
        heapq.heappush(ahead, (entry.min_timestamp, stream, entry, rest))
