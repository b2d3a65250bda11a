"""What Spark shows of our errors: the sentence that helps, and not the calls that led to it.

Spark hands the text of a Python worker's error on to the driver, with the traceback before it: ten
to twenty-five lines of Spark's and our own calls, and the sentence is the last. PySpark leaves them
out where `SPARK_HIDE_TRACEBACK` is set when the error arrives. A worker ends with its error, so
what we set here lasts for that one message, and nobody else's errors lose their traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from coldstream.errors import ColdstreamError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def sentence_first() -> Iterator[None]:
    """Let one of our own errors out of a worker of Spark by its sentence alone."""
    try:
        yield
    except ColdstreamError:
        if _in_a_worker():
            os.environ[_HIDE] = "1"
        raise


def _in_a_worker() -> bool:
    """Whether this process is one of Spark's: a worker, its daemon's child, or one that plans."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(main, "name", "")).startswith("pyspark.")
