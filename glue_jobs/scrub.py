"""scrub: every byte of the streams against its checksums, indexes, trailers and manifests."""

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
    flag,
    parse,
    place_of,
)
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.jobs.report import reporting, script
from coldstream.jobs.scrub.job import Target, run_job
from coldstream.jobs.scrub.reading import Effort
from coldstream.jobs.scrub.run import ScrubSettings
from coldstream.jobs.session import metric_sink, spark_session
from coldstream.jobs.snapshots import SnapshotTables, TableSnapshot
from coldstream.quantities import parse_duration, parse_size

MAX_BYTES = Argument(
    "max-bytes",
    parse_size,
    "Read at most so much of fragments in this run, the longest unchecked first.",
    2**40,
)
EVERY = Argument(
    "every", parse_duration, "Leave alone what was checked within this time.", 30 * 86_400
)
QUICK = Argument(
    "quick", flag, "Manifests, objects, trailers and indexes only, no messages.", default=False
)
GRACE = Argument("grace", parse_duration, "Grace time of collect; what is overdue is told.", 86_400)
TASK_BYTES = Argument("task-bytes", parse_size, "What one task reads.", 2**30)
ARGUMENTS = (*WHERE, WAREHOUSE, DATABASE, STREAMS, MAX_BYTES, EVERY, QUICK, GRACE, TASK_BYTES)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the job; a run that has found something ends with an error that names the worst."""
    given = parse("scrub", str(__doc__), ARGUMENTS, argv)
    place = place_of(given)
    remote = connect(place)
    began_ms = now_ms()
    with reporting("scrub", given.run_id, metric_sink(place, given[SERVICE])) as report:
        settings = ScrubSettings(
            now_ms=began_ms,
            max_bytes=given[MAX_BYTES],
            every_ms=given[EVERY] * 1000,
            grace_ms=given[GRACE] * 1000,
            task_bytes=given[TASK_BYTES],
            effort=Effort(quick=given[QUICK]),
        )
        target = Target(
            TableSnapshot(given[WAREHOUSE], began_ms, place.region, place.endpoint), given[STREAMS]
        )
        tables = SnapshotTables(glue_catalog(place, given[WAREHOUSE]), given[DATABASE])
        worst = run_job(spark_session("scrub"), remote, target, settings, tables, report)
    # After metrics and report: an alarm and a table know of it, and the run itself does, too.
    if worst is not None:
        raise worst


if __name__ == "__main__":
    script(main)
