"""The directory of an embedded AWS: which files in it are ours, and how they are removed.

Anything can be typed as `--state`. So only a directory that a server of ours has marked is ever
emptied, only of what we have put there, and never through a link.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from coldstream.errors import InvalidInputError
from coldstream.wording import listed

RECORD = "environment.json"  # the deployed stack and its outputs
ANNOUNCEMENT = "server.json"  # the running server's process and port
LOCK = "server.lock"

#: What server, deployment and demo put into the directory, and nothing else of it is removed.
OURS = frozenset(
    {
        *(RECORD, f"{RECORD}.tmp", ANNOUNCEMENT, f"{ANNOUNCEMENT}.tmp", LOCK),
        *("server.log", "up.lock", "objects", "services", "tmp", "demo"),
    }
)
_SHOWN = 5


def is_ours(directory: Path) -> bool:
    """Whether a server of ours has kept its state here: its lock, or a document as it writes them.

    A name alone is not enough for the documents, because others use these names, too.
    """
    if _has(directory / RECORD, {"stack", "outputs"}):
        return True
    if _has(directory / ANNOUNCEMENT, {"pid", "port"}):
        return True
    lock = directory / LOCK
    try:
        return lock.is_file() and not lock.read_text(encoding="ascii").strip("0123456789\n")
    except (OSError, UnicodeError):
        return False


def check_usable(directory: Path) -> None:
    """See that a server may keep its state here: nothing is here yet, or it is ours.

    Raises:
        InvalidInputError: it holds other things, which must not be mixed with ours.
    """
    if directory.exists() and not directory.is_dir():
        raise InvalidInputError(
            "the state needs a directory, and this is a file", key=f"{directory}"
        )
    if not directory.is_dir() or is_ours(directory):
        return
    others = sorted(each.name for each in directory.iterdir() if each.name not in OURS)
    if others:
        raise InvalidInputError(
            f"this directory holds other things ({_named(others)}): give --state a new one",
            key=str(directory),
        )


def check_removable(directory: Path) -> None:
    """See that this is a directory of ours, so that `remove` may empty it.

    Raises:
        InvalidInputError: it is a link, a file, or a directory that no server of ours has used.
    """
    if directory.is_symlink():
        raise InvalidInputError(
            "a link is not wiped: give --state the directory itself", key=str(directory)
        )
    if not directory.exists():
        return
    if not directory.is_dir() or not (is_ours(directory) or _only_begun(directory)):
        raise InvalidInputError(
            "no embedded AWS has kept its state here, so nothing was removed", key=str(directory)
        )


def remove(directory: Path) -> list[str]:
    """Remove what we have put into a directory, and the directory if it is empty then.

    Returns:
        The names of what was left, because somebody else has put it there.

    Raises:
        InvalidInputError: as `check_removable`.
    """
    check_removable(directory)
    if not directory.exists():
        return []
    # The marks go last: what was cut short can be done again.
    ours = [each for each in directory.iterdir() if each.name in OURS]
    for each in sorted(ours, key=lambda path: path.name in (RECORD, ANNOUNCEMENT, LOCK)):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    left = sorted(each.name for each in directory.iterdir())
    if not left:
        directory.rmdir()
    return left


def _only_begun(directory: Path) -> bool:
    """Whether an `up` that failed early has left its own lock here and nothing else."""
    return {each.name for each in directory.iterdir()} <= {"up.lock", "server.log"}


def _has(path: Path, fields: set[str]) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and fields <= document.keys()


def _named(names: list[str]) -> str:
    return listed(names, _SHOWN)
