"""What the exit code of `coldstream` says; the numbers of sysexits.h, as RabbitMQ's tools use them.

Documented in docs/reference/cli.md, which is generated from this file.
"""

from __future__ import annotations

from enum import IntEnum

from coldstream.adapters.settings import MisconfiguredError
from coldstream.errors import ColdstreamError, ErrorKind


class ExitCode(IntEnum):
    """Exit codes; `meaning` is the sentence for the reference."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DATA = 65
    NO_STREAM = 66
    UNAVAILABLE = 69
    INTERNAL = 70
    OUTPUT = 74
    TRY_AGAIN = 75
    LATER_RELEASE = 76
    NO_PERMISSION = 77
    CONFIGURATION = 78
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """What it tells the caller."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "all is well",
    ExitCode.FAILED: "a check or a workflow failed, or a rule forbids it",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.DATA: "data is damaged or lost",
    ExitCode.NO_STREAM: "no such stream or object",
    ExitCode.UNAVAILABLE: "AWS or a broker cannot be reached or does not answer properly",
    ExitCode.INTERNAL: "a bug in coldstream",
    ExitCode.OUTPUT: "the output cannot be written",
    ExitCode.TRY_AGAIN: "busy or overtaken by another writer: try again",
    ExitCode.LATER_RELEASE: "a later release wrote it: upgrade this program",
    ExitCode.NO_PERMISSION: "the credentials lack a permission",
    ExitCode.CONFIGURATION: "a setting is missing or wrong",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
}

BY_KIND = {
    ErrorKind.INVALID_INPUT: ExitCode.USAGE,
    ErrorKind.NOT_FOUND: ExitCode.NO_STREAM,
    ErrorKind.CORRUPT_DATA: ExitCode.DATA,
    ErrorKind.REFUSED_FRAGMENT: ExitCode.DATA,
    ErrorKind.CONFLICT: ExitCode.TRY_AGAIN,
    ErrorKind.ALREADY_EXISTS: ExitCode.TRY_AGAIN,
    ErrorKind.FENCED: ExitCode.TRY_AGAIN,
    ErrorKind.UNKNOWN_OUTCOME: ExitCode.TRY_AGAIN,
    ErrorKind.UNAVAILABLE: ExitCode.UNAVAILABLE,
    ErrorKind.PERMISSION_DENIED: ExitCode.NO_PERMISSION,
    ErrorKind.DIVERGED: ExitCode.DATA,
    ErrorKind.LOST_RANGE: ExitCode.DATA,
    ErrorKind.COVERS_LESS: ExitCode.DATA,
    ErrorKind.UNKNOWN_VERSION: ExitCode.LATER_RELEASE,
    ErrorKind.INTERNAL: ExitCode.INTERNAL,
}


def exit_code_of(error: ColdstreamError) -> ExitCode:
    """The exit code for an error: its own if it has one, else that of its kind."""
    if isinstance(error, MisconfiguredError):
        return ExitCode.CONFIGURATION
    own = getattr(error, "exit_code", None)
    return own if isinstance(own, ExitCode) else BY_KIND[error.kind]
