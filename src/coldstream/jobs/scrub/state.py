"""Which offsets were scrubbed when: ranges, not fragments, so it stays small for any stream.

One object a run below `<warehouse>state/`, of which the newest sorts first. It says all that is
known, of all streams, so the others are only history; but two runs at once know different things,
so a run reads the newest few and takes the later time for every offset. Neighbours that were
scrubbed by the same run are one range: a stream has about as many as a cycle over it takes runs.
"""

from __future__ import annotations

import gzip
import heapq
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from coldstream.errors import CorruptDataError
from coldstream.jobs.scrub.places import StateStore
from coldstream.names import MAX_OFFSET, check_stream

VERSION = 1
#: A range of offsets and when it was scrubbed, ms since the Unix epoch; 0 for never.
Span = tuple[int, int, int]

_NEWEST = 8
_MAX_MS = 10**13 - 1
#: Of the JSON, and so of the object, too.
_MAX_JSON = 32 * 2**20
#: Values in it: what a parser needs grows with them, not with the bytes.
_MAX_VALUES = 2 * 10**6
_GZIP = 31  # zlib's word for a gzip member
#: With more ranges than this of one stream neighbours are told as one, by the older time.
_MAX_SPANS = 1000


@dataclass(frozen=True, slots=True)
class ScrubState:
    """When which offsets of which stream were scrubbed.

    Attributes:
        streams: spans by directory name, in order, disjoint; what is in none never was.
    """

    streams: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)

    def of(self, stream: str, first: int, next_offset: int) -> list[Span]:
        """Spans that tile [first, next_offset)."""
        found: list[Span] = []
        at = first
        for start, end, when in self.streams.get(stream, ()):
            low, high = max(start, at), min(end, next_offset)
            if low >= high:
                continue
            if low > at:
                found.append((at, low, 0))
            found.append((low, high, when))
            at = high
        if at < next_offset:
            found.append((at, next_offset, 0))
        return found

    def scrubbed(
        self, stream: str, ranges: Iterable[tuple[int, int]], now_ms: int, *, first: int
    ) -> ScrubState:
        """This state after `ranges` of a stream that now begins at `first` were scrubbed."""
        fresh = tuple((low, high, now_ms) for low, high in ranges)
        mine = _latest([*self.streams.get(stream, ()), *fresh])
        kept = tuple((max(low, first), high, when) for low, high, when in mine if high > first)
        return ScrubState({**self.streams, stream: _bounded(kept)})

    def without(self, gone: Iterable[str]) -> ScrubState:
        """This state without streams that are no more."""
        names = set(gone)
        return ScrubState({name: each for name, each in self.streams.items() if name not in names})

    def __or__(self, other: ScrubState) -> ScrubState:
        names = self.streams.keys() | other.streams.keys()
        return ScrubState(
            {
                name: _bounded(_latest([*self.streams.get(name, ()), *other.streams.get(name, ())]))
                for name in names
            }
        )

    def encode(self) -> bytes:
        """As compressed JSON; where that would be too large, with fewer and older times."""
        most, data = _MAX_SPANS, self._document(_MAX_SPANS)
        while most > 1 and not _small(data):
            most //= 2
            data = self._document(most)
        return gzip.compress(data, mtime=0)

    def _document(self, most: int) -> bytes:
        streams = {
            name: [list(each) for each in _bounded(spans, most)]
            for name, spans in sorted(self.streams.items())
        }
        document = {"version": VERSION, "streams": streams}
        return json.dumps(document, separators=(",", ":")).encode()


def parse_state(data: bytes) -> ScrubState:
    """Read a state object.

    Raises:
        CorruptDataError: it is none, larger than any, or of another version.
    """
    try:
        document: Any = json.loads(_unpacked(data))
        if document["version"] != VERSION:
            raise CorruptDataError(f"scrub state version {document['version']} is not known")
        streams = {
            check_stream(name): tuple(_span(each) for each in spans)
            for name, spans in document["streams"].items()
        }
    except (zlib.error, RecursionError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CorruptDataError(f"a scrub state cannot be read: {exc}") from exc
    return ScrubState({name: _bounded(_latest(spans)) for name, spans in streams.items()})


def _unpacked(data: bytes) -> bytes:
    """The JSON; no more of it than any state has is ever unpacked.

    Raises:
        ValueError, zlib.error: it is not one whole gzip member, or too large.
    """
    member = zlib.decompressobj(_GZIP)
    found = member.decompress(data, _MAX_JSON + 1)
    if not _small(found):
        raise ValueError("larger than any state")
    if not member.eof or member.unused_data:
        raise ValueError("not one whole gzip member")
    return found


def _small(data: bytes) -> bool:
    values = sum(data.count(mark) for mark in (b",", b"[", b"{"))
    return len(data) <= _MAX_JSON and values <= _MAX_VALUES


def load_state(store: StateStore, under: str) -> ScrubState:
    """What is known; nothing if no run ever was. A state that is damaged counts as none.

    Args:
        store: the bucket of the warehouse.
        under: what the keys of states begin with; ends in "/".
    """
    state = ScrubState()
    for row in store.list(under, limit=_NEWEST):
        try:
            state = state | parse_state(store.get_all(row.key, limit=_MAX_JSON))
        except CorruptDataError:
            continue  # the worst that comes of it is that something is scrubbed too early
    return state


def save_state(store: StateStore, under: str, state: ScrubState, *, now_ms: int, uid: int) -> str:
    """Write what is known now; gives the key."""
    key = f"{under}{_MAX_MS - now_ms:013d}.{uid:016x}.json.gz"
    store.put(key, state.encode(), write_id=f"{uid:016x}")
    return key


def _latest(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Disjoint spans in order: for each offset the latest time; equal neighbours are one."""
    starts = sorted(spans)
    borders = sorted({each for low, high, _ in starts for each in (low, high)})
    found: list[Span] = []
    active: list[tuple[int, int]] = []  # a heap: the latest time first, as (-when, end)
    number = 0
    for low, high in pairwise(borders):
        while number < len(starts) and starts[number][0] <= low:
            _, end, when = starts[number]
            heapq.heappush(active, (-when, end))
            number += 1
        while active and active[0][1] <= low:
            heapq.heappop(active)
        if not active:
            continue
        when = -active[0][0]
        if found and found[-1][1] == low and found[-1][2] == when:
            found[-1] = (found[-1][0], high, when)
        else:
            found.append((low, high, when))
    return tuple(found)


def _bounded(spans: tuple[Span, ...], most: int = _MAX_SPANS) -> tuple[Span, ...]:
    found = list(spans)
    while len(found) > most:
        joined = [
            (one[0], other[1], min(one[2], other[2]) if one[1] == other[0] else 0)
            for one, other in zip(found[::2], found[1::2], strict=False)
        ]
        found = joined + ([found[-1]] if len(found) % 2 else [])
    return tuple(found)


def _span(value: Any) -> Span:
    low, high, when = value
    if not all(type(each) is int for each in value) or not 0 <= low < high <= MAX_OFFSET:
        raise CorruptDataError(f"{str(value)[:100]} is no span of offsets")
    if not 0 <= when <= _MAX_MS:
        raise CorruptDataError(f"{str(when)[:20]} is no time")
    return low, high, when
