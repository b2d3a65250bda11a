"""`coldstream undo STREAM`: take false claims and forged fragments back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.deleted import workable
from coldstream.cli.options import JsonOption, Where, with_options
from coldstream.cli.output import note, plain, print_json, print_table
from coldstream.cli.ranges import until_of
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.clock import now_ms
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.usecases.undo import Undone, UndoPlan

_COLUMNS = ("from", "cut_off", "put_back", "next", "epoch")
_TOLD_EVERY = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """What is to be undone. Attributes: the options of the command."""

    claim: Annotated[
        list[int] | None,
        typer.Option(
            "--claim",
            metavar="EPOCH",
            min=1,
            help="Epoch of a false claim. Name every one: a true claim after it has cut off what "
            "was false by itself, and nothing is to be undone.",
            show_default=False,
        ),
    ] = None
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="OFFSET",
            min=0,
            help="Where forged fragments begin, or a false hole, if every claim is true.",
            show_default=False,
        ),
    ] = None
    until: Annotated[
        int | None,
        typer.Option(
            "--until",
            metavar="OFFSET",
            min=0,
            help="Where what is forged ends: what follows is put back.",
            show_default="all that follows is forged, and nothing of it is put back",
        ),
    ] = None
    older_until: Annotated[int | None, typer.Option("--to", min=0, hidden=True)] = None
    broker_epoch: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="An epoch that the broker has had. Needed where agents are refused after an undo, "
            "be it as fenced or for an epoch that is too high.",
            show_default="of the last true claim",
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Really do it; see --dry-run first.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False
    as_json: JsonOption = False


@with_options
def undo(stream: StreamArgument, *, options: UndoOptions, where: Where) -> None:
    """Take back what somebody did with an agent's stolen credentials. Stop the thief first.

    What is made up goes into the quarantine, what a false claim cut off comes back, and the agents
    go on by themselves: each compares its log with the outcome when it claims. Nothing is deleted.

    Examples:

        coldstream undo //orders --claim 12 --dry-run
        coldstream undo //orders --from 5000 --until 5400 --yes
    """
    from coldstream.usecases import undo as usecase

    if not (options.yes or options.dry_run):
        raise InvalidInputError("this changes what readers see: add --yes, or --dry-run to see")
    remote = where.connect()
    name = workable(remote.catalog, stream)
    context = read_only(remote)[0] if options.dry_run else remote.context()
    plan = usecase.plan_undo(
        context,
        name,
        false_claims=options.claim or (),
        offset=options.start,
        to=until_of(options.until, options.older_until),
        broker_epoch=options.broker_epoch,
    )
    if options.dry_run:
        _show(plan, None, as_json=options.as_json)
        if plan.next_offset < plan.item.next_offset:
            note(
                f"offsets {plan.next_offset} to {plan.item.next_offset - 1} would not be put back:"
                " an agent uploads what its log still has of them"
            )
        note("nothing was changed; --yes would do it")
        return
    done = usecase.undo(
        context,
        remote.composer(),
        plan,
        pause=lambda attempt: time.sleep(0.1 * 2**attempt),
        now_ms=now_ms(),
        progress=_Told(),
    )
    _show(plan, done, as_json=options.as_json)
    for error in done.left:
        note(f"not put back: {plain(str(error))}")
    if done.cut is not None:
        note(f"what was cut off is timeline {plan.epoch} of `coldstream quarantine list {name}`")
    if done.left:
        note("an agent uploads that from its log, or `coldstream repair` takes it from a replica")


class _Told:
    """Says now and then how much was copied."""

    def __init__(self) -> None:
        self._bytes, self._told = 0, time.monotonic()

    def __call__(self, size: int) -> None:
        self._bytes += size
        if time.monotonic() - self._told >= _TOLD_EVERY:
            self._told = time.monotonic()
            note(f"{self._bytes} bytes are copied")


def _show(plan: UndoPlan, done: Undone | None, *, as_json: bool) -> None:
    end = plan.item.next_offset
    sources = plan.sources if done is None else done.sources
    row: dict[str, Any] = {
        "from": plan.offset,
        "cut_off": f"{plan.offset}..{end}" if end > plan.offset else None,
        "put_back": f"{sources[0].first}..{sources[-1].next}" if sources else None,
        "next": plan.next_offset if done is None else done.next_offset,
        "epoch": plan.epoch if done is not None else None,
    }
    if not as_json:
        print_table([row], _COLUMNS)
        return
    print_json(
        {
            "stream": plan.stream,
            "done": done is not None,
            "false_claims": plan.false_claims,
            "first": plan.offset,
            "old_next": end,
            "next": row["next"],
            "put_back": [{"first": each.first, "next": each.next} for each in sources],
            "epoch": plan.epoch if done else None,
            "shift": plan.shift if done else None,
            "fragments": done.fragments if done else None,
            "bytes": done.bytes if done else None,
            "timeline": plan.epoch if done and done.cut else None,
            "left": [
                {"key": each.key, "offset": each.offset, "problem": each.reason}
                for each in (done.left if done else ())
            ],
        }
    )
