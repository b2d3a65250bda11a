"""`coldstream verify STREAM`: the named invariants, checked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.deleted import readable, refuse_if_gone
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import JsonOption, Where, with_options
from coldstream.cli.output import note, print_json, print_section, print_titled
from coldstream.cli.resolve import StreamArgument

if TYPE_CHECKING:
    from coldstream.manifest.invariants import Invariant
    from coldstream.reader.report import VerifyReport

_COLUMNS = ("first", "next", "status", "fragments", "bytes", "key", "problem")
_WORST_SHOWN = 50
#: What is known without --deep of rules that speak of every byte, by invariant.
_SHALLOW = {
    "durability": "every fragment is there, with its size and a sound trailer; data not read",
    "epoch_order": "epochs of the fragments' first and last chunks never fall; others not read",
}


@with_options
def verify(
    stream: StreamArgument,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all data: every CRC, chunk and message.")
    ] = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Check a stream of the remote tier; exit with 65 if anything is wrong.

    Prints each invariant with its result and what became of every range of offsets: PRESENT,
    MISSING, CORRUPT, or LOST for a hole that was declared before. Every group of the manifest is
    read and its sums are checked; a group that is gone or damaged is told with its key and all
    that it hides. Without --deep the objects' sizes and trailers are checked, with it every byte.

    Example:

        coldstream verify //orders --deep --json
    """
    from coldstream.reader.verify import verify_stream

    remote = where.connect()
    name = readable(remote.catalog, stream)
    with _progress(f"verifying {name}") as progress:
        report = verify_stream(
            remote.store, remote.catalog, remote.prefix, name, deep=deep, progress=progress
        )
    if not report.sound:
        refuse_if_gone(remote.catalog, name)  # then what is missing is no damage
    if as_json:
        print_json(_document(report))
    else:
        _tell(report)
    if not report.sound:
        raise typer.Exit(ExitCode.DATA)


def _tell(report: VerifyReport) -> None:
    document = _document(report)
    print_section(
        "CHECKS",
        {each["invariant"]: f"{_result(each)}  {each['rule']}" for each in document["checks"]},
    )
    print_titled("RANGES", document["ranges"], _COLUMNS)
    for each in report.violations[:_WORST_SHOWN]:
        place = "" if each.first_offset is None else f" at offset {each.first_offset}"
        note(f"{each.invariant}{place}: {each.message}{f' ({each.key})' if each.key else ''}")
    count = sum(each["violations"] for each in document["checks"])
    if count > _WORST_SHOWN:
        note(f"and {count - _WORST_SHOWN} more; see --json")
    what = f", {report.chunks} chunks and {report.messages} messages read" if report.deep else ""
    if report.rooted and not report.deep:
        note("durability: by existence, size and trailer of each object; --deep reads every byte")
    groups = f", {report.groups} groups read" if report.groups else ""
    result = "sound" if report.sound else f"{count} violations"
    if report.lost:
        holes = "1 hole" if len(report.lost) == 1 else f"{len(report.lost)} holes"
        result += f", {holes} of {document['lost_offsets']} offsets"
    note(f"{report.stream} [{report.first_offset}, {report.next_offset}): {result}{groups}{what}")


def _rule(invariant: Invariant, *, deep: bool) -> str:
    """What was checked, in one sentence: never more than that."""
    return invariant.rule if deep else _SHALLOW.get(str(invariant), invariant.rule)


def _result(check: dict[str, Any]) -> str:
    if check["ok"] is None:
        return "not checked"
    return "ok" if check["ok"] else f"FAILED ({check['violations']})"


def _document(report: VerifyReport) -> dict[str, Any]:
    from coldstream.reader.report import CHECKED

    return {
        "stream": report.stream,
        "sound": report.sound,
        "deep": report.deep,
        "version": report.version,
        "first": report.first_offset,
        "next": report.next_offset,
        "chunks": report.chunks,
        "messages": report.messages,
        "groups": report.groups,
        "holes": len(report.lost),
        "lost_offsets": sum(each.next_offset - each.first_offset for each in report.lost),
        "checks": [
            {
                "invariant": str(each),
                "rule": _rule(each, deep=report.deep),
                "ok": not report.count_of(each) if report.checked(each) else None,
                "violations": report.count_of(each),
            }
            for each in CHECKED
        ],
        "ranges": [
            {
                "first": each.first_offset,
                "next": each.next_offset,
                "status": str(each.status),
                "fragments": each.fragments,
                "bytes": each.size_bytes,
                "key": each.key or None,
                "problem": each.problem or None,
            }
            for each in report.ranges
        ],
        "violations": [
            {**asdict(each), "invariant": str(each.invariant)} for each in report.violations
        ],
    }


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
