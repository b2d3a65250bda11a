"""Run by Spark 3.5: what its own Iceberg makes of a table. Arguments: a warehouse and a table.

And statements that it runs first, which say {table}.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    warehouse, table, *statements = sys.argv[1:]
    package = find_spec("snowpark_connect_deps_iceberg")
    assert package is not None
    assert package.origin is not None
    (jar,) = (Path(package.origin).parent / "jars").glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", str(jar))
        .config("spark.sql.catalog.x", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.x.type", "hadoop")
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config("spark.sql.catalog.x.warehouse", warehouse)
        .getOrCreate()
    )
    for each in statements:
        spark.sql(each.replace("{table}", f"x.{table}"))
    rows = spark.sql(f"SELECT offset, cast(body AS string) AS body FROM x.{table} ORDER BY offset")
    day = spark.sql(f"SELECT offset FROM x.{table} WHERE timestamp < '1970-01-02'")
    history = spark.sql(f"SELECT summary FROM x.{table}.snapshots ORDER BY committed_at")
    found = {
        "rows": [[row.offset, row.body] for row in rows.collect()],
        "first_day": day.count(),
        "summaries": [row.summary for row in history.collect()],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
