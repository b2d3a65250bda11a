"""`coldstream erase STREAM`: one person's messages out of a stream, and out of the bucket."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli import workflow
from coldstream.cli.connect import Remote
from coldstream.cli.delete import ask, refuse_held
from coldstream.cli.deleted import telling_deletion, workable
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.json_path import JsonCondition
from coldstream.cli.match import Condition, Matching, WhereOption
from coldstream.cli.message import BodyFormatOption
from coldstream.cli.options import (
    DEFAULT_BRANCHING,
    DryRunOption,
    JsonOption,
    OwnBranchingOption,
    Where,
    with_options,
)
from coldstream.cli.output import many, note, plain, print_json, print_table, size
from coldstream.cli.ranges import (
    UNTIL_HELP,
    FromOption,
    bound_of,
    check_order,
    range_of,
    spec_of,
)
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.cli.workflow import WorkflowsOption
from coldstream.clock import now_ms
from coldstream.deployment import execution_name
from coldstream.errors import InvalidInputError
from coldstream.ports import Workflows

if TYPE_CHECKING:
    from coldstream.osiris.offsets import OffsetSet
    from coldstream.plans.collect import ObjectKind
    from coldstream.usecases.erase import ErasureReport
    from coldstream.usecases.purge import Concerned

_COLUMNS = ("first", "next", "erased", "bytes", "key")
_OTHERS = ("object", "bytes", "key", "why")


@dataclass(frozen=True, slots=True)
class EraseOptions:
    """Which messages, and what becomes of them. Attributes: the options of the command."""

    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="FIRST..NEXT",
            help="Erase these offsets, the last one excluded; may be given several times.",
        ),
    ] = None
    conditions: WhereOption = None
    json_paths: Annotated[
        list[str] | None,
        typer.Option(
            "--json-path",
            metavar="PATH=VALUE",
            help="Only messages with a JSON body that has this value there, such as "
            "customer.email=a@b.example; given several times, or with --where, all must hold.",
            show_default=False,
        ),
    ] = None
    start: FromOption = "first"
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="OFFSET|TIME",
            help=f"With --where or --json-path. {UNTIL_HELP}",
            show_default="the end of the manifest",
        ),
    ] = ""
    body_format: BodyFormatOption = "auto"
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            help="For the record, such as a number of a ticket. It is kept: no personal data.",
        ),
    ] = ""
    keep_old: Annotated[
        bool,
        typer.Option(
            "--keep-old",
            help="Do not start the state machine that deletes the old objects; a later run does.",
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: DryRunOption = False
    branching: OwnBranchingOption = DEFAULT_BRANCHING
    as_json: JsonOption = False
    workflows: WorkflowsOption = ""

    def matching(self) -> Matching | None:
        """Which messages are wanted; None if none are looked for.

        Raises:
            InvalidInputError: a condition or the body format is none.
        """
        from coldstream.osiris.body import parse_body_format

        body_format = parse_body_format(self.body_format)
        by_property = [Condition.parse(each) for each in self.conditions or ()]
        by_body = [JsonCondition.parse(each) for each in self.json_paths or ()]
        return Matching(by_property, body_format, by_body) if by_property or by_body else None


@with_options
def erase(stream: StreamArgument, *, options: EraseOptions, where: Where) -> None:
    r"""Erase messages for good; offsets stay, what was in the messages goes.

    It finds them by offset, property or JSON body, and shows the plan. Each keeps its offset and
    its length and says that it was erased. New fragments take the place of the old ones by one
    commit, and a state machine with a right of its own deletes the old ones with all versions.
    Without any condition it finishes what was begun, and looks for old objects once more.

    It exits with 65 if a fragment must be repaired first, and with 75 if old objects are left: run
    it again, later. Tables lose the rows at the next run of `materialise`. The
    broker's own files and copies elsewhere are not touched.

    Examples:

        coldstream erase //orders --where customer=4711 --reason ticket-12 \
            --dry-run
        coldstream erase //orders --range 70..80 --range 91..92 --yes
    """
    from coldstream.usecases.erase import erase as perform

    matching = options.matching()
    if matching is None and (options.start != "first" or options.until):
        raise InvalidInputError("--from and --until say where --where and --json-path look")
    machines = None
    if not (options.keep_old or options.dry_run):
        machines = workflow.connect_workflows(options.workflows)
    remote = where.connect()
    name = workable(remote.catalog, stream)
    policies = remote.policies.load()[0]
    item = remote.catalog.get(name)
    if item is not None:
        refuse_held(item, policies)
    offsets = _wanted(remote, name, options, matching)
    settings: dict[str, Any] = {
        "epoch": None if item is None else item.epoch,
        "reason": options.reason,
        "now_ms": now_ms(),
        "branching": options.branching,
        "pause": lambda attempt: time.sleep(0.1 * 2**attempt),
    }
    context = read_only(remote)[0]
    report = perform(context, name, offsets, policies, dry_run=True, **settings)
    others = _others(remote, name, report)
    if not options.as_json:
        _show(report, others, options)
    if options.dry_run:
        if options.as_json:
            print_json(_document(report, others, None, keep_old=options.keep_old))
        note("nothing was changed; without --dry-run it is asked for")
        _conclude(report)
        return
    if report.fragments or others or offsets:
        _confirm(report, others, options)
    report = perform(remote.context(), name, offsets, policies, **settings)
    output = None if machines is None else _purge(machines, name)
    if options.as_json:
        print_json(_document(report, others, output, keep_old=options.keep_old))
    _conclude(report, output)


def _wanted(
    remote: Remote, stream: str, options: EraseOptions, matching: Matching | None
) -> OffsetSet:
    """The offsets that the options name, and those of the messages that they describe."""
    from coldstream.osiris.blank import is_blank
    from coldstream.osiris.offsets import OffsetSet
    from coldstream.reader import StreamReader

    offsets = OffsetSet.of(range_of(each) for each in options.ranges or ())
    if matching is None:
        return offsets
    reader = StreamReader(remote.store, remote.catalog, remote.prefix, stream)
    root = reader.snapshot().root
    spec, bound = spec_of(options.start, root), bound_of(options.until, root)
    check_order(spec, bound, "--until")
    found: list[tuple[int, int]] = []
    with telling_deletion(remote.catalog, stream):
        messages = reader.messages(spec, bound, on_gap=lambda gap: note(f"gap: {gap}"))
        with closing(matching.of(messages)) as wanted:
            for each in wanted:
                if is_blank(each.body):
                    continue
                if found and found[-1][1] == each.offset:
                    found[-1] = (found[-1][0], each.offset + 1)
                else:
                    found.append((each.offset, each.offset + 1))
    if matching.unreadable:
        note(f"{many(matching.unreadable, 'message')} left out: no AMQP 1.0, and no condition")
    if matching.unsearched:
        note(f"{many(matching.unsearched, 'message')} not searched: no JSON, and no --json-path")
    note(f"{many(sum(end - first for first, end in found), 'message')} found")
    return offsets | OffsetSet.of(found)


def _others(remote: Remote, stream: str, report: ErasureReport) -> list[Concerned]:
    """Objects beside the manifest's that hold some of the offsets."""
    from coldstream.usecases.purge import objects_beside

    return list(objects_beside(read_only(remote)[0], stream, report.erased.offsets))


