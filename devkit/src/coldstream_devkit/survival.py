"""Whether fragments of an older manifest survive in a newer one: as they are, or replaced in full.

Two lists of neighbours over the same offsets are cut where both have a border. In every such block
the newer ones must be the older ones, or stand for them: the same offsets, no hole where there was
data, and together the same records, timestamps and epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from coldstream.manifest.entries import MAX_RECORDS, Entry, EntryKind


def losses(
    old: Iterable[Entry], new: Iterable[Entry], start: int, end: int
) -> Iterator[tuple[Entry, str]]:
    """What of `old` does not survive in `new`: the entry where it begins, and how, in words.

    Args:
        old: fragments and holes in offset order.
        new: the same, later.
        start: nothing below this offset need survive,
        end: nor anything at or above this one; what reaches over it may have been cut.
    """
    had = [e for e in old if e.first_offset < end and start < e.next_offset]
    has = [e for e in new if e.first_offset < end and start < e.next_offset]
    while had:
        if not has:
            yield had[0], "nothing holds it any more"
            return
        if had[0] == has[0]:
            del had[0], has[0]
            continue
        before, after = _block(had, has, end)
        problem = _problem(before, after, start, end)
        if problem:
            yield before[0], problem
        del had[: len(before)], has[: len(after)]


def _block(had: list[Entry], has: list[Entry], end: int) -> tuple[list[Entry], list[Entry]]:
    """As many of both as it takes to come to a common border."""
    one = other = 1
    while True:
        here, there = (min(e.next_offset, end) for e in (had[one - 1], has[other - 1]))
        if here < there and one < len(had):
            one += 1
        elif there < here and other < len(has):
            other += 1
        else:
            return had[:one], has[:other]


def _problem(before: list[Entry], after: list[Entry], start: int, end: int) -> str:
    """How `after` fails to stand for `before`; "" if it does."""
    lost = [e for e in after if e.kind is EntryKind.HOLE and not _in_hole(e, before)]
    if lost:
        return f"a hole has taken the place of data at offset {lost[0].first_offset}"
    borders = [
        (max(each[0].first_offset, start), min(each[-1].next_offset, end))
        for each in (before, after)
    ]
    if any(one.next_offset != other.first_offset for one, other in pairwise(after)):
        return "there is a gap in what has taken its place"
    if borders[0] != borders[1]:
        return f"offsets {borders[0]} are held by entries over {borders[1]}"
    cut = before[0].first_offset < start or before[-1].next_offset > end
    if cut or any(e.kind is EntryKind.HOLE for e in before):
        return ""  # a part of it, or data found for what was lost: sums may differ
    for what, ours, theirs in zip(
        ("records", "timestamps", "epochs"), _sums(before), _sums(after), strict=True
    ):
        if ours != theirs:
            return f"what has taken its place has {what} {theirs}, not {ours}"
    return ""


def _in_hole(hole: Entry, before: list[Entry]) -> bool:
    """Whether there was nothing but holes over the offsets of `hole`."""
    return all(
        e.kind is EntryKind.HOLE
        for e in before
        if e.first_offset < hole.next_offset and hole.first_offset < e.next_offset
    )


def _sums(entries: list[Entry]) -> tuple[int, tuple[int, int], list[int]]:
    return (
        min(sum(e.records for e in entries), MAX_RECORDS),
        (min(e.min_timestamp for e in entries), max(e.max_timestamp for e in entries)),
        sorted({e.epoch for e in entries}),
    )
