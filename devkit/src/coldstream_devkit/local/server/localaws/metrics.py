"""Embedded metric format: a log line of a function that CloudWatch turns into metrics."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

from .options import Options

_log = logging.getLogger("localaws.metrics")
_MARK = '"CloudWatchMetrics"'


def emf_metrics(_: Options) -> None:
    """Store the metrics of log lines in embedded metric format.

    AWS: CloudWatch Logs extracts them, for every set of dimensions in the line. MiniStack: keeps
    the line as text. They are taken here where the function's output arrives, because MiniStack
    gives up collecting the log of an invocation after a few quiet milliseconds.
    """
    from ministack.core import lambda_runtime as runtime
    from ministack.core.responses import request_scope
    from ministack.services import cloudwatch

    def store(worker: Any, line: str) -> None:
        account, region = runtime._account_region_from_function_config(worker.config)
        with request_scope(account, region):
            for namespace, name, dimensions, at, unit, values in extract(line):
                cloudwatch._store_datum(
                    namespace, name, dimensions, at, unit, None, values, None, None
                )
            cloudwatch._evaluate_all_alarms()

    def read_stderr(worker: Any) -> None:
        for raw in worker._proc.stderr:
            line = raw.rstrip("\n")
            worker._stderr_queue.put(line)
            if _MARK in line:
                try:
                    store(worker, line)
                except (KeyError, TypeError, ValueError) as exc:
                    _log.warning("not in embedded metric format: %s: %.200s", exc, line)

    runtime.Worker._read_stderr = read_stderr


Datum = tuple[str, str, dict[str, str], float, str, list[float]]


def extract(line: str) -> Iterator[Datum]:
    """The metrics in one line: (namespace, name, dimensions, time, unit, values).

    Raises:
        KeyError, TypeError, ValueError: it is not in embedded metric format.
    """
    document = json.loads(line[line.index("{") :])
    about = document["_aws"]
    at = float(about.get("Timestamp", time.time() * 1000)) / 1000
    for directive in about["CloudWatchMetrics"]:
        for names in directive.get("Dimensions") or [[]]:
            dimensions = {name: str(document[name]) for name in names}
            for metric in directive["Metrics"]:
                value = document[metric["Name"]]
                values = [float(one) for one in (value if isinstance(value, list) else [value])]
                unit = metric.get("Unit", "None")
                yield directive["Namespace"], metric["Name"], dimensions, at, unit, values
