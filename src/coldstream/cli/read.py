"""`coldstream read STREAM`: messages out of the remote tier, for people and for pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli import message
from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.message import BodyFormatOption, LimitOption, Output
from coldstream.cli.options import Where, with_options
from coldstream.cli.output import note
from coldstream.cli.resolve import StreamArgument

if TYPE_CHECKING:
    from coldstream.manifest.root import Root
    from coldstream.reader import Gap


@with_options
def read(
    stream: StreamArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SPEC",
            help="first, last, next, an offset, a time such as 2026-03-01T08:00Z (UTC unless it "
            "has a zone), or timestamp:MILLISECONDS.",
        ),
    ] = "first",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="OFFSET|TIME",
            help="Stop before this offset, or before the first chunk at or after this time.",
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
    body_format: BodyFormatOption = "auto",
    *,
    where: Where,
) -> None:
    """Read messages of a stream out of the remote tier, in order, every byte checked.

    From an offset it begins with exactly that message, from anything else with a whole chunk.
    Offsets without a message belong to the broker's tracking data. It ends where the manifest ends
    when it begins. A hole is told on stderr and passed over; with json it is also a line of its
    own: {"gap": {"first": F, "next": N, "reason": "hole"}}.

    Examples: coldstream read //orders --from last --output json
    coldstream read //orders --from 2026-03-01 --to 2026-03-02 --output raw > march-first.bin
    """
    from coldstream.errors import InvalidInputError
    from coldstream.reader import Offset, StreamReader, parse_bound, parse_spec

    spec, bound = parse_spec(start), parse_bound(to) if to else None
    remote = where.connect()
    name = readable(remote.catalog, stream)
    reader = StreamReader(remote.store, remote.catalog, remote.prefix, name)
    if isinstance(spec, Offset) and isinstance(bound, Offset) and bound.value < spec.value:
        raise InvalidInputError(f"--to {bound.value} lies before --from {spec.value}")
    with telling_deletion(remote.catalog, name):
        if isinstance(spec, Offset):
            _tell_place(spec.value, reader.snapshot().root)
        messages = reader.messages(spec, bound, on_gap=lambda gap: _tell_gap(gap, output))
        message.write(messages, output, limit, body_format)


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
