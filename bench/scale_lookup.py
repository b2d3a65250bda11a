"""An exbibyte's tree, made lazily, looked up at random offsets and times."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import synthetic_stream as synthetic
from coldstream.manifest.entries import Entry
from coldstream.manifest.node import Node, parse_node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import fragments_reaching, leaf_at


@dataclass(frozen=True, slots=True)
class LookUps:
    """Of one kind; times are median seconds of one look-up.

    `parsing` reads every node from its bytes; `warm` has the path in memory, as a cache would.
    """

    look_ups: int
    most_reads: int
    parsing: float
    warm: float


class _Lazy:
    """Nodes of the stream as bytes, made when asked for; counts reads, and the time they took."""

    def __init__(self) -> None:
        self.reads = 0
        self.making = 0.0
        self.known: dict[Entry, Node] = {}

    def fetch(self, entry: Entry) -> Node:
        if entry in self.known:
            return self.known[entry]
        began = time.perf_counter()
        body = synthetic.node(entry).encode()
        self.making += time.perf_counter() - began
        self.reads += 1
        self.known[entry] = parse_node(body, entry)
        return self.known[entry]


def look_up(fragments: int, look_ups: int) -> tuple[LookUps, LookUps]:
    """By offset and by time, with nothing but the root in memory at the start of each."""
    root = synthetic.root(fragments)
    rng = random.Random(2)
    by_offset, by_time = [], []
    for _ in range(look_ups):
        offset = rng.randrange(root.next_offset)
        timed = _timed(partial(_at_offset, root, offset))
        by_offset.append(timed)
        assert timed[0].first_offset <= offset < timed[0].next_offset
        timestamp = rng.randrange(fragments * synthetic.STEP_MS)
        timed = _timed(partial(_at_time, root, timestamp))
        by_time.append(timed)
        right = synthetic.first_reaching(timestamp)
        assert timed[0].first_offset == synthetic.first_offset(right)
    return _figures(by_offset), _figures(by_time)


def _at_offset(root: Root, offset: int, lazy: _Lazy) -> Entry:
    found = leaf_at(root, offset, lazy.fetch)
    assert found is not None
    return found


def _at_time(root: Root, timestamp: int, lazy: _Lazy) -> Entry:
    return next(fragments_reaching(root, timestamp, lazy.fetch))


def _timed(look: Callable[[_Lazy], Entry]) -> tuple[Entry, int, float, float]:
    """What was found, node reads, seconds with parsing, seconds with the path in memory."""
    lazy = _Lazy()
    began = time.perf_counter()
    found = look(lazy)
    parsing = time.perf_counter() - began - lazy.making
    look(lazy)  # makes the running maxima of a look-up by time
    began = time.perf_counter()
    look(lazy)
    return found, lazy.reads, parsing, time.perf_counter() - began


def _figures(timed: list[tuple[Entry, int, float, float]]) -> LookUps:
    return LookUps(
        look_ups=len(timed),
        most_reads=max(each[1] for each in timed),
        parsing=statistics.median(each[2] for each in timed),
        warm=statistics.median(each[3] for each in timed),
    )
