"""`coldstream replay STREAM --to rabbitmq-stream://...`: history into another broker."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.options import JsonOption, QuietOption, Where, with_options
from coldstream.cli.output import many, note, print_json, size
from coldstream.cli.progress import ProgressLine
from coldstream.cli.ranges import FromOption, UntilOption, is_relative, read_of, tell_nothing_left
from coldstream.cli.resolve import StreamArgument
from coldstream.deployment import ENV_REPLAY_TO
from coldstream.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
)
from coldstream.remote.resolve import item_of

if TYPE_CHECKING:
    from coldstream.broker.connection import Connection
    from coldstream.broker.publishing import Publisher
    from coldstream.copies.replay import Replayed
    from coldstream.manifest.catalog import CatalogItem
    from coldstream.reader import StreamReader

_MAX_REFERENCE = 255


class NoTargetError(NotFoundError):
    """The broker has no such stream to publish to."""

    remedy = (
        "declare it there, or say --create; and see that the virtual host is the one that is meant"
    )


class SameLogError(InvalidInputError):
    """The target is the stream that is read."""

    remedy = "name another stream with --queue, or another broker with --to"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to publish, and where.

    Attributes:
        to: URI of the target.
        queue: name of the target stream; "" for the same.
        publisher: its name; "" for the directory name.
        start: where to begin.
        until: where to end.
        rate: messages a second, 0 for no limit.
        create: make the target stream.
        skip_gaps: go on behind lost offsets.
        quiet: no progress.
        as_json: JSON on stdout.
    """

    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URI",
            envvar=ENV_REPLAY_TO,
            help="Stream port of the other broker, rabbitmq-stream://USER:PASSWORD@HOST:PORT/VHOST,"
            " or rabbitmq-stream+tls://. The stream's own virtual host unless one is named.",
            show_default=False,
        ),
    ]
    queue: Annotated[
        str,
        typer.Option("--queue", help="Stream to publish to.", show_default="that of the same name"),
    ] = ""
    publisher: Annotated[
        str,
        typer.Option(
            "--publisher",
            help="Name under which the other broker knows what it has already.",
            show_default="the directory name",
        ),
    ] = ""
    start: FromOption = "first"
    until: UntilOption = ""
    rate: Annotated[
        float,
        typer.Option("--rate", min=0, help="Messages a second.", show_default="no limit"),
    ] = 0
    create: Annotated[
        bool, typer.Option("--create", help="Make the stream there, if there is none.")
    ] = False
    skip_gaps: Annotated[
        bool,
        typer.Option("--skip-gaps", help="Go on behind offsets that are lost; they are told."),
    ] = False
    quiet: QuietOption = False
    as_json: JsonOption = False


@with_options
def replay(stream: StreamArgument, *, options: ReplayOptions, where: Where) -> None:
    r"""Publish a stream's messages into another broker, each once, in order.

    Run it again after whatever stopped it: the other broker knows the last message that it has
    under the publisher's name, and drops what it has already. Messages and sub-batches are the same
    bytes; offsets and times are those of the other broker, filter values are not kept.

    Examples:

        coldstream replay //orders \
            --to rabbitmq-stream://guest:guest@new-broker:5552 --create
        coldstream replay //orders --to rabbitmq-stream://... \
            --queue orders-2025 --rate 5000
    """
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.publishing import MAX_ENTRY, leading_publisher
    from coldstream.copies.replay import Replay
    from coldstream.reader import StreamReader

    uri = StreamUri.parse(options.to)
    if not math.isfinite(options.rate):
        raise InvalidInputError(f"--rate {options.rate} is no number of messages a second")
    remote = where.connect()
    name = readable(remote.catalog, stream)
    item = item_of(remote.catalog, name)
    vhost, queue = _target(options, item)
    reference = options.publisher or name
    if len(reference.encode()) > _MAX_REFERENCE:
        raise InvalidInputError(f"a publisher's name of more than {_MAX_REFERENCE} bytes")
    reader = StreamReader(remote.store, remote.catalog, remote.prefix, name)
    looked = False

    def connect() -> Publisher:
        try:
            publisher = leading_publisher(uri, vhost, queue, reference, create=options.create)
        except NotFoundError as error:
            raise NoTargetError(error.reason) from error
        nonlocal looked
        try:
            if not looked:
                refuse_itself(publisher, queue, reader, first)
        except BaseException:
            publisher.close()
            raise
        looked = True
        return publisher

    with telling_deletion(remote.catalog, name):
        read = read_of(reader, options.start, options.until)
        tell_nothing_left(reader, read, options.until)
        first, end = min(read.start, read.end), read.end
        with ProgressLine(first, end, "messages", shown=not options.quiet) as line:
            done = Replay(
                reader,
                connect,
                first,
                end,
                largest=MAX_ENTRY,
                goes_on=is_relative(options.start),
                rate=options.rate,
                skip_gaps=options.skip_gaps,
                on_gap=lambda gap: note(f"gap: {gap}"),
                tell=lambda at: line.tell(at.next_offset, at.messages),
                again=lambda error, seconds: note(f"{error}: again in {seconds:g} s"),
            ).run()
    _show(done, f"{vhost}/{queue} at {uri}", as_json=options.as_json)


