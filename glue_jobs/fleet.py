"""fleet: all catalog items and manifests as tables, for Athena."""

from __future__ import annotations

import time
from collections.abc import Sequence

from coldstream.jobs.arguments import (
    DATABASE,
    WAREHOUSE,
    WHERE,
    Argument,
    flag,
    parse,
    where,
)
from coldstream.jobs.fleet import Settings, run
from coldstream.jobs.materialise.open_tables import glue_catalog
from coldstream.jobs.report import reporting, script
from coldstream.jobs.session import connect, metric_sink, spark_session
from coldstream.jobs.snapshots import Snapshot, SnapshotTables
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
    tier = where(given)
    remote = connect(tier)
    with reporting("fleet", given.run_id, metric_sink(tier)) as report:
        settings = Settings(
            snapshot=Snapshot(
                given[WAREHOUSE], time.time_ns() // 1_000_000, tier.region, tier.endpoint
            ),
            objects=given[OBJECTS],
            grace_ms=given[GRACE] * 1000,
        )
        tables = SnapshotTables(glue_catalog(tier, given[WAREHOUSE]), given[DATABASE])
        run(spark_session("fleet"), remote, settings, tables, report)


if __name__ == "__main__":
    script(main)
