"""`coldstream export STREAM --to DIR`: messages as files for other programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream import clock
from coldstream.cli import message
from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.message import BodyFormatOption
from coldstream.cli.options import (
    JsonOption,
    QuietOption,
    ToOption,
    Where,
    size_option,
    with_options,
)
from coldstream.cli.output import many, note, print_json, size
from coldstream.cli.progress import ProgressLine
from coldstream.cli.ranges import (
    FromOption,
    UntilOption,
    is_ahead,
    read_of,
    spec_of,
    tell_nothing_left,
)
from coldstream.cli.report import ConfigurationError
from coldstream.cli.resolve import StreamArgument
from coldstream.cli.restore import RestoreOptions, restore_to
from coldstream.cli.target import writing_into
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.copies.export import Exported, Format
    from coldstream.manifest.catalog import CatalogItem
    from coldstream.osiris.body import BodyFormat
    from coldstream.reader import Message


DEFAULT_FILE_SIZE = 128 * 2**20


class ExportFormat(StrEnum):
    """What the files are."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export, and where.

    Attributes:
        to: directory that the stream's own goes into.
        format: of the files.
        start: where to begin.
        until: where to end.
        file_size: bytes after which a file ends.
        body_format: how messages are read.
        quiet: no progress.
        as_json: JSON on stdout.
    """

    to: ToOption
    format: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="parquet: the columns that Spark has; jsonl: a line a message, as `read --output "
            "json`; segments: as `restore`.",
        ),
    ] = ExportFormat.PARQUET
    start: FromOption = "first"
    until: UntilOption = ""
    file_size: Annotated[
        int,
        size_option(
            "--file-size",
            "A file ends behind so many bytes, with the chunks that were fetched at once (4 MiB and"
            " more). Segments are as large as the broker has them.",
            default="128MiB",
        ),
    ] = DEFAULT_FILE_SIZE
    body_format: BodyFormatOption = "auto"
    quiet: QuietOption = False
    as_json: JsonOption = False


@with_options
def export(stream: StreamArgument, *, options: ExportOptions, where: Where) -> None:
    r"""Write a stream's messages to files, every byte checked.

    Files are DIR/<stream directory>/<first offset>-<next offset>.parquet or .jsonl. Given again
    with the same options, it goes on where the files end: with what was interrupted, or with what
    has come since. A hole is told on stderr and passed over, as is what is missing between an
    offset of --from and the stream's first; in JSON it is also a line of its own.

    Examples:

        coldstream export //orders --to /var/tmp/orders
        coldstream export //orders --to /var/tmp/orders --format jsonl \
            --from 2026-03-01
    """
    from coldstream.copies import export as copies
    from coldstream.osiris.body import parse_body_format
    from coldstream.reader import StreamReader, keep_freed_memory

    remote = where.connect()
    name = readable(remote.catalog, stream)
    keep_freed_memory()
    reader = StreamReader(remote.store, remote.catalog, remote.prefix, name)
    with telling_deletion(remote.catalog, name):
        if options.format is ExportFormat.SEGMENTS:
            if options.file_size != DEFAULT_FILE_SIZE:
                raise InvalidInputError("--file-size is for files of messages, not for segments")
            restore_to(
                reader,
                RestoreOptions(
                    options.to,
                    options.start,
                    options.until,
                    quiet=options.quiet,
                    as_json=options.as_json,
                ),
            )
            return
        made = file_format(
            options.format, reader.snapshot().item, parse_body_format(options.body_format)
        )
        read = read_of(reader, options.start, options.until)
        spec = spec_of(options.start, reader.glance().extent)
        now_ms = clock.now_ms()
        tell_nothing_left(reader, read, options.until)
        too_early = read.position >= read.end and is_ahead(spec, read.end, now_ms)
        with (
            ProgressLine(read.position, read.end, "messages", shown=not options.quiet) as line,
            writing_into(options.to),
        ):
            done = copies.export(
                reader,
                {
                    "format": options.format.value,
                    "from": options.start,
                    "body_format": options.body_format,
                    "stream": name,
                },
                (None if too_early else read.start, read.end),
                options.to,
                made,
                file_size=options.file_size,
                on_gap=lambda gap: note(f"gap: {gap}"),
                tell=lambda at: line.tell(at.next_offset, at.messages),
            )
    _show(done, options.to / name, as_json=options.as_json)


def file_format(wanted: ExportFormat, item: CatalogItem, body_format: BodyFormat) -> Format:
    """How files are written.

    Raises:
        ConfigurationError: what it takes is not installed.
    """
    from coldstream.copies.export import Format

    if wanted is ExportFormat.JSONL:
        from coldstream.copies.json_lines import JsonLines

        return Format("jsonl", lambda path: JsonLines(path, partial(line, body_format)))
    try:
        from coldstream.columns.schema import Origin
        from coldstream.copies.parquet import Parquet
    except ImportError as exc:
        raise ConfigurationError(
            f"Parquet needs a package that is not installed: {exc.name}",
            remedy="pip install 'coldstream[cli,spark]', or export with --format jsonl",
        ) from exc
    origin = Origin(item.stream, *item.name.of_queue)
    return Format("parquet", lambda path: Parquet(path, origin, body_format))


def line(body_format: BodyFormat, each: Message) -> bytes:
    """A message as `read --output json` prints it."""
    return json.dumps(message.as_json(each, body_format), ensure_ascii=False).encode()


def _show(done: Exported, directory: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "next": done.next_offset,
                "files": done.files,
                "messages": done.messages,
                "bytes": done.bytes,
                "resumed_at": done.resumed_at,
            }
        )
        return
    if done.resumed_at is not None:
        note(f"went on at offset {done.resumed_at}, where the files had ended")
    note(
        f"{many(done.messages, 'message')} up to offset {done.next_offset - 1} in"
        f" {many(done.files, 'file')} of {size(done.bytes)} in {directory}"
    )
