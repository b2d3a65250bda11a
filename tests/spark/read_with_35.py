"""Read streams by `stream_dataframe` in whatever Spark this is, and write them as Parquet."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Arguments as JSON: Spark's settings, and for each table its options and where it goes."""
    given = json.loads(sys.argv[1])
    import pyspark
    from pyspark.sql import SparkSession

    from coldstream.spark import stream_dataframe

    builder = SparkSession.builder
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for options, path in given["tables"]:
        stream_dataframe(spark, **options).write.parquet(path)
    try:
        stream_dataframe(spark, stream="nobody")
    except LookupError as error:
        print(error)
    try:
        stream_dataframe(spark, stream="drawn", columns="body_variant")
    except ValueError as error:
        print(error)
    print(pyspark.__version__)
    spark.stop()


if __name__ == "__main__":
    main()
