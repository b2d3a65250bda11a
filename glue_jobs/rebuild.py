"""rebuild: the manifests of streams made anew from the bucket, compared with the live ones."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.adapters.place import connect
from coldstream.clock import now_ms
from coldstream.deployment import ENV_BRANCHING
from coldstream.jobs.arguments import (
    DATABASE,
    SERVICE,
    WAREHOUSE,
    WHERE,
    Argument,
    branching,
    flag,
    name_pattern,
    parse,
    place_of,
)
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.jobs.rebuild import RebuildSettings, run_shadow
from coldstream.jobs.report import reporting, script
from coldstream.jobs.session import metric_sink, spark_session
from coldstream.jobs.snapshots import SnapshotTables, TableSnapshot

STREAMS = Argument(
    "streams",
    name_pattern,
    "Regular expression that the directory or the queue of a stream must match as a whole.",
    ".*",
)
TRAILERS = Argument(
    "verify-trailers",
    flag,
    "Read and check the trailer of every fragment.",
    default=False,
)
BRANCHING = Argument("branching", branching, "Entries of a full group.", 1024, ENV_BRANCHING)
ARGUMENTS = (*WHERE, WAREHOUSE, DATABASE, STREAMS, TRAILERS, BRANCHING)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the job; a manifest that differs ends with an error that names the first difference."""
    given = parse("rebuild", str(__doc__), ARGUMENTS, argv)
    place = place_of(given)
    remote = connect(place)
    worst = None
    with reporting("rebuild", given.run_id, metric_sink(place, given[SERVICE])) as report:
        settings = RebuildSettings(
            snapshot=TableSnapshot(given[WAREHOUSE], now_ms(), place.region, place.endpoint),
            trailers=given[TRAILERS],
            branching=given[BRANCHING],
        )
        spark = spark_session("rebuild")
        tables = SnapshotTables(glue_catalog(place, given[WAREHOUSE]), given[DATABASE])
        worst = run_shadow(spark, remote, given[STREAMS], settings, tables, report)
    if worst is not None:
        raise worst


if __name__ == "__main__":
    script(main)
