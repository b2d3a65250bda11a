"""`coldstream read STREAM`: messages out of the remote tier, for people and for pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli import message
from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.match import Condition, Matching, WhereOption
from coldstream.cli.message import BodyFormatOption, LimitOption, Output
from coldstream.cli.options import Where, with_options
from coldstream.cli.output import many, note
from coldstream.cli.progress import ProgressLine
from coldstream.cli.ranges import UNTIL_HELP, FromOption, bound_of, check_order, spec_of
from coldstream.cli.resolve import StreamArgument
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.manifest.root import Root
    from coldstream.reader import Bound, Gap, Message, OffsetSpec, StreamReader

#: Between two looks at the catalog where there was nothing new.
_POLL_SECONDS = 1.0


@with_options
def read(
    stream: StreamArgument,
    start: FromOption = "first",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="OFFSET|TIME",
            help=UNTIL_HELP,
            show_default="the end of the manifest",
        ),
    ] = "",
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            help="text: offset, time, body; json: an object a line, with the AMQP sections; raw: "
            "the wire bytes of the messages, concatenated.",
        ),
    ] = Output.TEXT,
    limit: LimitOption = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Wait at the end for what comes; Ctrl-C ends it, with code 0."
        ),
    ] = False,
    filters: Annotated[
        list[str],
        typer.Option(
            "--filter",
            metavar="VALUE",
            help="Pass over chunks that hold no message with this filter value; given several "
            "times, any will do. Chunks that are left may hold others, too: see --where.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer's way to say that there may be none
    unfiltered: Annotated[
        bool,
        typer.Option(
            "--match-unfiltered", help="With --filter: also chunks of messages without a value."
        ),
    ] = False,
    conditions: WhereOption = [],  # noqa: B006
    progress: Annotated[
        bool, typer.Option("--progress", help="Say on stderr how far it is.")
    ] = False,
    body_format: BodyFormatOption = "auto",
    *,
    where: Where,
) -> None:
    """Read messages of a stream out of the remote tier, in order, every byte checked.

    From an offset it begins with exactly that message, from anything else with a whole chunk.
    Offsets without a message belong to the broker's tracking data. It ends where the manifest ends
    when it begins, or never with --follow. A hole is told on stderr and passed over; with json it
    is also a line of its own: {"gap": {"first": F, "next": N, "reason": "hole"}}.

    Examples: coldstream read //orders --from last --output json
    coldstream read //orders --from 2026-03-01 --to 2026-03-02 --output raw > march-first.bin
    coldstream read //orders --from 1h --follow --filter eu --where region=eu
    """
    from coldstream.osiris.bloom import FilterMatcher
    from coldstream.osiris.body import parse_body_format
    from coldstream.reader import Offset, StreamReader

    if follow and to:
        raise InvalidInputError("--follow has no end, and --to says one")
    if unfiltered and not filters:
        raise InvalidInputError("--match-unfiltered says nothing without --filter")
    wanted = [Condition.parse(each) for each in conditions]
    values = tuple(each.encode() for each in filters)
    matcher = FilterMatcher(values, unfiltered) if values else None
    remote = where.connect()
    name = readable(remote.catalog, stream)
    reader = StreamReader(remote.store, remote.catalog, remote.prefix, name)

    def on_gap(gap: Gap) -> None:
        _tell_gap(gap, output)

    with telling_deletion(remote.catalog, name):
        root = reader.snapshot().root
        spec, bound = spec_of(start, root), bound_of(to, root)
        check_order(spec, bound, "--to")
        if isinstance(spec, Offset):
            _tell_place(spec.value, root)
        messages = (
            reader.follow(spec, _wait, on_gap=on_gap, matcher=matcher)
            if follow
            else reader.messages(spec, bound, on_gap=on_gap, matcher=matcher)
        )
        if progress:
            messages = _told(messages, reader, spec, bound, follow=follow)
        matching = Matching(wanted, parse_body_format(body_format))
        try:
            message.write(matching.of(messages) if wanted else messages, output, limit, body_format)
        except KeyboardInterrupt:
            if not follow:
                raise
    if matching.unreadable:
        note(f"{many(matching.unreadable, 'message')} left out: no AMQP 1.0, so --where finds none")


def _wait() -> bool:
    """Give out what was read so far, and wait a moment."""
    sys.stdout.flush()
    sys.stdout.buffer.flush()
    time.sleep(_POLL_SECONDS)
    return True


def _told(
    messages: Generator[Message],
    reader: StreamReader,
    spec: OffsetSpec,
    bound: Bound | None,
    *,
    follow: bool,
) -> Generator[Message]:
    """The same, while it is told how far they are."""
    read = reader.read(spec, bound)
    with ProgressLine(read.position, None if follow else read.end, "messages") as line:
        for count, each in enumerate(messages, 1):
            yield each
            line.tell(each.offset + 1, count)


def _tell_gap(gap: Gap, output: Output) -> None:
    note(f"gap: {gap}")
    if output is Output.JSON:
        message.write_gap(gap)


def _tell_place(offset: int, root: Root) -> None:
    """Say so if the manifest does not reach to where the read is to begin."""
    if offset < root.first_offset:
        note(f"the stream begins at offset {root.first_offset}; {offset} is not in it")
    elif offset > root.next_offset:
        note(f"the stream ends before offset {root.next_offset}; {offset} is not in it yet")
