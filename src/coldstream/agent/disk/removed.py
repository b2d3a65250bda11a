"""Which of the files that are held, and that the broker has removed, are of its log.

A held file counts only where retention or a deletion took it: below the oldest index that is there,
or if none is. Above, it was the broker that cut off a tail which was never committed. And a file
that was made anew under the same name is another one: identities are compared at every look. A
segment whose index is gone is about to go, too: retention removes an index first.

Between two looks a tail may have been cut off, written anew by another epoch, and removed by
retention; what is held of it then lies below all that is there, and was never committed. So a held
file counts only if all of it was known to be committed when it was last there, or if what follows
it is of the same epoch: an epoch has one writer, whose log only grows. What follows it is the next
one that counts, or the oldest that is there, and none of it may reach above where that begins: a
member that was made anew begins where its writer's log does, perhaps in the middle of what is held.

Where nothing is there any more, the first to count is the newest of which something was committed,
and with it what goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from errno import EAGAIN
from threading import RLock

import numpy as np

from coldstream.agent.disk.files import LogFile, Stamp
from coldstream.names import INDEX_SUFFIX, SEGMENT_SUFFIX
from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER_SIZE
from coldstream.osiris.segment import index_name, segment_name

_DIGITS = 20


@dataclass(slots=True)
class Handle:
    """A file that is held.

    Attributes:
        file: that is open.
        identity: what tells it from another of its name.
        close: closes it.
        proved: of the stream: all offsets below it were committed when the file was last there.
        once: as `proved`, whatever was doubted since.
        users: who holds it is one.
    """

    file: LogFile
    identity: object
    close: ExitStack
    proved: int
    once: int
    users: int = 1

    def prove(self, offset: int) -> None:
        """All offsets below this one are committed, and the file is there."""
        self.proved, self.once = max(self.proved, offset), max(self.once, offset)

    def leave(self) -> None:
        """Need it no more; the last one closes it."""
        self.users -= 1
        if not self.users:
            self.close.close()


@dataclass(slots=True)
class OfStream:
    """What is held of one stream.

    Attributes:
        files: by name.
        removed: bytes of those that the broker has removed, oldest first.
        replaced: files of which something was committed, and whose places others have taken; and
            bytes of each.
        lacking: how many files are there and not held, because too many are.
        seen: the directory, and what was committed, when all that had come was held without a
            look; None if it never was.
        since: the first segment that is to be held; None if nobody has said.
        durable: all below was in the manifest at the last look.
        doubted: for which epoch it was doubted last; 0 for none, or one that nobody knows.
        lock: of all this; whoever has it may read files, which may take long.
    """

    files: dict[str, Handle] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, tuple[Handle, int]] = field(default_factory=dict)
    lacking: int = 0
    seen: object = None
    since: int | None = None
    durable: int = 0
    doubted: int = 0
    lock: RLock = field(default_factory=RLock)

    @property
    def unlinked(self) -> int:
        """Bytes of all that the broker has removed; anybody may ask."""
        return sum(list(self.removed.values()))


def that_count(
    held: Mapping[str, Handle],
    there: Collection[str],
    stamp: Callable[[str], Stamp],
    open_file: Callable[[str], AbstractContextManager[LogFile]],
) -> list[str]:
    """The names of held files that are not there, and are of the log.

    Args:
        held: by name.
        there: names of the files that are in the directory.
        stamp: of a file that is there.
        open_file: one that is there or held.

    Raises:
        OSError: nobody can say yet; what is held may not be given up before.
    """
    halves = list(_halves(held, there, stamp))
    there = standing({*there, *halves}, held)
    removed = {name for name in held if name not in there}
    begin = begin_of(there)
    highest = begin if begin is not None else _newest(held, open_file)
    if highest is not None:
        removed = {name for name in removed if first_of(name) <= highest}
    return [*halves, *_committed(held, removed, begin, open_file)]


def _halves(
    held: Mapping[str, Handle], there: Collection[str], stamp: Callable[[str], Stamp]
) -> Iterator[str]:
    """Held segments whose own index is still there: a deletion goes on, in any order."""
    present = set(there)
    for first in numbers(there):
        name, index = segment_name(first), held.get(index_name(first))
        if name not in present and name in held and index is not None:
            with suppress(FileNotFoundError):  # it goes just now, and is of the same pair
                if identity_of(stamp(index_name(first))) != index.identity:
                    continue
            yield name


def _committed(
    held: Mapping[str, Handle],
    removed: Collection[str],
    above: int | None,
    open_file: Callable[[str], AbstractContextManager[LogFile]],
) -> Iterator[str]:
    """Those of the removed files that were committed, from the highest one down."""
    gone = above is None
    for first, index, last in _filled(held, sorted(numbers(removed), reverse=True)):
        names = segment_name(first), index_name(first)
        counts = above is None or _joins(index, last, above, open_file)
        if gone and above is not None and int(last["offset"]) < above:
            counts = counts or index.proved > int(last["offset"])
        if not counts:
            continue  # a tail that was cut off may lie above what was committed
        yield from (name for name in names if name in removed)
        above = first


def anchor(held: Mapping[str, Handle]) -> int | None:
    """The newest segment of which something was committed when it was there.

    The newest that has a chunk where there is none; None if no segment has one.
    """
    known = [(index.proved > first, first) for first, index, _ in _filled(held, numbers(held))]
    return max(known)[1] if known else None


def _newest(
    held: Mapping[str, Handle], open_file: Callable[[str], AbstractContextManager[LogFile]]
) -> int | None:
    """The newest segment that goes on from the anchor, of a directory that is gone."""
    begin = anchor(held)
    if begin is None:
        return None
    near = sorted(each for each in numbers(held) if each >= begin)
    (at, index, last), *above = _filled(held, near)
    for first, next_index, next_last in above:
        if _joins(index, last, first, open_file):
            at, index, last = first, next_index, next_last
    return at


def _filled(
    held: Mapping[str, Handle], segments: Iterable[int]
) -> Iterator[tuple[int, Handle, np.void]]:
    """Those of the segments that are held and have a chunk: first offset, index, last record."""
    for first in segments:
        index = held.get(index_name(first))
        last = None if index is None else record(index.file, -1)
        if index is not None and last is not None:
            yield first, index, last


def _joins(
    index: Handle,
    last: np.void,
    above: int,
    open_file: Callable[[str], AbstractContextManager[LogFile]],
) -> bool:
    """Whether what begins at `above` is of the log that a segment below it is of.

    Args:
        index: of the segment.
        last: its last record.
        above: first offset of a segment.
        open_file: as in `that_count`.
    """
    if int(last["offset"]) >= above:
        return False
    return index.proved >= above or _goes_on(last, index_name(above), open_file)


def _goes_on(
    last: np.void, above: str, open_file: Callable[[str], AbstractContextManager[LogFile]]
) -> bool:
    """Whether the last record of an index is of the epoch in which the one above it begins."""
    with open_file(above) as file:
        first = record(file, 0)
    if first is None:
        raise BlockingIOError(EAGAIN, "nothing is in the oldest segment yet", above)
    return bool(first["epoch"] == last["epoch"])


def cut_off(
    held: Mapping[str, Handle],
    there: Collection[str],
    since: int,
    stamp: Callable[[str], Stamp],
    open_file: Callable[[str], AbstractContextManager[LogFile]],
) -> set[int]:
    """First offsets of held segments that were cut off from a log that stays, or lie below `since`.

    They lie above the oldest index that is there, and are not there. So do those of a deletion,
    which removes files in any order and takes seconds. But a segment whose first chunk is committed
    is never cut off whole, or others take its place.

    Args:
        held: by name.
        there: names of the files that are in the directory.
        since: the first segment that is to be held.
        stamp, open_file: as in `that_count`.
    """
    try:
        halves = {index_name(first_of(name)) for name in _halves(held, there, stamp)}
    except OSError:
        return set()  # a later look can tell
    stays = set(there) - halves
    present = numbers(stays)
    return {
        first
        for first in numbers(above_begin(held, stays))
        if first < since or not _is_going(held, present, first, open_file)
    }


def above_begin(held: Collection[str], there: Collection[str]) -> set[str]:
    """The held files above the oldest index that are not there."""
    begin = begin_of(there)
    if begin is None:
        return set()
    return {name for name in held if name not in there and first_of(name) > begin}


def going(
    held: Mapping[str, Handle],
    there: Collection[str],
    segments: Collection[int],
    open_file: Callable[[str], AbstractContextManager[LogFile]],
) -> set[int]:
    """Those of the held segments that a deletion has removed, as far as can be said.

    Args:
        held, there, open_file: as in `cut_off`.
        segments: first offsets.
    """
    present = numbers(there)
    return {each for each in segments if _is_going(held, present, each, open_file)}


def _is_going(
    held: Mapping[str, Handle],
    present: Collection[int],
    first: int,
    open_file: Callable[[str], AbstractContextManager[LogFile]],
) -> bool:
    """Whether the first chunk of a segment was committed, and nothing is there in its place."""
    own = held.get(index_name(first))
    try:
        last = None if own is None else record(own.file, -1)
    except OSError:
        return True  # the next look can read it
    if own is None or last is None or first >= own.once:
        return False
    end = int(last["offset"])
    if any(first <= each <= end for each in present):
        return False
    near = max((each for each in present if each < first), default=None)
    if near is None:
        return True  # the log begins above it, or is gone
    try:
        with open_file(index_name(near)) as file:
            below = record(file, -1)
    except OSError:
        return True  # that one goes, too, or the next look can read it
    return below is not None and int(below["offset"]) < first


def standing(there: Collection[str], held: Collection[str]) -> set[str]:
    """Those files that say where the log begins.

    An index below all that is held, whose segment a deletion has removed before it, does not.
    """
    names, low = set(there), min(numbers(held), default=0)
    below = {first for first in numbers(names) if first < low}
    return names - {index_name(first) for first in below if segment_name(first) not in names}


def begin_of(there: Iterable[str]) -> int | None:
    """First offset of the oldest index that is there; None if there is none."""
    return min(numbers(name for name in there if name.endswith(INDEX_SUFFIX)), default=None)


def numbers(names: Iterable[str]) -> set[int]:
    """First offsets of the segments and indexes among files."""
    return {
        first_of(name)
        for name in names
        if name[_DIGITS:] in (SEGMENT_SUFFIX, INDEX_SUFFIX)
        and name[:_DIGITS].isascii()
        and name[:_DIGITS].isdecimal()
    }


def first_of(name: str) -> int:
    """First offset of the segment whose file, or whose index, has this name."""
    return int(name[:_DIGITS])


def pair(first: int) -> set[str]:
    """The names of a segment and of its index."""
    return {segment_name(first), index_name(first)}


def identity_of(stamp: Stamp) -> object:
    """What tells a file from another of its name."""
    return stamp.file[0] if isinstance(stamp.file, tuple) else stamp.file


def record(index: LogFile, number: int) -> np.void | None:
    """The first (0) or the last (-1) record of an index; None if it has none."""
    size = INDEX_DTYPE.itemsize
    count = (index.size() - INDEX_HEADER_SIZE) // size
    if count <= 0:
        return None
    at = INDEX_HEADER_SIZE + (number % count) * size
    found = index.read(at, size)
    return np.frombuffer(found, INDEX_DTYPE)[0] if len(found) == size else None
