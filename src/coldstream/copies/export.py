"""A stream's messages as files of a sensible size: DIR/<stream>/<first>-<next>.<suffix>.

A file has its name only when all of it is on the disk. Names say which offsets a file has, so a run
goes on where the files end: what was interrupted, or what has come since. `_export.json` beside
them says what they hold, so that nobody mixes two exports in one directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from coldstream.copies.runs import HistoryChangedError, fetched, refuse_lost
from coldstream.copies.workplace import ForeignFilesError, sync_directory, write_state
from coldstream.errors import ConflictError
from coldstream.reader import Gap, Offset, StreamReader
from coldstream.reader.follow import RangeRead
from coldstream.reader.fragments import FetchedChunks

STATE = "_export.json"
_MAX_STATE = 2**16
_PART = ".part"


class Writer(Protocol):
    """Writes one file."""

    @property
    def size(self) -> int:
        """Bytes so far, about."""
        ...

    @property
    def messages(self) -> int:
        """Messages so far."""
        ...

    def write(self, piece: FetchedChunks, start: int, end: int) -> None:
        """The messages of a piece with the offsets [start, end)."""
        ...

    def gap(self, gap: Gap) -> None:
        """Offsets that exist nowhere."""
        ...

    def close(self) -> None:
        """Write what is left, and close the file."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """What files are written.

    Attributes:
        suffix: of their names, without the dot.
        open: makes a writer of a new file.
    """

    suffix: str
    open: Callable[[Path], Writer]


@dataclass(slots=True)
class Exported:
    """How far an export is.

    Attributes:
        next_offset: up to which it has come.
        files: that were written by this run.
        messages: in them.
        bytes: of them.
        resumed_at: offset at which files of an earlier run ended; None if there were none.
    """

    next_offset: int
    files: int = 0
    messages: int = 0
    bytes: int = 0
    resumed_at: int | None = None


def export(
    reader: StreamReader,
    asked: Mapping[str, str],
    bounds: tuple[int | None, int],
    directory: Path,
    made: Format,
    *,
    file_size: int,
    on_gap: Callable[[Gap], None],
    tell: Callable[[Exported], None],
) -> Exported:
    """Write what is not there yet.

    Args:
        reader: of the stream.
        asked: what the files hold; the same for all runs in a directory.
        bounds: offsets at which to begin, where nothing is there yet, and to end. Where the stream
            does not reach to the beginning that was asked for, it is None: nothing is written down,
            and a later run finds it.
        directory: that the stream's own goes into.
        made: format of the files.
        file_size: bytes after which a file ends, at the next range of chunks (4 MiB and more).
        on_gap: told of offsets that exist nowhere.
        tell: told how far it is.

    Raises:
        ForeignFilesError: the directory holds something else.
        ConflictError: another process is at it.
        HistoryChangedError: a claim has cut off what was written before.
        LostRangeError: what is still missing is not in the remote tier any more.
        OSError: from the file system.
        As `StreamReader.chunks`.
    """
    place = directory / reader.stream
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        first, end = bounds
        if first is None and not (place / STATE).exists():
            return Exported(end)
        first = end if first is None else first  # that of the first run counts
        state = _State.of(place, asked, first)
        there = _files(place, made.suffix, state.first)
        done = Exported(there or state.first, resumed_at=there)
        read = reader.begin(Offset(done.next_offset), Offset(max(done.next_offset, end)))
        _check_uncut(reader.stream, read, done, state)
        if done.next_offset < end:
            # What was not there when its first run began is a gap; what has gone since, is lost.
            if not (there is None and first == state.first) and read.position > done.next_offset:
                lost_to = min(read.position, read.end)
                refuse_lost(done.next_offset, lost_to, reader.stream, read.root)
            _write(reader.stream, read, done, made, state, file_size, on_gap, tell)
        return done


def _write(
    stream: str,
    read: RangeRead,
    done: Exported,
    made: Format,
    state: _State,
    file_size: int,
    on_gap: Callable[[Gap], None],
    tell: Callable[[Exported], None],
) -> None:
    end = read.end
    file = _File(state.place, made, done)

    def finish() -> None:
        # The read tells what was cut off of the file, and nothing below its own beginning.
        _check_uncut(stream, read, done, state)
        state.read_under(read.root.epoch)
        file.finish()

    def gap(found: Gap) -> None:
        on_gap(found)
        file.writer().gap(found)
        file.next_offset = found.next_offset

    with closing(file), closing(fetched(read, gap)) as pieces:
        for piece in pieces:
            file.writer().write(piece, max(read.position, file.next_offset), end)
            file.next_offset = min(piece.next_offset, end)
            if file.size >= file_size:
                finish()
            tell(Exported(file.next_offset, done.files, file.messages, file.bytes, done.resumed_at))
        file.next_offset = end
        finish()
        tell(done)


def _check_uncut(stream: str, read: RangeRead, done: Exported, state: _State) -> None:
    """See that what files have is still the stream's, by the very manifest that is read.

    Raises:
        HistoryChangedError: a claim has cut it off.
    """
    cut = read.ledger.ceiling(state.epoch)
    if cut < done.next_offset and (done.files or done.resumed_at is not None):
        raise HistoryChangedError(
            f"offsets from {cut} on have been cut off since", stream=stream, key=str(state.place)
        )


class _File:
    """The file that is being written, and the sums of those before.

    Attributes:
        next_offset: up to which it has come.
    """

    def __init__(self, place: Path, made: Format, done: Exported) -> None:
        self._place, self._made, self._done = place, made, done
        self._writer: Writer | None = None
        self.next_offset = done.next_offset

    @property
    def size(self) -> int:
        """Bytes of it."""
        return self._writer.size if self._writer is not None else 0

    @property
    def messages(self) -> int:
        """Messages of all."""
        return self._done.messages + (self._writer.messages if self._writer is not None else 0)

    @property
    def bytes(self) -> int:
        """Bytes of all."""
        return self._done.bytes + self.size

    @property
    def _part(self) -> Path:
        return self._place / f"{self._done.next_offset:020d}{_PART}"

    def writer(self) -> Writer:
        """Of the file; a new one behind one that was finished."""
        if self._writer is None:
            self._writer = self._made.open(self._part)
        return self._writer

    def finish(self) -> None:
        """Give the file its name, once all of it is on the disk."""
        writer, done = self._writer, self._done
        if writer is None:
            return
        writer.close()  # `close` removes the file if it cannot be closed
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        name = f"{done.next_offset:020d}-{self.next_offset:020d}.{self._made.suffix}"
        self._part.rename(self._place / name)
        self._writer = None
        sync_directory(self._place)
        done.next_offset = self.next_offset
        done.files += 1
        done.messages += writer.messages
        done.bytes += size

    def close(self) -> None:
        """Remove what has no name yet."""
        if self._writer is not None:
            try:
                self._writer.close()
            finally:  # on a disk that is full it cannot be closed, and takes the room that is left
                self._part.unlink(missing_ok=True)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConflictError(
            "another process exports into it",
            key=str(place),
            remedy="wait until it has ended, or give another directory with --to",
        ) from None
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _State:
    """What `_export.json` says.

    Attributes:
        place: directory of it and of the files.
        asked: what the files hold.
        first: offset at which the first of them begins.
        epoch: of the manifest by which the last of them was read; what a later claim has cut off of
            them shows by it.
    """

    place: Path
    asked: dict[str, str]
    first: int
    epoch: int = 0

    @classmethod
    def of(cls, place: Path, asked: Mapping[str, str], first: int) -> _State:
        """As an earlier run wrote it down, or the first one.

        Raises:
            ForeignFilesError: the directory is of another export, or of none.
        """
        path = place / STATE
        if not path.exists():
            names = (each.name for each in place.iterdir())
            if foreign := [name for name in names if not name.endswith(_PART)]:
                raise ForeignFilesError(f"it holds {foreign[0]!r} and no {STATE}", key=str(place))
            made = cls(place, dict(asked), first)
            made._save()
            return made
        with path.open("rb") as file:
            text = file.read(_MAX_STATE)
        try:
            found: dict[str, Any] = json.loads(text)
            made = cls(place, dict(found["asked"]), int(found["first"]), int(found["epoch"]))
        except (ValueError, TypeError, KeyError):
            raise ForeignFilesError("it is not what an export writes down", key=str(path)) from None
        if made.asked != dict(asked):
            raise ForeignFilesError(
                f"an export that was asked for otherwise, with {made.asked!r:.300}", key=str(place)
            )
        return made

    def read_under(self, epoch: int) -> None:
        """Write down, before a file gets its name, by a manifest of which epoch it was read."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._save()

    def _save(self) -> None:
        found = {"asked": self.asked, "first": self.first, "epoch": self.epoch}
        write_state(self.place / STATE, found)


def _files(place: Path, suffix: str, first: int) -> int | None:
    """Where the files end, which must follow one another; None if there are none.

    What was being written when its writer was killed is removed.

    Raises:
        ForeignFilesError: one is missing, or two overlap.
    """
    pattern = re.compile(rf"([0-9]{{20}})-([0-9]{{20}})\.{suffix}", re.ASCII)
    found: list[tuple[int, int]] = []
    for path in place.iterdir():
        if re.fullmatch(r"[0-9]{20}\.part", path.name, re.ASCII):
            path.unlink()
        elif match := pattern.fullmatch(path.name):
            found.append((int(match[1]), int(match[2])))
    end = first
    for begin, behind in sorted(found):
        if begin != end:
            raise ForeignFilesError(
                f"its files go up to offset {end} and on from {begin}", key=str(place)
            )
        end = behind
    return end if found else None
