"""Which fragments continue a manifest: the longest acceptable run from its next offset.

Keys alone decide the run; trailers are then checked one by one, and a fragment that fails is left
out and the run resolved again, because another upload of the same range may be good. Events play no
part: any of them may be lost, late, doubled or reordered (docs/architecture/correctness.md).

A hole stands for a range that both tiers have lost, and data always wins over it. So fragments come
first, and a hole is taken only where it leads from the end of their longest run exactly to the next
offset at which any acceptable fragment begins. Hence

  * a fragment that begins inside a hole keeps that hole out, whoever uploaded it and whenever;
  * of several holes at one place there is nothing to choose: one of them fits or none does;
  * a hole that nothing follows yet is not taken: it waits, and so leaves time to late uploads;
  * what a manifest has taken already changes nothing, because only offsets from the end of the run
    on are looked at: who begins at an older manifest, or at none, decides alike.

A fragment that begins below the end of the run and reaches over it takes no part as it is. It is
data all the same: what it has behind the end is made a fragment first (`usecases.overlap`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coldstream.errors import CorruptDataError, RefusedFragmentError
from coldstream.fragment import Trailer, check_against_key
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import MAX_OFFSET, DataKey


@dataclass(frozen=True, slots=True)
class Listed:
    """A data object as LIST shows it: what its key says, the key itself, and its size in bytes."""

    data_key: DataKey
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A listed fragment whose trailer holds."""

    listed: Listed
    trailer: Trailer

    def entry(self) -> Entry:
        """The manifest entry for it."""
        trailer, key = self.trailer, self.listed.data_key
        return Entry(
            first_offset=trailer.first_offset,
            next_offset=trailer.next_offset,
            min_timestamp=trailer.min_timestamp,
            max_timestamp=trailer.max_timestamp,
            kind=EntryKind.FRAGMENT,
            size=self.listed.size,
            records=trailer.records,
            epoch=trailer.epoch,
            uid=key.uid,
        )


@dataclass(frozen=True, slots=True)
class VerifiedHole:
    """A listed hole that may enter the manifest.

    Attributes:
        listed: the object.
        timestamp: greatest chunk timestamp before it, ms; 0 if nothing is known to be before it.
    """

    listed: Listed
    timestamp: int

    def entry(self) -> Entry:
        """The manifest entry for it: no bytes, no records, and both times are those before it."""
        key = self.listed.data_key
        return Entry(
            first_offset=key.first_offset,
            next_offset=key.next_offset,
            min_timestamp=self.timestamp,
            max_timestamp=self.timestamp,
            kind=EntryKind.HOLE,
            size=0,
            records=0,
            epoch=key.epoch,
            uid=key.uid,
        )


#: One step of a run.
Step: TypeAlias = Verified | VerifiedHole


@dataclass(frozen=True, slots=True)
class Resolution:
    """What continues a manifest, as far as keys say.

    Attributes:
        run: fragments and holes that join, in offset order; the last one is a fragment.
        listed_to: the run is final once all keys with first offsets up to this have been seen.
        waiting: whether a hole begins where the run ends, and will count once a fragment begins
            where it ends.
    """

    run: tuple[Listed, ...]
    listed_to: int
    waiting: bool = False


def resolve_run(
    next_offset: int,
    ledger: Ledger,
    listed: Iterable[Listed],
    *,
    without: Collection[str] = (),
) -> tuple[Listed, ...]:
    """The run from `next_offset` on; see `resolve`."""
    return resolve(next_offset, ledger, listed, without=without).run


def resolve(
    next_offset: int,
    ledger: Ledger,
    listed: Iterable[Listed],
    *,
    without: Collection[str] = (),
) -> Resolution:
    """The run of fragments from `next_offset` that reaches furthest, over holes where it must.

    Only objects that the ledger accepts take part. Among runs that reach the same offset the one
    with the fewest fragments wins; then, fragment by fragment from the end, the one that begins
    first, then the smaller uid. So every committer that sees the same objects decides alike.

    Where the run ends, holes may lead to the next acceptable fragment; of those that do, the same
    rules choose. From there on the run is resolved in the same way.

    Args:
        next_offset: where the run must start.
        ledger: claims so far.
        listed: candidates in any order.
        without: paths that were refused before.

    Returns:
        The run in offset order, empty if nothing continues the manifest.
    """
    candidates = Candidates(next_offset, ledger)
    candidates.add(each for each in listed if each.path not in without)
    return candidates.resolved()


