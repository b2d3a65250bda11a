"""`coldstream quarantine list|read|drop STREAM`: confirmed messages that the cluster has lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli import message
from coldstream.cli.connect import Remote
from coldstream.cli.deleted import readable, telling_deletion, workable
from coldstream.cli.message import LimitOption, Output
from coldstream.cli.options import JsonOption, Where, with_options
from coldstream.cli.output import note, plain, print_json, print_table, when
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.clock import now_ms
from coldstream.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from coldstream.manifest.quarantine import Dropped, Timeline
    from coldstream.remote.context import Context
    from coldstream.usecases.amend import Amended
    from coldstream.usecases.quarantine import Drop, LostData

app = typer.Typer(
    help="Messages that a fail-over has cut off: confirmed once, lost by the cluster.",
    no_args_is_help=True,
)


class UnknownTimelineError(NotFoundError):
    """No claim of this epoch has cut off anything, or what it cut off was given up."""

    remedy = "see which timelines there are with `coldstream quarantine list STREAM`"


_COLUMNS = ("timeline", "first", "next", "created", "fragments", "bytes", "only_listed")
TimelineOption = Annotated[
    int,
    typer.Option(
        "--timeline",
        metavar="EPOCH",
        min=1,
        help="Epoch of the claim that cut it off, as `list` shows it.",
        show_default=False,
    ),
]


@app.command("list")
@with_options
def list_(
    stream: StreamArgument,
    strays: Annotated[
        bool,
        typer.Option(
            "--strays/--no-strays",
            help="Also look through all of the stream's objects for fragments with unique data "
            "that no record names, such as late uploads.",
        ),
    ] = True,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Show what was cut off: one timeline a claim, and stray fragments.

    When a cluster comes back from a crash without messages that were already in S3, the next
    writer's log is another history. Its claim cuts the old end off, and keeps it here.

    Example:

        coldstream quarantine list //orders
    """
    from coldstream.usecases.quarantine import current_record

    remote = where.connect()
    name = workable(remote.catalog, stream)
    context = read_only(remote)[0]
    loaded, record = current_record(context, name)
    rows = [_row(context, name, each) for each in record.timelines]
    found = _strays(remote, name) if strays else []
    if as_json:
        print_json(
            {
                "stream": name,
                "record_key": loaded.root.quarantine_key or None,
                "timelines": rows,
                "dropped": [
                    {"timeline": each.epoch, "first": each.floor, "until_ms": each.until_ms}
                    for each in record.dropped
                ],
                "strays": found if strays else None,
            }
        )
        return
    print_table(rows, _COLUMNS)
    for each in record.timelines:
        note(f"timeline {each.epoch}: {plain(each.reason)}")
        if not each.complete:
            note(f"timeline {each.epoch}: there are more fragments than the record names")
    for key in found:
        note(f"stray: {plain(key)}")
    if not rows and not found:
        note("nothing is in quarantine")


@app.command("read")
@with_options
def read(
    stream: StreamArgument,
    timeline: TimelineOption,
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="OFFSET",
            min=0,
            help="Where to begin.",
            show_default="where it was cut off",
        ),
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="text, json or raw, as `coldstream read`.")
    ] = Output.TEXT,
    limit: LimitOption = None,
    *,
    where: Where,
) -> None:
    """Read the messages of one lost timeline, in order, every byte checked.

    Their offsets are those that they had; the stream has other messages there now, or none. With an
    offset below the cut it begins with what both histories have in common.

    Example:

        coldstream quarantine read //orders --timeline 7 --output json
    """
    from coldstream.reader import Offset
    from coldstream.reader.lost import RootReader
    from coldstream.usecases.quarantine import lost_data

    remote = where.connect()
    name = readable(remote.catalog, stream)
    context = read_only(remote)[0]
    data = lost_data(context, name, _timeline(context, name, timeline))
    for key in data.strays:
        why = "it is gone, damaged, of another stream, or does not join the rest"
        note(f"not read, because {why}: {plain(key)}")
    begin = _begin(data, start)
    if data.root is None or begin is None:
        return
    reader = RootReader(remote.store, remote.catalog, remote.prefix, name, data.root)
    with telling_deletion(remote.catalog, name):
        messages = reader.messages(Offset(begin), on_gap=lambda gap: note(f"gap: {gap}"))
        message.write(messages, output, limit)


def _begin(data: LostData, start: int | None) -> int | None:
    """Where to read from; None, and said, where nothing is to be read."""
    if data.root is None:
        note("the timeline has no fragments")
        return None
    begin = max(data.timeline.floor if start is None else start, data.root.first_offset)
    if start is not None and begin > start:
        note(f"the timeline begins at offset {begin}; {start} is not in it")
    if begin >= data.root.next_offset:
        note(f"the timeline ends before offset {data.root.next_offset}")
        return None
    return begin


