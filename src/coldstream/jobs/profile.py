"""The job profile: what streams are like, what they grow by, and what they cost.

    driver    manifests of the streams that match -> fragments in the window -> tasks
    workers   the index of every fragment (some 20 bytes a chunk): rates, sizes, batching, gaps;
              the chunks of a sample: messages, codecs, producers, consumers
    driver    merged in the order of offsets -> tables, and a page of HTML

So a window of a terabyte costs a GET of some kilobytes for each of its fragments, and the sample.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from coldstream import deployment
from coldstream.adapters.place import Place, Remote
from coldstream.errors import ColdstreamError, PermissionDeniedError, UnavailableError
from coldstream.jobs.profile_count import Counted, count_chunks
from coldstream.jobs.profile_report import page
from coldstream.jobs.profile_result import decode_result, encode_result
from coldstream.jobs.profile_sample import Sample
from coldstream.jobs.profile_tables import ALL, Prices, Profile, tables
from coldstream.jobs.report import JobReport
from coldstream.jobs.session import connect_in_worker
from coldstream.jobs.snapshots import (
    SnapshotTables,
    TableSnapshot,
    check_target,
    part_file,
    register,
)
from coldstream.jobs.streams import all_items, check_named, named
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves_backwards
from coldstream.plans.probe import is_probe
from coldstream.ports import ObjectStore
from coldstream.reader.fragments import Fragments
from coldstream.reader.open_fragments import OpenFragment
from coldstream.reader.settings import ReaderSettings
from coldstream.remote.context import Context
from coldstream.remote.roots import load_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of one fragment in the sample at most this is read.
PIECE_BYTES = 64 * 2**20
_TASK_FRAGMENTS = 256
_TASK_PIECES = 4
_DRIVER_THREADS = 16


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """What a run of profile is told.

    Attributes:
        snapshot: where its tables are, and as of when.
        streams: regular expression that the directory or the queue must match as a whole.
        since_ms: chunks before this time do not count, ms since the Unix epoch.
        bucket_ms: length of a span in the table of rates.
        sample_bytes: how much of each stream is read for what indexes do not say.
        max_fragments: the most of one stream, the newest.
        prices: for the estimate of costs.
    """

    snapshot: TableSnapshot
    streams: str
    since_ms: int
    bucket_ms: int
    sample_bytes: int
    max_fragments: int
    prices: Prices


@dataclass(frozen=True, slots=True)
class ProfileWork:
    """Fragments and holes of one stream that follow each other.

    Attributes:
        stream: directory name.
        entries: of the fragments and holes.
        sampled: numbers of the fragments whose chunks are looked at.
        newest: number of the stream's newest fragment; None if it is not among them.
    """

    stream: str
    entries: bytes
    sampled: frozenset[int]
    newest: int | None


def run(
    spark: SparkSession,
    remote: Remote,
    settings: ProfileSettings,
    catalog: SnapshotTables | None,
    report: JobReport,
) -> None:
    """Profile the streams that match, write the tables and the page, and register the tables.

    Args:
        spark: the session.
        remote: the remote tier.
        settings: of the run.
        catalog: of tables; None for files only.
        report: gets facts and metrics.

    Raises:
        NotFoundError: no stream matches, or there is no such database.
        InvalidInputError: a table of one of these names is not one of ours.
        UnavailableError, PermissionDeniedError: the catalog, the store or Glue.
    """
    check_target(catalog, ALL)
    every, damaged = all_items(remote.catalog)
    items = [item for item in every if wanted(item, settings.streams)]
    check_named(settings.streams, items, every)
    profiles, work = plan(remote, items, settings)
    for stream, counted, sample in _performed(spark, work, remote.place, settings):
        profiles[stream].counted.merge(counted, settings.bucket_ms)
        profiles[stream].sample.merge(sample)
    write(profiles.values(), settings, catalog, report, damaged)


def wanted(item: CatalogItem, pattern: str) -> bool:
    """Whether a stream is live, its directory or queue matches, and it is no probe's."""
    live = item.state is StreamState.LIVE and not is_probe(item.stream)
    return live and named(item, pattern)


