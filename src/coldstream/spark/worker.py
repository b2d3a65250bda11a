"""What makes a Python worker of Spark fit for this work. Called at the beginning of every task."""

from __future__ import annotations

import sys
import zipimport
from functools import cache


@cache
def prepare() -> None:
    """Make tasks cheap to start; once a process.

    PySpark calls `importlib.invalidate_caches()` when a task begins, and before Python 3.12 that
    makes every zip on the path (PySpark itself is one) be read again: 90 to 190 ms a task, which is
    more than reading 64 MiB takes. Nothing changes these files while a worker lives. From 3.12 on
    zipimport reads them when it needs them, so there is nothing to do.
    """
    if sys.version_info < (3, 12):
        # A method of a class is replaced on purpose, which no type allows.
        zipimport.zipimporter.invalidate_caches = _nothing  # type: ignore[method-assign, assignment]


def _nothing(_: zipimport.zipimporter) -> None:
    return None
