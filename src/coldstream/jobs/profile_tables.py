"""The tables of the job profile, and the rows that its counts become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from coldstream.jobs.materialise.times import MAX_MS, MIN_MS
from coldstream.jobs.profile_count import Bucket, Counted
from coldstream.jobs.profile_sample import Sample
from coldstream.jobs.snapshots import STREAM, TIME, SnapshotTable, column
from coldstream.manifest.catalog import CatalogItem

_TEXT, _NUMBER, _REAL = pa.string(), pa.int64(), pa.float64()
DAY_MS = 86_400_000
_GB = 10**9
_DAYS_A_MONTH = 365 / 12
#: Requests that one fragment of the agent costs: its own PUT, and that of the root it leads to.
#: Commits take several fragments of a busy stream at once, so this is the upper end.
PUTS_PER_FRAGMENT = 2

_CHUNK_SIZES = (
    column("chunk_bytes_p50", _NUMBER, "size of chunks"),
    column("chunk_bytes_p99", _NUMBER, "size of chunks"),
    column("chunk_offsets_p50", _NUMBER, "offsets in a chunk: batching"),
    column("chunk_offsets_p99", _NUMBER, "offsets in a chunk: batching"),
)

STREAMS = SnapshotTable(
    "profile_streams",
    "One row for each stream: what it is like within the window, and what it costs",
    pa.schema(
        [
            STREAM,
            column("vhost", _TEXT, "virtual host"),
            column("queue", _TEXT, "name of the queue"),
            column("window_days", _REAL, "time that was looked at"),
            column("chunks", _NUMBER, "in the window"),
            column("offsets", _NUMBER, "in the window, with those of tracking chunks"),
            column("bytes", _NUMBER, "of the chunks in the window"),
            column("offsets_per_second", _REAL, "mean over the window"),
            column("bytes_per_second", _REAL, "mean over the window"),
            column("peak_bytes_per_second", _REAL, "of the busiest bucket"),
            column("longest_gap_seconds", _REAL, "between two chunks"),
            column("clock_jumps", _NUMBER, "chunks that are older than the one before"),
            *_CHUNK_SIZES,
            column("sampled_bytes", _NUMBER, "bytes that what follows was learnt from"),
            column("sampled_messages", _NUMBER, "messages in them"),
            column("tracking_chunks", _NUMBER, "offsets in them that have no message"),
            column("message_bytes_mean", _REAL, "inflated size of a message"),
            column("message_bytes_p50", _NUMBER, "inflated size of a message"),
            column("message_bytes_p99", _NUMBER, "inflated size of a message"),
            column("in_sub_batches", _REAL, "part of the messages, 0 to 1"),
            column("compression", _REAL, "how many times smaller compressed sub-batches are"),
            column(
                "codecs",
                pa.list_(
                    pa.struct(
                        [
                            pa.field("codec", _TEXT),
                            pa.field("messages", _NUMBER),
                            pa.field("stored_bytes", _NUMBER),
                            pa.field("inflated_bytes", _NUMBER),
                        ]
                    )
                ),
                "sub-batches by codec",
            ),
            column("overhead", _REAL, "part of the bytes that are chunk headers and trailers"),
            column("producers", _NUMBER, "named publishers that were seen"),
            column("consumers", _NUMBER, "consumers that store their offset here"),
            column("fragments_per_day", _REAL, "in the window"),
            column("growth_bytes_per_day", _REAL, "in the window"),
            column("stored_bytes", _NUMBER, "all of the stream in S3"),
            column("storage_cost_month", _REAL, "of that, in the currency of the prices"),
            column("storage_cost_month_in_a_year", _REAL, "if it grows on and nothing is retired"),
            column("request_cost_month", _REAL, "of writing, at most"),
            column("error", _TEXT, "what could not be looked at"),
        ]
    ),
)

RATES = SnapshotTable(
    "profile_rates",
    "One row for each stream and span of time in which it has a chunk",
    pa.schema(
        [
            STREAM,
            column("time", TIME, "beginning of the span"),
            column("seconds", _REAL, "length of the span"),
            column("chunks", _NUMBER, "in it"),
            column("offsets", _NUMBER, "in it"),
            column("bytes", _NUMBER, "in it"),
            column("offsets_per_second", _REAL, "mean"),
            column("bytes_per_second", _REAL, "mean"),
            *_CHUNK_SIZES,
            column("longest_gap_seconds", _REAL, "between two chunks"),
        ]
    ),
)

SIZES = SnapshotTable(
    "profile_sizes",
    "One row for each stream, kind of size and doubling: a histogram",
    pa.schema(
        [
            STREAM,
            column("kind", _TEXT, "message, chunk, or chunk_offsets"),
            column("below", _NUMBER, "sizes of at least half of this, and below it"),
            column("count", _NUMBER, "how many"),
        ]
    ),
)

PRODUCERS = SnapshotTable(
    "profile_producers",
    "One row for each named publisher that was seen",
    pa.schema(
        [
            STREAM,
            column("reference", _TEXT, "name that the publisher gave itself"),
            column("last_sequence", _NUMBER, "its last publishing id"),
            column("chunk_id", _NUMBER, "of the chunk that had it"),
            column("seen", TIME, "time of the chunk that says so"),
        ]
    ),
)

CONSUMERS = SnapshotTable(
    "profile_consumers",
    "One row for each stored offset that was seen, the newest of each consumer among them",
    pa.schema(
        [
            STREAM,
            column("reference", _TEXT, "name that the consumer gave itself"),
            column("seen", TIME, "time of the chunk that says so"),
            column("stored_offset", _NUMBER, "what it had stored"),
            column("lag_then", _NUMBER, "offsets from there to that chunk"),
            column("lag_now", _NUMBER, "offsets from there to the end in S3"),
            column("newest", pa.bool_(), "whether nothing newer of it was seen"),
        ]
    ),
)

ALL = (STREAMS, RATES, SIZES, PRODUCERS, CONSUMERS)


@dataclass(frozen=True, slots=True)
class Prices:
    """What S3 costs, in any currency; the defaults of the job are US dollars in us-east-1.

    Attributes:
        storage: of a GB (10^9 bytes) for a month.
        put: of a thousand PUT requests.
    """

    storage: float
    put: float


@dataclass(slots=True)
class Profile:
    """All that is known of one stream.

    Attributes:
        item: of the catalog.
        window_ms: time that was looked at.
        counted: out of the indexes of all fragments in the window.
        sample: out of the chunks of some.
        error: why not all of it could be looked at, "" if it could.
    """

    item: CatalogItem
    window_ms: int
    counted: Counted
    sample: Sample
    error: str = ""


def tables(
    profiles: Iterable[Profile], *, bucket_ms: int, prices: Prices
) -> Mapping[str, pa.Table]:
    """The rows of all tables by the tables' names."""
    profiles = sorted(profiles, key=lambda each: each.item.stream)
    rows: dict[str, Iterator[dict[str, Any]]] = {
        STREAMS.name: (stream_row(each, bucket_ms, prices) for each in profiles),
        RATES.name: (row for each in profiles for row in rate_rows(each, bucket_ms)),
        SIZES.name: (row for each in profiles for row in size_rows(each)),
        PRODUCERS.name: (row for each in profiles for row in producer_rows(each)),
        CONSUMERS.name: (row for each in profiles for row in consumer_rows(each)),
    }
    return {
        table.name: pa.Table.from_pylist(list(rows[table.name]), schema=table.schema)
        for table in ALL
    }


