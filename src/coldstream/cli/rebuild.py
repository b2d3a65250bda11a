"""`coldstream rebuild STREAM`: the manifest anew from the objects in the bucket."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.connect import Remote
from coldstream.cli.options import (
    DEFAULT_BRANCHING,
    JsonOption,
    OwnBranchingOption,
    Where,
    duration_option,
    with_options,
)
from coldstream.cli.output import note, print_json, print_section
from coldstream.cli.over_streams import Plans, items
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.names import stream_prefix
from coldstream.ports import MAX_DELETE_MS
from coldstream.remote.resolve import pick

if TYPE_CHECKING:
    from coldstream.usecases.rebuild import RebuildReport


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """What a rebuild does. Attributes: the options of the command."""

    write: Annotated[
        bool, typer.Option("--write", help="Write the new manifest; without it nothing changes.")
    ] = False
    no_trailers: Annotated[
        bool,
        typer.Option(
            "--no-trailers",
            help="For a dry run: go by the keys alone, one LIST for 1,000 fragments and no GETs.",
        ),
    ] = False
    accept_less: Annotated[
        bool,
        typer.Option(
            "--accept-less",
            help="With --write: install the new manifest although it lacks something that the old "
            "one or the bucket has. See the dry run first. Holes stand for what is missing.",
        ),
    ] = False
    wait: Annotated[
        int,
        duration_option(
            "--wait",
            "With --write: how long a delete may be under way when the stream is stopped; it is "
            "waited for. Less is safe only if nothing can have deleted within that time.",
            default="17m",
        ),
    ] = MAX_DELETE_MS // 1000
    branching: OwnBranchingOption = DEFAULT_BRANCHING
    as_json: JsonOption = False


@with_options
def rebuild(stream: StreamArgument, *, options: RebuildOptions, where: Where) -> None:
    """Make the manifest of a stream anew from the bucket, where its own is damaged.

    A dry run unless --write is given: says what would come out, beside what the catalog says now.
    What the newest readable nodes name stays; the listing fills the rest. While it writes the
    stream takes no commits, and nothing of it is deleted; it begins by waiting for deletes that are
    under way. A manifest that lacks something is installed with --accept-less only.

    A queue's name is looked up in the catalog; where that has lost the stream, give the directory
    name, as the keys in the bucket have it.

    Examples:

        coldstream rebuild //orders
        coldstream rebuild __orders_1745252105682952932 --write
    """
    from coldstream.usecases import rebuild as usecase

    remote = where.connect()
    name = _directory(remote, stream)
    if name != stream:
        note(f"{stream} is {name}")
    context = remote.context() if options.write else read_only(remote)[0]
    try:
        with _ended_by_signals():
            report = usecase.rebuild(
                context,
                name,
                branching=options.branching,
                trailers=not options.no_trailers,
                dry_run=not options.write,
                accept_less=options.accept_less,
                wait=_wait,
                delete_ms=options.wait * 1000,
            )
    except KeyboardInterrupt:
        if options.write:
            note("the stream takes commits again")
        raise
    except usecase.LackingError as error:
        _show(error.report, as_json=options.as_json, write=True)
        raise
    _show(report, as_json=options.as_json, write=options.write)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let `kill` and a terminal that is gone be as Ctrl-C: the stream is not to stay stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    ]
    before = [(number, signal.signal(number, interrupt)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _show(report: RebuildReport, *, as_json: bool, write: bool) -> None:
    document = _document(report)
    if as_json:
        print_json(document)
    else:
        print_section("REBUILT" if report.landed else "WOULD BE", document["rebuilt"])
        print_section("BEFORE", document["before"])
    _tell(report)
    if not write:
        if report.shortfalls:
            note("--write would refuse; with --accept-less it would go without them")
        note("nothing was changed; --write would write it")


def _wait(ms: int) -> None:
    """Wait, and say every minute why."""
    left = ms // 1000
    while left > 0:
        note(f"the stream is stopped; a delete may still be under way: {left} s to wait")
        time.sleep(min(60, left))
        left -= 60


def _tell(report: RebuildReport) -> None:
    """What a person should know of a rebuild."""
    told = report.rebuilt.told
    for error in report.refused:
        note(str(error))
    for key in report.damaged:
        note(f"a newer root cannot be read: {key}")
    if report.guessed:
        note("claims that no readable root has were taken from fragments' trailers or keys")
    for epoch in report.disputed:
        note(f"the trailers of epoch {epoch} disagree about its floor; what most say was taken")
    for gone in told.replaced:
        note(f"offsets {gone.first} to {gone.next_offset - 1}: not what a tree names, {gone.why}")
    for first, next_offset in told.damaged:
        note(f"offsets {first} to {next_offset - 1}: no object is whole; repair them")
    for first, next_offset in report.rebuilt.holes:
        note(f"a hole: offsets {first} to {next_offset - 1} are lost")
    for lack in report.shortfalls:
        note(f"offsets {lack.first} to {lack.next_offset - 1} would be missing: {lack.why}")
    if told.more:
        note(f"and {told.more} more of these")
    if report.rebuilt.beyond is not None:
        note(
            f"offsets {report.rebuilt.root.next_offset} to {report.rebuilt.beyond - 1} are in no"
            " fragment, but data follows"
        )


def _directory(remote: Remote, text: str) -> str:
    """The directory name that `text` stands for; also of a stream that only the bucket knows.

    An item that is damaged may be the reason to rebuild, so it does not stop the search.

    Raises:
        NotFoundError: it names no queue, and no directory can be called so.
        InvalidInputError: several streams have this name.
    """
    try:
        if remote.store.list(stream_prefix(remote.prefix, text), limit=1):
            return text
    except InvalidInputError:
        return pick(items(remote.catalog, Plans()), text)
    try:
        return pick(items(remote.catalog, Plans()), text)
    except NotFoundError:
        return text  # the use case says what it misses


def _document(report: RebuildReport) -> dict[str, Any]:
    root, item, told = report.rebuilt.root, report.item, report.rebuilt.told
    return {
        "stream": report.stream,
        "landed": report.landed,
        "rebuilt": {
            "first": root.first_offset,
            "next": root.next_offset,
            "fragments": root.fragments,
            "bytes": root.total_size,
            "groups": report.groups,
            "holes": len(report.rebuilt.holes),
            "unverified": report.rebuilt.unverified,
            "refused": len(report.refused),
            "listed": report.rebuilt.listed,
            "ledger from": report.root_key or "trailers and keys, guessed",
            "gap before": report.rebuilt.beyond,
            "lacks": len(report.shortfalls),
        },
        "before": {
            "state": None if item is None else str(item.state),
            "first": None if item is None else item.first_offset,
            "next": None if item is None else item.next_offset,
            "fragments": None if item is None else item.fragments,
            "bytes": None if item is None else item.total_size,
            "version": None if item is None else item.version,
        },
        "damaged_roots": list(report.damaged),
        "ledger_guessed": report.guessed,
        "disputed_epochs": list(report.disputed),
        "lacks": [_span(each.first, each.next_offset, each.why) for each in report.shortfalls],
        "replaced": [_span(each.first, each.next_offset, each.why) for each in told.replaced],
        "taken_damaged": [list(span) for span in told.damaged],
        "more_told": told.more,
    }


def _span(first: int, next_offset: int, why: str) -> dict[str, Any]:
    return {"first": first, "next": next_offset, "why": why}
