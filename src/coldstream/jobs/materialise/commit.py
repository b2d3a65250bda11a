"""Make what the workers wrote part of the table, once, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from coldstream.errors import ConflictError, UnavailableError, UnknownOutcomeError
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.table import Append, AppendOutcome, Loaded, Table

_ATTEMPTS = 20

#: Makes a change one of the table as it was just loaded, or says why it must not be made.
Decide = Callable[[Loaded, Append], Append]


def untaken(name: str, loaded: Loaded, append: Append) -> Append:
    """The change, if what it puts in is not there yet, and comes next where order counts.

    Raises:
        ConflictError: it is there; names stream and offset.
    """
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
        if append.in_order and ranges and not _goes_on(loaded, stream, known, ranges):
            raise ConflictError(
                f"another run has begun this stream anew in {name}; its rows stay, ours are"
                " dropped: run again",
                stream=stream,
                offset=ranges.spans[0][0],
            )
    for stream, ranges in append.pays.items():
        if paid := ranges - loaded.state.owed.get(stream, Ranges()):
            raise ConflictError(
                f"another run has made these offsets of {name} anew; its rows stay, ours go",
                stream=stream,
                offset=paid.spans[0][0],
            )
    return append


def _goes_on(loaded: Loaded, stream: str, known: Ranges, ranges: Ranges) -> bool:
    """Whether ranges come next in a stream; a cut-off may have come before where one begins."""
    begin = ranges.spans[0][0]
    if known:
        return known.spans[-1][1] == begin
    return stream not in loaded.state.begins or begin <= loaded.state.begins[stream][0]


def commit(
    table: Table,
    append: Append,
    *,
    first_schema: pa.Schema,
    pause: Callable[[int], None],
    decide: Decide | None = None,
) -> Loaded:
    """Append, and do not come back before it is known whether it landed.

    The table is read again before every attempt, so an attempt is always decided on what is there:
    if our own id is in the table, an earlier attempt had landed and only its answer was lost.

    Args:
        table: to change.
        append: the change.
        first_schema: see `Table.load`.
        pause: waits after attempt n (from 1 on), with jitter.
        decide: makes the change of each attempt; `untaken` if nothing else is given.

    Raises:
        ConflictError: the change is not to be made; names stream and offset.
        UnknownOutcomeError, UnavailableError: the last attempts got no answer; says why. Nothing is
            doubled when the job is run again.
    """
    decide = decide or partial(untaken, table.name)
    unanswered: UnknownOutcomeError | UnavailableError | None = None
    for attempt in range(1, _ATTEMPTS + 1):
        loaded = table.load(first_schema)
        if append.id in loaded.appended:
            return loaded
        whole = decide(loaded, append)
        try:
            unanswered, outcome = None, table.append(loaded, whole)
            if outcome is AppendOutcome.LANDED:
                return table.load(first_schema)
        except (UnknownOutcomeError, UnavailableError) as error:
            unanswered = error
        pause(attempt)
    loaded = table.load(first_schema)
    if append.id in loaded.appended:
        return loaded
    if unanswered is not None:
        raise unanswered
    raise ConflictError(f"{table.name} was changed by others {_ATTEMPTS} times in a row")