def stream_row(profile: Profile, bucket_ms: int, prices: Prices) -> dict[str, Any]:
    """The row of `STREAMS`."""
    item, sample = profile.item, profile.sample
    total = profile.counted.all()
    seconds = max(profile.window_ms, 1) / 1000
    days = max(profile.window_ms, 1) / DAY_MS
    growth = total.bytes / days
    fragments = profile.counted.fragments / days
    batched = sum(each.records for each in sample.codecs.values())
    peak = max((each.bytes for each in profile.counted.buckets.values()), default=0)
    stored = item.total_size * prices.storage / _GB
    return {
        "stream": item.stream,
        "vhost": item.name.vhost,
        "queue": item.name.queue,
        "window_days": days,
        "chunks": total.chunks,
        "offsets": total.offsets,
        "bytes": total.bytes,
        "offsets_per_second": total.offsets / seconds,
        "bytes_per_second": total.bytes / seconds,
        "peak_bytes_per_second": peak * 1000 / bucket_ms,
        "longest_gap_seconds": total.longest_gap_ms / 1000,
        "clock_jumps": profile.counted.back,
        **_chunk_sizes(total),
        "sampled_bytes": sample.bytes,
        "sampled_messages": sample.messages,
        "tracking_chunks": sample.tracking_chunks,
        "message_bytes_mean": sample.message_bytes / sample.messages if sample.messages else None,
        "message_bytes_p50": sample.sizes.quantile(0.5),
        "message_bytes_p99": sample.sizes.quantile(0.99),
        "in_sub_batches": batched / sample.messages if sample.messages else None,
        "compression": sample.ratio,
        "codecs": [
            {
                "codec": name,
                "messages": each.records,
                "stored_bytes": each.size,
                "inflated_bytes": each.inflated,
            }
            for name, each in sorted(sample.codecs.items())
        ],
        "overhead": (sample.headers + sample.trailers) / sample.bytes if sample.bytes else None,
        "producers": len(sample.publishers),
        "consumers": len(sample.consumers),
        "fragments_per_day": fragments,
        "growth_bytes_per_day": growth,
        "stored_bytes": item.total_size,
        "storage_cost_month": stored,
        "storage_cost_month_in_a_year": stored + growth * 365 * prices.storage / _GB,
        "request_cost_month": (fragments * _DAYS_A_MONTH * PUTS_PER_FRAGMENT * prices.put / 1000),
        "error": "; ".join(each for each in (profile.error, *sample.errors) if each) or None,
    }


