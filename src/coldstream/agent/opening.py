"""Begin to upload a stream: its item, what lies behind a gap, the claim, what waits for a commit.

Nothing is remembered here: a fault on the way leaves the follower as it was, and the next try finds
what has been done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coldstream.agent.faults import check_not_deleted
from coldstream.agent.gaps import Gaps
from coldstream.agent.history import CommittedHistory
from coldstream.agent.log import StreamLog
from coldstream.agent.progress import Notices, of_held_hole, of_new_root, of_truncation
from coldstream.agent.settings import AgentSettings
from coldstream.errors import InternalError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.ledger import Ledger
from coldstream.remote.context import Context
from coldstream.usecases.claim import Claimed, anchor, claim
from coldstream.usecases.commit_runs import CommitReport, commit_runs


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that is claimed.

    Attributes:
        epoch: of the claim.
        ledger: that has the claim.
        report: of the commit of what earlier lives of an agent have uploaded.
        waits_at: where a fragment begins that waits behind something missing; looked for with
            `once` only, None if there is none.
    """

    epoch: int
    ledger: Ledger
    report: CommitReport
    waits_at: int | None


def open_stream(
    context: Context,
    log: StreamLog,
    gaps: Gaps,
    *,
    limit: int,
    settings: AgentSettings,
    name: QueueName,
    notices: Notices,
    pause: Callable[[int], None],
    now_ms: int,
) -> Opened | None:
    """Anchor and claim a stream; None while it has no committed chunk.

    The claim needs proof of its epoch: a committed chunk of that epoch in the local log.

    Args:
        context: where.
        log: the directory.
        gaps: of this stream.
        limit: all local offsets below this are committed.
        settings: of the agent.
        name: which queue it belongs to.
        notices: takes what a person should know.
        pause: sleeps after a lost commit.
        now_ms: ms since the Unix epoch.

    Raises:
        ColdstreamError: as `claim`, `commit_runs` and `Gaps`.
    """
    if limit:
        log.check_indexes(0)
    segments = log.segments()
    newest = log.chunks_near(2**64 - 1, committed=limit)
    if not segments or not newest:
        return None
    stream, epoch = log.stream, newest[-1].epoch
    item = _anchor(context, stream, segments[0], name, gaps)
    if 0 < item.epoch < epoch and segments[0] > item.next_offset:
        # What an older writer has uploaded behind a gap would lie above the new floor, and no
        # manifest would ever take it.
        gaps.bridge(item.epoch, segments[0], committed=limit, to_log=False)
    claimed = claim(
        context,
        stream,
        epoch,
        log=CommittedHistory(log, limit, epoch),
        pause=pause,
        now_ms=now_ms,
        alone=gaps.check_alone,
    )
    for notice in _notices_of(claimed, log, context.prefix, settings):
        notices.append(notice)
    ledger = claimed.loaded.item.ledger
    if ledger.floor(epoch) is None:
        raise InternalError("a claim that is not in the ledger", stream=stream)
    # What an earlier life of this agent has uploaded may have lost its events.
    report = commit_runs(context, stream, pause=pause)
    look = settings.once and not report.waiting
    return Opened(epoch, ledger, report, gaps.pending(report) if look else None)


def _anchor(
    context: Context, stream: str, first_offset: int, name: QueueName, gaps: Gaps
) -> CatalogItem:
    """The item of a stream whose log begins with `first_offset`, made where there is none."""
    if first_offset and context.catalog.get(stream) is None:
        # What a longer log has below it would never be uploaded, and nobody would say so.
        gaps.check_alone(first_offset, first_offset)
    item = anchor(context, stream, first_offset, name)
    check_not_deleted(item)
    if name.queue and item.name != name:
        context.catalog.set_name(stream, name)
    return item


def _notices_of(
    claimed: Claimed, log: StreamLog, prefix: str, settings: AgentSettings
) -> Iterator[str]:
    """What a person should know of a claim."""
    if claimed.rooted:
        yield of_new_root(log.stream, prefix, settings)
    if claimed.truncated is not None:
        yield of_truncation(claimed.truncated)
    if claimed.held is not None:
        yield of_held_hole(log, *claimed.held)
