"""How a job ends: its metrics, one line of JSON, and an error that Glue shows in the console.

    def main(argv: Sequence[str] | None = None) -> None:
        given = parse("fleet", __doc__, ARGUMENTS, argv)
        with reporting("fleet", given.run_id, metric_sink(place, given[SERVICE])) as report:
            run(..., report)

    if __name__ == "__main__":
        script(main)

A job that fails prints its line too, with the error in it, and then raises the error. What one of
our own errors in a worker becomes on its way to the driver, pages of Python's and Java's calls, is
made that error again.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from coldstream import deployment, errors
from coldstream.errors import ColdstreamError
from coldstream.ports import Metric, MetricSink, MetricUnit

# Set by spark-submit, which is how Glue starts a script.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
# The line of a traceback that names the error; of a chain of them, the one that came out is last.
_RAISED = re.compile(rf"(?:^|: ){re.escape(errors.__name__)}\.(\w+): (.*)$", re.MULTILINE)


@dataclass(slots=True)
class JobReport:
    """What a run of a job has to tell; filled while it works.

    Attributes:
        job: its name.
        run_id: Glue's id of the run; "" elsewhere.
        facts: JSON values for the line at the end, such as counts and places of tables.
        metrics: sent at the end, each with the dimension `job` beside those it has.
    """

    job: str
    run_id: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)

    def count(
        self,
        name: str,
        value: float,
        unit: MetricUnit = MetricUnit.COUNT,
        **dimensions: str,
    ) -> None:
        """Add a metric: once for the alarm on all jobs, and once for this job by its name."""
        self.metrics.append(Metric(name, value, unit, tuple(sorted(dimensions.items()))))
        named = {deployment.METRIC_DIMENSION_JOB: self.job, **dimensions}
        self.metrics.append(Metric(name, value, unit, tuple(sorted(named.items()))))


@contextmanager
def reporting(
    job: str,
    run_id: str,
    sink: MetricSink,
    write: Callable[[str], object] = print,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[JobReport]:
    """Run the body of a job, then send its metrics and write its line, however it ends.

    The metrics come first: a scrub whose findings nobody is told about has not succeeded.

    Args:
        job: its name.
        run_id: Glue's id of the run; "" elsewhere.
        sink: where metrics go.
        write: takes the line; `print`, which Glue puts into the run's log.
        clock: seconds, for the time that it took.

    Raises:
        ColdstreamError: one that a worker raised, after the line was written.
        Exception: anything else that the body or the sink raised, likewise.
    """
    report = JobReport(job, run_id)
    started = clock()
    error: BaseException | None = None
    try:
        yield report
        report.count(deployment.METRIC_JOB_SECONDS, clock() - started, MetricUnit.SECONDS)
        sink.put(report.metrics)
    except BaseException as exc:  # whatever it is, Ctrl-C among them, the line has to say so
        error = raised_by_worker(exc) or exc
        if error is exc:
            raise
        raise error from exc
    finally:
        write(line(report, clock() - started, error))


def line(report: JobReport, seconds: float, error: BaseException | None) -> str:
    """The line at the end of a run, one JSON object."""
    document = {
        "job": report.job,
        "run_id": report.run_id,
        "ok": error is None,
        "seconds": round(seconds, 3),
        **({} if error is None else {"error": described(error)}),
        **report.facts,
    }
    return json.dumps(document, ensure_ascii=False, default=str)


def raised_by_worker(error: BaseException) -> ColdstreamError | None:
    """Our own error that made a task fail; None if it was something else.

    Spark hands on the text of a worker's traceback and nothing more. Where the error happened
    (stream, offset, key) is in the reason.
    """
    if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
        return None
    named = _RAISED.findall(str(error))
    kind = getattr(errors, named[-1][0], None) if named else None
    if isinstance(kind, type) and issubclass(kind, ColdstreamError):
        return kind(named[-1][1])
    return None


def described(error: BaseException) -> dict[str, Any]:
    """An error as a JSON value: its kind, what failed, and where."""
    if _interrupted(error):
        return {"kind": "interrupted", "reason": "interrupted from the keyboard"}
    if not isinstance(error, ColdstreamError):
        return {"kind": "internal", "reason": f"{type(error).__name__}: {error}"[:4000]}
    where = {"stream": error.stream, "offset": error.offset, "key": error.key}
    return {
        "kind": str(error.kind),
        "reason": error.reason,
        **{name: value for name, value in where.items() if value is not None},
    }


def script(main: Callable[[], None]) -> None:
    """Run a job's `main` as a program.

    Glue shows the text of an exception as the error of the run, so there it is let through. A
    person at a terminal gets one line and exit code 1 for what we raise on purpose, and 130 after
    Ctrl-C. A run that succeeds just ends, without `sys.exit`, which Glue has taken for a failure in
    the past.
    """
    try:
        main()
    except (Exception, KeyboardInterrupt) as error:
        interrupted = _interrupted(error)
        if _SUBMITTED in os.environ or not (interrupted or isinstance(error, ColdstreamError)):
            raise
        words = "interrupted" if interrupted else f"{type(error).__name__}: {error}"
        print(words, file=sys.stderr)  # noqa: T201 - a person reads it
        sys.exit(130 if interrupted else 1)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: Spark's own calls fail in other ways once it is dying."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
