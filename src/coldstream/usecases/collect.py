"""Find what nothing refers to, prove it twice a grace time apart, and only then delete it.

One step goes over as much of a stream's listing as time allows and gives a cursor; so a petabyte
takes many steps and no more memory than a page and the candidates on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem
from coldstream.names import collect_prefix, list_start, metadata_prefix, stream_prefix
from coldstream.plans.collect import ObjectKind, Record, mature, replaced, survives
from coldstream.plans.collect_order import ListPosition, Phase, draw
from coldstream.ports import Deleter, ObjectInfo
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.classify import Classifier
from coldstream.usecases.marks import ProofState, list_records, read_header, seen_in, write_record

_AT_ONCE = 1000  # keys in one DeleteObjects request
#: Keys in one record; a step ends before it has more.
MAX_CANDIDATES = 100_000

# All that holds messages: a legal hold keeps it, also what has a double. Who looks into a theft may
# have to tell which of two is true.
_HELD = frozenset(
    {ObjectKind.RETIRED, ObjectKind.SUPERSEDED, ObjectKind.FENCED, ObjectKind.DROPPED}
)
_ROWS_AT_ONCE = 100  # looked at between two looks at the clock
#: Proofs of one batch, each of which a claim has undone.
_PROOFS = 5


@dataclass(slots=True)
class Count:
    """Objects of one kind."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """One object more."""
        self.objects += 1
        self.bytes += size


@dataclass(slots=True)
class Collection:
    """What one step found and did.

    Attributes:
        stream: directory name.
        found: objects by kind; where the deletes ran out of time, the next step counts what lies
            behind its cursor again.
        waiting: garbage that is not proved yet: too young, or seen for the first time.
        provable: in a dry run, garbage that a real run would delete.
        deleted: by kind.
        held: proved, but fragments under a legal hold.
        refused: proved, but S3 did not delete them; a later run tries again.
        busy: proved, but the stream's history changed again and again while the proof was made
            anew; a later run tries again.
        trouble: the first of S3's reasons.
        blind: whether the roots that may be adopted are too many, or could not be listed in time:
            then nothing but roots can be proved.
        unique: keys of fragments that hold what the manifest lacks, the first hundred.
        foreign: keys that are not ours, the first hundred.
        cursor: the key behind which the next step goes on, None at the end of the listing.
    """

    stream: str
    found: dict[ObjectKind, Count] = field(default_factory=dict)
    waiting: Count = field(default_factory=Count)
    provable: Count = field(default_factory=Count)
    deleted: dict[ObjectKind, Count] = field(default_factory=dict)
    held: Count = field(default_factory=Count)
    refused: Count = field(default_factory=Count)
    busy: Count = field(default_factory=Count)
    trouble: ColdstreamError | None = None
    blind: bool = False
    unique: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    cursor: str | None = None


def collect(
    context: Context,
    deleter: Deleter,
    stream: str,
    *,
    grace_ms: int,
    run_ms: int,
    now_ms: int,
    held: Callable[[CatalogItem], bool],
    cursor: str | None = None,
    dry_run: bool = False,
    time_left: Callable[[], bool] = lambda: True,
    time_to_list: Callable[[], bool] | None = None,
) -> Collection:
    """One step over the stream's objects, from behind `cursor` on.

    Args:
        context: where.
        deleter: the same bucket.
        stream: directory name.
        grace_ms: longer than anybody works with a root that is not the newest.
        run_ms: when the run began, the same for all its steps; ms since the Unix epoch.
        now_ms: now; only for what is said about waiting and for a dry run. What is deleted is
            judged by S3's clock.
        held: whether a legal hold is on the stream; asked right before each batch of deletes.
        cursor: of the step before.
        dry_run: find and say, but write and delete nothing.
        time_left: whether there is time for another batch of deletes.
        time_to_list: whether there is time for another page of the listing, and for the deletes
            that come after it; `time_left` if None.

    Raises:
        NotFoundError: no item, or an object of the tree is gone: nothing is deleted.
        ConflictError: the stream is not live, the table is a restored one, or its state changed.
        CorruptDataError: the manifest is damaged: nothing is deleted.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    step = _CollectStep(
        context, deleter, stream, grace_ms, run_ms, now_ms, dry_run, held, time_left
    )
    return step.run(cursor, time_to_list or time_left)


_Candidate = tuple[ObjectInfo, ObjectKind]


