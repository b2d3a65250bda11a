"""Make what the workers wrote part of the table, once, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from coldstream.errors import ConflictError, UnknownOutcomeError
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.table import Append, AppendOutcome, Loaded, Table

_ATTEMPTS = 20


def _check(name: str, loaded: Loaded, append: Append) -> None:
    """What is to be put in is not there yet, and comes next where order counts."""
    for stream, ranges in append.covered.items():
        known = loaded.state.of(stream) - append.forgets.get(stream, Ranges())
        taken = known & (ranges - append.replaces.get(stream, Ranges()))
        if taken:
            raise ConflictError(
                f"another run has put {taken.offsets} of these offsets into {name};"
                " its rows stay, ours are dropped",
                stream=stream,
                offset=taken.spans[0][0],
            )
        if append.in_order and known and ranges and known.spans[-1][1] != ranges.spans[0][0]:
            raise ConflictError(
                f"another run has begun this stream anew in {name}; its rows stay, ours are"
                " dropped: run again",
                stream=stream,
                offset=ranges.spans[0][0],
            )


def commit(
    table: Table,
    append: Append,
    *,
    first_schema: pa.Schema,
    pause: Callable[[int], None],
    complete: Callable[[Loaded, Append], Append] | None = None,
) -> Loaded:
    """Append, and do not come back before it is known whether it landed.

    The table is read again before every attempt, so an attempt is always decided on what is there:
    if our own id is in the table, an earlier attempt had landed and only its answer was lost; if
    another writer has covered one of our offsets, our files are dropped, never merged.

    Args:
        table: to change.
        append: the change.
        first_schema: see `Table.load`.
        pause: waits after attempt n (from 1 on), with jitter.
        complete: makes the change one of the table as it was just loaded, where its files depend on
            those that the table has.

    Raises:
        ConflictError: another run has materialised some of these offsets; names stream and offset.
        UnknownOutcomeError: the last attempts got no answer; says why. Nothing is doubled when the
            job is run again.
    """
    unknown: UnknownOutcomeError | None = None
    for attempt in range(1, _ATTEMPTS + 1):
        loaded = table.load(first_schema)
        if append.id in loaded.appended:
            return loaded
        _check(table.name, loaded, append)
        whole = append if complete is None else complete(loaded, append)
        try:
            unknown, outcome = None, table.append(loaded, whole)
            if outcome is AppendOutcome.LANDED:
                return table.load(first_schema)
        except UnknownOutcomeError as error:
            unknown = error
        pause(attempt)
    loaded = table.load(first_schema)
    if append.id in loaded.appended:
        return loaded
    if unknown is not None:
        raise unknown
    raise ConflictError(f"{table.name} was changed by others {_ATTEMPTS} times in a row")
