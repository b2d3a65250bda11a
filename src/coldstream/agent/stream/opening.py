"""Begin to upload a stream: its item, what lies behind a gap, the claim, what waits for a commit.

Nothing is remembered here: a fault on the way leaves the follower as it was, and the next try finds
what has been done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.agent.disk.history import CommittedHistory
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import check_not_deleted
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.gaps import Gaps
from coldstream.agent.stream.salvage import Salvage
from coldstream.agent.telling.progress import (
    of_held_hole,
    of_new_root,
    of_other_name,
    of_truncation,
)
from coldstream.errors import InternalError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.ledger import Ledger
from coldstream.names import MAX_OFFSET
from coldstream.remote.context import Context
from coldstream.usecases.claim import Claimed
from coldstream.usecases.commit_runs import CommitReport


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that is claimed.

    Attributes:
        epoch: of the claim.
        shift: by which it is above the epoch of the broker's chunks.
        ledger: that has the claim.
        claimed_at: where the manifest ended then.
        report: of the commit of what earlier lives of an agent have uploaded.
        waits_at: where a fragment begins that waits behind something missing; looked for with
            `once` only, None if there is none.
    """

    epoch: int
    shift: int
    ledger: Ledger
    claimed_at: int
    report: CommitReport
    waits_at: int | None


def open_stream(
    context: Context,
    commits: Commits,
    log: StreamLog,
    gaps: Gaps,
    salvage: Salvage,
    *,
    limit: int,
    settings: AgentSettings,
    name: QueueName,
) -> Opened | None:
    """Anchor and claim a stream; None while it has no committed chunk.

    The claim needs proof of its epoch: a committed chunk of that epoch in the local log.

    Args:
        context: where.
        commits: of this stream.
        log: the directory.
        gaps: of this stream; their notices take what a person should know.
        salvage: of this stream.
        limit: all local offsets below this are committed.
        settings: of the agent.
        name: which queue it belongs to.

    Raises:
        ColdstreamError: as `Commits` and `Gaps`.
    """
    if limit:
        log.check_indexes(0)
    segments = log.segments()
    newest = log.chunks_near(MAX_OFFSET, committed=limit)
    if not segments or not newest:
        return None
    stream = log.stream
    item = context.catalog.get(stream)
    gaps.see_first(item)
    if item is not None:
        check_not_deleted(item)
    shift = commits.shift(item)
    epoch = newest[-1].epoch + shift
    _prepare(item, segments[0], epoch, gaps, committed=limit)
    left = salvage.claims(item, shift, limit=limit)
    history = CommittedHistory(log, limit, newest[-1].epoch)
    claimed = commits.claim(epoch, segments[0], name, history, gaps.check_alone, shift=shift)
    gaps.see_first(claimed.loaded.item)
    salvage.claimed(left)
    if item is None and claimed.loaded.item.first_offset == segments[0]:
        gaps.tell_beginning(segments[0])
    for notice in _notices_of(claimed, name, log, context.prefix, settings):
        gaps.notices.append(notice)
    ledger = claimed.loaded.item.ledger
    if ledger.floor(epoch) is None:
        raise InternalError("a claim that is not in the ledger", stream=stream)
    # What an earlier life of this agent has uploaded may have lost its events.
    report = commits.commit()
    look = settings.once and not report.waiting
    claimed_at = claimed.loaded.root.next_offset
    return Opened(epoch, shift, ledger, claimed_at, report, gaps.pending(report) if look else None)


def _prepare(
    item: CatalogItem | None, first_offset: int, epoch: int, gaps: Gaps, *, committed: int
) -> None:
    """Look whether a log that begins with `first_offset` may claim.

    Raises:
        LostRangeError: another member may have a longer one.
        ColdstreamError: as `Gaps.bridge`.
    """
    if item is None:
        if first_offset:
            gaps.check_first(first_offset)
        return
    if 0 < item.epoch < epoch and first_offset > item.next_offset:
        # What an older writer has uploaded behind a gap would lie above the new floor, and no
        # manifest would ever take it.
        gaps.bridge(item.epoch, first_offset, committed=committed, to_log=False)


def _notices_of(
    claimed: Claimed, name: QueueName, log: StreamLog, prefix: str, settings: AgentSettings
) -> Iterator[str]:
    """What a person should know of a claim."""
    if claimed.rooted:
        yield of_new_root(log.stream, prefix, settings)
    if claimed.truncated is not None:
        yield of_truncation(log.stream, claimed.truncated)
    if claimed.held is not None:
        yield of_held_hole(log, *claimed.held)
    said = claimed.loaded.item.name
    if name.queue and said.queue and name.key != said.key:
        yield of_other_name(log.stream, said, name)
