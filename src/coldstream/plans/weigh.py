"""Which of several objects stand for a range of offsets, where a rebuild has to choose.

A way costs, one after the other:

  1. offsets that nobody has declared lost, and that cannot be read: of objects that are known to be
     damaged, and those that nothing stands for;
  2. of these, the ones that nothing stands for: a damaged object may be readable elsewhere;
  3. offsets of holes: data always wins;
  4. offsets taken from what no readable node names: what the tree says stays;
  5. objects.

So where nothing is named and nothing is damaged, the fewest objects win, as for a commit; then the
one that begins first, then the smaller uid.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from coldstream.manifest.entries import Entry, EntryKind
from coldstream.plans.resolve import Verified


class Word(Enum):
    """What a tree says of an object."""

    CERTAIN = "certain"  # the tree that the catalog names has it
    EARLIER = "earlier"  # an earlier tree has it, or one of which nobody knows whether it landed
    NOTHING = "nothing"  # no readable node names it


@dataclass(slots=True, eq=False)
class Candidate:
    """An object that may stand for its offsets, and what is known of it so far.

    Attributes:
        entry: as the tree, the trailer or, if neither is known, the key says.
        word: what a tree says of it.
        there: whether LIST shows it with its size.
        verified: its trailer, if that was read and holds.
        refused: whether its trailer was read and does not hold.
        sound: whether all of its data is what its trailer says; None while nobody has read it.
    """

    entry: Entry
    word: Word = Word.NOTHING
    there: bool = True
    verified: Verified | None = field(default=None, repr=False)
    refused: bool = False
    sound: bool | None = None

    @property
    def first(self) -> int:
        """Its first offset."""
        return self.entry.first_offset

    @property
    def next_offset(self) -> int:
        """One past its last offset."""
        return self.entry.next_offset

    @property
    def hole(self) -> bool:
        """Whether it stands for a range that is lost."""
        return self.entry.kind is EntryKind.HOLE

    @property
    def damaged(self) -> bool:
        """Whether it is known that not all of it can be read."""
        return self.refused or self.sound is False or not (self.there or self.hole)

    def overlaps(self, other: Candidate) -> bool:
        """Whether both hold some offset."""
        return self.first < other.next_offset and other.first < self.next_offset


@dataclass(frozen=True, slots=True)
class Nothing:
    """Offsets [first, next_offset) that no object stands for."""

    first: int
    next_offset: int


Step: TypeAlias = Candidate | Nothing
_Cost: TypeAlias = tuple[int, int, int, int, int]
_Best: TypeAlias = dict[int, tuple[_Cost, Step | None]]
_FREE: _Cost = (0, 0, 0, 0, 0)


def through(
    start: int, end: int, candidates: Iterable[Candidate], *, lossy: bool = True
) -> list[Step] | None:
    """The cheapest way from `start` to `end`.

    Args:
        start: where it begins.
        end: where it ends, above `start`.
        candidates: sorted by first offset, next offset and uid; others than within take no part.
        lossy: whether offsets may be left without any object.

    Returns:
        The steps in offset order; None if there is no way.
    """
    beginning: dict[int, list[Candidate]] = {}
    places = {start, end}
    kept: list[Candidate] = []  # what a tree names and nobody knows to be damaged
    for each in candidates:
        if start <= each.first and each.next_offset <= end:
            beginning.setdefault(each.first, []).append(each)
            places |= {each.first, each.next_offset}
            if each.word is not Word.NOTHING and not each.damaged:
                kept.append(each)
    firsts = [each.first for each in kept]
    best: _Best = {start: (_FREE, None)}
    order = sorted(places)
    for number, place in enumerate(order[:-1]):
        if place not in best:
            continue
        so_far = best[place][0]
        for each in beginning.get(place, ()):
            _offer(best, each.next_offset, _plus(so_far, each), each)
        next_offset = order[number + 1]
        # What a tree names and can be read is never given up, whatever else that would bring.
        if lossy and not _inside(place, kept, firsts):
            length = next_offset - place
            cost = (so_far[0] + length, so_far[1] + length, *so_far[2:])
            _offer(best, next_offset, cost, Nothing(place, next_offset))
    return _joined(_way(best, end)) if end in best else None


def furthest(
    start: int, fragments: Sequence[Candidate], holes: Sequence[Candidate]
) -> list[Candidate]:
    """The run from `start` that reaches furthest, by the rule of `plans.resolve`.

    Where it ends, holes count that lead exactly to where the next fragment begins.

    Args:
        start: where it begins.
        fragments: sorted by first offset, next offset and uid.
        holes: sorted alike.
    """
    firsts = [each.first for each in fragments]
    run: list[Candidate] = []
    while True:
        at = bisect_left(firsts, start)
        best = _reach(start, fragments[at:])
        end = max(best)
        run += [step for step in _way(best, end) if isinstance(step, Candidate)]
        at = bisect_left(firsts, end)
        if at == len(fragments):
            return run
        over = _reach(end, [each for each in holes if end <= each.first])
        if firsts[at] not in over or firsts[at] == end:
            return run
        start = firsts[at]
        run += [step for step in _way(over, start) if isinstance(step, Candidate)]


def _reach(start: int, candidates: Sequence[Candidate]) -> _Best:
    """The cheapest ways from `start` to all offsets that can be reached."""
    best: _Best = {start: (_FREE, None)}
    reached = start
    for each in candidates:
        if each.first > reached:
            break
        if each.first in best:
            _offer(best, each.next_offset, _plus(best[each.first][0], each), each)
            reached = max(reached, each.next_offset)
    return best


def _inside(offset: int, kept: Sequence[Candidate], firsts: Sequence[int]) -> bool:
    """Whether an offset is in one of some objects that overlap nowhere."""
    number = bisect_right(firsts, offset) - 1
    return number >= 0 and offset < kept[number].next_offset


def _plus(cost: _Cost, each: Candidate) -> _Cost:
    unreadable, lost, holes, unnamed, objects = cost
    offsets = each.next_offset - each.first
    return (
        unreadable + (offsets if each.damaged else 0),
        lost,
        holes + (offsets if each.hole else 0),
        unnamed + (offsets if each.word is Word.NOTHING else 0),
        objects + 1,
    )


def _offer(best: _Best, place: int, cost: _Cost, step: Step) -> None:
    if place not in best or cost < best[place][0]:
        best[place] = cost, step


def _way(best: _Best, end: int) -> list[Step]:
    steps: list[Step] = []
    while (step := best[end][1]) is not None:
        steps.append(step)
        end = step.first
    return steps[::-1]


def _joined(steps: Iterable[Step]) -> list[Step]:
    """The same with neighbouring ranges without objects as one."""
    found: list[Step] = []
    for step in steps:
        last = found[-1] if found else None
        if isinstance(step, Nothing) and isinstance(last, Nothing):
            found[-1] = Nothing(last.first, step.next_offset)
        else:
            found.append(step)
    return found
