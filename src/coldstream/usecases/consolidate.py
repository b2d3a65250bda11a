"""Make few fragments out of many small ones: read or copy them, PUT, and swap by one commit.

The old objects stay where they are until `collect` has proved that nobody needs them, so a reader
with an older root goes on undisturbed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from coldstream.crc import crc32
from coldstream.errors import ColdstreamError, CorruptDataError, NotFoundError
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    FragmentIndex,
)
from coldstream.manifest.entries import Entry
from coldstream.manifest.tree import Fetch, leaves
from coldstream.names import DataKey
from coldstream.plans.consolidate import (
    CopySpan,
    PartPlan,
    SmallFragment,
    choose,
    layout,
    merged_index,
    merged_trailer,
    small,
)
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.splice import splice
from coldstream.ports import MIN_PART_BYTES, BytesPart, Composer, CopyPart, Part
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.remote.trailers import trailer_of
from coldstream.usecases.amend import Terms, amend

_AT_ONCE = 16
#: New fragments in one commit; few, so that little is lost when a commit is.
_MERGES_AT_ONCE = 16
#: Leaves of the tree that one step looks at, at the most.
_LEAVES = 20_000


@dataclass(slots=True)
class Consolidation:
    """What one step did.

    Attributes:
        stream: directory name.
        merges: new fragments.
        pieces: fragments that they replace.
        bytes: size of the new fragments.
        copied: bytes of these that never left S3.
        commits: roots that landed.
        conflicts: attempts that did not.
        failed: one error for each piece that could not be read; it stays as it is.
        cursor: offset at which the next step begins, None when the end was reached.
    """

    stream: str
    merges: int = 0
    pieces: int = 0
    bytes: int = 0
    copied: int = 0
    commits: int = 0
    conflicts: int = 0
    failed: list[ColdstreamError] = field(default_factory=list)
    cursor: int | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    """A new fragment that has been PUT, and what it is to replace."""

    entry: Entry
    pieces: tuple[SmallFragment, ...]
    copied: int


def consolidate(
    context: Context,
    composer: Composer,
    stream: str,
    *,
    target_size: int,
    branching: int,
    pause: Callable[[int], None],
    cursor: int = 0,
    dry_run: bool = False,
    time_left: Callable[[], bool] = lambda: True,
    read_whole: int = 0,
) -> Consolidation:
    """One step over the stream's fragments, from the one that contains offset `cursor` on.

    Args:
        context: where.
        composer: the same bucket.
        stream: directory name.
        target_size: bytes of data in a full fragment.
        branching: entries of a full group.
        pause: as in `amend`.
        cursor: of the step before.
        dry_run: say what would become one, but write nothing.
        time_left: whether there is time for another new fragment.
        read_whole: a new fragment with up to so many bytes of data is read, checked and PUT whole;
            of a larger one, what is large enough is copied inside S3.

    Raises:
        As `amend`; damage of single fragments is told in the result instead.
    """
    step = _ConsolidateStep(context, composer, stream, target_size, branching, pause, read_whole)
    return step.run(cursor, dry_run, time_left)


class _ConsolidateStep:
    def __init__(
        self,
        context: Context,
        composer: Composer,
        stream: str,
        target_size: int,
        branching: int,
        pause: Callable[[int], None],
        read_whole: int,
    ) -> None:
        self._context = context
        self._composer = composer
        self._stream = stream
        self._target = target_size
        self._branching = branching
        self._pause = pause
        self._read_whole = read_whole
        self.report = Consolidation(stream)

    def run(self, cursor: int, dry_run: bool, time_left: Callable[[], bool]) -> Consolidation:
        loaded = load(self._context, self._stream)
        runs, following = self._small_runs(loaded, cursor)
        self.report.cursor = following
        with self._context.pool(_AT_ONCE) as pool:
            with_trailers = [list(self._pieces(run, pool)) for run in runs]
        chosen = choose(
            [run for part in with_trailers for run in part],
            target_size=self._target,
            last_is_open=following is None,
        )
        made: list[_Made] = []
        left = deque(chosen)
        while left:
            pieces = left.popleft()
            if dry_run:
                self._tell(pieces, sum(piece.trailer.data_size for piece in pieces), 0)
                continue
            if not time_left():
                self.report.cursor = pieces[0].entry.first_offset
                break
            try:
                made.append(self._make(pieces))
            except (CorruptDataError, NotFoundError) as error:
                self.report.failed.append(error)
                left.extendleft(reversed(self._beside(pieces, error)))
            except ColdstreamError:
                self._swap(made)  # what is there already need not become garbage
                raise
            if len(made) >= _MERGES_AT_ONCE:
                self._swap(made)
                made = []
        self._swap(made)
        return self.report

    def _beside(
        self, pieces: tuple[SmallFragment, ...], error: ColdstreamError
    ) -> list[tuple[SmallFragment, ...]]:
        """What is worth fragments of its own before and behind a damaged piece."""
        runs: list[list[SmallFragment]] = [[], []]
        found = False
        for piece in pieces:
            entry = piece.entry
            if error.offset is not None and entry.first_offset <= error.offset < entry.next_offset:
                found = True
            else:
                runs[found].append(piece)
        return choose(runs, target_size=self._target, last_is_open=True) if found else []

    def _small_runs(self, loaded: Snapshot, cursor: int) -> tuple[list[list[Entry]], int | None]:
        """Small neighbours, and the offset at which the next step begins."""
        runs: list[list[Entry]] = [[]]
        fetch = self._context.fetch(self._stream)
        for number, leaf in enumerate(leaves(loaded.root, fetch, start=cursor)):
            if number >= _LEAVES and not (runs[-1] and number < 2 * _LEAVES):
                return [run for run in runs if len(run) > 1], leaf.first_offset
            if small(leaf, self._target):
                runs[-1].append(leaf)
            elif runs[-1]:
                runs.append([])
        # The last run stays even if it is empty: whether it is the manifest's end matters.
        return [run for run in runs[:-1] if len(run) > 1] + runs[-1:], None

    def _pieces(self, run: Sequence[Entry], pool: Executor) -> Iterator[list[SmallFragment]]:
        """A run with its trailers; cut in two where one cannot be read."""
        pieces: list[SmallFragment] = []
        for entry, found in zip(run, pool.map(self._piece, run), strict=True):
            if isinstance(found, SmallFragment):
                pieces.append(found)
                continue
            self.report.failed.append(found.located(stream=self._stream, offset=entry.first_offset))
            yield pieces
            pieces = []
        yield pieces

    def _piece(self, entry: Entry) -> SmallFragment | ColdstreamError:
        try:
            trailer = trailer_of(self._context.store, self._context.prefix, self._stream, entry)
        except (CorruptDataError, NotFoundError) as error:
            return error
        return SmallFragment(entry, trailer)

    def _make(self, pieces: tuple[SmallFragment, ...]) -> _Made:
        """PUT the fragment that `pieces` become."""
        with self._context.pool(_AT_ONCE) as pool:
            indexes = list(pool.map(self._index, pieces))
            index = merged_index((i.trailer, [i[n] for n in range(len(i))]) for i in indexes)
            trailer = merged_trailer([piece.trailer for piece in pieces], index)
            tail = INDEX_HEADER + index + trailer.encode()
            plans = layout(
                [piece.trailer.data_size for piece in pieces],
                min_part=MIN_PART_BYTES,
                read_whole=self._read_whole,
            )
            parts = [self._part(plan, pieces, pool) for plan in plans[:-1]]
            last = BytesPart(self._joined(plans[-1], pieces, pool, tail))
        uid = self._context.new_uid()
        key = DataKey(self._stream, trailer.first_offset, trailer.next_offset, trailer.epoch, uid)
        path = key.path(self._context.prefix)
        write_id = f"{uid:016x}-{trailer.data_crc:08x}"
        if parts:
            self._composer.compose(path, [*parts, last], write_id=write_id)
        else:
            self._context.store.put(path, last.data, write_id=write_id)
        entry = replace(
            pieces[0].entry,
            next_offset=trailer.next_offset,
            min_timestamp=trailer.min_timestamp,
            max_timestamp=trailer.max_timestamp,
            size=trailer.size,
            records=trailer.records,
            uid=uid,
        )
        copied = sum(part.size for part in parts if isinstance(part, CopyPart))
        return _Made(entry, pieces, copied)

    def _index(self, piece: SmallFragment) -> FragmentIndex:
        trailer, path = piece.trailer, self._path(piece.entry)
        begin = trailer.index_position
        try:
            section = self._context.store.get(path, begin, begin + trailer.index_size)
            return FragmentIndex(section, trailer)
        except (CorruptDataError, NotFoundError) as error:
            raise error.located(
                stream=self._stream, offset=piece.entry.first_offset, key=path
            ) from None

    def _part(self, plan: PartPlan, pieces: Sequence[SmallFragment], pool: Executor) -> Part:
        if not plan.copy:
            return BytesPart(self._joined(plan, pieces, pool))
        span = plan.spans[0]
        return CopyPart(self._path(pieces[span.piece].entry), span.start, span.end)

    def _joined(
        self, plan: PartPlan, pieces: Sequence[SmallFragment], pool: Executor, tail: bytes = b""
    ) -> bytes:
        """What a part holds, and then `tail`."""
        read = list(pool.map(lambda span: self._read(span, pieces), plan.spans))
        return b"".join([*read, tail])  # one copy, of up to READ_WHOLE bytes

    def _read(self, span: CopySpan, pieces: Sequence[SmallFragment]) -> bytes:
        piece = pieces[span.piece]
        path = self._path(piece.entry)
        try:
            data = bytes(self._context.store.get(path, span.start, span.end))
        except (CorruptDataError, NotFoundError) as error:
            raise error.located(
                stream=self._stream, offset=piece.entry.first_offset, key=path
            ) from None
        begin, end = len(HEADER), len(HEADER) + piece.trailer.data_size
        if span.start <= begin and span.end == end:
            whole = memoryview(data)[begin - span.start :]
            if crc32(whole) != piece.trailer.data_crc:
                raise CorruptDataError(
                    "the data's checksum does not match; the fragment stays as it is",
                    stream=self._stream,
                    offset=piece.entry.first_offset,
                    key=path,
                )
        if span.start == 0 and data[: len(HEADER)] != HEADER:
            raise CorruptDataError(
                "no fragment begins here",
                stream=self._stream,
                offset=piece.entry.first_offset,
                key=path,
            )
        return data

    def _swap(self, made: Sequence[_Made]) -> None:
        """Commit the new fragments, those whose pieces are still in the manifest."""
        if not made:
            return
        valid: list[_Made] = []

        def plan(loaded: Snapshot) -> Rebalance:
            nonlocal valid
            fetch = self._context.fetch(self._stream)
            valid = [each for each in made if _still_there(loaded, each, fetch)]
            return splice(
                loaded.root,
                [each.entry for each in valid],
                branching=self._branching,
                fetch=fetch,
                uids=iter(self._context.new_uid, None),
            )

        terms = Terms(first_written=self._path(made[0].entry))
        amended = amend(self._context, self._stream, plan, pause=self._pause, terms=lambda _: terms)
        self.report.conflicts += amended.conflicts
        if not amended.landed:
            return
        self.report.commits += 1
        for each in valid:
            self._tell(each.pieces, each.entry.size, each.copied)

    def _tell(self, pieces: Sequence[SmallFragment], size: int, copied: int) -> None:
        self.report.merges += 1
        self.report.pieces += len(pieces)
        self.report.bytes += size
        self.report.copied += copied

    def _path(self, entry: Entry) -> str:
        return entry.data_key(self._stream).path(self._context.prefix)


def _still_there(loaded: Snapshot, made: _Made, fetch: Fetch) -> bool:
    """Whether the manifest still holds exactly the pieces that a new fragment was made of."""
    if made.entry.first_offset < loaded.root.first_offset:
        return False
    old = iter(made.pieces)
    for leaf in leaves(loaded.root, fetch, start=made.entry.first_offset):
        piece = next(old, None)
        if piece is None:
            return True
        if leaf != piece.entry:
            return False
    return next(old, None) is None
