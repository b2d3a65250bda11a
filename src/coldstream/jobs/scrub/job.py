"""The job scrub on Spark: which streams, by which workers, and where findings and state go."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coldstream import deployment
from coldstream.adapters.place import Place, Remote
from coldstream.adapters.s3 import S3ObjectStore
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.jobs.report import JobReport
from coldstream.jobs.scrub.findings import FINDINGS, findings_batch
from coldstream.jobs.scrub.places import FileStore, StateStore
from coldstream.jobs.scrub.run import ScrubOutcome, ScrubSettings, first_error, run
from coldstream.jobs.scrub.state import load_state, save_state
from coldstream.jobs.scrub.work import Scrubbed, ScrubTask, scrub
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
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import MAX_OFFSET
from coldstream.ports import MetricUnit
from coldstream.soundness.findings import Finding, FindingKind, Severity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Findings that the line at the end names; the table has all.
_NAMED = 20
_STATES = (StreamState.LIVE, StreamState.REBUILDING)


@dataclass(frozen=True, slots=True)
class Target:
    """What a run looks at, and where it keeps what it knows.

    Attributes:
        snapshot: of the table of findings.
        streams: regular expression that the directory or the queue must match as a whole.
    """

    snapshot: TableSnapshot
    streams: str = ".*"


def run_job(
    spark: SparkSession,
    remote: Remote,
    target: Target,
    settings: ScrubSettings,
    tables: SnapshotTables | None,
    report: JobReport,
) -> ColdstreamError | None:
    """Scrub what is due, write findings and state, and say how it went.

    Args:
        spark: the session.
        remote: the remote tier.
        target: which streams, and where the results go.
        settings: of the run.
        tables: the catalog of tables; None for files only.
        report: gets facts and metrics.

    Returns:
        The worst finding as an error, None if there is none: a run with findings has done its work,
        but must not look like one without.

    Raises:
        NotFoundError: no stream matches, or there is no such database.
        InvalidInputError: a table of this name is not one of ours.
        UnavailableError, PermissionDeniedError: the catalog, the store or Glue.
    """
    check_target(tables, [FINDINGS])
    every, damaged = all_items(remote.catalog)
    items = [each for each in every if each.state in _STATES and named(each, target.streams)]
    strays = lost(remote, every, damaged, report, target.streams)
    check_named(target.streams, [*items, *strays], every)
    store, under = state_store(target.snapshot)
    outcome = run(
        remote.store,
        remote.catalog,
        remote.place.prefix,
        items,
        load_state(store, under),
        settings,
        partial(_perform, spark, remote.place, settings),
    )
    outcome.findings += map(_stray, strays)
    with part_file(target.snapshot, FINDINGS, 0) as part:
        part.add(findings_batch(outcome.findings, settings.now_ms))
    register(tables, target.snapshot, [FINDINGS])
    # Last: what was not told counts as not scrubbed. Of streams that are gone it says no more.
    state = outcome.state.without(
        each.stream for each in every if each.state is StreamState.DELETED
    )
    key = save_state(store, under, state, now_ms=settings.now_ms, uid=secrets.randbits(64))
    _tell(report, settings, items, outcome, damaged)
    report.facts["state"] = key
    return first_error(outcome) or (damaged[0] if damaged else None)


def state_store(snapshot: TableSnapshot) -> tuple[StateStore, str]:
    """The store and the beginning of the keys of the states below a snapshot's warehouse.

    Raises:
        InvalidInputError: it is no place for files.
    """
    where = urlsplit(snapshot.warehouse)
    path = f"{where.path.lstrip('/')}state/"
    if where.scheme == "s3" and where.netloc:
        region, endpoint = snapshot.region, snapshot.endpoint
        return S3ObjectStore(bucket=where.netloc, region=region, endpoint=endpoint), path
    if where.scheme in ("", "file"):
        return FileStore(Path("/")), path
    raise InvalidInputError(f"{snapshot.warehouse!r} is no place for a state")


def _stray(stream: str) -> Finding:
    """The finding about a stream that the table lacks."""
    kind = FindingKind.STREAM_WITHOUT_ITEM
    return Finding(
        stream=stream,
        kind=kind,
        severity=kind.severity,
        key="",
        first_offset=0,
        next_offset=MAX_OFFSET,
        position=None,
        expected="an item of the table",
        found="",
        words="the table has no item for this stream of the bucket, so nobody can read it:"
        f" `coldstream reconcile {stream}` gives it its newest root back",
    )


def _perform(
    spark: SparkSession, place: Place, settings: ScrubSettings, tasks: Sequence[ScrubTask]
) -> Iterable[Scrubbed]:
    return in_workers(spark, tasks, partial(_work, place, settings), Scrubbed)


def _work(place: Place, settings: ScrubSettings, task: ScrubTask) -> Scrubbed:
    """In a worker."""
    return scrub(connect_in_worker(place).store, place.prefix, task, settings.effort, settings.ages)


def _tell(
    report: JobReport,
    settings: ScrubSettings,
    items: Sequence[CatalogItem],
    outcome: ScrubOutcome,
    damaged: Sequence[ColdstreamError],
) -> None:
    oldest = outcome.oldest_ms
    if oldest == 0:  # something was never scrubbed; it cannot be older than the oldest message
        oldest = min((item.first_timestamp for item in items if item.root_key), default=0)
    kinds = Counter(str(each.kind) for each in outcome.findings)
    report.facts |= {
        "streams": outcome.streams,
        "fragments": outcome.fragments,
        "bytes": outcome.bytes,
        "chunks": outcome.chunks,
        "groups": outcome.groups,
        "tasks": outcome.tasks,
        "quick": settings.effort.quick,
        "findings": {str(each): outcome.count(each) for each in Severity},
        "kinds": dict(sorted(kinds.items())),
        "untold": outcome.untold,
        "untold_notes": outcome.untold_notes,
        "worst": [each.document() for each in outcome.bad[:_NAMED]],
        "damaged_items": [str(each) for each in damaged],
        "never_scrubbed": outcome.oldest_ms == 0,
    }
    report.count(deployment.METRIC_SCRUB_FINDINGS, len(outcome.bad) + outcome.untold + len(damaged))
    report.count(deployment.METRIC_CHUNKS_SCRUBBED, outcome.chunks)
    report.count(deployment.METRIC_BYTES_SCRUBBED, outcome.bytes, MetricUnit.BYTES)
    if oldest is not None:
        age = max(0, settings.now_ms - oldest) / 1000
        report.count(deployment.METRIC_SCRUB_AGE, age, MetricUnit.SECONDS)
