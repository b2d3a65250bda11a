"""rebuild: the manifests of streams made anew from the bucket, compared with the live ones."""

from __future__ import annotations

import time
from collections.abc import Sequence

from coldstream.errors import InvalidInputError
from coldstream.jobs.arguments import (
    DATABASE,
    WAREHOUSE,
    WHERE,
    Argument,
    branching,
    duration_seconds,
    flag,
    name_pattern,
    parse,
    where,
    words,
)
from coldstream.jobs.rebuild import Settings, run_install, run_shadow
from coldstream.jobs.report import reporting, script
from coldstream.jobs.session import client, connect, metric_sink, spark_session
from coldstream.jobs.snapshots import GlueTables, Snapshot
from coldstream.names import ENV_BRANCHING, check_stream
from coldstream.ports import MAX_DELETE_MS

STREAMS = Argument(
    "streams",
    name_pattern,
    "For --shadow: regular expression that the directory or the queue of a stream must match as a"
    " whole.",
    ".*",
)
SHADOW = Argument(
    "shadow",
    flag,
    "Only compare; what happens without --install, too.",
    default=False,
)
INSTALL: Argument[tuple[str, ...]] = Argument(
    "install",
    words,
    "Directory names of streams, with commas between, whose manifest is to be replaced. While it is"
    " made a stream takes no commits, and nothing of it is deleted.",
    (),
)
TRAILERS = Argument(
    "verify-trailers",
    flag,
    "Read and check the trailer of every fragment. A manifest that is installed without knows no"
    " times.",
    default=False,
)
BRANCHING = Argument("branching", branching, "Entries of a full group.", 1024, ENV_BRANCHING)
ACCEPT_LESS = Argument(
    "accept-less",
    flag,
    "For --install: replace a manifest although the new one lacks something that the old one or the"
    " bucket has; holes stand for it.",
    default=False,
)
WAIT = Argument(
    "wait",
    duration_seconds,
    "For --install: wait so long, once the stream is stopped, for a delete that is under way.",
    MAX_DELETE_MS // 1000,
)
ARGUMENTS = (
    *WHERE, WAREHOUSE, DATABASE, STREAMS, SHADOW, INSTALL, TRAILERS, BRANCHING, ACCEPT_LESS, WAIT,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Run the job; a shadow that differs ends with an error that names the first difference."""
    given = parse("rebuild", str(__doc__), ARGUMENTS, argv)
    install, only_shadow = given[INSTALL], given[SHADOW]
    if install and only_shadow:
        raise InvalidInputError("rebuild: --shadow changes nothing, --install does: give one")
    streams = [check_stream(each) for each in install]
    tier = where(given)
    remote = connect(tier)
    worst = None
    with reporting("rebuild", given.run_id, metric_sink(tier)) as report:
        settings = Settings(
            snapshot=Snapshot(
                given[WAREHOUSE], time.time_ns() // 1_000_000, tier.region, tier.endpoint
            ),
            trailers=given[TRAILERS],
            branching=given[BRANCHING],
            accept_less=given[ACCEPT_LESS],
            wait=lambda _: time.sleep(given[WAIT]),
        )
        spark = spark_session("rebuild")
        if streams:
            run_install(spark, remote, streams, settings, report)
        else:
            tables = GlueTables(client=client("glue", tier), database=given[DATABASE])
            worst = run_shadow(spark, remote, given[STREAMS], settings, tables, report)
    if worst is not None:
        raise worst


if __name__ == "__main__":
    script(main)
