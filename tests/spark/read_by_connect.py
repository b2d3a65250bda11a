"""Read streams through a Spark Connect server, in every way that the source has."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Arguments as JSON: the server, and the directory where tables go."""
    given = json.loads(sys.argv[1])
    from pyspark.sql import SparkSession

    from coldstream.jobs.workers import is_connect
    from coldstream.spark import register, stream_dataframe

    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    assert is_connect(spark)
    register(spark)
    to = Path(given["to"])
    everything = {"stream": "plain", "columns": "*"}
    batch = spark.read.format("rabbitmq_stream").options(**everything).load()
    batch.write.parquet(str(to / "batch"))
    batch.where("offset >= 100 and offset < 120").write.parquet(str(to / "filtered"))
    stream_dataframe(spark, **everything).write.parquet(str(to / "function"))
    query = (
        spark.readStream.format("rabbitmq_stream")
        .options(**everything)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(to / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(to / "streamed"))
    )
    query.awaitTermination()
    try:
        spark.read.format("rabbitmq_stream").options(stream="nobody").load().count()
    except Exception as error:  # whatever Spark makes of it, our sentence must be in it
        print(str(error).replace("\n", " "))
    spark.stop()


if __name__ == "__main__":
    main()