def refuse_itself(target: Connection, queue: str, reader: StreamReader, first: int) -> None:
    """See that a stream is not the one that is read, or a restored copy: it has all that already.

    It is if it has the first chunk that is to be sent, or the manifest's last one: every log of the
    stream has this one, however much its retention has taken.

    Raises:
        SameLogError: it is.
        As `Connection.header`; UnavailableError, PermissionDeniedError: from the remote tier.
    """
    from coldstream.broker.answers import NoMemberError
    from coldstream.broker.frames import OffsetType
    from coldstream.osiris.chunk import parse_chunk_header
    from coldstream.reader import Offset

    last = reader.snapshot().root.last_chunk
    for offset in (first, *(() if last is None else (last.chunk_id,))):
        try:
            with closing(reader.chunks(Offset(offset), on_gap=lambda _: None)) as chunks:
                ours = next(chunks, None)
        except (CorruptDataError, NotFoundError):
            continue  # whoever sends it will say so, if it is to be sent at all
        if ours is None:
            continue
        try:
            data = target.header(queue, OffsetType.OFFSET, ours.header.chunk_id)
        except (PermissionDeniedError, NoMemberError):
            return  # who may only write there cannot look, and a node without a member neither
        if data is not None and parse_chunk_header(data) == ours.header:
            raise SameLogError(
                f"{queue!r} has this very log, and would have each message twice",
                stream=reader.stream,
                offset=ours.header.chunk_id,
            )


def _target(options: ReplayOptions, item: CatalogItem) -> tuple[str, str]:
    """Virtual host and queue to publish to."""
    vhost = unquote(urlsplit(options.to).path.removeprefix("/")) or item.name.vhost or "/"
    queue = options.queue or item.name.queue
    if not queue:
        raise InvalidInputError(
            "nobody has said what this stream's queue is called; name the target with --queue",
            stream=item.stream,
        )
    return vhost, queue


def _show(done: Replayed, target: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "first": done.first,
                "next": done.next_offset,
                "messages": done.messages,
                "bytes": done.bytes,
                "found_publishing_id": done.found,
                "sessions": done.sessions,
                "target": target,
            }
        )
        return
    have = f"all messages up to offset {done.next_offset - 1}"
    if done.found > done.first:
        # Whether it was this replay that has left the id there, only who runs it can know.
        note(
            f"went on behind publishing id {done.found}, the last that the broker had of this"
            f" publisher: offsets {done.first} to {done.found - 1} are taken to be there. If its"
            " name was used for something else, or by a replay that began later, they are not"
        )
        have = f"what follows, up to offset {done.next_offset - 1}"
    note(f"{target} has {have}; sent were {many(done.messages, 'message')} of {size(done.bytes)}")
