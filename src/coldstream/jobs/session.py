"""The Spark session of a job, and the adapters of its workers: on Glue, and on any machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from coldstream.adapters.metrics import CloudWatchMetrics
from coldstream.adapters.place import Place, Remote, client, connect
from coldstream.ports import MetricSink

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
# Where a Spark Connect server is: then the JVM is there.
_REMOTE = "SPARK_REMOTE"


def spark_session(name: str) -> SparkSession:
    """The session: the one that is there, Glue's, a Spark Connect server's (SPARK_REMOTE), or a
    local one on all cores.

    Args:
        name: of the job, for the console.
    """
    from pyspark.sql import SparkSession

    alone = _SUBMITTED not in os.environ
    if alone and _REMOTE not in os.environ and SparkSession.getActiveSession() is None:
        os.environ.setdefault(_SUBMIT, _LOCAL)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"coldstream {name}").getOrCreate()
    if alone and threading.current_thread() is threading.main_thread():
        # PySpark's own calls the JVM first, which fails where Ctrl-C came in the middle of a call.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    return spark


def connect_in_worker(place: Place) -> Remote:
    """`connect` for a task of Spark."""
    # Here, because the driver of a job without rows needs no Arrow.
    from coldstream.spark.process import prepare

    prepare()
    return connect(place)


def metric_sink(place: Place, service: str) -> MetricSink:
    """CloudWatch, in the region of a remote tier; `service` is the dimension of all metrics."""
    return CloudWatchMetrics(client=client("cloudwatch", place), service=service)