def _chunk_sizes(counts: Bucket) -> dict[str, Any]:
    """The values of `_CHUNK_SIZES`."""
    return {
        "chunk_bytes_p50": counts.sizes.quantile(0.5),
        "chunk_bytes_p99": counts.sizes.quantile(0.99),
        "chunk_offsets_p50": counts.lengths.quantile(0.5),
        "chunk_offsets_p99": counts.lengths.quantile(0.99),
    }


def rate_rows(profile: Profile, bucket_ms: int) -> Iterator[dict[str, Any]]:
    """Rows of `RATES`, in the order of time."""
    for number, bucket in sorted(profile.counted.buckets.items()):
        yield {
            "stream": profile.item.stream,
            "time": microseconds(number * bucket_ms),
            "seconds": bucket_ms / 1000,
            "chunks": bucket.chunks,
            "offsets": bucket.offsets,
            "bytes": bucket.bytes,
            "offsets_per_second": bucket.offsets * 1000 / bucket_ms,
            "bytes_per_second": bucket.bytes * 1000 / bucket_ms,
            **_chunk_sizes(bucket),
            "longest_gap_seconds": bucket.longest_gap_ms / 1000,
        }


def size_rows(profile: Profile) -> Iterator[dict[str, Any]]:
    """Rows of `SIZES`."""
    total = profile.counted.all()
    for kind, histogram in (
        ("message", profile.sample.sizes),
        ("chunk", total.sizes),
        ("chunk_offsets", total.lengths),
    ):
        for below, count in histogram.bars():
            yield {
                "stream": profile.item.stream,
                "kind": kind,
                "below": below,
                "count": count,
            }


def producer_rows(profile: Profile) -> Iterator[dict[str, Any]]:
    """Rows of `PRODUCERS`."""
    for reference, seen in sorted(profile.sample.publishers.items()):
        yield {
            "stream": profile.item.stream,
            "reference": reference,
            "last_sequence": signed(seen.value),
            "chunk_id": signed(seen.chunk_id),
            "seen": microseconds(seen.timestamp),
        }


def consumer_rows(profile: Profile) -> Iterator[dict[str, Any]]:
    """Rows of `CONSUMERS`."""
    for reference, positions in sorted(profile.sample.consumers.items()):
        for number, seen in enumerate(positions, 1):
            yield {
                "stream": profile.item.stream,
                "reference": reference,
                "seen": microseconds(seen.timestamp),
                "stored_offset": signed(seen.value),
                "lag_then": signed(max(0, seen.chunk_id - seen.value)),
                "lag_now": signed(max(0, profile.item.next_offset - seen.value)),
                "newest": number == len(positions),
            }


def microseconds(milliseconds: int) -> int:
    """A time for a column, within the years that a table can hold."""
    return min(max(milliseconds, MIN_MS), MAX_MS) * 1000


def signed(value: int) -> int:
    """An unsigned 64-bit number in a signed column: a client may send any number."""
    return min(value, 2**63 - 1)
