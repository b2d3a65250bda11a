"""Which directories below the data directory are streams, and what is strange about them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from coldstream.agent.committed import CommittedFile, CommittedOffsets
from coldstream.agent.files import DISK
from coldstream.errors import InvalidInputError
from coldstream.names import INDEX_SUFFIX, SEGMENT_SUFFIX, check_stream

_DIGITS = 20
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories below a data directory, by name.

    Attributes:
        streams: that hold a segment or an index file, or cannot be looked into.
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
    for name in sorted(entry.name for entry in data_dir.iterdir() if entry.is_dir()):
        if not _can_be_stream(name):
            strange.append(name)
        elif name in known or _holds_segments(data_dir / name):
            streams.append(name)
        else:
            bare.append(name)
    return Directories(tuple(streams), tuple(bare), tuple(strange))


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


def some(names: Collection[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _NAMED
    words = ", ".join(sorted(names)[:_NAMED])
    return f"{words} and {more} more" if more > 0 else words


def _can_be_stream(name: str) -> bool:
    try:
        check_stream(name)
    except InvalidInputError:
        return False
    return True


def _holds_segments(directory: Path) -> bool:
    try:
        names = DISK.names(directory)
    except OSError:
        return True  # its follower says why it cannot be read
    return any(
        name[_DIGITS:] in (SEGMENT_SUFFIX, INDEX_SUFFIX)
        and name[:_DIGITS].isascii()
        and name[:_DIGITS].isdecimal()
        for name in names
    )
