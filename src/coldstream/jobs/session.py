"""The Spark session of a job, and the adapters of its driver: on Glue, and on any machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldstream.adapters.metrics import CloudWatchMetrics
from coldstream.adapters.settings import resolve_region
from coldstream.jobs.arguments import Where
from coldstream.ports import Catalog, MetricSink, ObjectStore, Policies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The same meaning of values whatever Spark's version and the machine's place.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # INT96, which is still the default, is a type that Iceberg refuses and Parquet has given up.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A broker's clock may say anything; Spark 3.5 fails on times before 1900 unless told how.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
# For a JVM that we start ourselves: nothing on the network, no web page.
_LOCAL = (
    "--master local[*]"
    " --conf spark.driver.bindAddress=127.0.0.1"
    " --conf spark.driver.host=127.0.0.1"
    " --conf spark.ui.enabled=false"
    " --conf spark.ui.showConsoleProgress=false"
    " pyspark-shell"
)
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
# Set by spark-submit, which is how Glue starts a script: the JVM is there already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def spark_session(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session: the one that is there, Glue's, or a local one on all cores.

    Args:
        name: of the job, for the console.
        settings: of the SQL session, beside those that every job has.
    """
    from pyspark.sql import SparkSession

    alone = _SUBMITTED not in os.environ
    if alone and SparkSession.getActiveSession() is None:
        os.environ.setdefault(_SUBMIT, _LOCAL)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"coldstream {name}").getOrCreate()
    if alone and threading.current_thread() is threading.main_thread():
        # PySpark's own calls the JVM first, which fails where Ctrl-C came in the middle of a call.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        spark.conf.set(key, value)
    return spark


@dataclass(frozen=True, slots=True)
class Remote:
    """The remote tier as the driver of a job sees it.

    Attributes:
        store: the bucket.
        catalog: the table.
        policies: the operator's rules.
        where: what they were made from; pickles, so that workers can make their own.
    """

    store: ObjectStore
    catalog: Catalog
    policies: Policies
    where: Where


def connect(where: Where) -> Remote:
    """Adapters for a remote tier; credentials as every AWS SDK finds them. Nothing is sent yet."""
    from coldstream.adapters.dynamodb import DynamoCatalog
    from coldstream.adapters.dynamodb_policies import DynamoPolicies
    from coldstream.adapters.s3 import S3ObjectStore

    dynamodb = client("dynamodb", where)
    return Remote(
        store=S3ObjectStore(bucket=where.bucket, region=where.region, endpoint=where.endpoint),
        catalog=DynamoCatalog(client=dynamodb, table=where.table, prefix=where.prefix),
        policies=DynamoPolicies(client=dynamodb, table=where.table, prefix=where.prefix),
        where=where,
    )


def connect_in_worker(where: Where) -> Remote:
    """`connect` for a task of Spark."""
    # Here, because the driver of a job without rows needs no Arrow.
    from coldstream.spark.read import prepare

    prepare()
    return connect(where)


def client(service: str, where: Where) -> Any:
    """A boto3 client for a remote tier's region, with bounded waiting."""
    import boto3
    from botocore.config import Config

    session: Any = boto3.session.Session()  # its types know literal names only
    return session.client(
        service,
        region_name=where.region or resolve_region(),
        endpoint_url=where.endpoint or None,
        config=Config(
            connect_timeout=5, read_timeout=60, retries={"mode": "standard", "max_attempts": 6}
        ),
    )


def metric_sink(where: Where) -> MetricSink:
    """CloudWatch, in the region of a remote tier."""
    return CloudWatchMetrics(client=client("cloudwatch", where))
