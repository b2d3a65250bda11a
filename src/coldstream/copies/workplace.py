"""Where a restore works until all of it is on the disk: DIR/.restore.<stream>/.

`state.json` in it says what is meant, and the directory <stream> beside that fills. At the end this
is moved to DIR/<stream> in one step, and the rest goes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from coldstream.errors import ConflictError, InvalidInputError

_STATE, _VERSION = "state.json", 1
_MAX_STATE = 2**20
#: What file systems take.
_MAX_NAME = 255


class ForeignFilesError(InvalidInputError):
    """What is there already is not this command's to change."""

    why = "already there"
    remedy = "move it away, or give another directory with --to"


class Workplace:
    """The place of one restore.

    Args:
        directory: that the stream's own goes into.
        stream: name of that.

    Attributes:
        final: the stream's directory, once all is done.
        files: the same until then.
    """

    def __init__(self, directory: Path, stream: str) -> None:
        self._directory = directory
        self._work = directory / _work_name(stream)
        self._state = self._work / _STATE
        self.final = directory / stream
        self.files = self._work / stream

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else works here meanwhile.

        Raises:
            ForeignFilesError: the final directory is there, and no restore was about to leave.
            ConflictError: another process is at it.
            OSError: from the file system.
        """
        if self.final.is_symlink() or (self.final.exists() and not self._state.exists()):
            raise ForeignFilesError(
                "a restore writes into nothing that is there", key=str(self.final)
            )
        self._work.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConflictError(
                    "another process restores this stream here",
                    key=str(self._work),
                    remedy="wait until it has ended, or give another directory with --to",
                ) from None
            if self.final.exists() and self.files.exists():
                raise ForeignFilesError(
                    "somebody has made it while a restore was under way", key=str(self.final)
                )
            yield
        finally:
            if not self._state.exists():
                with suppress(OSError):  # gone already, or somebody has put something there
                    self._work.rmdir()
            os.close(descriptor)

    def begun(self) -> dict[str, Any] | None:
        """What an earlier run wrote down; None if there was none.

        Raises:
            ForeignFilesError: it is nothing that a restore writes.
        """
        try:
            with self._state.open("rb") as file:
                text = file.read(_MAX_STATE)
        except FileNotFoundError:
            return None
        try:
            found = json.loads(text)
            if found.pop("version") == _VERSION:
                return dict(found)
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise ForeignFilesError("it is not what a restore writes down", key=str(self._state))

    def begin(self, state: Mapping[str, Any]) -> None:
        """Write down what is meant."""
        write_state(self._state, {"version": _VERSION, **state})

    def publish(self) -> None:
        """Give the files their place; nothing is left of the work."""
        if self.files.exists():
            sync_directory(self.files)
            self.files.rename(self.final)
            sync_directory(self._directory)
        self._state.unlink()


def _work_name(stream: str) -> str:
    """The name of a stream's place of work; a broker's directory may have the longest name."""
    name = f".restore.{stream}"
    return (
        name if len(name) <= _MAX_NAME else f".restore.{hashlib.sha256(name.encode()).hexdigest()}"
    )


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a small JSON file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(json.dumps(state).encode())
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Put the names in a directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
