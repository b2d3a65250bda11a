"""Tasks on Spark: splits of the manifest in the driver, the data source's own read in the workers.

Spark moves nothing but the list of tasks and their results; rows go from S3 into Parquet files in
one worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from coldstream.adapters.place import Place, Remote, connect
from coldstream.bodies.apply import BodyMaker
from coldstream.bodies.steps import NO_STEPS, BodySteps
from coldstream.clock import now_ms
from coldstream.columns.decode import Decoder
from coldstream.columns.schema import select
from coldstream.jobs.materialise.compact import (
    CompactPiece,
    CompactResult,
    attempted,
    encode_compacted,
    parse_compacted,
)
from coldstream.jobs.materialise.engine import StreamNow, Task, TaskPiece
from coldstream.jobs.materialise.erase import erased_now
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.latest.merge import (
    MergePiece,
    MergeResult,
    encode_merged,
    merge,
    parse_merged,
)
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.schema import READ_COLUMNS
from coldstream.jobs.materialise.task import BATCH_BYTES, Part, perform_all
from coldstream.jobs.materialise.task_result import TaskResult, encode_results, parse_results
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.write import FileLayout
from coldstream.manifest.catalog import CatalogItem
from coldstream.osiris.body import BodyFormat
from coldstream.osiris.offsets import OffsetSet
from coldstream.reader.gap import Gap
from coldstream.remote.nodes import PROCESS_NODES, fetcher
from coldstream.remote.roots import Snapshot, Snapshots
from coldstream.spark.plan import Sizes, Split, decode_split, encode_split, plan
from coldstream.spark.process import prepare
from coldstream.spark.query import PlannedStream
from coldstream.spark.read import decoded
from coldstream.spark.stream_read import Damaged, Found, Lost, Sound, StreamRead
from coldstream.spark.window import Window
from coldstream.usecases.erase import by_newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 2**20
#: Tasks that bring buckets up to date; each does its share of them one after the other.
_MAX_MERGES = 2000
#: What a worker does with the numbers of its tasks.
_Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _Split:
    """What a piece of work is, for a worker."""

    planned: PlannedStream
    split: bytes
    erased: OffsetSet = field(default_factory=OffsetSet)


def stream_now(remote: Remote, item: CatalogItem) -> StreamNow:
    """A stream and its manifest, at this moment.

    Raises:
        NotFoundError, CorruptDataError: as `Snapshots.load` and `erased_now`; that an object is
            gone which a newer manifest does not name any more is none.
    """
    context = remote.context()
    snapshot, erased = by_newest(
        partial(Snapshots(remote.store, remote.catalog, remote.prefix).load, item.stream),
        lambda now: erased_now(context, item.stream, now.root),
    )
    name, root = snapshot.item.name, snapshot.root
    return StreamNow(
        item.stream,
        name.queue or item.stream,
        root.first_offset,
        root.next_offset,
        snapshot,
        root.ledger,
        erased,
        super_stream=name.super_stream,
    )


def stream_deleted(item: CatalogItem) -> StreamNow:
    """A stream of which only the catalog still knows how far it went."""
    name, end = item.name.queue or item.stream, item.next_offset
    return StreamNow(item.stream, name, end, end, deleted=True, super_stream=item.name.super_stream)


class SparkEngine:
    """The `Engine` port on a Spark session.

    Args:
        spark: the session.
        place: of the streams; workers connect by themselves.
        partition_bytes: what one task reads.
    """

    def __init__(self, spark: SparkSession, place: Place, *, partition_bytes: int) -> None:
        self._spark = spark
        self._place = place
        self._sizes = Sizes(partition_bytes)

    def pieces(self, stream: StreamNow, ranges: Ranges) -> list[TaskPiece]:
        if not ranges:
            return []
        remote, snapshot = connect(self._place), stream.snapshot
        assert isinstance(snapshot, Snapshot)
        root = snapshot.root
        groups = fetcher(remote.store, PROCESS_NODES, remote.prefix, stream.stream)
        found: list[TaskPiece] = []
        for first, next_offset in ranges:
            window = Window().between(first, next_offset)
            planned = PlannedStream(
                stream.stream,
                snapshot.item.root_key,
                root.epoch,
                root.first_offset,
                root.next_offset,
                window,
                name=snapshot.item.name,
            )
            planned.check_offsets()
            erased = stream.erased.within(first, next_offset)
            found += (
                TaskPiece(
                    stream.stream,
                    (first, next_offset),
                    _Split(planned, encode_split(split), erased),
                    split.size,
                    _reach_ms(split),
                )
                for split in plan([root], [window], [groups], self._sizes)
            )
        return found

    def perform(
        self, tasks: Sequence[Task], rules: TaskRules, row_limit: int | None = None
    ) -> list[tuple[TaskResult, ...]]:
        splits = [[piece.split for piece in task] for task in tasks]
        work = _working(self._place, splits, rules, row_limit)
        return [parse_results(each) for each in self._results(work, len(tasks), len(tasks))]

    def merge(self, pieces: Sequence[MergePiece], layout: FileLayout) -> list[MergeResult]:
        if not pieces:
            return []
        work = _merging(self._place, pieces, layout)
        tasks = min(len(pieces), _MAX_MERGES)
        return [parse_merged(each) for each in self._results(work, len(pieces), tasks)]

    def compact(self, pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
        if not pieces:
            return []
        work = _compacting(self._place, pieces, layout)
        return [parse_compacted(each) for each in self._results(work, len(pieces), len(pieces))]

    def _results(self, work: _Work, count: int, tasks: int) -> list[str]:
        """What the workers say of things 0 to `count` - 1, in this order."""
        numbers = self._spark.range(0, count, 1, max(1, tasks))
        rows = numbers.mapInArrow(work, "number long, result string").collect()
        results = {row.number: row.result for row in rows}
        return [results[number] for number in range(count)]


def _reach_ms(split: Split) -> int:
    """Time over which the messages of a split were written; of a part of a group its share."""
    entries = [part.entry for part in split.parts]
    reach = max(e.max_timestamp for e in entries) - min(e.min_timestamp for e in entries)
    for part in split.parts:
        entry = part.entry
        elsewhere = entry.size - part.size
        reach -= (entry.max_timestamp - entry.min_timestamp) * elsewhere // max(entry.size, 1)
    return max(0, reach)


def _working(
    place: Place, tasks: Sequence[Sequence[_Split]], rules: TaskRules, row_limit: int | None
) -> _Work:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare()
        remote = connect(place)
        files = StoredFiles(region=place.region, endpoint=place.endpoint)
        for number in _numbers(batches):
            results = perform_all(
                [_part(each, remote, rules) for each in tasks[number]],
                rules,
                files,
                lambda: secrets.token_hex(8),
                now_ms=now_ms(),
                row_limit=row_limit,
            )
            yield _said(number, encode_results(results))

    return run


def _part(split: _Split, remote: Remote, rules: TaskRules) -> Part:
    source = SplitSource(
        split.planned,
        decode_split(split.split),
        remote,
        rules.body_format,
        rules.steps,
        rules.columns,
        keep_empty=rules.latest is not None,
        with_raw=rules.wants_raw,
    )
    return Part(split.planned.stream, source, split.planned.origin, split.erased)


def _merging(place: Place, pieces: Sequence[MergePiece], layout: FileLayout) -> _Work:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare()
        files = StoredFiles(region=place.region, endpoint=place.endpoint)
        for number in _numbers(batches):
            result = merge(pieces[number], layout, files, lambda: secrets.token_hex(8))
            yield _said(number, encode_merged(result))

    return run


def _compacting(place: Place, pieces: Sequence[CompactPiece], layout: FileLayout) -> _Work:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare()
        files = StoredFiles(region=place.region, endpoint=place.endpoint)
        for number in _numbers(batches):
            result = attempted(pieces[number], layout, files, lambda: secrets.token_hex(8))
            yield _said(number, encode_compacted(result))

    return run


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _said(number: int, result: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([number]), pa.array([result])], ["number", "result"]
    )


class SplitSource:
    """The `Source` of a task: one split of one stream.

    Args:
        planned: the stream.
        split: of it.
        remote: where it is.
        body_format: how its messages are read.
        steps: what is made of their bodies.
        columns: that are wanted beside READ_COLUMNS.
        keep_empty: no step is done to an empty body.
        with_raw: whether the column `raw` is filled.
    """

    def __init__(
        self,
        planned: PlannedStream,
        split: Split,
        remote: Remote,
        body_format: BodyFormat = BodyFormat.AUTO,
        steps: BodySteps = NO_STEPS,
        columns: tuple[str, ...] = (),
        *,
        keep_empty: bool = False,
        with_raw: bool = True,
    ) -> None:
        self._planned = planned
        self._split = split
        self._remote = remote
        self._steps = steps
        wanted = select((*READ_COLUMNS, *columns), body_format)
        self._schema = wanted.schema
        self._with_raw = with_raw
        self._keep_empty = keep_empty
        self._selection = select(
            [name for name in wanted.names if with_raw or name != "raw"], body_format
        )
        self._decoder = self._new_decoder()

    def _new_decoder(self) -> Decoder:
        return Decoder(
            self._selection,
            batch_bytes=BATCH_BYTES,
            batch_rows=_BATCH_ROWS,
            reuse=False,  # a file holds batches until there are enough for a row group
            origin=self._planned.origin,
        )

    @property
    def bytes_read(self) -> int:
        return self._decoder.bytes

    def raw(self, offsets: pa.Array) -> pa.Array:
        return self._decoder.raw(offsets)

    def batches(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        self._decoder = self._new_decoder()  # a task may begin anew
        found = self._decoded(covered, gaps)
        if not self._steps.any:
            yield from found
            return
        maker = BodyMaker(self._steps, keep_empty=self._keep_empty)
        for batch in found:
            yield from maker.made(batch, self._schema)

    def _decoded(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        found = StreamRead(self._planned, self._remote).found(list(self._split.parts))
        for each in found:
            span = _span(each)
            if covered and covered[-1][1] == span[0]:
                covered[-1] = (covered[-1][0], span[1])
            else:
                covered.append(span)
            if isinstance(each, Lost):
                gaps.append(each.gap)
            else:
                yield from map(self._whole, decoded(self._decoder, each))
        yield from map(self._whole, self._decoder.flush())

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with all columns; `raw` is null where it is not wanted."""
        if self._with_raw:
            return batch
        at = self._schema.get_field_index("raw")
        return batch.add_column(at, self._schema.field(at), pa.nulls(batch.num_rows, pa.binary()))


def _span(found: Found) -> tuple[int, int]:
    """The offsets that something found is about, as its own bytes say."""
    match found:
        case Sound(checked, _, first, next_offset):
            head, tail = checked.headers[0], checked.headers[-1]
            end = int(tail["chunk_id"]) + int(tail["records"])
            return max(first, int(head["chunk_id"])), min(next_offset, end)
        case Damaged(damage, first, next_offset):
            return max(first, damage.first_offset), min(next_offset, damage.next_offset)
        case Lost(gap, _):
            return gap.first_offset, gap.next_offset
