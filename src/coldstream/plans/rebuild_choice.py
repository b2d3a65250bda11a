"""Which of the objects that overlap stand for their offsets: by trees, trailers and data.

Trailers and data come from functions that the caller gives. Every trailer of a cluster is read
once. Data is read only where a range is contested: where a way goes over an object that another one
overlaps, or that takes the place of what a tree names, and no certain tree names it itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from coldstream.errors import RefusedFragmentError
from coldstream.fragment import Trailer
from coldstream.manifest.entries import Entries, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk
from coldstream.plans import weigh
from coldstream.plans.key_columns import KeyReader
from coldstream.plans.rebuild_told import Replaced, Shortfall, Told
from coldstream.plans.resolve import Listed, Verified, check_fragment
from coldstream.plans.weigh import Candidate, Nothing, Step, Word

#: Gives the trailers of fragments, in their order; an error for each that has none that holds.
Trailers: TypeAlias = Callable[[Sequence[Listed]], Sequence[Trailer | RefusedFragmentError]]

#: Says of fragments whose trailers hold whether all of their data is what the trailer says.
Sound: TypeAlias = Callable[[Sequence[Verified]], Sequence[bool]]


class Choice:
    """Chooses among candidates, and tells what it left out.

    Args:
        reader: of the stream's keys.
        ledger: of the new manifest.
        trailers: reads trailers; None leaves everything unverified.
        sound: reads data; None if nobody can.
        told: gets what was left out.
    """

    def __init__(
        self,
        reader: KeyReader,
        ledger: Ledger,
        trailers: Trailers | None,
        sound: Sound | None,
        told: Told,
    ) -> None:
        self._reader = reader
        self._ledger = ledger
        self._trailers = trailers
        self._sound = sound
        self._told = told

    def all_hold(self, entries: Entries) -> list[Verified] | None:
        """What the trailers of fragments say, None if one of them does not hold.

        Where no trailers are read, nothing is said of them, and nothing is wrong.
        """
        if self._trailers is None:
            return []
        candidates = [
            Candidate(each, Word.CERTAIN) for each in entries if each.kind is EntryKind.FRAGMENT
        ]
        found = self._read(candidates)
        held = [each for each in found if isinstance(each, Verified)]
        return held if len(held) == len(found) else None

    def read(self, candidates: Sequence[Candidate]) -> None:
        """Read the trailers that are not known yet; what does not hold is refused and told."""
        if self._trailers is None:
            return
        new = [each for each in candidates if not (each.hole or each.refused) and not each.verified]
        for each, found in zip(new, self._read(new), strict=True):
            if isinstance(found, Verified):
                each.verified, each.entry = found, found.entry()
            else:
                each.refused = True
                self._told.refuse(found)

    def through(
        self,
        start: int,
        end: int,
        candidates: Sequence[Candidate],
        gone: Sequence[tuple[int, int]],
        last_chunk: LastChunk | None,
    ) -> list[Step]:
        """The best way from `start` to `end`, whatever it has to leave out.

        Args:
            start: where it begins.
            end: where it ends.
            candidates: sorted by first offset, next offset and uid.
            gone: ranges that a tree names, and whose objects are gone.
            last_chunk: before `start`, if it is known.
        """
        self.read(candidates)
        data = [each for each in candidates if not each.hole]
        named = _spans(each for each in data if each.word is Word.CERTAIN)
        while True:
            # What a tree names stays a choice though it is damaged: some of it may be readable.
            usable = [each for each in candidates if _usable(each, named)]
            steps = weigh.through(start, end, usable) or [Nothing(start, end)]
            objects = [step for step in steps if isinstance(step, Candidate)]
            if not (self._look_into(objects, usable, gone) or self._falls(objects, last_chunk)):
                break
        self._tell(objects, candidates)
        spoiled = [each for each in data if each.refused and each.word is not Word.NOTHING]
        self._tell_holes(objects, merged([*gone, *_spans(spoiled)]))
        return steps

    def furthest(
        self,
        start: int,
        candidates: Sequence[Candidate],
        holes: Sequence[Candidate],
        last_chunk: LastChunk | None,
    ) -> tuple[list[Candidate], int | None]:
        """The run from `start` that reaches furthest, by the rule of `plans.resolve`.

        An object that is damaged counts only where nothing else leads as far.

        Returns:
            The run, and where the first fragment behind its end begins, None if there is none.
        """
        self.read(candidates)
        while True:
            usable = [each for each in candidates if not each.refused]
            run = weigh.furthest(start, [each for each in usable if not each.damaged], holes)
            every = weigh.furthest(start, usable, holes)
            if _end(every, start) > _end(run, start):
                both = sorted([*usable, *holes], key=_rank)
                steps = weigh.through(start, _end(every, start), both, lossy=False)
                run = [step for step in steps or every if isinstance(step, Candidate)]
            if not (self._look_into(run, usable, ()) or self._falls(run, last_chunk)):
                break
        self._tell(run, ())
        end = _end(run, start)
        return run, next((each.first for each in usable if each.first >= end), None)

    def _read(self, candidates: Sequence[Candidate]) -> list[Verified | RefusedFragmentError]:
        assert self._trailers is not None
        keys = [(each.entry.data_key(self._reader.stream), each.entry.size) for each in candidates]
        listed = [Listed(key, key.path(self._reader.prefix), size) for key, size in keys]
        found: list[Verified | RefusedFragmentError] = []
        for each, trailer in zip(listed, self._trailers(listed), strict=True):
            if isinstance(trailer, RefusedFragmentError):
                found.append(trailer)
                continue
            try:
                found.append(check_fragment(each, trailer, ledger=self._ledger, last_chunk=None))
            except RefusedFragmentError as error:
                found.append(error)
        return found

    def _look_into(
        self,
        way: Sequence[Candidate],
        usable: Sequence[Candidate],
        gone: Sequence[tuple[int, int]],
    ) -> bool:
        """Read the data of what is contested on a way; whether some of it is damaged."""
        if self._sound is None:
            return False
        contested = _contested([each for each in usable if not each.hole])
        holes = [each for each in usable if each.hole and each.word is not Word.NOTHING]
        doubtful = [
            each
            for each in way
            if each.verified is not None
            and each.sound is None
            and each.word is not Word.CERTAIN
            and (
                id(each) in contested
                or _overlap(gone, each)
                or any(each.overlaps(hole) for hole in holes)
            )
        ]
        if not doubtful:
            return False
        if self._all_sound(doubtful):
            return False
        spoiled = {(each.first, each.next_offset) for each in doubtful if each.sound is False}
        for each in usable:
            # Other uploads of the same range, until one is whole: not one turn for each of them.
            span = each.first, each.next_offset
            unread = each.verified is not None and each.sound is None
            if span in spoiled and unread and self._all_sound([each]):
                spoiled.discard(span)
        return True

    def _all_sound(self, candidates: Sequence[Candidate]) -> bool:
        assert self._sound is not None
        verified = [each.verified for each in candidates if each.verified is not None]
        for each, sound in zip(candidates, self._sound(verified), strict=True):
            each.sound = sound
        return all(each.sound for each in candidates)

    def _falls(self, way: Sequence[Candidate], last_chunk: LastChunk | None) -> bool:
        """Refuse what cannot follow its neighbour because chunk epochs fall; whether there was."""
        epoch = last_chunk.epoch if last_chunk is not None else 0
        before: Candidate | None = None
        for each in way:
            if each.verified is None:
                continue
            trailer = each.verified.trailer
            if trailer.first_chunk_epoch < epoch:
                # What a tree names was checked when it was committed: then the other one is wrong.
                bad = each if each.word is Word.NOTHING else before
                if bad is not None and bad.word is Word.NOTHING:
                    self._refuse(bad, epoch, trailer.first_chunk_epoch)
                    return True
            epoch, before = trailer.last_chunk_epoch, each
        return False

    def _refuse(self, bad: Candidate, before: int, after: int) -> None:
        assert bad.verified is not None
        listed = bad.verified.listed
        bad.refused = True
        self._told.refuse(
            RefusedFragmentError(
                f"fragment refused: chunk epochs fall from {before} to {after}",
                stream=listed.data_key.stream,
                offset=bad.first,
                key=listed.path,
            )
        )

    def _tell_holes(self, taken: Sequence[Candidate], spoiled: Sequence[tuple[int, int]]) -> None:
        """A hole where a tree has data: whoever declared it may not have known of the data."""
        for each in taken:
            if each.hole and each.word is Word.NOTHING and _overlap(spoiled, each):
                why = "a tree names data that is gone or damaged, and a hole was declared"
                self._told.lack(Shortfall(each.first, each.next_offset, why))

    def _tell(self, taken: Sequence[Candidate], candidates: Iterable[Candidate]) -> None:
        for each in taken:
            if each.refused:
                why = "what the tree names is damaged, and nothing else has them"
                self._told.lack(Shortfall(each.first, each.next_offset, why))
            elif each.damaged:
                self._told.damage(each.first, each.next_offset)
        kept = {id(each) for each in taken}
        for each in candidates:
            if each.word is Word.NOTHING or id(each) in kept:
                continue
            why = "it is damaged" if each.damaged else "another object is better"
            if each.hole:
                why = "data was found for it"
            self._told.replace(Replaced(each.first, each.next_offset, each.entry.uid, why))


def _spans(candidates: Iterable[Candidate]) -> list[tuple[int, int]]:
    return merged((each.first, each.next_offset) for each in candidates)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges [first, next) as few as they can be, in order."""
    found: list[tuple[int, int]] = []
    for first, next_offset in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], next_offset))
        else:
            found.append((first, next_offset))
    return found


def _usable(each: Candidate, certain: Sequence[tuple[int, int]]) -> bool:
    """Whether an object is a choice; a hole is none over data that a certain tree names."""
    if each.word is not Word.NOTHING:
        return True
    return not each.refused and not (each.hole and _overlap(certain, each))


def _rank(each: Candidate) -> tuple[int, int, int]:
    return each.first, each.next_offset, each.entry.uid


def _end(run: Sequence[Candidate], start: int) -> int:
    return run[-1].next_offset if run else start


def _contested(sequence: Sequence[Candidate]) -> set[int]:
    """Those that another one overlaps; the sequence is sorted."""
    found: set[int] = set()
    reach = list(accumulate((each.next_offset for each in sequence), max))
    for number, (one, other) in enumerate(pairwise(sequence)):
        if reach[number] > other.first:
            found.add(id(other))
        if other.first < one.next_offset:
            found.add(id(one))
    return found


def _overlap(ranges: Sequence[tuple[int, int]], each: Candidate) -> bool:
    """Whether an object holds an offset of sorted ranges that do not touch one another."""
    number = bisect_left(ranges, (each.next_offset, 0)) - 1
    return number >= 0 and ranges[number][1] > each.first
