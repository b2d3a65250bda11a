"""The third part of `make demo`: the Glue jobs, started by Glue's API, run by Spark here.

All at once over all streams of the demo; then what each of them says is compared with what the demo
knows: every message is a row, nothing is damaged, the rebuilt manifest is the live
one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from rich.box import SIMPLE_HEAD
from rich.table import Table

from coldstream import deployment
from coldstream.adapters.place import Place
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog

_LONGEST_WAIT = 300.0
_OVER = frozenset({"SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED", "ERROR"})
_TABLE = "messages"


@dataclass(frozen=True, slots=True)
class _Run:
    """A job that was started."""

    job: str
    run_id: str


class JobsDemo:
    """The jobs over the streams that the demo has tiered.

    Args:
        streams: number of messages by directory name, of those that are read.
        big: queue of the stream whose manifest is rebuilt.
        step: told what happens.
    """

    def __init__(
        self,
        streams: Mapping[str, int],
        big: str,
        *,
        warehouse: str,
        database: str,
        step: Callable[[str], None],
    ) -> None:
        self._streams = streams
        self._big = big
        self._warehouse = warehouse
        self._database = database
        self._step = step
        self._glue = boto3.client("glue")
        self._logs = boto3.client("logs")

    def run(self) -> tuple[Table, bool]:
        """All jobs; the table, and whether every one said what it should."""
        self._step("the Glue jobs on Spark, all five at once")
        runs = [
            self._start("materialise", streams=".*", into=_TABLE, rules=""),
            self._start("scrub"),
            self._start("profile", window="36500d"),
            self._start("fleet", objects="true"),
            self._start("rebuild", streams=self._big),
        ]
        table = Table(title="what the jobs did", box=SIMPLE_HEAD, pad_edge=False)
        for column in ("job", "what it says", "as it should be"):
            table.add_column(column, overflow="fold")
        good = True
        for run in runs:
            state, said = self._ended(run)
            words, right = self._judged(run.job, said)
            right = right and state == "SUCCEEDED"
            table.add_row(run.job, words, "yes" if right else f"NO: {state}")
            good = good and right
        return table, good

    def _start(self, job: str, **arguments: str) -> _Run:
        started = self._glue.start_job_run(
            JobName=f"{deployment.STACK_NAME}-{job}",
            Arguments={f"--{name.replace('_', '-')}": value for name, value in arguments.items()},
        )
        return _Run(job, started["JobRunId"])

    def _ended(self, run: _Run) -> tuple[str, dict[str, Any]]:
        """How a run ended, and the last line that it said."""
        deadline = time.monotonic() + _LONGEST_WAIT
        name = f"{deployment.STACK_NAME}-{run.job}"
        while True:
            found = self._glue.get_job_run(JobName=name, RunId=run.run_id)["JobRun"]
            if found["JobRunState"] in _OVER:
                break
            if time.monotonic() > deadline:
                return "still running", {}
            time.sleep(0.3)
        if message := found.get("ErrorMessage"):
            # A run that died early has no log stream.
            return found["JobRunState"], {"error": message}
        events = self._logs.get_log_events(
            logGroupName=f"/aws-glue/jobs/{deployment.STACK_NAME}/output", logStreamName=run.run_id
        )["events"]
        lines = [each["message"] for each in events if each["message"].startswith("{")]
        said: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return found["JobRunState"], said

    def _judged(self, job: str, said: Mapping[str, Any]) -> tuple[str, bool]:
        """What a job says, in short, and whether that is right."""
        if not said.get("ok"):
            return str(said.get("error", "nothing")), False
        if job == "materialise":
            rows, dead = (self._counted(name) for name in (_TABLE, f"{_TABLE}_dead_letters"))
            plain = self._counted(_TABLE, "body_kind == 'bytes'")
            return (
                f"{rows:,} rows in the Iceberg table {_TABLE}, {plain:,} of them plain bytes, and"
                f" {dead:,} dead letters",
                rows == sum(self._streams.values()) and not dead,
            )
        if job == "scrub":
            found = sum(said["findings"].values())
            return (
                f"{said['bytes']:,} bytes of {said['chunks']:,} chunks: {found} findings",
                not found,
            )
        if job == "fleet":
            words = f"{said['streams']} streams, {said['fragments']} fragments"
            return words, said["streams"] >= len(self._streams)
        if job == "profile":
            return f"{said['streams']} streams; page {said['report']}", bool(said["report"])
        words = f"{self._big} from the bucket alone: {said['fragments']} fragments, "
        return f"{words}{len(said['differences'])} differences", not said["differences"]

    def _counted(self, table: str, which: str = "offset >= 0") -> int:
        """Rows of the demo's streams in a table, by another client of the catalog."""
        place = Place("", "", "", os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"])
        catalog = glue_catalog(place, self._warehouse)
        found = catalog.load_table(f"{self._database}.{table}")
        ours = " or ".join(f"stream == '{stream}'" for stream in self._streams)
        return found.scan(row_filter=f"({ours}) and {which}").count()
