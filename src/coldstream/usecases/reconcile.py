"""Heal one stream without any event: adopt its root if the item is lost, then complete its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.errors import ConflictError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.root import Root
from coldstream.remote.context import Context
from coldstream.usecases.adopt import adopt
from coldstream.usecases.commit_runs import CommitReport, commit_runs


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was done for a stream.

    Attributes:
        commits: what was appended.
        adopted: whether its item was lost, or of a restored table, and was written anew.
    """

    commits: CommitReport
    adopted: bool


def reconcile(
    context: Context,
    stream: str,
    *,
    pause: Callable[[int], None],
    time_left: Callable[[], bool] = lambda: True,
) -> Reconciled:
    """Bring a stream's manifest forward over everything that was uploaded.

    Args:
        context: where.
        stream: directory name.
        pause: as in `commit_runs`.
        time_left: as in `commit_runs`.

    Raises:
        As `commit_runs` and `adopt`; the error of the former where the item is good.
    """
    try:
        return Reconciled(commit_runs(context, stream, pause=pause, time_left=time_left), False)
    except (ConflictError, NotFoundError):
        item = adopt(context, stream)
        if item is None:
            raise
    if item.state is not StreamState.LIVE:
        return Reconciled(_nothing(item), True)
    return Reconciled(commit_runs(context, stream, pause=pause, time_left=time_left), True)


def _nothing(item: CatalogItem) -> CommitReport:
    """The report on a stream that takes no commits: a tombstone in a restored table."""
    return CommitReport(
        stream=item.stream,
        commits=0,
        conflicts=0,
        fragments=0,
        bytes=0,
        version=item.version,
        next_offset=item.next_offset,
        root=Root(first_offset=item.next_offset, next_offset=item.next_offset),
        refused=(),
    )
