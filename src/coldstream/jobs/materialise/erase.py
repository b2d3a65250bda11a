"""Rows of messages that were erased go out of a table, whenever a run finds some.

A run that read a stream before an erasure may commit after it, so nobody remembers what was done:
each run asks the table. The files that had the rows go when the versions before are forgotten
(`sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

import pyarrow as pa

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.table import Append, Table
from coldstream.manifest.root import Root
from coldstream.osiris.offsets import OffsetSet
from coldstream.remote.context import Context
from coldstream.remote.erasures import erased_of
from coldstream.usecases.erase import dated

#: Ranges in one commit: a filter of very many is none that a library takes.
_RANGES_AT_ONCE = 200


def erased_now(context: Context, stream: str, root: Root) -> OffsetSet:
    """The erased offsets whose messages the manifest still has, and those named without a chunk.

    After a fail-over that lost data other messages stand at the offsets: they stay in tables. Of
    offsets that retention has taken since, nobody can tell which messages a table has; whoever
    names them again by `coldstream erase --range` has their rows deleted.

    Raises:
        CorruptDataError: an erasure record or a fragment is damaged.
        NotFoundError: a fragment is gone.
        UnavailableError, PermissionDeniedError: from the store.
    """
    erased = erased_of(context, stream)
    if not erased:
        return OffsetSet()
    live = erased.offsets.within(root.first_offset, root.next_offset)
    spans = [
        span
        for first, next_offset, epoch in dated(context, stream, root, live).rows
        for span in erased.by_epoch.get(epoch, OffsetSet()).within(first, next_offset).ranges
    ]
    retired = erased.by_epoch.get(0, OffsetSet()).within(0, root.first_offset)
    return OffsetSet.of((*spans, *retired.ranges))


def erase_all(
    tables: Iterable[tuple[Table, pa.Schema]],
    streams: Iterable[StreamNow],
    *,
    new_id: Callable[[], str],
    pause: Callable[[int], None],
) -> int:
    """Take the rows of all erased messages out of tables; how many there were.

    Args:
        tables: with the schema that `Table.load` wants; one that does not exist is not made.
        streams: all that go into them.
        new_id: gives an id that is used once.
        pause: as in `commit`.

    Raises:
        As `commit`.
    """
    erased = {now.stream: now.erased for now in streams if now.erased}
    return sum(
        _erase(table, schema, erased, new_id, pause)
        for table, schema in (tables if erased else ())
        if table.peek() is not None
    )


def erase_rows(
    table: Table,
    first_schema: pa.Schema,
    stream: str,
    offsets: OffsetSet,
    *,
    new_id: Callable[[], str],
    pause: Callable[[int], None],
) -> int:
    """Take the rows of some offsets out of a table; how many there were.

    The table still has these offsets taken in: they are not read again.

    Args:
        table: which exists.
        first_schema: see `Table.load`.
        stream: directory name.
        offsets: of the rows.
        new_id: gives an id that is used once.
        pause: as in `commit`.

    Raises:
        As `commit`.
    """
    return _erase(table, first_schema, {stream: offsets}, new_id, pause)


def _erase(
    table: Table,
    first_schema: pa.Schema,
    erased: Mapping[str, OffsetSet],
    new_id: Callable[[], str],
    pause: Callable[[int], None],
) -> int:
    """Those of several streams in one commit: where they share files, each is written anew once."""
    spans = [(stream, span) for stream, offsets in erased.items() for span in offsets.ranges]
    gone = 0
    for at in range(0, len(spans), _RANGES_AT_ONCE):
        loaded = table.load(first_schema)
        replaces: dict[str, Ranges] = {}
        for stream, mine in groupby(spans[at : at + _RANGES_AT_ONCE], lambda each: each[0]):
            ranges = Ranges.of([span for _, span in mine])
            found = table.count(loaded, stream, ranges)
            if found:
                replaces[stream] = ranges
                gone += found
        if replaces:
            commit(
                table, Append(new_id(), replaces=replaces), first_schema=first_schema, pause=pause
            )
    return gone
