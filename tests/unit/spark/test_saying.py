"""What a worker of Spark says of an error: ours without the calls, all others with them."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

import pytest

from coldstream.errors import ColdstreamError, NotFoundError
from coldstream.spark.saying import sentence_first

HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.mark.parametrize(
    ("process", "error", "hidden"),
    [
        ("pyspark.daemon", NotFoundError("no such stream"), "1"),
        ("pyspark.sql.worker.plan_data_source_read", NotFoundError("no such stream"), "1"),
        ("pyspark.daemon", KeyError("a bug"), None),
        ("my.program", NotFoundError("no such stream"), None),
    ],
)
def test_only_our_errors_lose_their_calls_and_only_in_a_worker(
    process: str, error: Exception, hidden: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDE, "")
    monkeypatch.delenv(HIDE)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(process, None))

    with pytest.raises((ColdstreamError, KeyError)) as caught, sentence_first():
        raise error

    assert caught.value is error
    assert os.environ.get(HIDE) == hidden
