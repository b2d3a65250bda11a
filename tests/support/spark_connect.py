"""A Spark Connect server of PySpark's own jars on loopback, in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from coldstream_devkit.broker import free_ports
from tests.support.sparks import of_spark

ROOT = Path(__file__).parents[2]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SECONDS = 300


@contextmanager
def connect_server(environment: Mapping[str, str], log: Path) -> Iterator[str]:
    """A server on two cores; gives the URL for `SPARK_REMOTE`.

    Args:
        environment: of the server, and so of its workers.
        log: takes what it prints.
    """
    (port,) = free_ports(1)  # that no connection is given before the server has it
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    home = Path(pyspark.__file__).parent
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [home / "bin" / "spark-submit", "--master", "local[2]", *words, "--class", _SERVER,
             "spark-internal"],
            env={
                **of_spark(),
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                **environment,
            },
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        _wait(server, port, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        # The script has started the JVM, and both are a group of their own.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"no Spark Connect server:\n{log.read_text(errors='replace')[-3000:]}")
