"""Streaming reads: `spark.readStream.format("rabbitmq_stream")`.

What Spark 4.1 calls, in which order (tests/spark/test_streaming.py watches it):

    a new checkpoint   latestOffset, initialOffset, partitions(initial, end), read ..., commit
    after a restart    partitions(last, last), then partitions(start, last) again if that batch was
                       not finished, then latestOffset ...

`last` is the end of the last batch that the checkpoint has begun, so `partitions` is told the
position before anybody asks how far to go, and an end never lies before what was committed. Where
nothing was said, there is no batch yet. The initial position knows no stream at all: where a batch
began in streams that were new to it stands in its end (`advance`), so it is the same after a crash.

Spark 4.1 has no limit of its own for Python sources, so `latestOffset` honours the limits. With the
trigger availableNow it asks once, so one run reads one batch of at most that size, and none but the
unfinished one where there is such a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coldstream.adapters.place import Remote, connect
from coldstream.errors import LostRangeError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.root import Root
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.objects import StreamObjects
from coldstream.reader.spec import First, Offset, Timestamp
from coldstream.remote.roots import RootCache, Snapshot, Snapshots
from coldstream.spark.advance import Backlog, Limits, Position, advance, parse_position
from coldstream.spark.options import Options
from coldstream.spark.query import (
    Planned,
    PlannedStream,
    QueryTask,
    TaskWork,
    check_start,
    lost_work,
    splits_of,
    start_of,
    steps_of,
    works,
)
from coldstream.spark.read import read
from coldstream.spark.saying import sentence_first
from coldstream.spark.streams import (
    Gone,
    deleted,
    is_gone,
    is_leaving,
    meant,
    rest_of,
    still_meant,
)
from coldstream.spark.window import Window

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 3
logger = logging.getLogger("coldstream.spark")
_WHERE_THEY_ARE = (
    "; this query had read them, and other messages may stand there now. `coldstream quarantine"
    " list` says where they are"
)


class BatchPartition(InputPartition):
    """One task's work."""

    def __init__(self, work: TaskWork) -> None:
        super().__init__(work)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, in a worker."""
        work: TaskWork = self.value
        return read(work.task, work.split)


class MicroBatchReader(DataSourceStreamReader):
    """Plans the batches of a streaming query in the driver, reads their partitions in workers.

    Args:
        options: of the query.
        columns: that it asks for.
        remote: where its streams are; by the options unless given.
    """

    def __init__(
        self, options: Options, columns: tuple[str, ...], remote: Remote | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._given = remote
        self._snapshots: Snapshots | None = None
        self._position: Position | None = None
        self._left_out: set[str] = set()
        self._asked = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before everything: no stream is known."""
        return Position().to_json()

    @sentence_first()
    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends; the same as before if there is nothing new.

        Raises:
            NotFoundError: a stream that is named does not exist.
            LostRangeError: a stream was deleted before all of it was read (failOnDataLoss).
        """
        self._asked = True
        for attempt in range(_TRIES):
            try:
                return self._next().to_json()
            except NotFoundError as error:
                # A group that was collected meanwhile; the newer manifest has another.
                if error.key is None or attempt + 1 == _TRIES:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @sentence_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits between two positions, in the manifests as they are now.

        Raises:
            LostRangeError: retention has overtaken the query, a claim has cut off what it had read,
                or a stream was deleted (failOnDataLoss).
            InvalidInputError: a stream has offsets that no column can hold.
        """
        begin, until = parse_position(start), parse_position(end)
        self._position = until
        if start == end:
            return []
        if not self._asked:
            logger.warning(
                "a batch that was not finished is read again; with the trigger availableNow this"
                " run reads no other: start it once more"
            )
        task = QueryTask(
            self._options.place,
            (),
            self._columns,
            fail_on_data_loss=self._options.fail_on_data_loss,
            fail_on_corrupt=self._options.fail_on_corrupt,
            body_format=self._options.body_format,
            steps=steps_of(self._options),
        )
        planned: list[Planned] = []
        lost: list[TaskWork] = []
        for stream, next_offset in until.streams.items():
            first = begin.streams.get(stream, until.began.get(stream, next_offset))
            if first < next_offset or until.epochs.get(stream) != begin.epochs.get(stream):
                one, gaps = self._planned(stream, first, next_offset, begin)
                planned.append(one)
                lost += [lost_work(task, one, gap) for gap in gaps]
        splits = splits_of(planned, self._options.sizes)
        return [BatchPartition(work) for work in (*lost, *works(task, planned, splits))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, BatchPartition)
        return partition.read()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is Spark's, and nothing is kept for a query."""

    @property
    def _remote(self) -> Remote:
        return self._given or connect(self._options.place)

    def _snapshot(self, stream: str) -> Snapshot:
        if self._snapshots is None:
            remote, roots = self._remote, RootCache(capacity=256)
            self._snapshots = Snapshots(remote.store, remote.catalog, remote.prefix, roots)
        return self._snapshots.load(stream)

    def _there(self, stream: str) -> Snapshot | None:
        """The stream now; None if it is gone, or is being deleted and its root is gone already.

        Raises:
            NotFoundError: its root is gone, but it was not deleted.
        """
        try:
            snapshot = self._snapshot(stream)
        except NotFoundError:
            if is_leaving(self._remote.catalog.get(stream)):
                return None
            raise
        return None if is_gone(snapshot.item) else snapshot

    def _next(self) -> Position:
        known = self._position
        read = {} if known is None else dict(known.streams)
        items, gone = self._items(read)
        backlogs = [self._backlog(stream, read.get(stream)) for stream in sorted(items)]
        ends = advance(backlogs, Limits(self._options.max_bytes, self._options.max_offsets))
        starts = {each.stream: each.start for each in backlogs}
        new = {stream for stream in ends if stream not in read and ends[stream] > starts[stream]}
        if known is None:
            new = set(ends)  # where an empty stream begins, the first batch decides, too
        after = read | {stream: ends[stream] for stream in ends if stream in read or stream in new}
        epochs = {} if known is None else dict(known.epochs)
        roots = {each.stream: each.root for each in backlogs}
        for stream, item in gone.items():
            if item is None:
                epochs.pop(stream, None)  # makes another position: a batch that tells of it, once
            else:
                # All that is left of it is one batch, and that has nothing but a row about it.
                after[stream] = max(read[stream], item.next_offset)
                roots[stream] = rest_of(item)
        for stream, root in roots.items():
            moved = after.get(stream) != read.get(stream)
            if moved or (known and known.cut(stream, root) is not None):
                epochs[stream] = root.epoch
        if known is not None and after == read and epochs == known.epochs:
            return known
        return Position(after, {stream: starts[stream] for stream in new}, epochs)

    def _items(
        self, read: Mapping[str, int]
    ) -> tuple[dict[str, CatalogItem], dict[str, CatalogItem | None]]:
        """The streams that can be read, and those of `read` that are gone, by directory.

        Raises:
            LostRangeError: one was not read to its end (failOnDataLoss).
        """
        options, catalog = self._options, self._remote.catalog
        found = meant(
            catalog,
            options.streams,
            super_streams=options.super_streams,
            vhost=options.vhost,
            known=read,
        )
        items = {item.stream: item for item in found}
        gone: dict[str, CatalogItem | None] = {}
        for stream in read.keys() - items.keys():
            item = catalog.get(stream)
            if item is None or is_gone(item):
                gone[stream] = item
            elif is_leaving(item) or still_meant(
                item, options.streams, super_streams=options.super_streams, vhost=options.vhost
            ):
                items[stream] = item  # being deleted: it can be read until it is gone
            elif stream not in self._left_out:
                self._left_out.add(stream)
                logger.warning(
                    "this query has read %s, and its options do not mean %s any more: it is left"
                    " out, and read on from offset %d when they do",
                    item.name.queue or stream,
                    stream,
                    read[stream],
                )
        for stream, item in list(items.items()):
            if item.state is StreamState.DELETING and self._there(stream) is None:
                gone[stream] = items.pop(stream)
                if stream not in read:
                    raise deleted(item)
        for stream, item in sorted(gone.items()):
            self._check_read(stream, read[stream], item, items)
        return items, gone

    def _check_read(
        self, stream: str, position: int, item: CatalogItem | None, others: dict[str, CatalogItem]
    ) -> None:
        """A stream is gone: was all of it read?

        Raises:
            LostRangeError: no, or nobody can say, and failOnDataLoss is true.
        """
        if item and item.next_offset <= position:
            return
        name = item.name if item and item.name.queue else None
        again = [other.stream for other in others.values() if other.name == name]
        hint = f"; its queue was declared again as {again[0]}" if again else ""
        rest = Gone(position, item.next_offset if item else position, stream=stream)
        self._refuse(stream, rest, hint)

    def _refuse(self, stream: str, gap: Gap, hint: str = "") -> None:
        """Stop at what is lost, unless the query may lose data."""
        if self._options.fail_on_data_loss:
            raise LostRangeError(
                f"{gap}{hint}; option failOnDataLoss=false makes it a row with an error and goes on"
                " behind it",
                stream=stream,
                offset=gap.first_offset,
            )

    def _backlog(self, stream: str, position: int | None) -> Backlog:
        root = self._snapshot(stream).root
        objects = StreamObjects.of(self._remote.store, self._remote.prefix, stream)
        if position is None:
            position = self._start(stream, root, objects)
        return Backlog(stream, root, objects.groups, position)

    def _start(self, stream: str, root: Root, objects: StreamObjects) -> int:
        """Where a stream that is new to the query begins."""
        spec = self._options.starting
        if self._position is not None and not isinstance(spec, Offset | Timestamp):
            spec = First()  # it appeared after the query had begun, so all of it is new
        if self._position is None:
            check_start(self._options, stream, root.next_offset)
        return start_of(self._options, root, objects, spec)

    def _planned(
        self, stream: str, first: int, next_offset: int, before: Position
    ) -> tuple[Planned, list[Gap]]:
        """A stream's part of a batch, and what of it, or of those before it, is nowhere any more.

        What earlier batches have read and a claim has cut off since is not read again: the sink may
        have its own way with offsets that come twice. It is told, and the query goes on behind it.
        """
        snapshot = self._there(stream)
        known = snapshot.item if snapshot else self._remote.catalog.get(stream)
        item = known or CatalogItem(stream, "")
        root = snapshot.root if snapshot else rest_of(item)
        gaps: list[Gap] = []
        cut = before.cut(stream, root)
        if cut is not None:
            gaps.append(Gap(cut, first, GapReason.TRUNCATION))
        if snapshot is None:
            if first < next_offset or known is None:
                gaps.append(Gone(first, next_offset, stream=stream))
        else:
            if first < min(root.first_offset, next_offset):
                gaps.append(Gap(first, min(root.first_offset, next_offset), GapReason.RETENTION))
            if max(first, root.next_offset) < next_offset:
                gaps.append(Gap(max(first, root.next_offset), next_offset, GapReason.TRUNCATION))
        if gaps:
            self._refuse(stream, gaps[0], "" if cut is None else _WHERE_THEY_ARE)
        planned = PlannedStream(
            stream,
            item.root_key,
            root.epoch,
            root.first_offset,
            root.next_offset,
            Window().between(first, next_offset),
            root.first_timestamp if snapshot else item.last_timestamp,
            name=item.name,
        )
        planned.check_offsets()
        objects = StreamObjects.of(self._remote.store, self._remote.prefix, stream)
        return Planned(planned, root, objects.groups), gaps
