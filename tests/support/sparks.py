"""Sparks that live for some seconds: what makes them begin sooner."""

from __future__ import annotations

import os
from pathlib import Path

# Most of a short run goes into compiling what runs once, and into threads of a collector that has
# nothing to collect.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def begin_sooner() -> None:
    """For each Spark that this process and what it starts begins, where nothing else is set."""
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark"))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _JVM)


def of_spark() -> dict[str, str]:
    """Of this process's environment what a Spark of its own needs."""
    names = ("HOME", "PATH", "JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LAUNCHER_OPTS")
    return {name: os.environ[name] for name in names if name in os.environ}
