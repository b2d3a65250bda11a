"""The driver's part of a batch query: which streams, which manifests, which splits.

What travels to the workers (`QueryTask`, `PlannedStream`, `TaskWork`) holds names and numbers only,
never a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream import clock
from coldstream.adapters.documents import read_document
from coldstream.adapters.place import Place, Remote
from coldstream.bodies.load import loaded
from coldstream.bodies.steps import NO_STEPS, BodySteps
from coldstream.columns.schema import Origin
from coldstream.errors import InvalidInputError, LostRangeError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.queue_name import QueueName
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.osiris.body import BodyFormat
from coldstream.reader.gap import Gap
from coldstream.reader.locate import Edge, offset_of
from coldstream.reader.objects import StreamObjects
from coldstream.reader.spec import Offset, OffsetSpec, Timestamp
from coldstream.remote.roots import Snapshots, root_at
from coldstream.spark.earlier import root_key_of
from coldstream.spark.options import Options, Rows
from coldstream.spark.plan import EntryPart, Sizes, Split, encode_split, plan
from coldstream.spark.streams import meant, telling_deletion
from coldstream.spark.window import MAX_SIGNED, Window

_TRIES = 3
#: Entries of the manifest that one task of a metadata table looks at: about a second's work.
_TASK_ENTRIES = {Rows.FRAGMENTS: 65_536, Rows.INDEX: 512}
logger = logging.getLogger("coldstream.spark")


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """One stream, as it was when the query was planned.

    Attributes:
        stream: directory name.
        root_key: of the manifest that the splits were cut from.
        epoch: of that manifest; data of a higher one has taken the place of what was planned.
        first_offset: of that manifest.
        next_offset: of that manifest.
        window: what of it is asked for.
        first_timestamp: of that manifest, ms.
        bounds: offsets that the query has without its filters; None where it has no filters.
        name: of its queue.
    """

    stream: str
    root_key: str
    epoch: int
    first_offset: int
    next_offset: int
    window: Window
    first_timestamp: int = 0
    bounds: tuple[int, int] | None = None
    name: QueueName = QueueName()  # noqa: RUF009 - it is immutable

    @property
    def origin(self) -> Origin:
        """What its rows say of it."""
        return Origin(self.stream, *self.name.of_queue)

    @property
    def alive(self) -> Window:
        """What is asked for and can be read."""
        return self.window.between(self.first_offset, self.next_offset)

    def check_offsets(self) -> None:
        """Refuse offsets that no column can hold; they would be no rows at all.

        Raises:
            InvalidInputError: some are asked for.
        """
        if self.alive.offsets.overlaps(MAX_SIGNED, self.next_offset):
            raise InvalidInputError(
                f"the stream reaches to offset {self.next_offset - 1}, and offsets of a table are "
                f"signed numbers: at most {MAX_SIGNED - 1} can be read. Option endingOffset (--to "
                "of the job materialise) leaves the others out, and `coldstream read` reads them",
                stream=self.stream,
                offset=max(self.first_offset, MAX_SIGNED),
            )


@dataclass(frozen=True, slots=True)
class QueryTask:
    """The part of a query that all its tasks have in common.

    Attributes:
        place: where the streams are.
        streams: by the numbers that the parts of splits have.
        columns: names as `columns.select` takes them, or of another view of the stream.
        rows: what one row is.
        fail_on_data_loss: whether offsets that exist nowhere stop the query.
        fail_on_corrupt: whether damaged chunks stop the query.
        gaps: offsets of the first stream that were gone before the task began.
        body_format: how messages are read.
        steps: what is made of their bodies.
        items: the rows of the table of streams.
    """

    place: Place
    streams: tuple[PlannedStream, ...]
    columns: tuple[str, ...]
    rows: Rows = Rows.MESSAGES
    fail_on_data_loss: bool = True
    fail_on_corrupt: bool = False
    gaps: tuple[Gap, ...] = ()
    body_format: BodyFormat = BodyFormat.AUTO
    steps: BodySteps = NO_STEPS
    items: tuple[CatalogItem, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What one task gets: the query with the streams that it has to do with, and its split."""

    task: QueryTask
    split: bytes