class Candidates:
    """All that may continue a manifest, for a run that is resolved again and again.

    What comes is weighed against the ledger and sorted once, so that where very many objects are
    refused each resolution costs no more than a walk along the run.

    Args:
        next_offset: where the run must start.
        ledger: claims so far.
    """

    def __init__(self, next_offset: int, ledger: Ledger) -> None:
        self._start = next_offset
        self._ledger = ledger
        self._fragments: list[Listed] = []
        self._holes: list[Listed] = []

    def add(self, listed: Iterable[Listed]) -> None:
        """Take what the ledger accepts, in any order."""
        for each in listed:
            key = each.data_key
            if key.first_offset >= self._start and self._ledger.accepts(
                key.epoch, key.first_offset, key.next_offset
            ):
                (self._fragments if key.kind == "fragment" else self._holes).append(each)
        for sequence in (self._fragments, self._holes):
            sequence.sort(key=_rank)

    def drop(self, refused: Listed) -> None:
        """Leave an object out from now on."""
        fragment = refused.data_key.kind == "fragment"
        sequence = self._fragments if fragment else self._holes
        number = _number_of(sequence, refused.data_key.first_offset)
        while sequence[number].path != refused.path:
            number += 1
        del sequence[number]

    def beginning_at(self, offset: int) -> list[Listed]:
        """The fragments that could continue a run that ends at an offset."""
        begin = _number_of(self._fragments, offset)
        end = bisect_right(self._fragments, offset, lo=begin, key=_first_offset)
        return self._fragments[begin:end]

    def reaching_over(self, offset: int) -> list[Listed]:
        """The fragments that begin below an offset and end above it."""
        below = self._fragments[: _number_of(self._fragments, offset)]
        return [each for each in below if each.data_key.next_offset > offset]

    def resolved(self) -> Resolution:
        """The run; see `resolve`."""
        fragments, holes = self._fragments, self._holes
        run: list[Listed] = []
        at, start = 0, self._start
        while True:
            ways = _ways(start, fragments, at)
            end = max(ways)
            run += _way(ways, end)
            at = bisect_right(fragments, end, lo=at, key=_first_offset)
            next_offset = fragments[at].data_key.first_offset if at < len(fragments) else MAX_OFFSET
            over = _ways(end, holes, _number_of(holes, end), until=next_offset)
            if at == len(fragments):
                # Where a fragment may still follow one of the holes, it has to be looked for.
                return Resolution(tuple(run), listed_to=max(over), waiting=len(over) > 1)
            if next_offset not in over:
                return Resolution(tuple(run), listed_to=end, waiting=len(over) > 1)
            run += _way(over, next_offset)
            start = next_offset

    def settled(self, run: Sequence[Listed], *, seen_to: int) -> int:
        """How many objects of a run, all of which hold, begin it whatever is refused after them.

        Where no candidate that can be reached goes over a join of the run, every run goes through
        it, so what comes after it and what came before have nothing to say about each other: the
        way to it stays the shortest one, and no hole before it can open or close. So a committer
        that takes only these takes nothing that one with more patience would not take.

        Args:
            run: the beginning of the resolved run.
            seen_to: all keys with first offsets below this have been added.
        """
        reachable, furthest = {self._start}, self._start
        at = settled = 0
        for number, step in enumerate(run, 1):
            join = step.data_key.next_offset
            if join > seen_to:
                break
            if step.data_key.kind == "hole":
                reachable.add(join)
                furthest = max(furthest, join)
            while at < len(self._fragments):
                key = self._fragments[at].data_key
                if key.first_offset >= join:
                    break
                if key.first_offset in reachable:
                    reachable.add(key.next_offset)
                    furthest = max(furthest, key.next_offset)
                at += 1
            if furthest == join and step.data_key.kind == "fragment":
                settled = number  # never at a hole: what follows it is taken with it
        return settled

    def over(self, offset: int) -> list[Listed]:
        """The fragments that can be reached, begin below an offset and end above it."""
        ways = _ways(self._start, self._fragments, 0)
        found = self.reaching_over(offset)
        return [each for each in found if each.data_key.first_offset in ways]


def _first_offset(listed: Listed) -> int:
    return listed.data_key.first_offset


def _rank(listed: Listed) -> tuple[int, int, int]:
    key = listed.data_key
    return key.first_offset, key.next_offset, key.uid


#: By offset: the length of the shortest run to it, and the last object of that run.
_Ways: TypeAlias = dict[int, tuple[int, Listed | None]]


