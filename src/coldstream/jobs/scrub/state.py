"""Which offsets were scrubbed when: ranges, not fragments, so it stays small for any stream.

One object a run below `<warehouse>state/`, of which the newest sorts first. It says all that is
known, of all streams, so the others are only history; but two runs at once know different things,
so a run reads the newest few and takes the later time for every offset. Neighbours that were
scrubbed by the same run are one range: a stream has about as many as a cycle over it takes runs.
"""

from __future__ import annotations

import gzip
import json
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
_MAX_BYTES = 64 * 2**20
#: With more ranges than this of one stream neighbours are told as one, by the older time.
_MOST_SPANS = 1000


@dataclass(frozen=True, slots=True)
class ScrubState:
    """When which offsets of which stream were scrubbed.

    Attributes:
        streams: spans by directory name, in order, disjoint; what is in none never was.
    """

    streams: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)

    def of(self, stream: str, first: int, following: int) -> list[Span]:
        """Spans that tile [first, following)."""
        found: list[Span] = []
        at = first
        for start, end, when in self.streams.get(stream, ()):
            low, high = max(start, at), min(end, following)
            if low >= high:
                continue
            if low > at:
                found.append((at, low, 0))
            found.append((low, high, when))
            at = high
        if at < following:
            found.append((at, following, 0))
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
        """As compressed JSON."""
        document = {
            "version": VERSION,
            "streams": {name: [list(each) for each in spans] for name, spans in
                        sorted(self.streams.items())},
        }  # fmt: skip
        return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def parse_state(data: bytes) -> ScrubState:
    """Read a state object.

    Raises:
        CorruptDataError: it is none, or of another version.
    """
    try:
        document: Any = json.loads(gzip.decompress(data))
        if document["version"] != VERSION:
            raise CorruptDataError(f"scrub state version {document['version']} is not known")
        streams = {
            check_stream(name): tuple(_span(each) for each in spans)
            for name, spans in document["streams"].items()
        }
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CorruptDataError(f"a scrub state cannot be read: {exc}") from exc
    return ScrubState({name: _latest(spans) for name, spans in streams.items()})


def load_state(store: StateStore, under: str) -> ScrubState:
    """What is known; nothing if no run ever was. A state that is damaged counts as none.

    Args:
        store: the bucket of the warehouse.
        under: what the keys of states begin with; ends in "/".
    """
    state = ScrubState()
    for row in store.list(under, limit=_NEWEST):
        try:
            state = state | parse_state(store.get_all(row.key, limit=_MAX_BYTES))
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
    ordered = list(spans)
    borders = sorted({each for low, high, _ in ordered for each in (low, high)})
    starts = sorted(ordered)
    found: list[Span] = []
    active: list[Span] = []
    number = 0
    for low, high in pairwise(borders):
        while number < len(starts) and starts[number][0] <= low:
            active.append(starts[number])
            number += 1
        active = [each for each in active if each[1] > low]
        if not active:
            continue
        when = max(each[2] for each in active)
        if found and found[-1][1] == low and found[-1][2] == when:
            found[-1] = (found[-1][0], high, when)
        else:
            found.append((low, high, when))
    return tuple(found)


def _bounded(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    found = list(spans)
    while len(found) > _MOST_SPANS:
        joined = [
            (one[0], other[1], min(one[2], other[2]) if one[1] == other[0] else 0)
            for one, other in zip(found[::2], found[1::2], strict=False)
        ]
        found = joined + ([found[-1]] if len(found) % 2 else [])
    return tuple(found)


def _span(value: Any) -> Span:
    low, high, when = value
    if not all(type(each) is int for each in value) or not 0 <= low < high <= MAX_OFFSET:
        raise CorruptDataError(f"{value!r} is no span of offsets")
    return low, high, when