@dataclass(frozen=True, slots=True)
class Planned:
    """One stream and the manifest that a query reads it by."""

    stream: PlannedStream
    root: Root
    groups: Fetch


def plan_query(
    options: Options, columns: Sequence[str], window: Window, remote: Remote
) -> list[TaskWork]:
    """All tasks of a query; the manifest of each stream is looked at once.

    Args:
        options: of the query.
        columns: that are asked for.
        window: what filters ask for.
        remote: where the streams are.

    Raises:
        NotFoundError: a stream or a version does not exist, or the manifest moves too fast.
        InvalidInputError: a name stands for several streams; a version may never have been one;
            offsets are asked for that no column can hold; or the end lies before the start.
        LostRangeError: startingOffset lies above all there is (failOnDataLoss).
        CorruptDataError: a manifest is damaged.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    task = QueryTask(
        options.place,
        (),
        tuple(columns),
        options.rows,
        options.fail_on_data_loss,
        options.fail_on_corrupt,
        body_format=options.body_format,
        steps=steps_of(options),
    )
    for attempt in range(_TRIES):
        try:
            items = meant(
                remote.catalog,
                options.streams,
                super_streams=options.super_streams,
                vhost=options.vhost,
            )
            if not items:
                logger.warning("no stream matches %s: no rows", options.asked)
            if options.rows is Rows.STREAMS:
                return [TaskWork(replace(task, items=tuple(items)), b"")]
            streams = []
            for item in items:
                with telling_deletion(remote.catalog, item.stream):
                    streams.append(_planned(options, item, window, remote))
            return works(task, streams, splits_of(streams, _sizes(options, items)))
        except NotFoundError as error:
            # A group or root that was collected while we planned; the newer manifest has another.
            if error.key is None or options.as_of is not None or attempt + 1 == _TRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


def steps_of(options: Options) -> BodySteps:
    """What a query makes of bodies; reads the schema if it is in a file.

    Raises:
        InvalidInputError: there is no such file, or it has no schema.
        NotFoundError, UnavailableError, PermissionDeniedError: its bucket.
    """
    if not options.steps.any:
        return options.steps
    return loaded(options.steps, "", lambda source: read_document(source, options.place))


def _sizes(options: Options, items: Sequence[CatalogItem]) -> Sizes:
    """How large splits are; in a metadata table by what a task has to look at, unless given."""
    entries = _TASK_ENTRIES.get(options.rows)
    if entries is None or options.sizes != Sizes():
        return options.sizes
    return Sizes(1, max(1, -(-sum(item.fragments for item in items) // entries)))


def splits_of(streams: Sequence[Planned], sizes: Sizes) -> list[Split]:
    """The splits of some streams."""
    return plan(
        [each.root for each in streams],
        [each.stream.window for each in streams],
        [each.groups for each in streams],
        sizes,
    )


def works(task: QueryTask, streams: Sequence[Planned], splits: Sequence[Split]) -> list[TaskWork]:
    """What each task gets, with only the streams that it reads."""
    planned = tuple(each.stream for each in streams)
    if len(planned) <= 1:
        alone = replace(task, streams=planned)
        return [TaskWork(alone, encode_split(split)) for split in splits]
    return [_own(task, planned, split) for split in splits]


def lost_work(task: QueryTask, stream: Planned, gap: Gap) -> TaskWork:
    """A task that tells of offsets that were gone before it was planned."""
    return TaskWork(replace(task, streams=(stream.stream,), gaps=(gap,)), encode_split(Split(())))


def _own(task: QueryTask, planned: Sequence[PlannedStream], split: Split) -> TaskWork:
    numbers = sorted({part.stream for part in split.parts})
    renumbered = {number: new for new, number in enumerate(numbers)}
    parts: list[EntryPart] = [replace(part, stream=renumbered[part.stream]) for part in split.parts]
    own = replace(task, streams=tuple(planned[number] for number in numbers))
    return TaskWork(own, encode_split(Split(tuple(parts))))


def _planned(options: Options, item: CatalogItem, window: Window, remote: Remote) -> Planned:
    if options.as_of is None:
        snapshot = Snapshots(remote.store, remote.catalog, remote.prefix).load(item.stream)
        item, root, key = snapshot.item, snapshot.root, snapshot.item.root_key
    else:
        now_ms = clock.now_ms()
        key = root_key_of(remote.store, remote.prefix, item, options.as_of, now_ms=now_ms)
        root = root_at(remote.store, key, item.stream)
    objects = StreamObjects.of(remote.store, remote.prefix, item.stream)
    start = start_of(options, root, objects)
    check_start(options, item.stream, root.next_offset)
    end = root.next_offset
    if options.ending is not None:
        end = offset_of(root, options.ending, objects, _edge(options, Edge.END))
        _check_order(options, item.stream, start, end)
    asked = window.between(start, end)
    stream = PlannedStream(
        item.stream,
        key,
        root.epoch,
        root.first_offset,
        root.next_offset,
        asked,
        bounds=(start, end),
        name=item.name,
    )
    stream.check_offsets()
    return Planned(stream, root, objects.groups)


def start_of(
    options: Options, root: Root, objects: StreamObjects, spec: OffsetSpec | None = None
) -> int:
    """The offset at which a query begins; with damage that may hide it, unless it is to fail.

    Args:
        options: of the query.
        root: of the stream.
        objects: of the stream.
        spec: in the place of the options' one.

    Raises:
        As `offset_of`.
    """
    asked = options.starting if spec is None else spec
    return offset_of(root, asked, objects, _edge(options, Edge.START))


def _edge(options: Options, edge: Edge) -> Edge | None:
    return None if options.fail_on_corrupt else edge


def check_start(options: Options, stream: str, next_offset: int) -> None:
    """Tell an offset to start from that no message of the stream has, nor will have next.

    As Kafka's source does: `failOnDataLoss` decides whether the query stops. One offset for several
    streams cannot fit all of them, so there it is a warning.

    Raises:
        LostRangeError: there is such an offset, for one stream, and failOnDataLoss is true.
    """
    spec = options.starting
    if not isinstance(spec, Offset) or spec.value <= next_offset:
        return
    words = (
        f"option startingOffset: {spec.value} lies beyond the end, the next offset of the stream is"
        f" {next_offset}"
    )
    if options.fail_on_data_loss and not options.several:
        raise LostRangeError(
            f"{words}; was the stream cut off or made anew? Option failOnDataLoss=false begins at"
            " its end",
            stream=stream,
            offset=spec.value,
        )
    logger.warning("%s (stream %s): reading begins there", words, stream)


def _turned(start: OffsetSpec, end: OffsetSpec | None) -> bool:
    """Whether an end lies before a start by what they say: both may mean the first offset."""
    offsets = isinstance(start, Offset) and isinstance(end, Offset) and end.value < start.value
    times = isinstance(start, Timestamp) and isinstance(end, Timestamp) and end.value < start.value
    return offsets or times


def _check_order(options: Options, stream: str, start: int, end: int) -> None:
    """Refuse an end before the start; of several streams, each may have its own.

    Raises:
        InvalidInputError: it is.
    """
    words = f"option endingOffset: {options.ending} "
    if end < start:
        words += (
            f"is offset {end} and lies before startingOffset {options.starting}, which is {start}"
        )
    elif _turned(options.starting, options.ending):
        words += f"lies before startingOffset {options.starting}"
    else:
        return
    if not options.several:
        raise InvalidInputError(words, stream=stream)
    logger.warning("%s (stream %s): no rows of it", words, stream)