def _confirm(report: ErasureReport, others: list[Concerned], options: EraseOptions) -> None:
    asked = many(report.offsets.count(), "offset")
    going = sum(each.kind.garbage for each in others) + len(report.fragments)
    fate = "stay for now" if options.keep_old else "go for good, with all their versions"
    ask(
        f"Erase {asked} of {report.stream}? {many(len(report.fragments), 'fragment')} would be"
        f" written anew, {many(going, 'old object')} would {fate}; nobody can have them back.",
        yes=options.yes,
        stream=report.stream,
    )


def _purge(machines: Workflows, stream: str) -> dict[str, Any]:
    """Start the machine that deletes old objects, and follow it; what it gave."""
    # To the second, and not to the minute as elsewhere: a second run has something else to do.
    name = execution_name("erase", stream, f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    workflow.start(machines, "erase", name, {"work": [{"stream": stream}], "reason": "erasure"})
    return workflow.follow(machines, "erase", name)


def _show(report: ErasureReport, others: list[Concerned], options: EraseOptions) -> None:
    rows = _document(report, others, None, keep_old=options.keep_old)
    print_table(rows["fragments"], _COLUMNS)
    if rows["others"]:
        print_table(rows["others"], _OTHERS)


def _conclude(report: ErasureReport, output: dict[str, Any] | None = None) -> None:
    """Say what came of it, and leave with what is left to do."""
    for error in report.damaged:
        note(f"not erased: {plain(str(error))}")
    if report.written:
        note(
            f"{many(len(report.written), 'fragment')} written anew, manifest version"
            f" {report.version}"
        )
    if report.record:
        note(f"record: {report.record}")
    left: dict[str, str] = {}
    if output is not None:
        left = dict(output.get("kept") or {})
        note(
            f"deleted for good: {many(int(output.get('versions', 0)), 'version')},"
            f" {size(int(output.get('bytes', 0)))}"
        )
        for key, why in left.items():
            note(f"kept: {plain(key)}: {plain(why)}")
    if report.damaged:
        raise typer.Exit(ExitCode.DATA)
    if left:
        raise typer.Exit(ExitCode.TRY_AGAIN)


def _fate(kind: ObjectKind, keep_old: bool) -> str:
    if not kind.garbage:
        return "stays"
    return "stays for now" if keep_old else "goes"


def _document(
    report: ErasureReport,
    others: list[Concerned],
    output: dict[str, Any] | None,
    *,
    keep_old: bool,
) -> dict[str, Any]:
    erased = report.erased.offsets
    return {
        "stream": report.stream,
        "offsets": [list(each) for each in report.offsets.ranges],
        "record": report.record or None,
        "version": report.version,
        "fragments": [
            {
                "first": each.first_offset,
                "next": each.next_offset,
                "erased": erased.within(each.first_offset, each.next_offset).count(),
                "bytes": each.size,
                "key": each.data_key(report.stream).path(report.prefix),
            }
            for each in report.fragments
        ],
        "damaged": [
            {"offset": each.offset, "key": each.key, "problem": each.reason}
            for each in report.damaged
        ],
        "others": [
            {
                "object": _fate(each.kind, keep_old),
                "bytes": each.size,
                "key": each.key,
                "why": each.kind.meaning,
            }
            for each in others
        ],
        "deleted": output,
    }
