"""Files that are much larger in memory than on disk, and tables that a person changes meanwhile."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

import coldstream.jobs.materialise.open_file as opened
from coldstream.jobs.materialise import compact as compacting
from coldstream.jobs.materialise.compact import compact
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.erase import erase_all
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.maintain import Maintainer
from coldstream.jobs.materialise.open_file import OpenFile
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import StoredFile
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.osiris.offsets import OffsetSet
from coldstream_devkit.suites.table import COLUMNS, OTHER, SCHEMA, STREAM, append_of_grown, mixed
from tests.unit.jobs.test_iceberg import catalog
from tests.unit.jobs.test_shared_iceberg import Tables, _id, _put

__all__ = ["catalog"]

_TIME = pa.timestamp("us", "UTC")
_TEXTS = pa.schema(
    [("stream", pa.string()), ("offset", pa.int64()), ("timestamp", _TIME), ("text", pa.string())]
)
_IDS = count()


class _Files:
    """Files in memory."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        self._files[path] = content.read(size)

    def open(self, path: str, size: int) -> IO[bytes]:
        del size
        return io.BytesIO(self._files[path])


def long_texts(first: int, rows: int) -> pa.RecordBatch:
    """The same 20 kB of text in each row: nearly nothing in a file."""
    columns = [["s"] * rows, range(first, first + rows), [0] * rows, ["x" * 20_000] * rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(each, field.type) for each, field in zip(columns, _TEXTS, strict=True)],
        schema=_TEXTS,
    )


def writer(files: Any, **how: Any) -> TableWriter:
    keys = ("stream", "offset", "timestamp")
    layout = FileLayout("s3://t/t", _TEXTS, TablePartition.NONE, keys, **how)
    return TableWriter(layout, "s", files, lambda: str(next(_IDS)))


def test_a_batch_of_long_text_that_repeats_has_about_its_share_of_memory() -> None:
    files: Any = _Files()
    with writer(files) as open_writer:
        (told,) = [*open_writer.write(long_texts(0, 2000)), *open_writer.close()]
    file = StoredFile(told.path, told.size, told.rows, "s", None, told.first_offset, 0)
    share = compacting._BATCH_BYTES // 4

    sizes = [each.nbytes for each in compacting._batches(file, _TEXTS, files, share)]

    assert max(sizes) <= 2 * share


def test_the_row_groups_of_an_ordered_file_are_merged_in_about_the_memory_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, real, group = [], opened.batches_of, 4 * 2**20

    def seen(*given: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(*given, **more):
            sizes.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(opened, "batches_of", seen)
    with writer(_Files(), order=("text",), group_bytes=group) as open_writer:
        for number in range(20):
            list(open_writer.write(long_texts(100 * number, 100)))
        list(open_writer.close())

    groups = 2000 * 20_000 // group
    assert max(sizes) * groups <= 2 * group + 2**20


def test_a_batch_of_other_types_is_refused_and_not_taken_for_other_values() -> None:
    schema = pa.schema([("offset", pa.int64()), ("n", pa.int64())])
    rows = pa.record_batch([pa.array([0]), pa.array([1.5])], names=["offset", "n"])
    made: Any = None
    held = OpenFile(made, schema, 1)

    def written() -> None:
        held.hold(rows, made, np.array([0]), part=False)
        held.flush()

    try:
        with pytest.raises((ValueError, pa.ArrowException)):
            written()
    finally:
        held.drop()


def test_rows_of_many_streams_are_erased_from_a_file_by_one_commit(
    tmp_path: Path, catalog: Any
) -> None:
    tables = Tables(catalog, tmp_path, TablePartition.DAY)
    table = tables.open(True)
    names = [f"__s{number:02d}_1745252105682952932" for number in range(6)]
    rows = dict.fromkeys(names, (0, 20))
    _put(table, mixed(tables.site(True), table.load(SCHEMA), rows))
    before = len(tables.catalog().load_table(tables.name).metadata.snapshots)
    streams = [StreamNow(each, each, 0, 20, erased=OffsetSet.of([(3, 4)])) for each in names]

    erased = erase_all([(table, SCHEMA)], streams, new_id=_id, pause=lambda _: None)

    assert erased == len(names)
    assert not [row for row in tables.rows() if row[1] == 3]
    assert len(tables.rows()) == 19 * len(names)
    assert len(tables.catalog().load_table(tables.name).metadata.snapshots) == before + 1


def test_a_stream_of_which_nothing_is_covered_stops_no_append(tmp_path: Path, catalog: Any) -> None:
    tables = Tables(catalog, tmp_path, TablePartition.DAY)
    table = tables.open(True)

    _put(table, mixed(tables.site(True), table.load(SCHEMA), {STREAM: (0, 1), OTHER: (0, 0)}))

    assert tables.rows() == [(STREAM, 0)]


def dropped(table: Any) -> None:
    with table.update_schema() as update:
        update.delete_column("who")


def renamed(table: Any) -> None:
    with table.update_schema() as update:
        update.rename_column("who", "whom")


def widened(table: Any) -> None:
    with table.update_schema() as update:
        update.update_column("who", LongType())


@pytest.mark.parametrize("change", [dropped, renamed, widened])
def test_what_was_merged_while_a_person_changed_a_column_lands_or_counts_as_overtaken(
    tmp_path: Path, catalog: Any, change: Callable[[Any], None]
) -> None:
    tables = Tables(catalog, tmp_path, TablePartition.DAY)
    table = tables.open(True)
    wide = pa.schema([*SCHEMA, pa.field("who", pa.int32())])
    _put(table, append_of_grown(tables.site(True), table.grow(table.load(SCHEMA), wide)))
    more = append_of_grown(tables.site(True), table.load(SCHEMA))
    _put(table, replace(more, covered={OTHER: Ranges.of([(0, 1)])}))
    before = tables.rows()

    def merged(pieces: Any, layout: Any) -> Any:
        done = [compact(each, layout, StoredFiles(), _id) for each in pieces]
        change(tables.catalog().load_table(tables.name))
        return done

    def layout_of(now: Any) -> FileLayout:
        return FileLayout(now.location, now.schema, TablePartition.DAY, COLUMNS, shared=True)

    kept = Maintainer(tables.open(True), SCHEMA, layout_of, merged, _id).maintain(
        keep_seconds=None, now_ms=0, target_bytes=2**28
    )

    assert (kept.merged, kept.overtaken) in ((2, 0), (0, 2))
    assert tables.rows() == before
