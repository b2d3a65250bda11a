"""A stream as the broker's own files again: DIR/<stream>/*.segment and *.index.

A restore that was killed goes on behind the last segment that is whole; `workplace` says where it
works until it is done.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from coldstream.copies.runs import (
    HistoryChangedError,
    bytes_within,
    fetched,
    holes,
    refuse_gap,
    refuse_lost,
    run_of,
    runs,
)
from coldstream.copies.segment_files import SegmentWriter, Written, remove_unfinished, written
from coldstream.copies.workplace import ForeignFilesError, Workplace, sync_directory
from coldstream.errors import InvalidInputError, LostRangeError
from coldstream.manifest.root import Root
from coldstream.plans.restore import Segment, segments
from coldstream.reader import Offset, StreamReader
from coldstream.reader.follow import RangeRead
from coldstream.wording import listed

_SHOWN = 5


class HolesError(LostRangeError):
    """There are holes in what is to be restored, and a broker's log has none."""

    remedy = (
        "begin after the last of them with --after-holes, or restore the ranges between them into"
        " directories of their own with --from and --until"
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be restored.

    Attributes:
        first: offset at which it begins; the chunk that contains it is the first.
        end: offset at which it ends: chunks that begin at or after it are left out.
        holes: offsets that are passed over, all below `first`.
    """

    first: int
    end: int
    holes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a restore is.

    Attributes:
        next_offset: of what is written.
        size: bytes of segment files.
    """

    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a restore.

    Attributes:
        directory: the stream's.
        first_offset: of the first chunk.
        next_offset: after the last one.
        segments: how many.
        size: bytes of the segment files.
        epoch: of the last chunk.
        resumed_at: offset at which an earlier run had ended; None if there was none.
    """

    directory: Path
    first_offset: int
    next_offset: int
    segments: int
    size: int
    epoch: int
    resumed_at: int | None


def target(
    reader: StreamReader, read: RangeRead, *, after_holes: bool = False
) -> tuple[Target, Root]:
    """What to restore, and the manifest that says so.

    Args:
        reader: of the stream.
        read: from its position to its end.
        after_holes: begin after the last hole between them.

    Raises:
        HolesError: there are holes, and `after_holes` is false.
        InvalidInputError: there is nothing between the bounds.
        As `StreamReader.chunks`.
    """
    root, first, end = read.root, read.position, read.end
    lost = holes(root, first, end, reader.objects)
    spans = tuple((each.first_offset, each.next_offset) for each in lost)
    if spans and not after_holes:
        told = listed([f"{low} to {high - 1}" for low, high in spans], _SHOWN)
        raise HolesError(
            f"offsets {told} are lost, and a broker's files have no holes",
            stream=reader.stream,
            offset=spans[0][0],
        )
    first = max(first, spans[-1][1]) if spans else first
    if first >= end:
        raise InvalidInputError(
            f"the stream has no offsets from {first} on and below {end}", stream=reader.stream
        )
    return Target(first, end, spans), root


def planned(reader: StreamReader, root: Root, wanted: Target) -> Iterator[Segment]:
    """The files that a restore would make, by trailers and indexes alone."""
    return segments(runs(root, wanted.first, wanted.end, reader.objects))


def restore(
    reader: StreamReader,
    asked: dict[str, str],
    find: Callable[[], Target],
    directory: Path,
    tell: Callable[[Progress], None],
) -> Restored:
    """Write a stream's files, or go on where an earlier run has ended.

    Args:
        reader: of the stream.
        asked: in which words; an earlier run is gone on with only if it was asked in the same.
        find: what to restore; called where there was no earlier run.
        directory: that the stream's own goes into.
        tell: called after each range.

    Raises:
        ForeignFilesError: there is such a directory already, or it was begun in other words.
        ConflictError: another process is at it.
        HistoryChangedError: a claim has cut off what was written before.
        LostRangeError: what is still missing is not in the remote tier any more.
        CorruptDataError: damaged bytes, or files in the workplace that are none of ours.
        OSError: the disk has no room for it, or as the file system says.
        As `StreamReader.chunks`.
    """
    place = Workplace(directory, reader.stream)
    with place.locked():
        state = place.begun()
        if state is None:
            wanted = find()
            # First: what was begun is only gone on with in the same words.
            _check_room(directory, reader, wanted.first, wanted.end)
            place.begin({"asked": asked, "target": asdict(wanted)})
        else:
            wanted = _begun(state, asked, place)
        if place.final.exists():  # it was killed after the last step but one
            there = written(place.final)
        else:
            place.files.mkdir(exist_ok=True)  # an earlier run may not have come so far
            remove_unfinished(place.files)
            there = written(place.files)
            start = wanted.first if there.next_offset is None else there.next_offset
            read = reader.begin(Offset(start), Offset(max(start, wanted.end)))
            # Behind it: of a claim between the two the read would know nothing, and go on.
            _check_last(reader, there)
            _check_room(directory, reader, start, wanted.end)
            if start < wanted.end:
                _write(reader.stream, read, start, wanted.end, place.files, there.size, tell)
        done = written(place.final if place.final.exists() else place.files)
        place.publish()
    if done.last is None:
        raise LostRangeError("nothing is left to restore", stream=reader.stream)
    return Restored(
        place.final,
        done.segments[0],
        done.last.next_offset,
        len(done.segments),
        done.size,
        done.last.epoch,
        there.next_offset if state is not None else None,
    )


def _begun(state: dict[str, object], asked: dict[str, str], place: Workplace) -> Target:
    if state.get("asked") != asked:
        raise ForeignFilesError(
            f"an unfinished restore that was asked for otherwise, with {state.get('asked')!r:.200}",
            key=str(place.files),
        )
    try:
        made = Target(**state["target"])  # type: ignore[arg-type]
        holes = tuple((int(low), int(high)) for low, high in made.holes)
        return Target(int(made.first), int(made.end), holes)
    except (KeyError, TypeError, ValueError):
        raise ForeignFilesError("its state is damaged", key=str(place.files)) from None


def _write(
    stream: str,
    read: RangeRead,
    start: int,
    end: int,
    files: Path,
    size: int,
    tell: Callable[[Progress], None],
) -> None:
    """Write what is missing."""
    if read.position != start:
        refuse_lost(start, min(read.position, end), stream, read.root)
    position, writer = start, SegmentWriter(files)
    with closing(writer), closing(fetched(read, refuse_gap)) as pieces:
        for piece in pieces:
            run = run_of(piece)
            ended = writer.append(run, piece.checked)
            if ended is not None:
                sync_directory(files)
                size += ended.size
            position = run.next_offset
            tell(Progress(position, size + writer.size))
        writer.finish()
    if position < end:
        refuse_lost(position, end, stream, read.root)


def _check_last(reader: StreamReader, there: Written) -> None:
    """See that what was written before is still the stream's: its last chunk speaks for all.

    Raises:
        HistoryChangedError: it is not.
        LostRangeError: retention has taken it, so that nobody can say.
    """
    last = there.last
    if last is None:
        return
    read = reader.begin(Offset(last.chunk_id), Offset(last.next_offset))
    if read.position > last.chunk_id:
        refuse_lost(last.chunk_id, read.position, reader.stream, read.root)
    with closing(fetched(read, refuse_gap)) as pieces:
        found = next((next(iter(piece.checked)).header for piece in pieces), None)
    if found != last:
        raise HistoryChangedError(
            "the last chunk that was restored is another one now",
            stream=reader.stream,
            offset=last.chunk_id,
        )


def _check_room(directory: Path, reader: StreamReader, start: int, end: int) -> None:
    """Refuse offsets [start, end) that will not fit.

    Raises:
        OSError: the disk has too little left.
    """
    needed = bytes_within(reader.snapshot().root, start, end, reader.objects)
    free = shutil.disk_usage(directory).free
    if needed > free:
        words = f"{needed} bytes and more are to be written, and the disk has {free} left"
        raise OSError(errno.ENOSPC, words, str(directory))
