"""The job rebuild on Spark: manifests made anew from the bucket, beside the live ones.

It changes nothing and says where the two differ. `coldstream rebuild --write` installs one.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from coldstream.adapters.place import Place, Remote
from coldstream.errors import ColdstreamError, CorruptDataError, PermissionDeniedError
from coldstream.jobs.rebuild_differences import (
    DIFFERENCES,
    Difference,
    DifferenceKind,
    differences_batch,
)
from coldstream.jobs.rebuild_shadow import Shadow, StreamPart, compare_part, shadow
from coldstream.jobs.report import JobReport
from coldstream.jobs.session import connect_in_worker
from coldstream.jobs.snapshots import (
    SnapshotTables,
    TableSnapshot,
    check_target,
    part_file,
    register,
)
from coldstream.jobs.streams import all_items, check_named, lost, named
from coldstream.jobs.workers import in_workers
from coldstream.manifest.catalog import StreamState
from coldstream.names import MAX_OFFSET
from coldstream.remote.context import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMED = 20
#: Fragments that one task compares, about.
_TASK_FRAGMENTS = 10_000


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    """What a run of rebuild is told.

    Attributes:
        snapshot: of the table of differences.
        trailers: whether the trailer of every fragment is read.
        branching: entries of a full group.
    """

    snapshot: TableSnapshot
    trailers: bool = False
    branching: int = 1024


def run_shadow(
    spark: SparkSession,
    remote: Remote,
    pattern: str,
    settings: RebuildSettings,
    tables: SnapshotTables | None,
    report: JobReport,
) -> ColdstreamError | None:
    """Compare the manifests of streams with what the bucket has.

    Args:
        spark: the session.
        remote: the remote tier.
        pattern: regular expression that the directory or the queue must match as a whole.
        settings: of the run.
        tables: the catalog of tables; None for files only.
        report: gets facts.

    Returns:
        The first difference of which one side must be wrong, as an error, or that of an item that
        cannot be read; None if there is neither.

    Raises:
        NotFoundError: no stream matches, or there is no such database.
        InvalidInputError: a table of this name is not one of ours.
        UnavailableError, PermissionDeniedError: the catalog or the store.
    """
    with suppress(PermissionDeniedError):  # `_save` can do without
        check_target(tables, [DIFFERENCES])
    items, damaged = all_items(remote.catalog)
    strays = lost(remote, items, damaged, report, pattern)
    check_named(pattern, [*strays, *(each for each in items if named(each, pattern))], items)
    context = _context(remote)
    found: list[Shadow] = []
    failed: dict[str, str] = {}
    perform = partial(_compared, spark, remote.place, settings)
    for item in items:
        if item.state is not StreamState.LIVE or not named(item, pattern):
            continue
        try:
            found.append(shadow(context, item.stream, perform))
        except ColdstreamError as error:
            if not isinstance(error, CorruptDataError) and error.kind in _FATAL:
                raise
            failed[item.stream] = str(error)
    differences = [each for one in found for each in one.differences]
    no_item = DifferenceKind.NO_ITEM
    differences += [
        Difference(each, no_item, 0, MAX_OFFSET, "", "objects of the stream") for each in strays
    ]
    _save(settings, differences, tables, report)
    report.facts |= {
        "streams": len(found),
        "fragments": sum(one.fragments for one in found),
        "differences": dict(Counter(str(each.kind) for each in differences)),
        "more": sum(one.more for one in found),
        "repeats": sum(one.repeats for one in found),
        "worst": [_document(each) for each in differences[:_NAMED]],
        "failed": failed,
        "damaged_items": [str(each) for each in damaged],
    }
    if not differences:
        return damaged[0] if damaged else None
    first = differences[0]
    return CorruptDataError(
        f"{len(differences)} differences; the first is {first.kind}: {first.kind.meaning}",
        stream=first.stream,
        offset=first.first_offset,
    )


#: Errors that are no fault of one stream.
_FATAL = ("unavailable", "permission_denied", "internal")


def _context(remote: Remote) -> Context:
    return Context(remote.store, remote.catalog, remote.place.prefix, lambda: secrets.randbits(64))


def _compared(
    spark: SparkSession, place: Place, settings: RebuildSettings, parts: Sequence[StreamPart]
) -> Iterable[Shadow]:
    """Compare parts in the workers, some of them in one task."""
    tasks: list[list[StreamPart]] = []
    size = 0
    for part in parts:
        if not tasks or size + part.fragments > _TASK_FRAGMENTS:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.fragments
    found = in_workers(spark, tasks, partial(_compare_in_worker, place, settings), list[Shadow])
    return [each for several in found for each in several]


def _compare_in_worker(
    place: Place, settings: RebuildSettings, parts: Sequence[StreamPart]
) -> list[Shadow]:
    context = _context(connect_in_worker(place))
    return [
        compare_part(context, part, branching=settings.branching, trailers=settings.trailers)
        for part in parts
    ]


def _save(
    settings: RebuildSettings,
    differences: Sequence[Difference],
    tables: SnapshotTables | None,
    report: JobReport,
) -> None:
    with part_file(settings.snapshot, DIFFERENCES, 0) as part:
        part.add(differences_batch(differences, settings.snapshot.taken_ms))
    report.facts["table"] = settings.snapshot.directory(DIFFERENCES)
    try:
        register(tables, settings.snapshot, [DIFFERENCES])
    except PermissionDeniedError as error:
        # The file is there all the same, and it is what the run was for.
        report.facts["not_registered"] = str(error)


def _document(difference: Difference) -> dict[str, Any]:
    return {
        "stream": difference.stream,
        "kind": str(difference.kind),
        "first_offset": difference.first_offset,
        "next_offset": difference.next_offset,
        "live": difference.live,
        "rebuilt": difference.rebuilt,
    }
