"""fleet: all catalog items and manifests as tables, for Athena."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.adapters.place import connect
from coldstream.clock import now_ms
from coldstream.jobs.arguments import (
    DATABASE,
    SERVICE,
    WAREHOUSE,
    WHERE,
    Argument,
    flag,
    parse,
    place_of,
)
from coldstream.jobs.fleet import FleetSettings, run
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.jobs.report import reporting, script
from coldstream.jobs.session import metric_sink, spark_session
from coldstream.jobs.snapshots import SnapshotTables, TableSnapshot
from coldstream.quantities import parse_duration

OBJECTS = Argument(
    "objects", flag, "LIST every object, too, to find those without a reference.", default=False
)
GRACE = Argument(
    "grace", parse_duration, "How old an object without a reference is an orphan.", 86_400
)
ARGUMENTS = (*WHERE, WAREHOUSE, DATABASE, OBJECTS, GRACE)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the job."""
    given = parse("fleet", str(__doc__), ARGUMENTS, argv)
    place = place_of(given)
    remote = connect(place)
    with reporting("fleet", given.run_id, metric_sink(place, given[SERVICE])) as report:
        settings = FleetSettings(
            snapshot=TableSnapshot(given[WAREHOUSE], now_ms(), place.region, place.endpoint),
            objects=given[OBJECTS],
            grace_ms=given[GRACE] * 1000,
        )
        tables = SnapshotTables(glue_catalog(place, given[WAREHOUSE]), given[DATABASE])
        run(spark_session("fleet"), remote, settings, tables, report)


if __name__ == "__main__":
    script(main)
