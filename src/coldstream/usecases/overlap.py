"""Take the part of a fragment that lies behind the manifest's end, by itself (plans/overlap.py).

Only adds objects: fragments like any others, which the next resolution takes, whoever does it. One
that dies in the middle leaves a shorter part, and the rest is taken from where that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    NotFoundError,
    RefusedFragmentError,
    UnknownVersionError,
)
from coldstream.fragment import (
    HEADER,
    FragmentIndex,
)
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import last_bytes, leaf_at
from coldstream.names import DataKey, parse_data_key
from coldstream.osiris.chunk import Chunk
from coldstream.plans.overlap import (
    LOOK_BYTES,
    begin_of,
    blocks,
    look_from,
    part_of,
    runs,
    witness_of,
)
from coldstream.plans.resolve import Listed, check_fragment
from coldstream.remote.context import Context
from coldstream.remote.trailers import epoch_at, read_index, read_trailer

#: Bytes of a fragment that is made of a part of another; that much is in memory at once.
_PIECE = 16 * 2**20
#: A larger chunk than this is not copied: no Lambda could hold it a few times over.
_MAX_CHUNK = 96 * 2**20
_MAX_FOUND = 1000
_MAX_TURNS = 64  # of one committer; what is left then is for the next one


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of fragments that reach over the end of a manifest.

    Attributes:
        keys: of what was written.
        joins: whether some of it begins where the manifest ends.
        left: one error for each that was tried and has nothing, or nothing more, that joins.
    """

    keys: tuple[str, ...]
    joins: bool
    left: tuple[RefusedFragmentError, ...]


def reaching_over(
    context: Context,
    stream: str,
    root: Root,
    *,
    without: Collection[str] = (),
    accepted: bool = True,
) -> list[Listed]:
    """Fragments that begin below the end of a manifest and reach over it, the furthest first.

    No more than a thousand at a time. One LIST or a few, of as many bytes of fragments as one
    object may have.

    Args:
        context: where.
        stream: directory name.
        root: of the manifest.
        without: paths that are left out.
        accepted: only those that the ledger accepts; else all.
    """
    end = root.next_offset
    found: list[Listed] = []
    if accepted and look_from(root, None) >= end:
        return found
    within = last_bytes(root, LOOK_BYTES, context.fetch(stream))
    start = look_from(root, within) if accepted else within or 0
    for each in chain.from_iterable(context.data_pages(stream, start)):
        key = each.data_key
        if key.first_offset >= end:
            break
        if key.kind != "fragment" or key.next_offset <= end or each.path in without:
            continue
        if not accepted or root.ledger.accepts(key.epoch, key.first_offset, key.next_offset):
            found.append(each)
            if len(found) >= 2 * _MAX_FOUND:
                found = _furthest(found)
    return _furthest(found)


def _furthest(found: list[Listed]) -> list[Listed]:
    found.sort(key=lambda each: (-each.data_key.next_offset, each.data_key.first_offset, each.path))
    return found[:_MAX_FOUND]


def take_over(
    context: Context,
    stream: str,
    root: Root,
    over: Sequence[Listed],
    *,
    time_left: Callable[[], bool] = lambda: True,
) -> Taken:
    """PUT the part behind the manifest's end of the one that reaches furthest and joins.

    Where none has a good chunk at the end, what they have behind the damage is written by itself,
    so that no hole is larger than what is lost.

    Args:
        context: where.
        stream: directory name.
        root: of the manifest; the ledger accepts all of `over`.
        over: fragments that reach over its end.
        time_left: asked after each piece; what is written by then holds.

    Raises:
        UnavailableError, UnknownOutcomeError, PermissionDeniedError: the store.
    """
    left: list[RefusedFragmentError] = []
    opened: list[_Source] = []
    for each in _furthest([*over]):
        try:
            source = _open(context, stream, root, each)
            keys = source.pieces_at_the_end(time_left)
        except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
            left.append(_left(each, exc))
            continue
        if keys:
            return Taken(tuple(keys), True, tuple(left))
        opened.append(source)
    keys = []
    for source in opened:
        why: CorruptDataError | NotFoundError = CorruptDataError(
            f"its chunk {root.next_offset} is damaged, or too large to be copied"
        )
        try:
            keys += source.pieces_behind(time_left)
        except (CorruptDataError, NotFoundError) as exc:
            why = exc
        left.append(_left(source.listed, why))
    return Taken(tuple(keys), False, tuple(left))


class Reached(Protocol):
    """How far a manifest goes, and what reaches over its end."""

    @property
    def root(self) -> Root:
        """The manifest with all that can be appended as it is."""
        ...

    @property
    def over(self) -> Sequence[Listed]:
        """What was seen to reach over its end."""
        ...

    @property
    def kept_out(self) -> bool:
        """Whether a hole would follow but for them."""
        ...


