"""Files that stay readable although the broker removes them: they are held open.

Local retention unlinks the oldest segment at a roll, and a deletion unlinks all, also while they
are uploaded. An open descriptor keeps the bytes, needs no right to write anywhere, and leaves
nothing behind when the agent dies. Which of them count, once they are removed: `removed`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOENT
from functools import partial
from pathlib import Path

from coldstream.agent.disk import aside, removed
from coldstream.agent.disk.files import LogFile, LogFiles, Stamp
from coldstream.agent.disk.held_files import HeldFiles
from coldstream.agent.disk.removed import Handle, OfStream, first_of, identity_of, numbers, pair
from coldstream.names import INDEX_SUFFIX, SEGMENT_SUFFIX
from coldstream.osiris.segment import index_name, segment_name

#: Segments of one stream that are held at the most; the oldest go first, and the newest is one.
_OF_ONE_STREAM = 256


class Held:
    """A `LogFiles` that remembers.

    Args:
        files: where the broker's files are.
        budget: bytes that removed files may take, all streams together.
        most: files that may be held.

    Where there are not enough files, streams of which an older segment waits are served first:
    the newest is the last that retention takes. Where removed files take more than the budget, the
    stream that has most of them lets go first: the others have done nothing.
    """

    def __init__(self, files: LogFiles, *, budget: int, most: int) -> None:
        self._files = files
        self._all = HeldFiles(budget=budget, most=most)

    @property
    def lacking(self) -> int:
        """As `HeldFiles` says."""
        return self._all.lacking

    @property
    def dropped(self) -> int:
        """As `HeldFiles` says."""
        return self._all.dropped

    @property
    def unlinked_bytes(self) -> int:
        """As `HeldFiles` says of `unlinked`."""
        return self._all.unlinked

    def words(self) -> list[str]:
        """As `HeldFiles` says."""
        return self._all.words()

    def names(self, directory: Path) -> Sequence[str]:
        """Names of the files in a directory, and of what it has lost at its lower end.

        Raises:
            OSError: it cannot be read, or is gone and nothing of it is held; or it cannot be said
                yet whether what is held was committed.
        """
        with self._using(directory) as held:
            there: Sequence[str] = ()
            try:
                there = self._files.names(directory)
            except FileNotFoundError:
                if not held:
                    raise
            stamp, open_file = partial(self._files.stamp, directory), partial(self.open, directory)
            return [*there, *removed.that_count(held, there, stamp, open_file)]

    def stamp(self, directory: Path, name: str) -> Stamp:
        """As `LogFiles` says, of the files that are there."""
        return self._files.stamp(directory, name)

    @contextmanager
    def open(self, directory: Path, name: str) -> Generator[LogFile, None, None]:
        """The file of this name, or the held one if there is none.

        Raises:
            OSError: there is neither.
        """
        with ExitStack() as stack:
            try:
                file = stack.enter_context(self._files.open(directory, name))
            except FileNotFoundError:
                handle = self._used(directory, name)
                if handle is None:
                    raise
                stack.callback(self._all.unuse, [handle])
                file = handle.file
            yield file

    def keep(
        self, directory: Path, segments: Sequence[int], since: int, *, proved: int = 0
    ) -> None:
        """Hold the files of a stream from the segment that has offset `since` on, no others.

        Args:
            directory: of the stream.
            segments: first offsets of all that are there or held, rising.
            since: all below is durable.
            proved: all offsets below it are committed; known before the segments were looked for.
        """
        needed = [each for each in segments if each > since]
        needed = [*segments[: len(segments) - len(needed)][-1:], *needed]
        beyond = max(0, len(needed) - _OF_ONE_STREAM)
        if beyond:
            needed = [*needed[: _OF_ONE_STREAM - 1], needed[-1]]
        wanted = [name for each in needed for name in (segment_name(each), index_name(each))]
        try:
            there = self._whole(directory)
        except FileNotFoundError:
            there = set()
        except OSError:
            return  # nobody can say what was removed: the next look may
        with self._all.of(directory.name, new=True) as held:
            there = removed.standing(there, held.files)
            held.seen, held.since = None, needed[0] if needed else None
            held.durable = since
            late = {name for name, (each, _) in held.replaced.items() if each.once <= since}
            self._all.drop_replaced(held, late)
            self._let_go(held, directory, self._needless(held, directory, there, wanted))
            with self._all.counted(held, directory.name):
                held.lacking = 2 * beyond
                for each in needed:
                    self._hold(held, directory, each, there, proved, first=len(needed) > 1)
                self._drop_cut(held, directory, there)
            self._bound(held, there)
            if len(needed) == 1 and held.files and not held.removed:
                self._all.rests(directory.name)

    def keep_new(self, directory: Path, *, proved: int = 0) -> None:
        """Hold what has come to a stream, too; nothing goes but what was cut off or is too much.

        While its look waits: retention may take what has come, and what comes next. `proved` is as
        in `keep`. It does not wait for a look that reads files.
        """
        held = self._all.stream(directory.name, new=True)
        if not held.lock.acquire(blocking=False):
            return
        try:
            stamp = self._files.stamp(directory, "")
            if held.seen == (stamp.directory, proved):
                return  # files that grow are held already
            self._keep_new(held, directory, self._whole(directory), stamp, proved)
        except OSError:
            return  # the look says why
        finally:
            held.lock.release()

    def _keep_new(
        self, held: OfStream, directory: Path, there: Collection[str], stamp: Stamp, proved: int
    ) -> None:
        there = removed.standing(there, held.files)
        whole = not stamp.fresh
        with self._all.counted(held, directory.name):
            held.lacking = 0
            if held.since is None:
                held.since = min(numbers(there), default=None)
            ordered = sorted(numbers(there))
            for first, after in zip(ordered, [*ordered[1:], 2**64], strict=False):
                new = index_name(first) not in held.files
                if new and held.since is not None and after <= held.since:
                    continue
                if new and len(held.files) >= 2 * _OF_ONE_STREAM:
                    held.lacking += 2
                    continue
                self._hold(held, directory, first, there, proved, first=True)
                whole = whole and (index_name(first) in held.files or held.lacking > 0)
            self._drop_cut(held, directory, there)
        held.seen = (stamp.directory, proved) if whole else None
        self._bound(held, there)
        if len(numbers(held.files)) == 1 and not held.removed:
            self._all.rests(directory.name)

    def begin(self, directory: Path, segments: Sequence[int], position: int) -> int:
        """Where a log goes on from `position`: above it if what lay there was removed and not held.

        Too many files were open, or it came and went between two looks. Where the broker has not
        removed what lies before it, a segment that is missing is damage.

        Args:
            directory: of the stream.
            segments: first offsets of all that are there or held, rising; at least one.
            position: a chunk begins or began here.

        Raises:
            OSError: a file cannot be read.
        """
        at = bisect_right(segments, position)
        if at in (0, len(segments)):
            return segments[max(0, at - 1)]
        name = index_name(segments[at - 1])
        with suppress(FileNotFoundError):
            self._files.stamp(directory, name)
            return segments[at - 1]
        with self.open(directory, name) as index:
            last = removed.record(index, -1)
        gap = segments[at] > position and (last is None or int(last["offset"]) < position)
        return segments[at] if gap else segments[at - 1]

    def before(self, directory: Path, epoch: int) -> dict[str, int]:
        """What is held of an epoch and older ones, whatever is there now; as `aside.of_epoch`."""
        with self._using(directory, replaced=True) as held:
            return aside.of_epoch(held, epoch)

    @contextmanager
    def open_before(self, directory: Path, name: str) -> Generator[LogFile, None, None]:
        """The held file of this name; of two, the one that was there before."""
        with self._using(directory, replaced=True) as held:
            if name not in held:
                raise FileNotFoundError(ENOENT, "it is not held", f"{directory}/{name}")
            yield held[name].file

    @contextmanager
    def _using(
        self, directory: Path, *, replaced: bool = False
    ) -> Generator[dict[str, Handle], None, None]:
        with self._all.of(directory.name) as of:
            held = dict(of.files)
            if replaced:
                held |= {name: handle for name, (handle, _) in of.replaced.items()}
            self._all.use(held.values())
        try:
            yield held
        finally:
            self._all.unuse(held.values())

    def let_go(self, directory: Path) -> None:
        """Keep nothing aside of a stream: what it was can be put in no more."""
        with self._all.of(directory.name) as held:
            self._all.drop_replaced(held, set(held.replaced))

    def sure(self, directory: Path) -> int:
        """All that is held of a stream below this was committed, as far as the files can say."""
        with self._all.of(directory.name) as held:
            at = removed.anchor(held.files)
            return 0 if at is None else held.files[index_name(at)].proved

    def holds(self, directory: Path) -> bool:
        """Whether anything is held of a stream."""
        with self._all.of(directory.name) as held:
            return bool(held.files)

    def any_removed(self, directory: Path) -> bool:
        """Whether anything is held of a stream that the broker had removed at the last look."""
        with self._all.of(directory.name) as held:
            return bool(held.removed)

    def release(self, directory: Path, below: int) -> None:
        """Hold no segment that begins below this offset: all of them are durable."""
        with self._all.of(directory.name) as held:
            self._all.drop(held, [name for name in held.files if first_of(name) < below])

    def doubt(self, directory: Path, *, epoch: int = 0) -> None:
        """Take nothing of a stream for committed because it was once: an epoch may have begun.

        What of it is followed by its own epoch counts on. So does what was proved since it was
        doubted for the same epoch: that has one writer, whose log only grows.

        Args:
            directory: of the stream.
            epoch: of the last chunk that is proved to be committed; 0 if unknown.
        """
        with self._all.of(directory.name, new=True) as held:
            if epoch and held.doubted == epoch:
                return
            held.doubted = epoch
            for handle in held.files.values():
                handle.proved = 0

    def gone(self, directory: Path) -> None:
        """Its directory is gone, and what is held of it is nowhere else: no other takes it."""
        self._all.busy(directory.name)

    def forget(self, directory: Path) -> None:
        """Hold nothing of a stream any more; nobody looks at it."""
        self._all.forget(directory.name)

    def close(self) -> None:
        """Hold nothing."""
        for name in self._all.names():
            self._all.forget(name)

    def _whole(self, directory: Path) -> set[str]:
        """The names that are there, but of segments without an index, which are about to go."""
        names = set(self._files.names(directory))
        lone = {name for name in names if name.endswith(SEGMENT_SUFFIX)}
        lone -= {name.removesuffix(INDEX_SUFFIX) + SEGMENT_SUFFIX for name in names - lone}
        return names - lone

    def _hold(
        self,
        held: OfStream,
        directory: Path,
        offset: int,
        there: Collection[str],
        proved: int,
        *,
        first: bool,
    ) -> None:
        """Hold a segment and its index, or neither: one without the other is of no use."""
        names = pair(offset)
        needed = len((names & set(there)) - held.files.keys())
        if self._all.room_for(needed, others=first):
            for name in sorted(names & set(there)):
                self._hold_one(held, directory, name, proved)
        else:
            held.lacking += needed
        if len(held.files.keys() & names) == 1:
            self._all.drop(held, held.files.keys() & names)

    def _hold_one(self, held: OfStream, directory: Path, name: str, proved: int) -> None:
        before = held.files.get(name)
        try:
            identity = identity_of(self._files.stamp(directory, name))
            if before is not None and before.identity == identity:
                before.prove(proved)
                return
            if before is not None:
                # Neither is of the other's file.
                self._replace(held, first_of(name))
            with ExitStack() as stack:
                file = stack.enter_context(self._files.open(directory, name))
                # Between the two looks it may have been made anew.
                if identity_of(self._files.stamp(directory, name)) == identity:
                    handle = Handle(file, identity, stack.pop_all(), proved, proved)
                    self._all.add(held, name, handle)
        except OSError:
            return  # it is gone, or no file can be opened any more: a later look tries again

    def _needless(
        self, held: OfStream, directory: Path, there: Collection[str], wanted: Collection[str]
    ) -> set[str]:
        """What is not wanted, but for what lies above the oldest index (`_drop_cut` says more).

        A deletion may have taken more since it was seen what is wanted: that stays, too.
        """
        rest = held.files.keys() - set(wanted) - removed.above_begin(held.files, there)
        late = {each for each in numbers(rest - set(there)) if each >= (held.since or 0)}
        going = removed.going(held.files, there, late, partial(self._files.open, directory))
        return {name for name in rest if name in there or first_of(name) not in going}

    def _drop_cut(self, held: OfStream, directory: Path, there: Collection[str]) -> None:
        stamp = partial(self._files.stamp, directory)
        open_file = partial(self._files.open, directory)
        for first in removed.cut_off(held.files, there, held.since or 0, stamp, open_file):
            self._replace(held, first)

    def _let_go(self, held: OfStream, directory: Path, names: Collection[str]) -> None:
        for first in numbers(names):
            if self._is_there(held, directory, index_name(first)):
                self._all.drop(held, held.files.keys() & pair(first) & set(names))
            else:
                self._replace(held, first)

    def _is_there(self, held: OfStream, directory: Path, name: str) -> bool:
        """Whether a held file is in the directory, and not another one of its name."""
        try:
            identity = identity_of(self._files.stamp(directory, name))
        except OSError:
            return False
        return name in held.files and held.files[name].identity == identity

    def _replace(self, held: OfStream, first: int) -> None:
        """Others may have taken the place of a segment: what was committed of it is kept aside."""
        names = held.files.keys() & pair(first)
        sizes: dict[str, int] = {}
        with suppress(OSError):  # what cannot be read is of no use
            if aside.is_worth_keeping(held, first):
                sizes = {each: held.files[each].file.size() for each in names}
        if sizes:
            self._all.replace(held, sizes)
        else:
            self._all.drop(held, names)

    def _bound(self, held: OfStream, there: Collection[str]) -> None:
        """See what the broker has removed of a stream; let files go while all are too much."""
        gone = sorted(name for name in held.files if name not in there)
        sizes = {name: held.files[name].file.size() for name in gone}
        self._all.bound(held, sizes)

    def _used(self, directory: Path, name: str) -> Handle | None:
        with self._all.of(directory.name) as held:
            handle = held.files.get(name)
            if handle is not None:
                self._all.use([handle])
            return handle
