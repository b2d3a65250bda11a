"""What a Python process of Spark is told once: it lives long, and does the same again and again."""

from __future__ import annotations

import gc
import sys
import zipimport
from functools import cache

from coldstream.reader.allocation import keep_freed_memory


@cache
def prepare() -> None:
    """Make what begins and ends in this process cheap: tasks, and the steps of planning; once.

    PySpark calls `importlib.invalidate_caches()` when one begins, and before Python 3.12 that makes
    every zip on the path (PySpark itself is one) be read again: 90 to 190 ms, which is more than
    reading 64 MiB takes. Nothing changes these files while a worker lives. From 3.12 on zipimport
    reads them when it needs them, so there is nothing to do.

    When one ends, PySpark's daemon calls `gc.collect()`, which looks at every object of every
    module: 50 ms with those of Arrow and Spark. They stay until the process ends, so the collector
    is told to leave what is there by now alone.
    """
    if sys.version_info < (3, 12):
        # A method of a class is replaced on purpose, which no type allows.
        zipimport.zipimporter.invalidate_caches = _nothing  # type: ignore[method-assign, assignment]
    gc.collect()
    gc.freeze()


@cache
def keep_memory() -> None:
    """Let this worker use freed memory again; once a process.

    A range of 4 MiB that is read into fresh pages costs as much for the pages as for the bytes.
    """
    keep_freed_memory()


def _nothing(_: zipimport.zipimporter) -> None:
    return None
