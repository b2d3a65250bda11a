"""Put streams into tables, exactly once; keep the tables short and quick to read.

    aws glue start-job-run --job-name coldstream-materialise \\
        --arguments '{"--streams": "orders.*", "--into": "shop.orders", "--body": "json"}'
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.jobs.arguments import SERVICE, WHERE, parse, place_of
from coldstream.jobs.materialise import job
from coldstream.jobs.materialise.job_arguments import ARGUMENTS
from coldstream.jobs.report import reporting, script
from coldstream.jobs.session import metric_sink, spark_session


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, fill the tables, report."""
    given = parse("materialise", job.DESCRIPTION, (*WHERE, *ARGUMENTS), argv)
    place = place_of(given)
    with reporting("materialise", given.run_id, metric_sink(place, given[SERVICE])) as report:
        job.run(spark_session("materialise"), place, given, report)


if __name__ == "__main__":
    script(main)
