"""The job fleet: every catalog item, every manifest and, if asked, every object as tables.

    driver    items of the catalog -> units of work -> tasks
    workers   roots and groups -> rows of fragments, LIST -> rows of objects; a file a task
    driver    what the workers have counted, and the rules -> rows of streams -> catalog

A stream whose manifest cannot be read is a row with an error, and the others are not kept from
theirs. Everything of one stream is as of one root, the one that its item named at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldstream import deployment
from coldstream.adapters.place import Place, Remote
from coldstream.errors import ColdstreamError, PermissionDeniedError, UnavailableError
from coldstream.jobs.fleet_streams import Total, gather, stream_rows
from coldstream.jobs.fleet_tables import FRAGMENTS, OBJECTS, STREAMS
from coldstream.jobs.fleet_walk import (
    Walked,
    WalkUnit,
    fragment_rows,
    object_rows,
    pack,
    split,
)
from coldstream.jobs.report import JobReport
from coldstream.jobs.session import connect_in_worker
from coldstream.jobs.snapshots import (
    PartFile,
    SnapshotTables,
    TableSnapshot,
    check_target,
    part_file,
    register,
)
from coldstream.jobs.streams import all_items, lost
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import Root
from coldstream.names import MAX_OFFSET, metadata_prefix
from coldstream.ports import MetricUnit, ObjectStore
from coldstream.remote.context import Context
from coldstream.remote.nodes import NodeCache, fetcher
from coldstream.remote.roots import RootCache, load_root, root_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fragments of a task: some 200 groups to read, and a file of some 10 MB.
TASK_WEIGHT = 200_000
#: A stream of more is cut at the entries of its root, which the driver then reads.
SPLIT_WEIGHT = 1_000_000
#: Groups that a worker keeps: a walk never comes back to one.
_CACHED_ENTRIES = 8192

_COUNTS = pa.schema(
    [
        ("stream", pa.string()),
        ("fragments", pa.int64()),
        ("holes", pa.int64()),
        ("hole_offsets", pa.int64()),
        ("smallest", pa.int64()),
        ("largest", pa.int64()),
        ("groups", pa.int64()),
        ("last_commit_ms", pa.int64()),
        ("objects", pa.int64()),
        ("orphans", pa.int64()),
        ("orphan_bytes", pa.int64()),
        ("quarantine_key", pa.string()),
        ("error", pa.string()),
    ]
)
_COUNTS_SQL = ", ".join(
    f"{each.name} {'string' if each.type == pa.string() else 'bigint'}" for each in _COUNTS
)


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What a run of fleet is told.

    Attributes:
        snapshot: where its tables are, and as of when.
        objects: whether to LIST the bucket, too: a request for every thousand objects.
        grace_ms: an object without a reference counts as orphan when it is older.
    """

    snapshot: TableSnapshot
    objects: bool
    grace_ms: int


def run(
    spark: SparkSession,
    remote: Remote,
    settings: FleetSettings,
    tables: SnapshotTables | None,
    report: JobReport,
) -> None:
    """Write a snapshot of all streams and register it.

    Args:
        spark: the session.
        remote: the remote tier.
        settings: of the run.
        tables: the catalog of tables; None for files only.
        report: gets facts and metrics.

    Raises:
        UnavailableError, PermissionDeniedError: the catalog, the store or Glue.
        NotFoundError: there is no such database.
        InvalidInputError: a table of one of these names is not one of ours.
        CorruptDataError: the operator's rules cannot be read.
    """
    prefix = remote.place.prefix
    context = Context(remote.store, remote.catalog, prefix, lambda: 0, RootCache(capacity=1))
    policies, _ = remote.policies.load()
    written = [STREAMS, FRAGMENTS, *([OBJECTS] if settings.objects else [])]
    check_target(tables, written)
    items, damaged = all_items(remote.catalog)
    units, errors = _units(context, items)
    strays = lost(remote, items, damaged, report)
    if settings.objects:
        units += [_nothing_but_objects(each) for each in strays]
    tasks = pack(units, weight=TASK_WEIGHT)
    totals = gather(_performed(spark, tasks, remote.place, settings))
    for stream, error in errors.items():
        totals.setdefault(stream, Total()).error = error
    rows = stream_rows(items, totals, policies, settings.snapshot.taken_ms)
    with part_file(settings.snapshot, STREAMS, 0) as part:
        part.add(rows)
    register(tables, settings.snapshot, written)
    _tell(report, settings, items, totals, damaged)


def _units(context: Context, items: list[CatalogItem]) -> tuple[list[WalkUnit], dict[str, str]]:
    units: list[WalkUnit] = []
    errors: dict[str, str] = {}
    for item in items:
        if item.state is StreamState.DELETED:
            continue  # its objects are gone, and its item only says so
        whole = WalkUnit(
            stream=item.stream,
            root_key=item.root_key,
            first_offset=item.first_offset,
            next_offset=item.next_offset,
            entries=None,
            keys=(0, MAX_OFFSET),
            first=True,
            weight=item.fragments,
        )
        if item.fragments <= SPLIT_WEIGHT:
            units.append(whole)
            continue
        try:
            units += split(whole, load_root(context, item))
        except (UnavailableError, PermissionDeniedError):
            raise
        except ColdstreamError as error:
            errors[item.stream] = str(error)
    return units, errors


def _nothing_but_objects(stream: str) -> WalkUnit:
    """The unit of a directory that no item knows."""
    return WalkUnit(stream, "", 0, 0, b"", (0, MAX_OFFSET), first=True, weight=0)


def _performed(
    spark: SparkSession, tasks: list[list[WalkUnit]], place: Place, settings: FleetSettings
) -> list[Mapping[str, Any]]:
    if not tasks:
        return []
    frame = spark.range(0, len(tasks), 1, len(tasks))
    work = partial(_work, tasks, place, settings)
    return [row.asDict() for row in frame.mapInArrow(work, _COUNTS_SQL).collect()]


