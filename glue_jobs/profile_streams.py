"""profile: rates, sizes, batching, producers, consumers, growth and cost of streams."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.adapters.place import connect
from coldstream.clock import now_ms
from coldstream.jobs.arguments import (
    DATABASE,
    SERVICE,
    STREAMS,
    WAREHOUSE,
    WHERE,
    Argument,
    decimal_number,
    parse,
    place_of,
    positive_number,
)
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.jobs.profile import ProfileSettings, run
from coldstream.jobs.profile_tables import Prices
from coldstream.jobs.report import reporting, script
from coldstream.jobs.session import metric_sink, spark_session
from coldstream.jobs.snapshots import SnapshotTables, TableSnapshot
from coldstream.quantities import parse_duration, parse_size

WINDOW = Argument("window", parse_duration, "How far back to look, such as 24h or 30d.", 7 * 86400)
BUCKET = Argument("bucket-length", parse_duration, "Length of a span in profile_rates.", 3600)
SAMPLE = Argument(
    "sample-bytes",
    parse_size,
    "How much of each stream is read for messages, codecs and tracking; 0 for nothing.",
    256 * 2**20,
)
FRAGMENTS = Argument(
    "max-fragments", positive_number, "The most fragments of one stream, the newest.", 100_000
)
STORAGE = Argument(
    "price-storage", decimal_number, "Of a GB and month; S3 Standard in us-east-1, $.", 0.023
)
PUT = Argument("price-put", decimal_number, "Of a thousand PUT requests; as above.", 0.005)
ARGUMENTS = (
    *WHERE, WAREHOUSE, DATABASE, STREAMS, WINDOW, BUCKET, SAMPLE, FRAGMENTS, STORAGE, PUT,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Run the job."""
    given = parse("profile", str(__doc__), ARGUMENTS, argv)
    place = place_of(given)
    remote = connect(place)
    began_ms = now_ms()
    with reporting("profile", given.run_id, metric_sink(place, given[SERVICE])) as report:
        settings = ProfileSettings(
            snapshot=TableSnapshot(given[WAREHOUSE], began_ms, place.region, place.endpoint),
            streams=given[STREAMS],
            since_ms=began_ms - given[WINDOW] * 1000,
            bucket_ms=max(1, given[BUCKET]) * 1000,
            sample_bytes=given[SAMPLE],
            max_fragments=given[FRAGMENTS],
            prices=Prices(storage=given[STORAGE], put=given[PUT]),
        )
        tables = SnapshotTables(glue_catalog(place, given[WAREHOUSE]), given[DATABASE])
        run(spark_session("profile"), remote, settings, tables, report)


if __name__ == "__main__":
    script(main)
