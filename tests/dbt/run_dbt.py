"""Run by the Python of .dbt: dbt and SQL on one Spark; a line of JSON asks, a line answers.

{"dbt": [arguments]} is a command of dbt; {"sql": text} is run as it stands.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from dbt.cli.main import dbtRunner
from pyspark.sql import SparkSession


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # dbt and Spark say much
    for line in sys.stdin:
        asked = json.loads(line)
        said = _dbt(asked["dbt"]) if "dbt" in asked else _sql(asked["sql"])
        print(json.dumps(said, default=_plain), file=answers, flush=True)


def _dbt(arguments: list[str]) -> dict[str, Any]:
    done = dbtRunner().invoke(arguments)
    results = getattr(done.result, "results", [])
    return {
        "success": done.success,
        "error": repr(done.exception) if done.exception else "",
        "results": {each.node.name: [each.status, each.message] for each in results},
    }


def _sql(text: str) -> list[dict[str, Any]]:
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    return [row.asDict(recursive=True) for row in session.sql(text).collect()]


def _plain(value: Any) -> str:
    return bytes(value).decode() if isinstance(value, bytes | bytearray) else str(value)


if __name__ == "__main__":
    main()
