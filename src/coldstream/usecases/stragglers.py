"""What arrives below the prefix of a stream that was deleted for good goes, too.

An item says `deleted` because the machine of a tombstone has said so, or because a fault or a thief
of an operator's credentials has. So a tombstone alone deletes nothing: `collect` first writes a
record that it has seen it, and what lies there goes once that record is a grace time old by S3's
clock, the item is still the same, and no rule holds the stream. Neither the item's times nor
anybody's clock makes that wait shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import stream_prefix
from coldstream.plans.collect import ObjectKind, Record
from coldstream.ports import Deleter, ObjectInfo
from coldstream.remote.context import Context
from coldstream.usecases.collect import Collection, Count
from coldstream.usecases.marks import ProofState, list_records, read_header, write_record


def sweep_stragglers(
    context: Context,
    deleter: Deleter,
    stream: str,
    *,
    grace_ms: int,
    run_ms: int,
    now_ms: int,
    held: Callable[[CatalogItem], bool],
    dry_run: bool = False,
    cursor: str | None = None,
    time_left: Callable[[], bool] = lambda: True,
) -> Collection:
    """Delete what has arrived below the prefix of a stream that was deleted for good.

    What S3 does not delete stops nothing behind it. One page is always done.

    Args:
        context: where.
        deleter: the same bucket.
        stream: directory name.
        grace_ms: how long an earlier run must have seen this very tombstone.
        run_ms: when the run began, the same for all its steps; ms since the Unix epoch.
        now_ms: now; what it allows is judged by S3's clock before anything goes.
        held: whether a rule holds, or may hold, the stream; asked before each page of deletes.
        dry_run: only count.
        cursor: of the step before.
        time_left: whether there is time for another page.

    Raises:
        ConflictError: the stream is not deleted, its undelete time is not over, the table is a
            restored one, or the state changed meanwhile.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    sweep = _StragglerSweep(
        context, deleter, stream, grace_ms, run_ms, now_ms, held, time_left, dry_run
    )
    return sweep.run(cursor or "")


class _StragglerSweep:
    def __init__(
        self,
        context: Context,
        deleter: Deleter,
        stream: str,
        grace_ms: int,
        run_ms: int,
        now_ms: int,
        held: Callable[[CatalogItem], bool],
        time_left: Callable[[], bool],
        dry_run: bool,
    ) -> None:
        self._context = context
        self._deleter = deleter
        self._stream = stream
        self._grace_ms = grace_ms
        self._run_ms = run_ms
        self._now_ms = now_ms
        self._held = held
        self._time_left = time_left
        self._dry_run = dry_run
        self._report = Collection(stream)
        self._state = ProofState.of(self._tombstone())
        self._records: list[Record] | None = None

    def run(self, after: str) -> Collection:
        context = self._context
        prefix = stream_prefix(context.prefix, self._stream)
        proved: bool | None = None
        while True:
            item = self._tombstone()
            page = context.store.list(prefix, start_after=after, limit=context.page_size)
            own = {record.path for record in self._seen()} if page else set()
            rows = [row for row in page if row.key not in own]
            if rows:
                if proved is None:
                    proved = self._now_ms >= item.undelete_until and self._proved(rows)
                self._take(rows, item, proved=proved)
            if len(page) < context.page_size:
                self._forget_records()
                return self._report
            after = page[-1].key
            if not self._time_left():
                self._report.cursor = after
                return self._report

    def _tombstone(self) -> CatalogItem:
        item = self._context.catalog.get(self._stream)
        if (
            item is None
            or item.state is not StreamState.DELETED
            or item.table_id != self._context.catalog.table_id()
        ):
            raise ConflictError("no tombstone of this table", stream=self._stream)
        if self._now_ms < item.undelete_until and not self._dry_run:
            raise ConflictError("its undelete time is not over", stream=self._stream)
        return item

    def _seen(self) -> list[Record]:
        """The records that earlier runs, or earlier steps, have made of this very tombstone."""
        if self._records is None:
            self._records = []
            for record in list_records(self._context, self._stream):
                try:
                    header = read_header(self._context, self._stream, record)
                except (CorruptDataError, NotFoundError):
                    continue  # says nothing
                if header.state == self._state:
                    self._records.append(record)
        return self._records

    def _proved(self, rows: Sequence[ObjectInfo]) -> bool:
        """Whether a record is a grace time old by S3's clock; makes the first one if there is none.

        S3's clock is read off a record that is written now, and only where the function's own says
        that it is time.
        """
        ripe_ms = self._now_ms - self._grace_ms
        seen = list(self._seen())
        ripe = [each for each in seen if each.modified_ms <= ripe_ms]
        if self._dry_run or (seen and not ripe):
            return bool(ripe)
        now = write_record(
            self._context,
            self._stream,
            run_ms=self._run_ms,
            state=self._state,
            keys=[row.key for row in rows],
        )
        self._seen().append(now)
        return any(each.modified_ms <= now.modified_ms - self._grace_ms for each in ripe)

    def _take(self, rows: Sequence[ObjectInfo], item: CatalogItem, *, proved: bool) -> None:
        report = self._report
        for row in rows:
            report.found.setdefault(ObjectKind.STRAGGLER, Count()).add(row.size)
        if not proved:
            count = report.waiting
        elif self._held(item):
            count = report.held
        elif self._dry_run:
            count = report.provable
        else:
            self._delete(rows, item)
            return
        for row in rows:
            count.add(row.size)

    def _delete(self, rows: Sequence[ObjectInfo], item: CatalogItem) -> None:
        if ProofState.of(item) != self._state:
            raise ConflictError("the stream's state changed", stream=self._stream)
        report = self._report
        gone: set[str] = set()
        try:
            gone = set(self._deleter.delete([row.key for row in rows]))
        except (PermissionDeniedError, UnavailableError) as exc:
            report.trouble = report.trouble or exc.located(stream=self._stream)
        for row in rows:
            if row.key in gone:
                report.deleted.setdefault(ObjectKind.STRAGGLER, Count()).add(row.size)
            else:
                report.refused.add(row.size)

    def _forget_records(self) -> None:
        """Records of this tombstone go last, when nothing is left that they speak of."""
        report = self._report
        if self._dry_run or report.waiting.objects or report.held.objects or report.refused.objects:
            return
        if not self._records:
            return
        try:
            self._deleter.delete([record.path for record in self._records])
        except (PermissionDeniedError, UnavailableError) as exc:
            report.trouble = report.trouble or exc.located(stream=self._stream)