def _work(
    tasks: list[list[WalkUnit]],
    place: Place,
    settings: FleetSettings,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a worker: the tasks whose numbers come in, and what was counted for each unit."""
    remote = connect_in_worker(place)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            counts = perform(remote.store, place.prefix, tasks[number], number, settings)
            yield pa.RecordBatch.from_pylist(counts, schema=_COUNTS)


def perform(
    store: ObjectStore, prefix: str, units: list[WalkUnit], task: int, settings: FleetSettings
) -> list[dict[str, Any]]:
    """Write the files of a task; what was counted for each of its units.

    Raises:
        UnavailableError, PermissionDeniedError: from the store; Spark tries the task again.
    """
    found = []
    with (
        part_file(settings.snapshot, FRAGMENTS, task) as fragments,
        part_file(settings.snapshot, OBJECTS, task) as objects,
    ):
        for unit in units:
            try:
                found.append(_perform(store, prefix, unit, settings, fragments, objects))
            except (UnavailableError, PermissionDeniedError):
                raise
            except ColdstreamError as error:
                error.located(stream=unit.stream)
                found.append({"stream": unit.stream, "error": str(error)})
    return found


def _perform(
    store: ObjectStore,
    prefix: str,
    unit: WalkUnit,
    settings: FleetSettings,
    fragments: PartFile,
    objects: PartFile,
) -> dict[str, Any]:
    walked, root = Walked(), None
    if unit.entries is None:
        root = _root(store, unit)
        entries = root.entries
    else:
        entries = Entries(unit.entries)
    fetch = fetcher(store, NodeCache(_CACHED_ENTRIES), prefix, unit.stream)
    for batch in fragment_rows(unit, entries, fetch, prefix, walked):
        fragments.add(batch)
    counts: dict[str, Any] = {
        "stream": unit.stream,
        "fragments": walked.fragments,
        "holes": walked.holes,
        "hole_offsets": walked.hole_offsets,
        "smallest": walked.smallest,
        "largest": walked.largest,
        "groups": walked.groups,
        "quarantine_key": root.quarantine_key if root else unit.quarantine_key,
        "objects": 0,
        "orphans": 0,
        "orphan_bytes": 0,
    }
    if unit.first and unit.root_key:
        counts["last_commit_ms"] = _modified_ms(store, prefix, unit)
    if settings.objects:
        oldest = settings.snapshot.taken_ms - settings.grace_ms
        for batch in object_rows(store, prefix, unit, counts["quarantine_key"], fetch, walked):
            objects.add(batch)
            _count_orphans(batch, oldest, counts)
    return counts


def _modified_ms(store: ObjectStore, prefix: str, unit: WalkUnit) -> int | None:
    """When the store took a stream's root; a prefix is a directory, so the key itself is none."""
    under = metadata_prefix(prefix, unit.stream)
    page = store.list(under, start_after=unit.root_key[:-1], limit=1)
    return page[0].modified_ms if page and page[0].key == unit.root_key else None


def _root(store: ObjectStore, unit: WalkUnit) -> Root:
    if not unit.root_key:
        return Root(first_offset=unit.first_offset, next_offset=unit.first_offset)
    return root_at(store, unit.root_key, unit.stream)


def _count_orphans(batch: pa.RecordBatch, oldest_ms: int, counts: dict[str, Any]) -> None:
    counts["objects"] += batch.num_rows
    for row in batch.to_pylist():
        # Old roots and records of collect are no orphans: each commit leaves one, collect takes it.
        # Nor is what a claim has cut off: that is kept until a person gives it up.
        kept = row["referenced"] or row["quarantined"]
        orphan = row["kind"] in ("fragment", "hole", "group") and not kept
        if orphan and not row["ahead"] and row["modified"].timestamp() * 1000 < oldest_ms:
            counts["orphans"] += 1
            counts["orphan_bytes"] += row["bytes"]


def _tell(
    report: JobReport,
    settings: FleetSettings,
    items: list[CatalogItem],
    totals: Mapping[str, Total],
    damaged: Sequence[ColdstreamError],
) -> None:
    def total(name: str) -> int:
        return sum(each.counts.get(name, 0) for each in totals.values())

    # Of a stream that is being deleted, roots and groups go before its item does.
    leaving = {item.stream for item in items if item.state is StreamState.DELETING}
    failed = {
        stream: each.error
        for stream, each in totals.items()
        if each.error and stream not in leaving
    }
    size = sum(item.total_size for item in items)
    report.facts |= {
        "snapshot": settings.snapshot.id,
        "warehouse": settings.snapshot.warehouse,
        "streams": len(items),
        "fragments": total("fragments"),
        "bytes": size,
        "holes": total("holes"),
        "failed": [
            *(f"{stream}: {error}" for stream, error in sorted(failed.items())),
            *map(str, damaged),
        ],
    }
    report.count(deployment.METRIC_STREAMS, len(items))
    report.count(deployment.METRIC_STREAM_BYTES, size, MetricUnit.BYTES)
    report.count(deployment.METRIC_HOLES, total("holes"))
    report.count(deployment.METRIC_HOLE_OFFSETS, total("hole_offsets"))
    report.count(deployment.METRIC_STREAMS_FAILED, len(failed) + len(damaged))
    if settings.objects:
        report.facts |= {name: total(name) for name in ("objects", "orphans", "orphan_bytes")}
        report.count(deployment.METRIC_ORPHAN_OBJECTS, total("orphans"))
        report.count(deployment.METRIC_ORPHAN_BYTES, total("orphan_bytes"), MetricUnit.BYTES)