def plan(
    remote: Remote, items: Sequence[CatalogItem], settings: ProfileSettings
) -> tuple[dict[str, Profile], list[ProfileWork]]:
    """An empty profile for each stream, and the work that fills it, in the order of offsets."""
    context = Context(remote.store, remote.catalog, remote.place.prefix, lambda: 0)

    def look(item: CatalogItem) -> tuple[Profile, list[ProfileWork]]:
        profile = Profile(item, 0, Counted(), Sample())
        try:
            root = load_root(context, item)
            found = in_window(root, context, item.stream, settings)
        except (UnavailableError, PermissionDeniedError):
            raise
        except ColdstreamError as error:
            profile.error = str(error)
            return profile, []
        if len(found) >= settings.max_fragments:
            profile.error = f"only the newest {settings.max_fragments} fragments of the window"
        if found:
            # A stream that is younger than the window grows as fast as it has done in its life.
            begin = max(settings.since_ms, min(each.min_timestamp for each in found))
            profile.window_ms = max(1, settings.snapshot.taken_ms - begin)
        return profile, cut(item.stream, found, settings.sample_bytes)

    with ThreadPoolExecutor(_DRIVER_THREADS) as pool:
        looked = list(pool.map(look, items))
    return (
        {profile.item.stream: profile for profile, _ in looked},
        [each for _, work in looked for each in work],
    )


def in_window(root: Root, context: Context, stream: str, settings: ProfileSettings) -> list[Entry]:
    """The fragments that have a chunk in the window, and holes between, in the order of offsets."""
    found: list[Entry] = []
    for entry in leaves_backwards(root, context.fetch(stream)):
        if entry.max_timestamp < settings.since_ms:
            # Clocks may have jumped, but not over a whole fragment and for good.
            break
        found.append(entry)
        if len(found) >= settings.max_fragments:
            break
    return found[::-1]


def cut(stream: str, entries: Sequence[Entry], sample_bytes: int) -> list[ProfileWork]:
    """The work on a stream: tasks of few fragments, with a sample spread evenly over all.

    The newest fragment is always in the sample: it knows best where consumers are.
    """
    data = [number for number, each in enumerate(entries) if each.kind is EntryKind.FRAGMENT]
    last = len(data) - 1
    each_bytes = sum(min(entries[number].size, PIECE_BYTES) for number in data) / max(1, len(data))
    count = min(len(data), max(1, int(sample_bytes / max(1, each_bytes)))) if sample_bytes else 0
    sampled = {data[last - round(each * last / max(1, count - 1))] for each in range(count)}
    work: list[ProfileWork] = []
    begin = 0
    while begin < len(entries):
        end, pieces = begin, 0
        while end < len(entries) and end - begin < _TASK_FRAGMENTS and pieces < _TASK_PIECES:
            pieces += end in sampled
            end += 1
        newest = data[-1] if data and begin <= data[-1] < end else None
        work.append(
            ProfileWork(
                stream=stream,
                entries=b"".join(each.encode() for each in entries[begin:end]),
                sampled=frozenset(each - begin for each in sampled if begin <= each < end),
                newest=None if newest is None else newest - begin,
            )
        )
        begin = end
    return work


def _performed(
    spark: SparkSession, work: list[ProfileWork], place: Place, settings: ProfileSettings
) -> Iterator[tuple[str, Counted, Sample]]:
    if not work:
        return
    frame = spark.range(0, len(work), 1, len(work))
    perform_some = partial(_work, work, place, settings)
    rows = frame.mapInArrow(perform_some, "number bigint, result binary").collect()
    for row in sorted(rows, key=lambda each: int(each["number"])):
        counted, sample = decode_result(row["result"])
        yield work[row["number"]].stream, counted, sample


