"""What a run scrubs: the longest unchecked first, within its budget, packed into even tasks.

The driver knows the entries of the roots, and of the groups above groups. A whole group is taken
without looking into it; only groups of which a run takes a part are read, which are those at which
the budget of this run or of an earlier one has ended. So the budget holds to the fragment, and a
petabyte costs the driver few requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.tree import TreeTop
from coldstream.manifest.entries import Entry, EntryKind

#: Units of one task, at most.
_TASK_UNITS = 4096
#: Gives the children of a group, as far as they can be read.
Children = Callable[[TreeTop, Entry], Sequence[Entry]]


@dataclass(frozen=True, slots=True)
class ScrubUnit:
    """A part of one entry of a tree.

    Attributes:
        stream: directory name.
        entry: a fragment, a hole, or a group of these.
        first: the part is what begins in offsets [first, next_offset) below the entry.
        next_offset: see `first`.
        scrubbed_ms: when the longest unchecked part of it was scrubbed; 0 for never.
        size: bytes, estimated for a part of a group.
    """

    stream: str
    entry: Entry
    first: int
    next_offset: int
    scrubbed_ms: int
    size: int

    @property
    def whole(self) -> bool:
        """Whether it is all of its entry."""
        return (self.first, self.next_offset) == (self.entry.first_offset, self.entry.next_offset)


def units_of(tree: TreeTop, state: ScrubState, children: Children) -> Iterator[ScrubUnit]:
    """Everything alive of a stream, in the order of offsets."""
    for entry in _groups(tree, tree.live(), children):
        first = max(entry.first_offset, tree.first_offset)
        spans = state.of(tree.stream, first, entry.next_offset)
        if not entry.kind.level:
            when = min(each[2] for each in spans)
            yield ScrubUnit(
                tree.stream, entry, entry.first_offset, entry.next_offset, when, entry.size
            )
            continue
        for low, high, when in spans:
            yield ScrubUnit(tree.stream, entry, low, high, when, _share(entry, low, high))


def chosen(
    units: Iterable[ScrubUnit],
    *,
    max_bytes: int,
    before_ms: int,
    parts: Callable[[ScrubUnit], Sequence[ScrubUnit]],
) -> list[ScrubUnit]:
    """The units of a run.

    Args:
        units: all there are.
        max_bytes: what a run may read; one fragment is read however large it is.
        before_ms: what was scrubbed at this time or later is left out, ms since the Unix epoch.
        parts: cuts a part of a group into its fragments.
    """
    waiting = [each for each in units if each.scrubbed_ms < before_ms or not each.scrubbed_ms]
    waiting.sort(key=lambda each: (each.scrubbed_ms, each.stream, each.first))
    taken: list[ScrubUnit] = []
    left = max_bytes
    for unit in waiting:
        # A whole group is as large as it says; of a part, and where the budget ends, each fragment
        # counts.
        exact = not unit.entry.kind.level or (unit.whole and unit.size <= left)
        for part in [unit] if exact else parts(unit):
            if part.size > left and taken:
                return taken
            taken.append(part)
            left -= part.size
    return taken


def packed(units: Iterable[ScrubUnit], *, task_bytes: int) -> list[list[ScrubUnit]]:
    """Tasks of about `task_bytes`; neighbours stay together."""
    tasks: list[list[ScrubUnit]] = []
    size = 0
    for unit in sorted(units, key=lambda each: (each.stream, each.first)):
        for part in _halved(unit, task_bytes):
            if not tasks or size + part.size > task_bytes or len(tasks[-1]) >= _TASK_UNITS:
                tasks.append([])
                size = 0
            tasks[-1].append(part)
            size += part.size
    return tasks


def fragments_of(unit: ScrubUnit, children: Sequence[Entry], first_offset: int) -> list[ScrubUnit]:
    """A part of a group as single fragments and holes.

    Args:
        unit: the part.
        children: of the group.
        first_offset: of the manifest.
    """
    return [
        replace(
            unit,
            entry=each,
            first=each.first_offset,
            next_offset=each.next_offset,
            size=each.size,
        )
        for each in children
        if each.next_offset > first_offset
        # Each begins in exactly one part, however parts are cut; what is dead of it counts not.
        and unit.first <= max(each.first_offset, first_offset) < unit.next_offset
    ]


def _groups(tree: TreeTop, entries: Iterable[Entry], children: Children) -> Iterator[Entry]:
    """Entries of no higher level than groups of fragments, those that are alive."""
    for entry in entries:
        if entry.next_offset <= tree.first_offset:
            continue
        if entry.kind.level > EntryKind.GROUP:
            yield from _groups(tree, children(tree, entry), children)
        else:
            yield entry


def _share(entry: Entry, first: int, next_offset: int) -> int:
    return entry.size * (next_offset - first) // (entry.next_offset - entry.first_offset)


def _halved(unit: ScrubUnit, task_bytes: int) -> Iterator[ScrubUnit]:
    """A part of a group in equal parts of at most `task_bytes`."""
    span = unit.next_offset - unit.first
    count = max(1, min(-(-unit.size // task_bytes), span)) if unit.entry.kind.level else 1
    for number in range(count):
        low = unit.first + span * number // count
        high = unit.first + span * (number + 1) // count
        yield replace(unit, first=low, next_offset=high, size=unit.size // count)
