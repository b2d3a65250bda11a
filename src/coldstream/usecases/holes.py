"""Declare lost what no tier has any more: find the gap behind a stream's chain, PUT a hole for it.

A hole is proposed by whoever knows that the range is nowhere else (the agent, which asks the other
members), and decided by every committer from what LIST shows (plans/resolve.py): over a range in
which an acceptable fragment begins, or into which one reaches from below, it is never taken. So a
hole may be declared twice, late, by two agents at once or by a deposed one, and none of it takes
data away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from coldstream.errors import ConflictError
from coldstream.manifest.ledger import Ledger
from coldstream.names import DataKey
from coldstream.plans.resolve import Listed
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import CommitReport
from coldstream.usecases.overlap import reaching_over

_MAX_LOOKS = 8
_FENCED = "the ledger does not accept it"


@dataclass(frozen=True, slots=True)
class ChainGap:
    """Offsets behind the chain of a stream in which no acceptable fragment begins.

    Attributes:
        first_offset: where the resolved chain ends.
        next_offset: where the local log begins, or the first acceptable fragment if that is below.
        epoch: of the claim to which the range belongs.
        fragment_follows: whether an acceptable fragment begins at `next_offset`.
        declared: whether holes over exactly this range are in the bucket already.
        holding: keys of fragments that hold some of the range and still cannot follow the chain:
            no part of one that begins below joins, its trailer does not hold, or the ledger refuses
            it.
        why: the reason for each of them, in words.
        parts: (first, next, epoch) of the holes that have to stand for it, side by side, so that
            the ledger lets them in; none if no epoch may write some of the range.
    """

    first_offset: int
    next_offset: int
    epoch: int
    fragment_follows: bool
    declared: bool
    holding: tuple[str, ...]
    why: tuple[str, ...] = field(default=(), compare=False)
    parts: tuple[tuple[int, int, int], ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1}"


def find_gap(
    context: Context,
    stream: str,
    *,
    local_first: int,
    commit: Callable[[], CommitReport],
    pause: Callable[[int], None],
) -> tuple[CommitReport, ChainGap | None]:
    """Commit all that continues the manifest, then look whether the local log still reaches it.

    The end of the resolved chain counts, not that of the manifest: what is uploaded and only waits
    for its event is in the chain.

    Args:
        context: where.
        stream: directory name.
        local_first: where the local log begins.
        commit: a thorough commit of what follows the manifest.
        pause: called with the number of the look before the next one.

    Returns:
        The commit, and the gap above its next offset; None if the local log begins at or below it.

    Raises:
        As `commit`; ConflictError also if new fragments come faster than they are committed.
    """
    for attempt in range(1, _MAX_LOOKS + 1):
        report = commit()
        if report.next_offset >= local_first:
            return report, None
        gap = _gap(context, stream, report, local_first)
        if gap is not None:
            return report, gap
        pause(attempt)
    raise ConflictError("the chain goes on at every look", stream=stream, offset=report.next_offset)


def _gap(context: Context, stream: str, report: CommitReport, local_first: int) -> ChainGap | None:
    """The gap behind a manifest; None if a fragment has come that continues it."""
    root, end = report.root, report.next_offset
    refused = {each.key: each.reason for each in report.refused}
    next_offset, declared = local_first, {end}
    follows = False
    holding = {
        each.path: refused.get(each.path, _FENCED)
        for each in reaching_over(context, stream, root, accepted=False)
    }
    for each in _listed_from(context, stream, end):
        key = each.data_key
        if key.first_offset > local_first:
            break
        if not root.ledger.accepts(key.epoch, key.first_offset, key.next_offset):
            if key.kind == "fragment" and key.first_offset < local_first:
                holding[each.path] = _FENCED
        elif each.path in refused:
            holding[each.path] = refused[each.path]
        elif key.kind == "hole":
            if key.first_offset in declared and not each.size:
                declared.add(key.next_offset)
        elif key.first_offset == end:
            return None
        else:
            next_offset, follows = key.first_offset, True
            break
    return ChainGap(
        first_offset=end,
        next_offset=next_offset,
        epoch=root.ledger.epoch,
        fragment_follows=follows,
        declared=next_offset in declared,
        holding=tuple(holding),
        why=tuple(holding.values()),
        parts=_parts(root.ledger, end, next_offset),
    )


def _parts(ledger: Ledger, first: int, next_offset: int) -> tuple[tuple[int, int, int], ...]:
    """A range cut where the right to write it changes: below the last floor, after a rebuild."""
    found: list[tuple[int, int, int]] = []
    while first < next_offset:
        right = ledger.right_at(first)
        if right is None:
            return ()
        found.append((first, min(next_offset, right.until), right.epoch))
        first = right.until
    return tuple(found)


def _listed_from(context: Context, stream: str, offset: int) -> Iterator[Listed]:
    """All data objects that begin at or above an offset, in the order of their keys."""
    return chain.from_iterable(context.data_pages(stream, offset))


def declare(context: Context, stream: str, gap: ChainGap) -> list[DataKey]:
    """PUT holes over a gap, one for each part; the caller knows that nobody has the range any more.

    Nothing is committed: the holes wait until a fragment follows them.

    Returns:
        Their keys; none if no epoch may write some of the range.

    Raises:
        UnavailableError, UnknownOutcomeError, PermissionDeniedError: the store. A second hole over
            the same range does no harm.
    """
    keys = [DataKey(stream, *part, context.new_uid(), "hole") for part in gap.parts]
    for key in keys:
        context.store.put(key.path(context.prefix), b"", write_id=f"{key.uid:016x}")
    return keys
