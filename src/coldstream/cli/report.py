"""Errors as people see them: what failed, why, what to try. Three lines on stderr, always."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from coldstream.cli.exit_codes import ExitCode, exit_code_of
from coldstream.errors import ColdstreamError, ErrorKind, InternalError, InvalidInputError

_TRY = {
    ErrorKind.INVALID_INPUT: "correct what the first line names; `--help` of the command says what "
    "it takes",
    ErrorKind.NOT_FOUND: "list what there is with `coldstream streams`, check a stream with "
    "`coldstream verify STREAM`",
    ErrorKind.CORRUPT_DATA: "find the extent with `coldstream verify STREAM --deep`; the "
    "broker or a replica may still have the range",
    ErrorKind.REFUSED_FRAGMENT: "find the extent with `coldstream verify STREAM --deep`",
    ErrorKind.CONFLICT: "run the command again",
    ErrorKind.ALREADY_EXISTS: "run the command again",
    ErrorKind.FENCED: "another node is the writer now; nothing to do here",
    ErrorKind.UNKNOWN_OUTCOME: "run the command again: it may or may not have landed, both "
    "are safe",
    ErrorKind.UNAVAILABLE: "check the network, AWS_REGION and AWS_ENDPOINT_URL, then run it again",
    ErrorKind.PERMISSION_DENIED: "check the credentials (`aws sts get-caller-identity`) and their "
    "role",
    ErrorKind.DIVERGED: "nothing was changed; compare the two histories before you go on",
    ErrorKind.LOST_RANGE: "the range is in neither tier; read on after it, and raise the retention",
    ErrorKind.COVERS_LESS: "look at what is missing, repair it if a broker has it, or say "
    "--accept-less",
    ErrorKind.UNKNOWN_VERSION: "it is not damaged: use the release that wrote it, or a later one",
    ErrorKind.INTERNAL: "report this with the lines above; nothing was changed by the error itself",
}


class ConfigurationError(InvalidInputError):
    """A setting that the command needs is missing or wrong.

    Args:
        message: what is missing.
        remedy: what to set.
    """

    exit_code = ExitCode.CONFIGURATION
    why = "configuration"

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message, remedy=remedy)


def explain(error: ColdstreamError, what: str) -> str:
    """The three lines for an error.

    Args:
        error: to be told.
        what: the command that failed, e.g. "read".
    """
    reason = " ".join(str(error).split())
    remedy = error.remedy or getattr(error, "usual_remedy", None) or _TRY[error.kind]
    why = getattr(error, "why", error.kind)
    command = f"coldstream {what}".strip()
    return f"{command} failed: {reason}\n  why: {why}\n  try: {remedy}"


class OutputError(ColdstreamError):
    """What should have gone to standard output could not be written."""

    exit_code = ExitCode.OUTPUT
    why = "output"
    remedy = "see where standard output goes: its disk may be full, or nothing is open there"


#: What a write says whose disk is full, whose file may not grow, or that goes nowhere.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF})


class Commands(TyperGroup):
    """A group of commands whose errors end as three lines and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; see `typer.core`."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a disk that is full can still be told
            return result
        except ColdstreamError as error:
            fail(error, _words(ctx))
        except BrokenPipeError:
            # The reader of our output has gone (`| head`): it has what it wanted.
            silence_stdout()
            raise typer.Exit(ExitCode.OK) from None
        except KeyboardInterrupt:
            tell_interrupt(_words(ctx))
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:  # a bug of ours; it needs its traceback and an exit code
            if type(error).__module__.startswith("typer.") or isinstance(error, EOFError):
                raise  # usage errors, exits and aborts are typer's own business
            if cannot_write(error):
                silence_stdout()
                fail(OutputError(f"cannot write: {error}"), _words(ctx))
            traceback.print_exc()
            fail(InternalError(f"{type(error).__name__}: {error}"), _words(ctx))


def _words(ctx: Any) -> str:
    """The command as typed after `coldstream`, e.g. "quarantine drop"."""
    words = [ctx.invoked_subcommand or ""]
    while ctx.parent is not None:
        words.append(ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(reversed(words)).strip()


def cannot_write(error: BaseException) -> bool:
    """Whether an error is that of an output that takes nothing more."""
    return isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None


def tell_interrupt(what: str) -> None:
    """Say on stderr that a person has ended the command."""
    sys.stderr.write(f"coldstream {what}: interrupted; it can be run again at any time\n")


def fail(error: ColdstreamError, what: str) -> None:
    """Tell the error on stderr and leave with its exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        silence_stdout()  # the error that is told is the one that came first
    print(explain(error, what), file=sys.stderr)  # noqa: T201 - the answer to a person
    raise typer.Exit(exit_code_of(error))


def silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's exit does not complain."""
    _send_nowhere(1)


def give_up_stderr() -> None:
    """Send nowhere what stderr did not take: the interpreter would try again, and exit with 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _send_nowhere(2)


def _send_nowhere(descriptor: int) -> None:
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)
