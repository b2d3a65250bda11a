"""`coldstream read STREAM`: messages out of the remote tier, for people and for pipes."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli import message
from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.match import Condition, Matching, WhereOption
from coldstream.cli.message import BodyFormatOption, LimitOption, Output
from coldstream.cli.options import Where, size_option, with_options
from coldstream.cli.output import many, note
from coldstream.cli.progress import ProgressLine
from coldstream.cli.ranges import FromOption, UntilOption, bound_of, check_order, spec_of, until_of
from coldstream.cli.resolve import StreamArgument
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.read_policy import ReadPolicy

if TYPE_CHECKING:
    from coldstream.adapters.place import Remote
    from coldstream.manifest.catalog import CatalogItem
    from coldstream.manifest.root import Root
    from coldstream.osiris.bloom import FilterMatcher
    from coldstream.ports import ObjectStore
    from coldstream.reader import Bound, Gap, Message, OffsetSpec, StreamReader

#: Between two looks at the catalog where there was nothing new.
_POLL_SECONDS = 1.0
#: Between two tries where nothing answers, at the most.
_MOST_SECONDS = 30.0


DEFAULT_CACHE_SIZE = 10 * 2**30


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, and how to write it.

    Attributes:
        start: where to begin.
        until: where to end.
        older_until: the same, in its older spelling.
        output: how messages are written.
        limit: the most of them.
        follow: wait at the end for more.
        filters: filter values, any of which will do.
        unfiltered: and messages without one.
        conditions: on properties.
        progress: whether to say how far it is.
        body_format: how messages are read.
        cache_dir: where what was read is kept.
        cache_size: how much of that.
        read_policy: what may answer before the bucket is asked.
    """

    start: FromOption = "first"
    until: UntilOption = ""
    older_until: Annotated[str, typer.Option("--to", hidden=True)] = ""
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            help="text: offset, time, body; json: an object a line, with the AMQP sections; raw: "
            "the wire bytes of the messages, concatenated.",
        ),
    ] = Output.TEXT
    limit: LimitOption = None
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Wait at the end for what comes, and for a bucket or table that does not answer; "
            "Ctrl-C ends it, with code 0.",
        ),
    ] = False
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="VALUE",
            help="Pass over chunks that hold no message with this filter value; given several "
            "times, any will do. Chunks that are left may hold others, too: see --where.",
            show_default=False,
        ),
    ] = None
    unfiltered: Annotated[
        bool,
        typer.Option(
            "--match-unfiltered", help="With --filter: also chunks of messages without a value."
        ),
    ] = False
    conditions: WhereOption = None
    progress: Annotated[bool, typer.Option("--progress", help="Say on stderr how far it is.")] = (
        False
    )
    body_format: BodyFormatOption = "auto"
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--cache-dir",
            metavar="DIR",
            help="A directory of its own, in which what was read is kept for the next time. One "
            "process at a time may use it.",
            show_default=False,
        ),
    ] = None
    cache_size: Annotated[
        int, size_option("--cache-size", "How much is kept in --cache-dir.", default="10GiB")
    ] = DEFAULT_CACHE_SIZE
    read_policy: Annotated[
        ReadPolicy,
        typer.Option(
            help="not-in-disk: the bucket is asked for what --cache-dir does not have; not-in-mem "
            "and force: for everything, and --cache-dir is neither read nor written; disable: for "
            "nothing, so what --cache-dir does not have is an error. What says which messages "
            "there are, the table and the manifest, is always asked.",
        ),
    ] = ReadPolicy.NOT_IN_DISK

    @property
    def end(self) -> str:
        """Where to end; empty for the end of the manifest.

        Raises:
            InvalidInputError: it is given twice.
        """
        return until_of(self.until or None, self.older_until or None) or ""

    def check(self) -> None:
        """See that the options go together.

        Raises:
            InvalidInputError: they do not.
        """
        if self.follow and self.end:
            raise InvalidInputError("--follow has no end, and --until says one")
        if self.unfiltered and not self.filters:
            raise InvalidInputError("--match-unfiltered says nothing without --filter")
        if "" in (self.filters or ()):
            raise InvalidInputError("--filter is empty; without it all messages are read")
        if self.cache_size != DEFAULT_CACHE_SIZE and self.cache_dir is None:
            raise InvalidInputError("--cache-size says nothing without --cache-dir")
        if self.read_policy is ReadPolicy.DISABLE and self.cache_dir is None:
            raise InvalidInputError(
                "--read-policy disable needs --cache-dir: nothing else could answer"
            )

    @contextmanager
    def store(self, remote: Remote) -> Iterator[ObjectStore]:
        """The bucket, with the disk before it that the options name.

        Raises:
            InvalidInputError: the cache cannot be used.
        """
        if self.cache_dir is None:
            yield remote.store
            return
        from coldstream.adapters.disk_cache import on_disk

        with closing(on_disk(remote, self.cache_dir, self.cache_size)) as store:
            yield store

    def matcher(self) -> FilterMatcher | None:
        """Which chunks are wanted; None for all."""
        from coldstream.osiris.bloom import FilterMatcher

        values = tuple(each.encode() for each in self.filters or ())
        return FilterMatcher(values, self.unfiltered) if values else None

    def matching(self) -> Matching | None:
        """Which messages are wanted; None for all.

        Raises:
            InvalidInputError: a condition or the body format is none.
        """
        from coldstream.osiris.body import parse_body_format

        body_format = parse_body_format(self.body_format)
        conditions = [Condition.parse(each) for each in self.conditions or ()]
        return Matching(conditions, body_format) if conditions else None