@app.command("drop")
@with_options
def drop(
    stream: StreamArgument,
    timeline: TimelineOption,
    yes: Annotated[
        bool, typer.Option("--yes", help="Really give it up; see --dry-run first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be given up.")
    ] = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Give a lost timeline up for ever: `coldstream collect` deletes it after the grace time.

    Strays that the same claim cut off go with it, as far as they are there now; what arrives later
    is kept. Nothing else of the stream is touched.

    Example:

        coldstream quarantine drop //orders --timeline 7 --dry-run
    """
    if not (yes or dry_run):
        raise InvalidInputError(
            "messages that are given up are gone for ever: add --yes, or --dry-run to see"
        )
    remote = where.connect()
    name = workable(remote.catalog, stream)
    before = _given_up_before(remote, name, timeline)
    if before is not None:
        _tell_given_up(name, before, as_json=as_json)
        return
    context = read_only(remote)[0] if dry_run else remote.context()
    done = _drop(context, name, timeline, dry_run=dry_run)
    row = _row(context, name, done.change.timeline) if done.change.timeline else None
    if as_json:
        print_json(
            {
                "stream": name,
                "landed": done.landed,
                "version": done.item.version,
                "timeline": row,
                "first": done.change.floor,
            }
        )
    elif row:
        print_table([row], _COLUMNS)
    what = f"offsets {done.change.floor} on, cut off by epoch {timeline}"
    if done.landed:
        note(f"{what}: given up, manifest version {done.item.version}; collect deletes them")
    else:
        note(f"{what}: would be given up; nothing was changed")


def _drop(context: Context, stream: str, epoch: int, *, dry_run: bool) -> Amended[Drop]:
    from coldstream.usecases import quarantine as usecase

    try:
        return usecase.drop(
            context,
            stream,
            epoch,
            pause=lambda attempt: time.sleep(0.1 * 2**attempt),
            dry_run=dry_run,
        )
    except NotFoundError as exc:
        if exc.key is not None:
            raise
        raise UnknownTimelineError(exc.reason, stream=stream) from exc


def _given_up_before(remote: Remote, stream: str, epoch: int) -> Dropped | None:
    """What says that a timeline was given up, if nothing of it has arrived since.

    Raises:
        UnknownTimelineError: nothing of it is there, and nobody has given it up.
    """
    from coldstream.usecases.quarantine import current_record, has_cut_off

    context = read_only(remote)[0]
    loaded, record = current_record(context, stream)
    if has_cut_off(context, stream, loaded.root, record, epoch):
        return None
    for each in record.dropped:
        if each.epoch == epoch:
            return each
    raise UnknownTimelineError(
        f"nothing is there that a claim of epoch {epoch} has cut off", stream=stream
    )


def _tell_given_up(stream: str, before: Dropped, *, as_json: bool) -> None:
    if as_json:
        nothing = {"landed": False, "version": None, "timeline": None, "first": before.floor}
        print_json({"stream": stream, **nothing})
    note(
        f"offsets {before.floor} on, cut off by epoch {before.epoch}: given up before, at "
        f"{when(before.until_ms)}; nothing was changed"
    )


def _timeline(context: Context, stream: str, epoch: int) -> Timeline:
    from coldstream.usecases.quarantine import current_record

    found = current_record(context, stream)[1].timeline(epoch)
    if found is None:
        raise UnknownTimelineError(f"no timeline {epoch} is in quarantine", stream=stream)
    return found


def _row(context: Context, stream: str, timeline: Timeline) -> dict[str, Any]:
    """What there is of a timeline; its tree is asked for sums, not for every fragment."""
    from coldstream.plans.truncate import cut_sums
    from coldstream.usecases.quarantine import load_cut_root

    root = load_cut_root(context, stream, timeline)
    fragments = size = 0
    if root is not None:
        fragments, size = cut_sums(root, timeline.floor, context.fetch(stream))
    return {
        "timeline": timeline.epoch,
        "first": timeline.floor,
        "next": timeline.next_offset,
        "created": when(timeline.created_ms) if timeline.created_ms else None,
        "fragments": fragments + len(timeline.listed),
        "bytes": size + sum(each.size for each in timeline.listed),
        "only_listed": len(timeline.listed),
        "complete": timeline.complete,
        "reason": timeline.reason,
        "root_key": timeline.root_key or None,
        "listed": [{"key": each.key, "size": each.size} for each in timeline.listed],
    }


def _strays(remote: Remote, stream: str) -> list[str]:
    """Keys of fragments that collect keeps because nothing else has what is in them."""
    from coldstream.usecases.collect import collect

    context, deleter = read_only(remote)
    at_ms, cursor = now_ms(), None
    keys: list[str] = []
    while True:
        done = collect(
            context,
            deleter,
            stream,
            grace_ms=0,
            run_ms=at_ms,
            now_ms=at_ms,
            cursor=cursor,
            held=lambda _: False,  # a look deletes nothing
            dry_run=True,
        )
        keys += done.unique
        cursor = done.cursor
        if cursor is None:
            return keys