class Ends:
    """Takes over, for one committer, what reaches over the ends that its manifest comes to.

    Args:
        context: where.
        stream: directory name.
        thorough: whether to look for all of it, not only for what was seen in passing.
        time_left: as in `take_over`.
    """

    def __init__(
        self, context: Context, stream: str, *, thorough: bool, time_left: Callable[[], bool]
    ) -> None:
        self._context = context
        self._stream = stream
        self._thorough = thorough
        self._time_left = time_left
        self._turns = 0
        self.left: dict[str, RefusedFragmentError] = {}
        self.out_of_time = False

    def go_on(self, reached: Reached, *, stalled: bool) -> bool:
        """Take a part over where that is due; whether to resolve the run again.

        What was tried in vain is in `left` then, and keeps no hole out any more.

        Args:
            reached: how far the manifest has come.
            stalled: whether nothing at all could be appended.

        Raises:
            As `take_over`.
        """
        if not (stalled or reached.kept_out or self._thorough or self._turns):
            return False
        over = {each.path: each for each in reached.over}
        if self._thorough:
            found = reaching_over(self._context, self._stream, reached.root, without=self.left)
            over |= {each.path: each for each in found}
        if not over:
            return False
        if self._turns >= _MAX_TURNS or not self._time_left():
            self.out_of_time = True
            return False
        self._turns += 1
        taken = take_over(
            self._context, self._stream, reached.root, [*over.values()], time_left=self._time_left
        )
        self.left |= {each.key: each for each in taken.left if each.key is not None}
        return True

    def told(self, end: int, holes: Sequence[tuple[int, int]] = ()) -> list[RefusedFragmentError]:
        """Why what has data behind the manifest's end, or over a new hole of it, could not follow.

        Args:
            end: of the manifest.
            holes: ranges [first, next) that were appended as lost.
        """
        found = []
        for path, each in self.left.items():
            key = parse_data_key(path, self._context.prefix)
            over = any(first < key.next_offset and key.first_offset < last for first, last in holes)
            if over or key.next_offset > end:
                found.append(each)
        return found


def _left(each: Listed, exc: ColdstreamError) -> RefusedFragmentError:
    if isinstance(exc, RefusedFragmentError):
        return exc
    why = "it vanished after it was listed" if isinstance(exc, NotFoundError) else exc.reason
    return RefusedFragmentError(
        f"it reaches over the end of the manifest, and no part of it can follow: {why}",
        stream=each.data_key.stream,
        offset=each.data_key.first_offset,
        key=each.path,
    )


def _open(context: Context, stream: str, root: Root, each: Listed) -> _Source:
    """A fragment whose history is the manifest's.

    Raises:
        CorruptDataError: it is not, or trailer or index do not hold.
        NotFoundError: it is gone.
    """
    path, end, last = each.path, root.next_offset, root.last_chunk
    trailer = read_trailer(context.store, path)
    check_fragment(each, trailer, ledger=root.ledger, last_chunk=None)
    index = read_index(context.store, path, trailer)
    leaf = leaf_at(root, end - 1, context.fetch(stream))
    joined = leaf is not None and leaf.kind is EntryKind.FRAGMENT
    number = witness_of(index, last, joined=joined)
    first = begin_of(index, end)
    if last is not None and number is not None:
        epoch = epoch_at(context.store, path, index, number)
        if epoch != last.epoch:
            raise CorruptDataError(
                f"its chunk {last.chunk_id} is of epoch {epoch}, the manifest's of {last.epoch}"
            )
    return _Source(context, root, each, index, first)


@dataclass(slots=True)
class _Source:
    """A fragment whose part from chunk number `first` on can follow the manifest."""

    context: Context
    root: Root
    listed: Listed
    index: FragmentIndex
    first: int

    def pieces_at_the_end(self, time_left: Callable[[], bool]) -> list[str]:
        """PUT what joins the manifest, up to the first damage; the keys."""
        keys: list[str] = []
        end, last = self.root.next_offset, self.root.last_chunk
        for found in self._runs():
            if found[0].header.chunk_id != end or (keys and not time_left()):
                break
            keys.append(self._put(found, last))
            end = found[-1].header.next_offset
            last = LastChunk(found[-1].header.chunk_id, found[-1].header.epoch)
        return keys

    def pieces_behind(self, time_left: Callable[[], bool]) -> list[str]:
        """PUT what is good behind damage and is not there yet; the keys."""
        key = self.listed.data_key
        begun = self._begun(key)
        keys: list[str] = []
        for found in self._runs():
            first = found[0].header.chunk_id
            if first in begun or not time_left():
                continue
            keys.append(self._put(found, self.root.last_chunk))
        return keys

    def _begun(self, key: DataKey) -> set[int]:
        """Offsets at which a fragment that the ledger accepts begins."""
        found: set[int] = set()
        pages = self.context.data_pages(key.stream, self.root.next_offset)
        for each in chain.from_iterable(pages):
            other = each.data_key
            if other.first_offset >= key.next_offset:
                break
            if other.kind == "fragment" and self.root.ledger.accepts(
                other.epoch, other.first_offset, other.next_offset
            ):
                found.add(other.first_offset)
        return found

    def _runs(self) -> Iterator[list[Chunk]]:
        """Chunks that hold and are neighbours, a piece at a time."""
        trailer, path = self.index.trailer, self.listed.path
        lowest = self.root.last_chunk.epoch if self.root.last_chunk else 0
        for block in blocks(self.index, self.first, _PIECE):
            if block.size > _MAX_CHUNK:
                continue  # as damaged: no part can go on over it
            start = len(HEADER) + block.start
            data = memoryview(self.context.store.get(path, start, start + block.size))
            for run in runs(block.chunks(data, lowest=lowest, highest=trailer.last_chunk_epoch)):
                lowest = run[-1].header.epoch
                yield run

    def _put(self, found: list[Chunk], last: LastChunk | None) -> str:
        """PUT a run of chunks as a fragment of its own, which a commit will take; its key.

        Raises:
            RefusedFragmentError: none would.
        """
        key, uid = self.listed.data_key, self.context.new_uid()
        ledger = self.root.ledger
        made = part_of(found, self.index, ledger.floor(key.epoch) or 0)
        trailer = made.trailer
        new = DataKey(key.stream, trailer.first_offset, trailer.next_offset, key.epoch, uid)
        path = new.path(self.context.prefix)
        check_fragment(Listed(new, path, len(made.data)), trailer, ledger=ledger, last_chunk=last)
        self.context.store.put(path, made.data, write_id=f"{uid:016x}-{trailer.data_crc:08x}")
        return path
