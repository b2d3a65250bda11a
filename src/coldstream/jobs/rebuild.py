"""The job rebuild on Spark: manifests made anew from the bucket, beside the live ones or instead.

As a shadow it changes nothing and says where the two differ. Installed, it does what `coldstream
rebuild --write` does, with LIST and trailers read by the workers: the state `rebuilding` comes
first and stops commits and deleters, then groups, root, and the item in one conditional write
(docs/decisions/0010).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from coldstream.errors import ColdstreamError, CorruptDataError, PermissionDeniedError
from coldstream.jobs.arguments import Where
from coldstream.jobs.rebuild_differences import DIFFERENCES, Difference, differences_batch
from coldstream.jobs.rebuild_listing import Listed, ListedAhead, Shard, read_shard
from coldstream.jobs.rebuild_shadow import Part, Shadow, compare_part, shadow
from coldstream.jobs.report import Report
from coldstream.jobs.session import Remote, connect_in_worker
from coldstream.jobs.snapshots import GlueTables, Snapshot, part_file, register
from coldstream.jobs.streams import all_items, named
from coldstream.manifest.catalog import StreamState
from coldstream.usecases.load import RootCache, World
from coldstream.usecases.rebuild import RebuildReport, rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMED = 20
#: Fragments that one task compares, about.
_TASK_FRAGMENTS = 10_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run of rebuild is told.

    Attributes:
        snapshot: of the table of differences.
        trailers: whether the trailer of every fragment is read.
        branching: entries of a full group.
        accept_less: whether a manifest is installed although something is missing.
        wait: as in `rebuild`.
    """

    snapshot: Snapshot
    trailers: bool = False
    branching: int = 1024
    accept_less: bool = False
    wait: Callable[[int], None] | None = None


def run_shadow(
    spark: SparkSession,
    remote: Remote,
    pattern: str,
    settings: Settings,
    tables: GlueTables | None,
    report: Report,
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
        UnavailableError, PermissionDeniedError: the catalog or the store.
    """
    items, damaged = all_items(remote.catalog)
    world = _world(remote)
    found: list[Shadow] = []
    failed: dict[str, str] = {}
    perform = partial(_compared, spark, remote.where, settings)
    for item in items:
        if item.state is not StreamState.LIVE or not named(item, pattern):
            continue
        try:
            found.append(shadow(world, item.stream, perform))
        except ColdstreamError as error:
            if not isinstance(error, CorruptDataError) and error.kind in _FATAL:
                raise
            failed[item.stream] = str(error)
    differences = [each for one in found for each in one.differences]
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


def run_install(
    spark: SparkSession, remote: Remote, streams: Sequence[str], settings: Settings, report: Report
) -> None:
    """Make the manifests of streams anew and let their items name them.

    Args:
        spark: the session.
        remote: the remote tier.
        streams: directory names; there may be no item to ask.
        settings: of the run.
        report: gets facts, also of the streams that were done before one failed.

    Raises:
        NotFoundError: the bucket has nothing of a stream.
        ConflictError: a stream is being deleted, or somebody else changed its item.
        CoversLessError: a manifest would lack something; nothing was committed.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    done: list[dict[str, Any]] = []
    report.facts["installed"] = done
    for stream in streams:
        item = remote.catalog.get(stream)
        store = ListedAhead(
            remote.store,
            remote.where.prefix,
            stream,
            fragments=item.fragments if item is not None else None,
            trailers=True,
            perform=partial(_listed, spark, remote.where),
        )
        world = World(
            store, remote.catalog, remote.where.prefix, lambda: secrets.randbits(64), RootCache(1)
        )
        result = rebuild(
            world,
            stream,
            branching=settings.branching,
            trailers=True,
            dry_run=False,
            accept_less=settings.accept_less,
            wait=settings.wait,
        )
        done.append(_installed(result))


#: Errors that are no fault of one stream.
_FATAL = ("unavailable", "permission_denied", "internal")


def _world(remote: Remote) -> World:
    return World(remote.store, remote.catalog, remote.where.prefix, lambda: secrets.randbits(64))


def _compared(
    spark: SparkSession, where: Where, settings: Settings, parts: Sequence[Part]
) -> Iterable[Shadow]:
    """Compare parts in the workers, some of them in one task."""
    tasks: list[list[Part]] = []
    size = 0
    for part in parts:
        if not tasks or size + part.fragments > _TASK_FRAGMENTS:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.fragments
    if not tasks:
        return []
    work = partial(_compare_in_worker, where, settings)
    found: list[list[Shadow]] = (
        spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
    )
    return [each for several in found for each in several]


def _compare_in_worker(where: Where, settings: Settings, parts: Sequence[Part]) -> list[Shadow]:
    world = _world(connect_in_worker(where))
    return [
        compare_part(world, part, branching=settings.branching, trailers=settings.trailers)
        for part in parts
    ]


def _listed(spark: SparkSession, where: Where, shards: Sequence[Shard]) -> Iterable[Listed]:
    """Read shards in the workers."""
    found: list[Listed] = (
        spark.sparkContext.parallelize(shards, len(shards))
        .map(partial(_list_in_worker, where))
        .collect()
    )
    return found


def _list_in_worker(where: Where, shard: Shard) -> Listed:
    return read_shard(connect_in_worker(where).store, where.prefix, shard)


def _save(
    settings: Settings,
    differences: Sequence[Difference],
    tables: GlueTables | None,
    report: Report,
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


def _installed(report: RebuildReport) -> dict[str, Any]:
    root = report.rebuilt.root
    return {
        "stream": report.stream,
        "landed": report.landed,
        "version": root.version,
        "first_offset": root.first_offset,
        "next_offset": root.next_offset,
        "fragments": root.fragments,
        "bytes": root.total_size,
        "groups": report.groups,
        "unverified": report.rebuilt.unverified,
        "refused": [str(each) for each in report.refused[:_NAMED]],
        "more_told": report.rebuilt.told.more,
        "ledger_from": report.root_key,
        "ledger_guessed": report.guessed,
        "disputed_epochs": list(report.disputed),
        "lacks": [asdict(each) for each in report.shortfalls[:_NAMED]],
        "replaced": [asdict(each) for each in report.rebuilt.told.replaced[:_NAMED]],
        "taken_damaged": report.rebuilt.told.damaged[:_NAMED],
        "damaged_roots": list(report.damaged),
        "listed": report.rebuilt.listed,
    }