class _CollectStep:
    def __init__(
        self,
        context: Context,
        deleter: Deleter,
        stream: str,
        grace_ms: int,
        run_ms: int,
        now_ms: int,
        dry_run: bool,
        held: Callable[[CatalogItem], bool],
        time_left: Callable[[], bool],
    ) -> None:
        self._context = context
        self._deleter = deleter
        self._stream = stream
        self._grace_ms = grace_ms
        self._run_ms = run_ms
        self._now_ms = now_ms
        self._dry_run = dry_run
        self._held = held
        self._time_left = time_left
        self._loaded = load(context, stream)
        self._classifier = Classifier(context, self._loaded, time_left=time_left)
        self._places: dict[str, str] = {}
        self._state = ProofState.of(self._loaded.item)
        #: Version that every candidate was judged by, whatever the proofs of earlier batches saw.
        self._listed_by = self._loaded.item.version
        self._records_prefix = collect_prefix(context.prefix, stream)
        self.report = Collection(stream, blind=self._classifier.blind)

    @cached_property
    def _records(self) -> Sequence[Record]:
        """Those that prove something: listed where there is a record or a candidate.

        Of a stream at rest, of which there is neither, that saves a LIST a day.
        """
        listed = list_records(self._context, self._stream)
        return mature(listed, now_ms=self._now_ms, grace_ms=self._grace_ms)

    @cached_property
    def _needless(self) -> frozenset[str]:
        """Paths of the records that a later one has replaced."""
        found = replaced(self._records, now_ms=self._now_ms, grace_ms=self._grace_ms)
        return frozenset(each.path for each in found)

    def _kind(self, row: ObjectInfo) -> ObjectKind:
        if row.key.startswith(self._records_prefix) and row.key in self._needless:
            return ObjectKind.OLD_RECORD
        return self._classifier.kind(row)

    def run(self, cursor: str | None, time_to_list: Callable[[], bool]) -> Collection:
        candidates: list[_Candidate] = []
        for row, following in self._listing(cursor):
            if row is not None:
                kind = self._kind(row)
                self._count(self.report.found, kind, row.size)
                self._name(kind, row.key)
                if kind.garbage:
                    candidates.append((row, kind))
                    self._places[row.key] = following
            elif not time_to_list() or len(candidates) > MAX_CANDIDATES - self._context.page_size:
                self.report.cursor = following
                break
        self._delete(candidates)
        return self.report

    def _listing(self, cursor: str | None) -> Iterator[tuple[ObjectInfo | None, str]]:
        """Every object once with the cursor behind it; now and then a place to stop: no row.

        Manifest nodes come first, so that a root goes before the data that only it refers to; what
        a root refers to that may be adopted one day waits for a later run anyway (`rivals`).
        """
        nodes = metadata_prefix(self._context.prefix, self._stream)
        place = ListPosition.parse(cursor) or self._begin()
        for phase in place.phases():
            prefix = (
                nodes if phase is Phase.NODES else stream_prefix(self._context.prefix, self._stream)
            )
            after = place.after_in(phase)
            while True:
                page = self._context.store.list(
                    prefix, start_after=after, limit=self._context.page_size
                )
                for number, row in enumerate(page, 1):
                    if place.is_beyond(phase, row.key):
                        page = []
                        break
                    after = row.key
                    if phase is Phase.NODES or not row.key.startswith(nodes):
                        yield row, place.at(phase, after).text
                    if number % _ROWS_AT_ONCE == 0:  # what a row is can take several requests
                        yield None, place.at(phase, after).text
                if len(page) < self._context.page_size:
                    break
                yield None, place.at(phase, after).text

    def _begin(self) -> ListPosition:
        """Where a run begins: anywhere in a long stream, so that each part comes first some day."""
        item = self._loaded.item
        if item.fragments <= MAX_CANDIDATES:
            return ListPosition()
        offset = item.first_offset + draw(self._stream, self._run_ms) % (
            item.next_offset - item.first_offset
        )
        return ListPosition(start=list_start(self._context.prefix, self._stream, offset))

    def _seen(
        self, rows: Mapping[str, ObjectInfo], limit_ms: int, records: Sequence[Record]
    ) -> set[str]:
        """Those of `rows` that a record of at least a grace time ago names.

        A record says nothing of what S3 had taken less than a grace time before it: that may have
        been on its way into the manifest, and may have been live since. All times are S3's.
        """
        proved: set[str] = set()
        if not rows:
            return proved
        first, last = min(rows), max(rows)
        for record in reversed(records):  # the newest name most of what is still there
            if record.modified_ms > limit_ms or len(proved) == len(rows):
                continue
            if not self._time_left() and proved:
                break
            try:
                header = read_header(self._context, self._stream, record)
                # Another state: there was an adoption, a rebuild or an undelete since.
                if header.state != self._state or header.first > last or header.last < first:
                    continue
                named = seen_in(self._context, self._stream, record, rows.keys())
            except (CorruptDataError, NotFoundError):
                continue  # proves nothing; a later record will
            latest = record.modified_ms - self._grace_ms
            proved.update(key for key in named if rows[key].modified_ms <= latest)
        return proved

    def _delete(self, candidates: Sequence[_Candidate]) -> None:
        ripe_ms = self._now_ms - self._grace_ms
        marks = {row.key: row for row, kind in candidates if kind is not ObjectKind.OLD_RECORD}
        ripe = {key: row for key, row in marks.items() if row.modified_ms <= ripe_ms}
        proved: set[str] = set()
        if self._dry_run:
            proved = self._seen(ripe, ripe_ms, self._records)
            for key in proved:
                self.report.provable.add(marks[key].size)
        elif ripe:
            # What is seen now is written down first, and the record's own time is S3's now. In this
            # run it proves nothing: the others are listed before.
            earlier = self._records
            record = write_record(
                self._context,
                self._stream,
                run_ms=self._run_ms,
                state=self._state,
                keys=ripe.keys(),
            )
            proved = self._seen(ripe, record.modified_ms - self._grace_ms, earlier)
        for key, row in marks.items():
            if key not in proved:
                self.report.waiting.add(row.size)
        if not self._dry_run:
            certain = [
                (row, kind)
                for row, kind in candidates
                if kind is ObjectKind.OLD_RECORD or row.key in proved
            ]
            self._delete_in_batches(certain)

    def _delete_in_batches(self, proved: Sequence[_Candidate]) -> None:
        """In the order of the listing, nodes in batches of their own; without time, a cursor.

        One batch is always tried, so that steps that have little time come to an end together.
        """
        nodes = metadata_prefix(self._context.prefix, self._stream)
        handled = ""
        for _, group in groupby(proved, lambda each: each[0].key.startswith(nodes)):
            rows = list(group)
            for begin in range(0, len(rows), _AT_ONCE):
                if handled and not self._time_left():
                    self.report.cursor = self._places[handled]
                    return
                batch = rows[begin : begin + _AT_ONCE]
                self._delete_batch(self._proved_again(batch))
                handled = batch[-1][0].key

    def _delete_batch(self, batch: Sequence[_Candidate]) -> None:
        gone: set[str] = set()
        try:
            gone = set(self._deleter.delete([row.key for row, _ in batch])) if batch else set()
        except (PermissionDeniedError, UnavailableError) as exc:
            self.report.trouble = self.report.trouble or exc.located(stream=self._stream)
        for row, kind in batch:
            if row.key in gone:
                self._count(self.report.deleted, kind, row.size)
            else:
                self.report.refused.add(row.size)

    def _proved_again(self, batch: Sequence[_Candidate]) -> list[_Candidate]:
        """The batch as far as it still is garbage, by an item that was read just now.

        Where the version has moved, the proof is made again: by looks into the new tree alone where
        the commits since cannot have changed anything else, so that a stream that commits all the
        time does not keep its garbage. It counts if such commits only came while it was made.

        Raises:
            ConflictError: the stream is not live any more, or its state changed and changed back.
        """
        for _ in range(_PROOFS):
            fresh = load(self._context, self._stream)
            if ProofState.of(fresh.item) != self._state:
                raise ConflictError("the stream's state changed", stream=self._stream)
            if fresh.item.version == self._listed_by:
                return self._without_held(batch)
            if fresh.item.version != self._loaded.item.version:
                renewed = self._classifier.renewed(fresh)
                self._classifier = renewed or Classifier(
                    self._context, fresh, time_left=self._time_left
                )
                self._loaded = fresh
            batch = [
                (row, kind)
                for row, kind in batch
                if kind is ObjectKind.OLD_RECORD or self._classifier.kind(row).garbage
            ]
            now = self._context.catalog.get(self._stream)
            if now is not None and survives(fresh.item, now):
                return self._without_held(batch)
        for row, _ in batch:
            self.report.busy.add(row.size)
        return []

    def _without_held(self, batch: Sequence[_Candidate]) -> list[_Candidate]:
        if not any(kind in _HELD for _, kind in batch):
            return list(batch)
        if not self._held(self._loaded.item):
            return list(batch)
        for row, kind in batch:
            if kind in _HELD:
                self.report.held.add(row.size)
        return [each for each in batch if each[1] not in _HELD]

    def _count(self, counts: dict[ObjectKind, Count], kind: ObjectKind, size: int) -> None:
        counts.setdefault(kind, Count()).add(size)

    def _name(self, kind: ObjectKind, key: str) -> None:
        names = {
            ObjectKind.UNIQUE: self.report.unique,
            ObjectKind.FOREIGN: self.report.foreign,
        }.get(kind)
        if names is not None and len(names) < 100:
            names.append(key)
