"""`coldstream repair STREAM`: a corrupt or missing range from wherever it still is."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.connect import Remote
from coldstream.cli.deleted import workable
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import (
    DEFAULT_BRANCHING,
    JsonOption,
    OwnBranchingOption,
    Where,
    with_options,
)
from coldstream.cli.output import many, note, print_json, print_table
from coldstream.cli.ranges import range_of
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.usecases.repair_report import RepairReport

_COLUMNS = ("first", "next", "action", "found", "missing", "proved", "key")


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What a repair looks at, and what it may do. Attributes: the options of the command."""

    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="FIRST..NEXT",
            help="Offsets to look at, the last one excluded, as scrub tells them; may be given "
            "several times. Without it every byte of the stream is read.",
        ),
    ] = None
    findings: Annotated[
        Path | None,
        typer.Option(
            "--findings",
            help="Take the ranges from findings of scrub: a file with its line, or with one "
            "finding a line as JSON; - for stdin.",
        ),
    ] = None
    from_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--from-dir",
            help="Data directory of a broker, or a copy of one, that may still have the range; "
            "may be given several times.",
        ),
    ] = None
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Declare lost what no source has: it becomes a hole that every reader is told "
            "of. Asks for --yes.",
        ),
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", help="Really declare it lost; see --lost --dry-run first.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False
    branching: OwnBranchingOption = DEFAULT_BRANCHING
    as_json: JsonOption = False

    def wanted(self, stream: str) -> list[tuple[int, int]]:
        """The ranges of a stream, as given and as found; none without either option.

        Raises:
            InvalidInputError: one is none, or the file cannot be used.
        """
        given = [range_of(each) for each in self.ranges or ()]
        return given + ([] if self.findings is None else _from_findings(self.findings, stream))


@with_options
def repair(stream: StreamArgument, *, options: RepairOptions, where: Where) -> None:
    r"""Put corrupt or missing fragments right; exit with 65 if something is left.

    75 says that another writer changed a fragment meanwhile: run it again.

    What is still good of a fragment is kept. The rest is looked for in other objects of the bucket,
    then in the directories that are given, and every chunk must be what the manifest, the index and
    the trailer still prove. New objects replace the damaged ones by one commit; readers do not
    notice. With --lost, and only then, offsets that are nowhere become a hole.

    Example:

        coldstream repair //orders --range 70..80 \
            --from-dir /var/lib/rabbitmq/stream
    """
    if options.lost and not (options.yes or options.dry_run):
        raise InvalidInputError("--lost gives offsets up for ever: add --yes, or --dry-run to see")
    remote = where.connect()
    name = workable(remote.catalog, stream)
    wanted = options.wanted(name)
    if options.findings is not None and not wanted:
        note(f"no finding is about {name}: nothing to do")
        return
    report = _repair(remote, name, wanted, options)
    if options.as_json:
        print_json(_document(report))
    else:
        print_table(_rows(report), _COLUMNS)
    _conclude(report, options.dry_run)
    if report.left:
        raise typer.Exit(ExitCode.DATA)
    if report.overtaken:
        # What another writer put in its place was not looked at: not known to be right.
        raise typer.Exit(ExitCode.TRY_AGAIN)


def _repair(
    remote: Remote, stream: str, wanted: list[tuple[int, int]], options: RepairOptions
) -> RepairReport:
    from coldstream.cli.repair_replica import LogReplica
    from coldstream.usecases import repair as usecase

    return usecase.repair(
        read_only(remote)[0] if options.dry_run else remote.context(),
        stream,
        ranges=wanted or None,
        replicas=[LogReplica(each, stream, note) for each in options.from_dir or ()],
        lost=options.lost,
        branching=options.branching,
        pause=lambda attempt: time.sleep(0.1 * 2**attempt),
        dry_run=options.dry_run,
        tell=note,
    )


def _conclude(report: RepairReport, dry_run: bool) -> None:
    for first, next_offset in report.outside:
        note(f"offsets {first} to {next_offset - 1} are not in the manifest of {report.stream}")
    for first, next_offset in report.lost:
        verb = "would be declared lost" if dry_run else "are declared lost"
        note(f"offsets {first} to {next_offset - 1} of {report.stream} {verb}")
    for each in report.left:
        gaps = ", ".join(f"{first} to {next_offset - 1}" for first, next_offset in each.missing)
        note(
            f"offsets {each.entry.first_offset} to {each.entry.next_offset - 1} stay damaged"
            f"{f'; nobody has {gaps}' if gaps else ''}: give --from-dir, or --lost to give them up"
        )
    if report.overtaken:
        note(f"{many(report.overtaken, 'fragment')} changed meanwhile; run it again")
    looked = f"{many(report.looked_at, 'fragment')} looked at"
    if not report.repairs:
        note(f"{looked}: nothing to repair")
    elif dry_run:
        note(f"{looked}; nothing was changed")
    else:
        note(f"{looked}; manifest version {report.version}")


def _from_findings(path: Path, stream: str) -> list[tuple[int, int]]:
    """Ranges of the findings about a stream that are more than notes.

    Raises:
        InvalidInputError: the file cannot be read, is empty, or holds something else.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        documents = [json.loads(line) for line in text.splitlines() if line.strip()]
        if not documents:  # a scrub that finds nothing still says so in a line
            raise ValueError("there is nothing in it")
        found = [
            each
            for document in documents
            for each in (document.get("worst", [document]) if document else [])
        ]
        return [
            (int(each["first_offset"]), int(each["next_offset"]))
            for each in found
            if each["stream"] == stream and each["severity"] != "note"
        ]
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise InvalidInputError(
            "no findings of scrub: neither its line nor a finding a line", key=str(path)
        ) from exc
    except (OSError, ValueError) as exc:
        raise InvalidInputError(f"no findings of scrub: {exc}", key=str(path)) from exc


def _rows(report: RepairReport) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for row in _document(report)["repairs"]:
        found = ", ".join(f"{count} {source}" for source, count in row["found"].items())
        missing = ", ".join(f"{first}..{next_offset}" for first, next_offset in row["missing"])
        proved = "yes" if row["proved"] else "by chunk"
        rows.append({**row, "found": found or "-", "missing": missing or "-", "proved": proved})
    return rows


def _document(report: RepairReport) -> dict[str, Any]:
    return {
        "stream": report.stream,
        "looked_at": report.looked_at,
        "outside": [list(span) for span in report.outside],
        "landed": report.landed,
        "version": report.version,
        "overtaken": report.overtaken,
        "lost": [list(span) for span in report.lost],
        "repairs": [
            {
                "first": each.entry.first_offset,
                "next": each.entry.next_offset,
                "action": str(each.action),
                "why": each.why,
                "found": dict(each.taken),
                "missing": [list(span) for span in each.missing],
                "proved": each.proved,
                "key": each.key,
                "new_keys": list(each.keys),
            }
            for each in report.repairs
        ],
    }
