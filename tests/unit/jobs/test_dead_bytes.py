"""Dead letters have the bytes of their messages, although a task does not copy those of all."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.bodies.steps import BodySteps
from coldstream.jobs.materialise import task as tasks
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of, dead_schema
from coldstream.jobs.materialise.spark_engine import SplitSource
from coldstream.jobs.materialise.task import perform
from coldstream.jobs.materialise.task_result import TaskResult
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.transform import Transformed, first_schema
from coldstream.jobs.materialise.write import FileLayout
from coldstream.osiris.body import BodyFormat
from coldstream.spark.plan import decode_split
from tests.support.memory_table import StoreFiles
from tests.support.tier import Tier, chunk
from tests.unit.spark.context import query, remote_of

GOOD = [b'\x00\x53\x75\xa0\x08{"a": 1}', b'\x00\x53\x75\xa0\x08{"a": 2}']
BAD = [b"no json", b"", b"\x00\x53\x75\xa0\x02[}"]
_IDS = count()


def _rules(body: str) -> TaskRules:
    rows = FileLayout("s3://tables/t", first_schema(body), TablePartition.NONE, columns_of(body))
    dead = FileLayout("s3://tables/d", dead_schema(), TablePartition.NONE, KEY_COLUMNS)
    return TaskRules(body, rows, dead, BodyFormat.AMQP)


def _done(rules: TaskRules, *, with_raw: bool) -> tuple[TaskResult, list[tuple[int, bytes]]]:
    tier = Tier()
    tier.add("s", [[chunk(0, BAD[0], *GOOD), chunk(3, BAD[1])], [chunk(4, *GOOD, BAD[2])]])
    (work,) = query(tier, stream="s").works
    split = decode_split(work.split)
    source = SplitSource(
        work.task.streams[0], split, remote_of(tier), rules.body_format, with_raw=with_raw
    )
    store = MemoryObjectStore()
    files = StoreFiles(store)
    result = perform("s", source, rules, files, lambda: f"{next(_IDS):016x}", now_ms=0)
    rows = [
        (row["offset"], row["raw"])
        for each in result.dead_files
        for row in pq.read_table(io.BytesIO(files.open(each.path, each.size).read())).to_pylist()
    ]
    return result, sorted(rows)


@pytest.mark.parametrize("body", ["raw", "json"])
@pytest.mark.parametrize("with_raw", [True, False])
def test_a_dead_letter_has_the_bytes_of_its_message(body: str, with_raw: bool) -> None:
    result, dead = _done(_rules(body), with_raw=with_raw)

    expected = [(0, BAD[0]), (3, BAD[1]), (6, BAD[2])]
    assert dead == (expected if body == "json" else expected[:2])
    assert result.rows == 7 - len(dead)
    assert result.bytes_read == sum(map(len, (*BAD, *GOOD, *GOOD)))


def test_so_has_one_of_a_task_that_began_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    careful = tasks.transform_all

    def fails_at_first(batch: pa.RecordBatch, rules: TaskRules) -> Transformed:
        begun.append(1)
        if len(begun) == 1:
            raise ValueError("a value that no file takes")
        return careful(batch, rules)

    monkeypatch.setattr(tasks, "transform_all", fails_at_first)
    result, dead = _done(_rules("json"), with_raw=False)

    assert begun == [1]
    assert dead == [(0, BAD[0]), (3, BAD[1]), (6, BAD[2])]
    assert result.bytes_read == sum(map(len, (*BAD, *GOOD, *GOOD)))


def test_whoever_may_look_at_the_bytes_of_any_message_has_them_all() -> None:
    rules = _rules("json")

    assert not rules.wants_raw
    assert not replace(rules, body="raw").wants_raw
    assert replace(rules, body="a.module:function").wants_raw
    assert replace(rules, steps=BodySteps(inflate=True)).wants_raw
    assert replace(rules, latest=Latest(LatestKey.parse("body.id"))).wants_raw
