"""Which directories below the data directory are streams, and what is strange about them."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from coldstream.agent.broker.committed import CommittedFile, CommittedOffsets
from coldstream.agent.disk.files import DISK
from coldstream.errors import InvalidInputError
from coldstream.names import INDEX_SUFFIX, SEGMENT_SUFFIX, check_stream

_DIGITS = 20
#: In every n-th scan the directory is read although it has not changed.
_READ_ANYWAY = 60


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories below a data directory, by name.

    Attributes:
        streams: that hold a segment or an index file, or cannot be looked into; known ones first,
            then those that are new, of which the one that was written to last is the first.
        bare: that hold neither; a broker makes both with the directory.
        strange: whose name no broker gives to a stream.
    """

    streams: tuple[str, ...]
    bare: tuple[str, ...]
    strange: tuple[str, ...]


def scan(data_dir: Path, known: Collection[str]) -> Directories:
    """Look at every directory below `data_dir`, but not into those that are `known` for streams.

    Raises:
        OSError: it cannot be read.
    """
    streams, bare, strange = [], [], []
    new: list[tuple[int, str]] = []
    with os.scandir(data_dir) as entries:  # an entry knows what it is: no `stat` for each
        found = sorted(entry.name for entry in entries if _is_directory(entry))
    for name in found:
        if name in known:
            streams.append(name)
        elif not _can_be_stream(name):
            strange.append(name)
        elif (written := _written(data_dir / name)) is not None:
            new.append((-written, name))
        else:
            bare.append(name)
    streams += [name for _, name in sorted(new)]
    return Directories(tuple(streams), tuple(bare), tuple(strange))


class Scanner:
    """Scans one data directory again and again, and reads it only where it may have changed.

    Whoever makes, removes or renames a directory in it changes its time. That is not to be seen of
    a bare directory, which may become a stream, nor of a link; so now and then it is read anyway.
    """

    def __init__(self) -> None:
        self._stamp: object = None
        self._found = Directories((), (), ())
        self._scans = 0

    def scan(self, data_dir: Path, known: Collection[str]) -> Directories:
        """As `scan`.

        Raises:
            OSError: it cannot be read.
        """
        stamp = DISK.stamp(data_dir, "")
        self._scans += 1
        read = stamp != self._stamp or self._found.bare or self._scans % _READ_ANYWAY == 0
        if read:
            self._found = scan(data_dir, known)
            self._stamp = None if stamp.fresh else stamp
        return self._found


def nothing_found(data_dir: Path) -> str:
    """What to say of a data directory without any stream."""
    return (
        f"no directory below {data_dir.absolute()} holds a segment file; the data directory is the"
        " one that holds one directory a stream, such as /var/lib/rabbitmq/mnesia/NODE/stream"
    )


def unnamed(committed: CommittedOffsets, streams: Collection[str]) -> tuple[set[str], set[str]]:
    """Streams that the file of offsets does not name, and names in it without a directory."""
    if not isinstance(committed, CommittedFile):
        return set(), set()
    try:
        named = committed.named()
    except InvalidInputError:
        return set(), set()  # every stream says so for itself
    return set(streams) - named, set(named) - set(streams)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads nowhere, or to itself


def _can_be_stream(name: str) -> bool:
    try:
        check_stream(name)
    except InvalidInputError:
        return False
    return True


def _written(directory: Path) -> int | None:
    """When its newest segment was last written to, ns; None if it holds no such file."""
    try:
        names = DISK.names(directory)
        newest = max((name for name in names if _is_of_log(name)), default=None)
        return None if newest is None else os.stat(f"{directory}/{newest}").st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0  # its follower says why it cannot be read


def _is_of_log(name: str) -> bool:
    return (
        name[_DIGITS:] in (SEGMENT_SUFFIX, INDEX_SUFFIX)
        and name[:_DIGITS].isascii()
        and name[:_DIGITS].isdecimal()
    )
