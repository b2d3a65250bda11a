"""Tasks in the workers of a client of Spark Connect, which has no RDD. Slow tests have a server."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from coldstream.jobs.rebuild_shadow import DifferenceKind, Shadow
from coldstream.jobs.scrub.work import Edge, Scrubbed
from coldstream.jobs.workers import in_workers, is_connect
from coldstream.soundness.findings import Finding, FindingKind, Severity


class Frame:
    """What `range` gives: its numbers come to the workers in any order."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def mapInArrow(self, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> Any:  # noqa: N802 - Spark's
        assert schema == "number bigint, result string"
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
    assert in_workers(spark, ["a", "bb", "ccc"], _work, tuple[str, int]) == [
        ("a", 1),
        ("bb", 2),
        ("ccc", 3),
    ]
    assert in_workers(spark, [], _work, tuple[str, int]) == []


def test_an_error_of_a_task_is_raised() -> None:
    spark: Any = Client()
    with pytest.raises(ValueError, match="no task"):
        in_workers(spark, ["a", ""], _work, tuple[str, int])


def _scrubbed(task: str) -> Scrubbed:
    found = Finding(
        task, FindingKind.CHUNK_HEADER, Severity.DAMAGED, "k", 0, 2**63 - 1, None, "a", "b", "c"
    )
    return Scrubbed([found], ranges=[(task, 1, 2)], edges=[Edge(task, 0, 1, None, 3, "k")], bytes=9)


def _shadows(task: str) -> list[Shadow]:
    made = Shadow(task, version=3)
    made.add(next(iter(DifferenceKind)), 0, 1, "x", "y")
    return [made]


def test_results_of_scrub_and_rebuild_come_back_as_they_were() -> None:
    spark: Any = Client()
    assert in_workers(spark, ["a", "b"], _scrubbed, Scrubbed) == [_scrubbed("a"), _scrubbed("b")]
    assert in_workers(spark, ["a"], _shadows, list[Shadow]) == [_shadows("a")]


def test_nothing_that_a_server_answers_is_unpickled() -> None:
    class Liar(Frame):
        def mapInArrow(self, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> Any:  # noqa: N802 - Spark's
            del work, schema
            row = SimpleNamespace(number=0, result=pickle.dumps(("a", 1)))
            return SimpleNamespace(collect=lambda: [row])

    class Lying(Client):
        def range(self, begin: int, end: int, step: int, parts: int) -> Frame:
            del begin, step, parts
            return Liar([end])

    Lying.__module__ = Client.__module__
    spark: Any = Lying()
    with pytest.raises(ValidationError):
        in_workers(spark, ["a"], _work, tuple[str, int])
