"""What arrives below the prefix of a stream that was deleted for good goes, too."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.errors import ConflictError, PermissionDeniedError, UnavailableError
from coldstream.manifest.catalog import StreamState
from coldstream.names import stream_prefix
from coldstream.plans.collect import ObjectKind
from coldstream.ports import Deleter
from coldstream.remote.context import Context
from coldstream.usecases.collect import Collection, Count


def sweep_stragglers(
    context: Context,
    deleter: Deleter,
    stream: str,
    *,
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
        dry_run: only count.
        cursor: of the step before.
        time_left: whether there is time for another page.

    Raises:
        ConflictError: the stream is not deleted, or the table is a restored one.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    report = Collection(stream)
    after = cursor or ""
    while True:
        item = context.catalog.get(stream)
        if (
            item is None
            or item.state is not StreamState.DELETED
            or item.table_id != context.catalog.table_id()
        ):
            raise ConflictError("no tombstone of this table", stream=stream)
        rows = context.store.list(
            stream_prefix(context.prefix, stream), start_after=after, limit=context.page_size
        )
        gone: set[str] = set()
        try:
            gone = set() if dry_run or not rows else set(deleter.delete([r.key for r in rows]))
        except (PermissionDeniedError, UnavailableError) as exc:
            report.trouble = report.trouble or exc.located(stream=stream)
        for row in rows:
            report.found.setdefault(ObjectKind.STRAGGLER, Count()).add(row.size)
            if row.key in gone:
                report.deleted.setdefault(ObjectKind.STRAGGLER, Count()).add(row.size)
            elif not dry_run:
                report.refused.add(row.size)
        if len(rows) < context.page_size:
            return report
        after = rows[-1].key
        if not time_left():
            report.cursor = after
            return report