def _work(
    work: list[ProfileWork],
    place: Place,
    settings: ProfileSettings,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a worker: the pieces of work whose numbers come in."""
    remote = connect_in_worker(place)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            result = perform(remote.store, place.prefix, work[number], settings)
            encoded = encode_result(*result)
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int64()), pa.array([encoded], pa.binary())],
                names=["number", "result"],
            )


def perform(
    store: ObjectStore, prefix: str, work: ProfileWork, settings: ProfileSettings
) -> tuple[Counted, Sample]:
    """Count the fragments of a piece of work, and look at the chunks of its sample.

    A fragment that is damaged is told in the sample's errors, and the others are counted.

    Raises:
        UnavailableError, PermissionDeniedError: from the store; Spark tries the task again.
    """
    fragments = Fragments(store, prefix, work.stream, ReaderSettings())
    entries = Entries(work.entries)
    counted, sample = Counted(), Sample()
    for number, entry in enumerate(entries):
        if entry.kind is not EntryKind.FRAGMENT:
            continue
        try:
            opened = fragments.open(entry)
            records = opened.records
            counted.merge(
                count_chunks(
                    records.chunk_ids,
                    records.timestamps,
                    records.positions,
                    bucket_ms=settings.bucket_ms,
                    since_ms=settings.since_ms,
                ),
                settings.bucket_ms,
            )
            if number in work.sampled:
                _sample(fragments, opened, sample, from_end=number == work.newest)
        except (UnavailableError, PermissionDeniedError):
            raise
        except ColdstreamError as error:
            sample.fail(error)
    return counted, sample


def _sample(fragments: Fragments, opened: OpenFragment, sample: Sample, *, from_end: bool) -> None:
    """Look at the first chunks of a fragment, or at its last ones."""
    index, size = opened.index, opened.trailer.data_size
    last = len(index) - 1
    if size <= PIECE_BYTES:
        spans = [(0, last)]
    elif from_end:
        # A snapshot of all tracking stands at a segment's beginning, so its first chunk as well.
        spans = [(0, 0), (max(1, index.chunk_at_position(size - PIECE_BYTES)), last)]
    else:
        spans = [(0, max(0, index.chunk_at_position(PIECE_BYTES) - 1))]
    for begin, end in spans:
        checked = fragments.chunks(opened, begin, end).checked
        sample.add(checked)
        if checked.error is not None:
            sample.fail(checked.error)


def write(
    profiles: Iterable[Profile],
    settings: ProfileSettings,
    catalog: SnapshotTables | None,
    report: JobReport,
    damaged: Sequence[ColdstreamError] = (),
) -> None:
    """Write the tables and the page, register the tables, and tell where they are.

    And which items of the table, beside the streams that are told, could not be read (`damaged`).
    """
    snapshot = settings.snapshot
    made = tables(profiles, bucket_ms=settings.bucket_ms, prices=settings.prices)
    for table in ALL:
        with part_file(snapshot, table, 0) as part:
            part.add(made[table.name])
    register(catalog, snapshot, ALL)
    url = f"{snapshot.warehouse}reports/{snapshot.id}.html"
    html = page(made, taken_ms=snapshot.taken_ms, prices=settings.prices).encode()
    with tempfile.TemporaryFile() as content:
        content.write(html)
        content.seek(0)
        snapshot.files().save(url, content, len(html))
    streams = made["profile_streams"]
    failed = [row for row in streams.select(["stream", "error"]).to_pylist() if row["error"]]
    report.facts |= {
        "snapshot": snapshot.id,
        "warehouse": snapshot.warehouse,
        "report": url,
        "streams": streams.num_rows,
        "bytes": sum(streams.column("bytes").to_pylist()),
        "sampled_bytes": sum(streams.column("sampled_bytes").to_pylist()),
        "failed": [*(f"{row['stream']}: {row['error']}" for row in failed), *map(str, damaged)],
    }
    report.count(deployment.METRIC_STREAMS_FAILED, len(failed) + len(damaged))
