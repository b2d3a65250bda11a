"""Tasks in the workers of a client of Spark Connect, which has no RDD. Slow tests have a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from coldstream.jobs.workers import in_workers, is_connect


class Frame:
    """What `range` gives: its numbers come to the workers in any order."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def mapInArrow(self, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> Any:  # noqa: N802 - Spark's
        assert schema == "number bigint, result binary"
        batches = [pa.RecordBatch.from_arrays([pa.array([n])], ["id"]) for n in self._numbers]
        rows = [row for batch in work(iter(batches)) for row in batch.to_pylist()]
        return SimpleNamespace(collect=lambda: [SimpleNamespace(**row) for row in rows])


class Client:
    """A session of `pyspark.sql.connect`."""

    def range(self, begin: int, end: int, step: int, parts: int) -> Frame:
        assert (step, parts) == (1, end)
        return Frame(list(reversed(range(begin, end))))

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's
        raise NotImplementedError("a client has none")


Client.__module__ = "pyspark.sql.connect.session"


def _work(task: str) -> tuple[str, int]:
    if not task:
        raise ValueError("no task")
    return task, len(task)


def test_a_client_gets_what_became_of_each_task_in_their_order() -> None:
    spark: Any = Client()
    assert is_connect(spark)
    assert in_workers(spark, ["a", "bb", "ccc"], _work) == [("a", 1), ("bb", 2), ("ccc", 3)]
    assert in_workers(spark, [], _work) == []


def test_an_error_of_a_task_is_raised() -> None:
    spark: Any = Client()
    with pytest.raises(ValueError, match="no task"):
        in_workers(spark, ["a", ""], _work)