def _ways(start: int, sequence: Sequence[Listed], at: int, *, until: int = MAX_OFFSET) -> _Ways:
    """The shortest runs from `start` to every offset that can be reached, up to `until`.

    Args:
        start: where they begin.
        sequence: sorted by first offset, next offset and uid.
        at: number of the first object in it that need be looked at.
        until: no object that ends above this takes part.
    """
    best: _Ways = {start: (0, None)}
    furthest = start
    # In order of their first offset, so a run to an object is final when it is looked up.
    for number in range(at, len(sequence)):
        each = sequence[number]
        if each.data_key.first_offset > furthest:
            break
        so_far = best.get(each.data_key.first_offset)
        if so_far is None or each.data_key.next_offset > until:
            continue
        there = best.get(each.data_key.next_offset)
        if there is None or so_far[0] + 1 < there[0]:
            best[each.data_key.next_offset] = (so_far[0] + 1, each)
            furthest = max(furthest, each.data_key.next_offset)
    return best


def _way(ways: _Ways, offset: int) -> list[Listed]:
    """The run to `offset`, in offset order."""
    run: list[Listed] = []
    while (last := ways[offset][1]) is not None:
        run.append(last)
        offset = last.data_key.first_offset
    return run[::-1]


def _number_of(sequence: Sequence[Listed], first_offset: int) -> int:
    """Index of the first object at or above an offset, in a sequence sorted by first offset."""
    return bisect_left(sequence, first_offset, key=_first_offset)


def check_fragment(
    listed: Listed, trailer: Trailer, *, ledger: Ledger, last_chunk: LastChunk | None
) -> Verified:
    """A fragment may enter the manifest: its trailer holds against key, size, ledger, neighbour.

    Between neighbours only two things are asked: that offsets join (the run sees to it) and that
    chunk epochs never fall. Segment, sequence and position are no condition, because another node
    may have rolled its segments elsewhere.

    Args:
        listed: the object.
        trailer: parsed from its last bytes.
        ledger: claims so far.
        last_chunk: of the fragment (or manifest) before it, None where there is none.

    Raises:
        RefusedFragmentError: with stream, offset and key in its message.
    """
    key = listed.data_key
    try:
        check_against_key(trailer, key, listed.size)
        floor = ledger.floor(key.epoch)
        if trailer.floor != floor:
            raise CorruptDataError(
                f"the trailer says floor {trailer.floor}, the ledger says {floor}"
                f" for epoch {key.epoch}"
            )
        if last_chunk is not None and trailer.first_chunk_epoch < last_chunk.epoch:
            raise CorruptDataError(
                f"chunk epochs fall from {last_chunk.epoch} to {trailer.first_chunk_epoch}"
            )
    except CorruptDataError as exc:
        raise RefusedFragmentError(
            f"fragment refused: {exc.reason}",
            stream=key.stream,
            offset=key.first_offset,
            key=listed.path,
        ) from exc
    return Verified(listed, trailer)


def check_hole(listed: Listed, *, timestamp: int) -> VerifiedHole:
    """A hole may enter the manifest: its object is empty, as holes are.

    Args:
        listed: the object.
        timestamp: greatest chunk timestamp before it, ms.

    Raises:
        RefusedFragmentError: something is in it; what that is, a person should see.
    """
    if listed.size:
        raise RefusedFragmentError(
            f"hole refused: an object of {listed.size} bytes is none",
            stream=listed.data_key.stream,
            offset=listed.data_key.first_offset,
            key=listed.path,
        )
    return VerifiedHole(listed, timestamp)


def last_chunk_of(run: Iterable[Step], before: LastChunk | None) -> LastChunk | None:
    """Identity of the last chunk after `run`, `before` if it has no fragment."""
    for each in run:
        if isinstance(each, Verified):
            before = LastChunk(each.trailer.last_chunk_id, each.trailer.last_chunk_epoch)
    return before


def highest_timestamp(root: Root) -> int:
    """The greatest chunk timestamp in a manifest, ms: that of a hole at its end. 0 if empty."""
    return root.entries.summary().max_timestamp


def append_run(root: Root, run: Iterable[Step]) -> Root:
    """`root` with a verified run at its end; the very same root if the run is empty."""
    run = tuple(run)
    last = last_chunk_of(run, root.last_chunk)
    if not run or last is None:
        return root
    return root.appended((each.entry() for each in run), last)
