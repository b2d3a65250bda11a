"""A stream of any length by arithmetic: every fragment, group and root is made when asked for.

Fragment i begins about 65,536 records behind its neighbour, has exactly 64 MiB, and takes 100 ms.
Every eighth one was written by a clock that was 300 ms behind, so times fall within every group;
over a whole number of eights the extremes are those of a clock that never fell.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from coldstream.manifest.entries import Entries, Entry, entry_dtype
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, LastChunk, Root

M = 1024
SIZE = 64 * 2**20
STEP_MS = 100
RECORDS = 2**16
STREAM = "__scale_1745252105682952932"
PREFIX = "rabbitmq/"
EPOCH = 2
LEDGER = Ledger.of([(1, 0), (EPOCH, 0)])  # what epoch 1 uploads comes too late

#: Children of a group of each level. 1,024 kilo-groups of 64 MiB fragments would be 2**56 bytes,
#: one too many for an entry, so `rebalance` puts one kilo-group less under a mega-group.
CHILDREN = (1, M, M, M - 1)
SPANS = (1, M, M**2, M**2 * (M - 1))  # fragments below a group of each level

_FALLS = 5  # of eight fragments, the one whose clock was behind


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 bits that look random for each number (splitmix64)."""
    x = numbers * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def firsts(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """First offsets of fragments, at uneven distances."""
    uneven = mixed(numbers) % np.uint64(RECORDS // 2)
    return numbers * np.uint64(RECORDS) + np.where(numbers == 0, 0, uneven)


def first_offset(number: int) -> int:
    """First offset of one fragment."""
    return int(firsts(np.array([number], np.uint64))[0])


def max_timestamp(number: int) -> int:
    """Greatest timestamp of one fragment, ms."""
    return (number + 1) * STEP_MS - (3 * STEP_MS if number % 8 == _FALLS else 0)


def first_reaching(timestamp: int) -> int:
    """The first fragment that has a chunk at or after a time, by looking at some neighbours."""
    near = max(0, timestamp // STEP_MS - 12)
    return next(number for number in count(near) if max_timestamp(number) >= timestamp)


def entries(begin: int, end: int, level: int = 0) -> bytes:
    """Encoded entries of the fragments, or of the groups of a level, `begin` to `end`.

    Groups are counted from the beginning of the stream and full.
    """
    span = SPANS[level]
    numbers = np.arange(begin, end + 1, dtype=np.uint64) * np.uint64(span)
    offsets = firsts(numbers)
    times = numbers[:-1].astype(np.int64) * STEP_MS
    late = np.uint64(level == 0) * (numbers[:-1] % np.uint64(8) == _FALLS)
    times -= 3 * STEP_MS * late.astype(np.int64)
    made = np.empty(end - begin, entry_dtype())
    made["first_offset"] = offsets[:-1]
    made["next_offset"] = offsets[1:]
    made["min_timestamp"] = times
    made["max_timestamp"] = times + STEP_MS * span
    made["kind_size"] = level << 56 | SIZE * span
    made["records"] = span if level else (offsets[1:] - offsets[:-1]).astype(np.uint32)
    made["epoch"] = EPOCH
    made["uid"] = uids(numbers[:-1], level)
    return made.tobytes()


def uids(numbers: NDArray[np.uint64], level: int) -> NDArray[np.uint64]:
    """Ids of fragments and groups by the number of their first fragment; the top bit is clear."""
    salted = numbers * np.uint64(4) + np.uint64(level)
    return mixed(salted) >> np.uint64(1)


def children(first: int, level: int) -> Entries:
    """Of the group of a level that begins at offset `first`."""
    begin = first // (RECORDS * SPANS[level]) * CHILDREN[level]
    return Entries(entries(begin, begin + CHILDREN[level], level - 1))


def node(entry: Entry) -> Node:
    """The group that an entry of this stream refers to."""
    return Node(entry.kind, entry.uid, children(entry.first_offset, entry.kind.level))


def shape(fragments: int) -> list[int]:
    """How many groups of each level were ever made, the fragments themselves first.

    A level that has 2M entries gives the oldest M away (see `CHILDREN`).
    """
    made = [fragments]
    for taken in CHILDREN[1:]:
        made.append(max(0, (made[-1] - 2 * M + taken) // taken))
    return made


def grouped(made: list[int]) -> list[int]:
    """How many of each level lie below a group of the next one, by what `shape` says."""
    return [*(taken * above for taken, above in zip(CHILDREN[1:], made[1:], strict=True)), 0]


def root(fragments: int) -> Root:
    """The root after so many appends, each with a rebalance."""
    made = shape(fragments)
    body = b"".join(
        entries(below, made[level], level) for level, below in reversed([*enumerate(grouped(made))])
    )
    whole = Entries(body)
    oldest = Entries(entries(0, 1))[0]
    next_offset = first_offset(fragments)
    return Root(
        first_offset=0,
        next_offset=next_offset,
        epoch=EPOCH,
        version=fragments,
        ledger=LEDGER,
        entries=whole,
        head=Head(oldest.min_timestamp, oldest.max_timestamp) if made[1] else None,
        last_chunk=LastChunk(next_offset - 1, EPOCH),
    )


def group_uids() -> Iterator[int]:
    """Ids for groups that a plan makes, none of which is one of this stream's own."""
    return count(2**63)
