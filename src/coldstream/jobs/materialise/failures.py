"""What is told of a table that failed, and of a stream that a table does not go on with."""

from __future__ import annotations

import traceback

from coldstream.errors import ColdstreamError, InternalError, LostRangeError
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.report import raised_by_worker

#: Java's errors go on for pages; the log has them.
_MAX_REASON = 4000


def failed(table: str, error: Exception) -> ColdstreamError:
    """What is told of a table that failed.

    Args:
        table: its name.
        error: that was caught.
    """
    known = error if isinstance(error, ColdstreamError) else raised_by_worker(error)
    if known is None:
        traceback.print_exception(error)  # the run's log; of several tables only one is raised
        known = InternalError(f"{table}: {type(error).__name__}: {error}"[:_MAX_REASON])
    if known is not error:
        known.__cause__ = error
    return known


def mixed(rule: TableRule, stream: str, spans: list[list[int]]) -> LostRangeError:
    """What is told of a table that has rows of a history that was cut off.

    Args:
        rule: of the table.
        stream: directory name.
        spans: the offsets that were cut off, [first, next).
    """
    first, next_offset = spans[0][0], spans[-1][1]
    way_out = (
        f" --from {first} --overwrite, with this stream alone, makes them anew when the stream has"
        f" grown to {next_offset} again"
        if rule.latest is None
        else " --from 0 --overwrite, with this stream alone, makes its rows anew"
    )
    return LostRangeError(
        f"{rule.table} has offsets {first} to {next_offset - 1} of a history that was cut off"
        " since, and other messages may stand there now, so nothing of this stream was taken in."
        f"{way_out}; `coldstream quarantine list` says where the old ones are",
        stream=stream,
        offset=first,
    )
