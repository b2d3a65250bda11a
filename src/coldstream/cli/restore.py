"""`coldstream restore STREAM --to DIR`: the broker's own files again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.options import (
    DryRunOption,
    JsonOption,
    QuietOption,
    ToOption,
    Where,
    with_options,
)
from coldstream.cli.output import many, note, print_json, print_table, size
from coldstream.cli.progress import ProgressLine
from coldstream.cli.ranges import FromOption, UntilOption, read_of
from coldstream.cli.resolve import StreamArgument
from coldstream.cli.target import writing_into

if TYPE_CHECKING:
    from coldstream.copies.restore import Restored, Target
    from coldstream.manifest.root import Root
    from coldstream.reader import StreamReader

_COLUMNS = ("segment", "next", "bytes", "chunks", "as_written")


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What to restore, and where.

    Attributes:
        to: directory that the stream's own goes into.
        start: where to begin.
        until: where to end.
        after_holes: begin after the last hole.
        dry_run: only say what would be written.
        quiet: no progress.
        as_json: JSON on stdout.
    """

    to: ToOption
    start: FromOption = "first"
    until: UntilOption = ""
    after_holes: Annotated[
        bool,
        typer.Option(
            "--after-holes",
            help="Where offsets are lost, begin after the last of them: a broker's files have no "
            "holes.",
        ),
    ] = False
    dry_run: DryRunOption = False
    quiet: QuietOption = False
    as_json: JsonOption = False


@with_options
def restore(stream: StreamArgument, *, options: RestoreOptions, where: Where) -> None:
    """Write a stream's segment and index files, byte for byte as the broker had them.

    They go into DIR/<stream directory>/, which must not be there yet; it appears when all of it is
    on the disk. A restore that was interrupted goes on when it is given again in the same words.
    Bounds lie between chunks: the chunk that has the first offset is written whole.

    A segment that retention or --from has cut, or that another node had rolled elsewhere, begins
    anew with its own positions; as_written says which are the broker's own files.
    docs/how-to/restore-a-cluster.md says how a broker takes them.

    Examples:

        coldstream restore //orders --to /var/tmp/restored --dry-run
        coldstream restore //orders --to /var/tmp/restored --from 2026-03-01
    """
    from coldstream.reader import StreamReader, keep_freed_memory

    remote = where.connect()
    name = readable(remote.catalog, stream)
    keep_freed_memory()
    reader = StreamReader(remote.store, remote.catalog, remote.prefix, name)
    with telling_deletion(remote.catalog, name):
        if options.dry_run:
            wanted, root = _target(reader, options)
            _show_plan(reader, root, wanted, options)
        else:
            restore_to(reader, options)


def restore_to(reader: StreamReader, options: RestoreOptions) -> None:
    """Do it, and say what was done."""
    from coldstream.copies import restore as copies

    asked = {"from": options.start, "until": options.until}
    read = read_of(reader, options.start, options.until)
    with (
        ProgressLine(
            read.position, read.end, "bytes", resumes=True, shown=not options.quiet
        ) as line,
        writing_into(options.to),
    ):
        done = copies.restore(
            reader,
            asked,
            lambda: _target(reader, options)[0],
            options.to,
            lambda at: line.tell(at.next_offset, at.size),
        )
    _show(reader.stream, done, as_json=options.as_json)


def _target(reader: StreamReader, options: RestoreOptions) -> tuple[Target, Root]:
    """What the options mean for the stream as it is now; holes that are passed over are told."""
    from coldstream.copies.restore import target

    wanted, root = target(
        reader, read_of(reader, options.start, options.until), after_holes=options.after_holes
    )
    for first, next_offset in wanted.holes:
        note(f"a hole: offsets {first} to {next_offset - 1} are lost; the restore begins behind it")
    return wanted, root


def _show_plan(reader: StreamReader, root: Root, wanted: Target, options: RestoreOptions) -> None:
    from coldstream.copies.restore import planned

    segments = list(planned(reader, root, wanted))
    rows: list[dict[str, Any]] = [
        {
            "segment": f"{each.first_offset:020d}.segment",
            "first": each.first_offset,
            "next": each.next_offset,
            "bytes": each.size,
            "chunks": each.chunks,
            "as_written": each.original,
        }
        for each in segments
    ]
    total = sum(each.size for each in segments)
    directory = options.to / reader.stream
    if options.as_json:
        print_json(
            {
                "stream": reader.stream,
                "directory": str(directory),
                "first": segments[0].first_offset,
                "next": segments[-1].next_offset,
                "bytes": total,
                "holes": [{"first": first, "next": end} for first, end in wanted.holes],
                "segments": rows,
            }
        )
        return
    print_table(
        [row | {"as_written": "yes" if row["as_written"] else "anew"} for row in rows], _COLUMNS
    )
    note(
        f"{many(len(rows), 'segment')} of {size(total)} would be written to {directory};"
        " nothing was"
    )


def _show(stream: str, done: Restored, *, as_json: bool) -> None:
    """Say what was written."""
    if as_json:
        print_json(
            {
                "stream": stream,
                "directory": str(done.directory),
                "first": done.first_offset,
                "next": done.next_offset,
                "segments": done.segments,
                "bytes": done.size,
                "epoch": done.epoch,
                "resumed_at": done.resumed_at,
            }
        )
        return
    if done.resumed_at is not None:
        note(f"went on at offset {done.resumed_at}, where an earlier run had ended")
    note(
        f"offsets {done.first_offset} to {done.next_offset - 1} are in"
        f" {many(done.segments, 'segment')} of {size(done.size)} in {done.directory};"
        f" the last chunk is of epoch {done.epoch}"
    )