@with_options
def read(stream: StreamArgument, *, options: ReadOptions, where: Where) -> None:
    r"""Read messages of a stream out of the remote tier, in order, every byte checked.

    From an offset it begins with exactly that message, from anything else with a whole chunk.
    Offsets without a message belong to the broker's tracking data. It ends where the manifest ends
    when it begins, or never with --follow. A hole is told on stderr and passed over, as is what is
    missing between an offset where it is to begin and the stream's first; with json it is also a
    line of its own: {"gap": {"first": F, "next": N, "reason": "hole"}}.

    Examples:

        coldstream read //orders --from last --output json
        coldstream read //orders --from 2026-03-01 --until 2026-03-02 \
            --output raw > march-first.bin
        coldstream read //orders --from 1h --follow --filter eu --where region=eu
    """
    from coldstream.reader import ReaderSettings, StreamReader

    options.check()
    matching = options.matching()
    remote = where.connect()
    name = readable(remote.catalog, stream)
    settings = ReaderSettings(policy=options.read_policy)
    with options.store(remote) as store, telling_deletion(remote.catalog, name):
        reader = StreamReader(store, remote.catalog, remote.prefix, name, settings=settings)
        messages = _messages(reader, options)
        if matching is not None:
            messages = matching.of(messages)
        try:
            message.write(messages, options.output, options.limit, options.body_format)
        except KeyboardInterrupt:
            if not options.follow:
                raise
    if matching is not None and matching.unreadable:
        note(f"{many(matching.unreadable, 'message')} left out: no AMQP 1.0, so --where finds none")


def _messages(reader: StreamReader, options: ReadOptions) -> Generator[Message]:
    """What the options ask for, but for conditions."""
    from coldstream.reader import Offset

    extent = reader.glance().extent
    spec, bound = spec_of(options.start, extent), bound_of(options.end, extent)
    check_order(spec, bound, "--until")
    if isinstance(spec, Offset):
        _tell_place(spec.value, extent)

    def on_gap(gap: Gap) -> None:
        _tell_gap(gap, options.output)

    matcher = options.matcher()
    messages = (
        reader.follow(spec, _wait, on_gap=on_gap, matcher=matcher, again=Patience().again)
        if options.follow
        else reader.messages(spec, bound, on_gap=on_gap, matcher=matcher)
    )
    return _told(messages, reader, spec, bound, options) if options.progress else messages


@dataclass
class Patience:
    """How long is waited for a bucket or table that does not answer, each time longer.

    Attributes:
        seconds: that are waited next.
        until: monotonic seconds of the last try; long after it the next waits are short again.
    """

    seconds: float = _POLL_SECONDS
    until: float = -math.inf

    def again(self, error: UnavailableError) -> bool:
        """Wait, and say so; whoever follows has time."""
        if time.monotonic() - self.until > _MOST_SECONDS:
            self.seconds = _POLL_SECONDS
        note(f"{error}; tried again in {self.seconds:g} s")
        _give_out()
        time.sleep(self.seconds)
        self.until = time.monotonic()
        self.seconds = min(2 * self.seconds, _MOST_SECONDS)
        return True


def _give_out() -> None:
    sys.stdout.flush()
    sys.stdout.buffer.flush()


def _wait() -> bool:
    """Give out what was read so far, and wait a moment."""
    _give_out()
    time.sleep(_POLL_SECONDS)
    return True


def _told(
    messages: Generator[Message],
    reader: StreamReader,
    spec: OffsetSpec,
    bound: Bound | None,
    options: ReadOptions,
) -> Generator[Message]:
    """The same, while it is told how far they are."""
    read = reader.begin(spec, bound)
    end = None if options.follow else read.end
    with closing(messages), ProgressLine(read.position, end, "messages") as line:
        for count, each in enumerate(messages, 1):
            yield each
            line.tell(each.offset + 1, count)


def _tell_gap(gap: Gap, output: Output) -> None:
    note(f"gap: {gap}")
    if output is Output.JSON:
        message.write_gap(gap)


def _tell_place(offset: int, stream: Root | CatalogItem) -> None:
    """Say so if the manifest does not reach to where the read is to begin."""
    if offset > stream.next_offset:
        note(f"the stream ends before offset {stream.next_offset}; {offset} is not in it yet")
