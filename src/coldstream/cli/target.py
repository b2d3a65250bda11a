"""What is said when files that a command writes cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coldstream.cli.exit_codes import ExitCode
from coldstream.errors import ColdstreamError


class UnwritableError(ColdstreamError):
    """The file system does not take what a command writes."""

    exit_code = ExitCode.OUTPUT
    why = "output"
    remedy = (
        "make room there, or name a directory that can be written; given again in the same words it"
        " goes on where it stopped"
    )


@contextmanager
def writing_into(directory: Path) -> Iterator[None]:
    """Tell errors of the file system as those of a directory.

    Raises:
        UnwritableError: the file system does not take it.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # of a pipe, and not of a file
    except OSError as exc:
        place = exc.filename if isinstance(exc.filename, str) else str(directory)
        raise UnwritableError(f"cannot write: {exc.strerror or exc}", key=place) from exc
