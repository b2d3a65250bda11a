"""Which data is committed: declared by whoever starts the agent.

A broker's files alone prove nothing: a closed segment can be uncommitted. So either the operator
says that all of it is (a stopped broker, a backup, a single node), or a file gives the committed
offset of each stream. Proof by the live broker is a third source (agent/broker/gate.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from coldstream.agent.disk.log import StreamLog
from coldstream.errors import InvalidInputError
from coldstream.names import MAX_OFFSET, check_stream

_MAX_FILE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a stream beside where its committed part ends.

    Attributes:
        writer: whether this node has the stream's writer, or nobody can say. It divides the work;
            no data depends on it.
        whole: whether all that was there at the last look is known to be committed.
        local: whether the local log has all below the limit.
        max_bytes: of the local log, by the broker's retention; None where nothing bounds it.
        max_age_ms: likewise.
        super_stream: of which it is a partition; "" if of none, or nobody knows.
        trouble: why nothing new was proved at the last try; "" if it was, or needs no proof.
        epoch: of the chunk below the limit that was proved last; 0 where nobody can say.
        named: whether the broker has shown which queue it is.
        doubt: why it has not, though it tells what is committed; "" if there is another reason.
    """

    writer: bool = True
    whole: bool = True
    local: bool = False
    max_bytes: int | None = None
    max_age_ms: int | None = None
    super_stream: str = ""
    trouble: str = ""
    epoch: int = 0
    named: bool = False
    doubt: str = ""


class CommittedOffsets(Protocol):
    """Where the committed part of each stream ends."""

    def refresh(self, stream: str, now: float) -> float:
        """Bring what is known of a stream up to date, if it is time to. Never raises.

        Args:
            stream: directory name.
            now: monotonic seconds.

        Returns:
            When it is worth asking again while something waits, monotonic seconds.
        """
        ...

    def limit(self, stream: str) -> int:
        """All offsets below this are committed; 0 if nothing is known."""
        ...

    def known(self, stream: str) -> Known:
        """What else is known, as of the last time that it was brought up to date."""
        ...

    def conclude(self, log: StreamLog, sure: int) -> None:
        """A directory is gone: what was known of it last counts, as far as what is held has it.

        Args:
            log: what is held of it.
            sure: all that is held below this was committed when its file was last there.
        """
        ...

    def forget(self, stream: str) -> None:
        """A directory is gone, and nothing more is asked of it."""
        ...

    def warnings(self) -> list[str]:
        """Why nothing is known of some streams, in sentences."""
        ...


class AllCommitted:
    """Everything that an index file names is committed, because the operator said so."""

    def refresh(self, stream: str, now: float) -> float:
        """Nothing to ask."""
        del stream
        return now

    def limit(self, stream: str) -> int:
        """No limit."""
        return MAX_OFFSET

    def known(self, stream: str) -> Known:
        """Nothing."""
        return Known()

    def conclude(self, log: StreamLog, sure: int) -> None:
        """All of it counts."""

    def forget(self, stream: str) -> None:
        """Nothing is known of it."""

    def warnings(self) -> list[str]:
        """None."""
        return []


class CommittedFile:
    """A JSON file {stream directory: last committed offset, or "all"}; read again when it changes.

    Args:
        path: of the file.

    Raises:
        InvalidInputError: it is missing or says something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._limits: dict[str, int] = {}
        self.limit("")

    def refresh(self, stream: str, now: float) -> float:
        """The file is read when the limit is asked for."""
        del stream
        return now

    def limit(self, stream: str) -> int:
        """One past the last committed offset; 0 for a stream that the file does not name."""
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._stamp:
                self._limits = parse_offsets(self._path)
                self._stamp = stamp
        except OSError as exc:
            raise InvalidInputError(
                f"the file of committed offsets cannot be read: {exc.strerror}", key=str(self._path)
            ) from exc
        return self._limits.get(stream, 0)

    def known(self, stream: str) -> Known:
        """Nothing."""
        return Known()

    def conclude(self, log: StreamLog, sure: int) -> None:
        """What the file says of it stays."""

    def forget(self, stream: str) -> None:
        """What the file says of it stays."""

    def warnings(self) -> list[str]:
        """None: each stream says for itself that the file does not name it."""
        return []

    def named(self) -> frozenset[str]:
        """The streams that the file names."""
        self.limit("")
        return frozenset(self._limits)


def parse_offsets(path: Path) -> dict[str, int]:
    """Limits by stream from a file of committed offsets.

    Raises:
        InvalidInputError: the file is not a JSON object of offsets.
        OSError: it cannot be read.
    """
    if path.stat().st_size > _MAX_FILE:
        raise InvalidInputError(f"more than {_MAX_FILE} bytes of offsets", key=str(path))
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("the file of committed offsets is not JSON", key=str(path)) from exc
    if not isinstance(content, dict):
        raise InvalidInputError("the file of committed offsets is not an object", key=str(path))
    limits = {}
    for stream, offset in content.items():
        check_stream(stream)
        if offset == "all":
            limits[stream] = MAX_OFFSET
        elif isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < MAX_OFFSET:
            limits[stream] = offset + 1
        else:
            raise InvalidInputError(
                f'a committed offset is a number from 0 on, or "all", not {offset!r};'
                " leave a stream out of which nothing is committed",
                stream=stream,
                key=str(path),
            )
    return limits
