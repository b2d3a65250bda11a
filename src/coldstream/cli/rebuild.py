"""`coldstream rebuild STREAM`: the manifest anew from the objects in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.connect import (
    DEFAULT_PREFIX_VALUE,
    BucketOption,
    PrefixOption,
    Remote,
    TableOption,
    connect,
)
from coldstream.cli.output import JsonOption, note, print_json, print_section
from coldstream.cli.over_streams import Plans, items
from coldstream.cli.read_only import read_only
from coldstream.cli.rebalance import DEFAULT_BRANCHING, OwnBranchingOption
from coldstream.cli.resolve import StreamArgument, pick
from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.names import stream_prefix

if TYPE_CHECKING:
    from coldstream.usecases.rebuild import RebuildReport


def rebuild(
    stream: StreamArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write the new manifest; without it nothing changes.")
    ] = False,
    no_trailers: Annotated[
        bool,
        typer.Option(
            "--no-trailers",
            help="For a dry run: go by the keys alone, one LIST for 1,000 fragments and no GETs.",
        ),
    ] = False,
    branching: OwnBranchingOption = DEFAULT_BRANCHING,
    as_json: JsonOption = False,
    bucket: BucketOption = "",
    table: TableOption = "",
    prefix: PrefixOption = DEFAULT_PREFIX_VALUE,
) -> None:
    """Make the manifest of a stream anew from the bucket, where its own is damaged.

    A dry run unless --write is given: says what would come out, beside what the catalog says now.
    While it writes the stream takes no commits, and nothing of it is deleted.

    A queue's name is looked up in the catalog; where that has lost the stream, give the directory
    name, as the keys in the bucket have it.

    Examples: coldstream rebuild //orders

    coldstream rebuild __orders_1745252105682952932 --write
    """
    from coldstream.usecases import rebuild as usecase

    remote = connect(bucket=bucket, table=table, prefix=prefix)
    name = _directory(remote, stream)
    if name != stream:
        note(f"{stream} is {name}")
    world = remote.world() if write else read_only(remote)[0]
    report = usecase.rebuild(
        world, name, branching=branching, trailers=not no_trailers, dry_run=not write
    )
    document = _document(report)
    if as_json:
        print_json(document)
    else:
        print_section("REBUILT" if report.landed else "WOULD BE", document["rebuilt"])
        print_section("BEFORE", document["before"])
    for error in report.refused:
        note(str(error))
    for key in report.damaged:
        note(f"a newer root cannot be read: {key}")
    for first, following in report.rebuilt.holes:
        note(f"a hole: offsets {first} to {following - 1} are lost, as an object declares")
    if report.rebuilt.beyond is not None:
        note(
            f"offsets {report.rebuilt.root.next_offset} to {report.rebuilt.beyond - 1} are in no"
            " fragment, but data follows: --write would refuse"
        )
    if not report.landed:
        note("nothing was changed; --write would write it")


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
    root, item = report.rebuilt.root, report.item
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
            "ledger from": report.root_key or "the keys, guessed",
            "gap before": report.rebuilt.beyond,
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
    }
