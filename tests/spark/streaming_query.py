"""A streaming query in a process of its own, so that it can be killed: to parquet, until told."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Arguments as JSON: options, out, checkpoint, log, kill (mid or ""), seconds."""
    given = json.loads(sys.argv[1])
    from pyspark.sql import SparkSession

    from coldstream.spark import register
    from tests.spark.conftest import SETTINGS

    builder = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    jvm = spark.sparkContext._gateway.proc.pid
    register(spark)
    frame = spark.readStream.format("rabbitmq_stream").options(**given["options"]).load()
    if given["kill"] == "mid":
        # Rows are on their way to files when the JVM, and with it everything, is killed.
        seen = Path(given["log"])

        def slowly(batches):  # type: ignore[no-untyped-def]
            for batch in batches:
                seen.touch()
                yield batch
                time.sleep(10)

        frame = frame.mapInArrow(slowly, frame.schema)
    query = (
        frame.writeStream.format("parquet")
        .option("path", given["out"])
        .option("checkpointLocation", given["checkpoint"])
    )
    running = query.trigger(processingTime="200 milliseconds").start()
    print(jvm, flush=True)
    if given["kill"] == "mid":
        while not Path(given["log"]).exists():
            time.sleep(0.05)
        os.kill(jvm, 9)
        os._exit(9)
    deadline = time.monotonic() + given["seconds"]
    committed = Path(given["checkpoint"]) / "commits"
    while time.monotonic() < deadline and not running.exception():
        batches = list(committed.glob("[0-9]*")) if committed.exists() else []
        if len(batches) >= given["batches"]:
            break
        time.sleep(0.05)
    if given["kill"] == "between":
        os.kill(jvm, 9)
        os._exit(9)
    failed = running.exception()
    running.stop()
    print(json.dumps({"failed": str(failed) if failed else ""}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
