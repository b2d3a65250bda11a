"""What the function `claim` does for agents, which may write neither catalog nor manifests.

Nothing that a request says of the bucket or the catalog is believed: it is read here. What it says
of the log is believed, because nobody else has the log; so a false claim is possible, and takes
nothing away that the quarantine does not name. A request that is lost, late or sent twice does no
harm: each is decided anew from what is there, and lands under a condition.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from coldstream.errors import ColdstreamError, ConflictError, InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.agent_requests import (
    MAX_MESSAGE,
    Commit,
    Committed,
    Declare,
    Open,
    error_to_json,
    parse,
    truncation_to_json,
)
from coldstream.plans.told_log import UnansweredError
from coldstream.plans.undo_epoch import MAX_LEAP
from coldstream.remote.context import Context
from coldstream.usecases.claim import Claimed, anchor, land_claim
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from coldstream.usecases.holes import declare, find_gap


@dataclass(slots=True)
class Answered:
    """An answer, and what there is to log and count of how it came about.

    Attributes:
        row: for the agent, a JSON object.
        stream: directory name; "" if the request names none.
        error: that the answer tells, None if it tells none.
        claimed: the claim that was made, or found.
        report: of the commit that was asked for.
        declared: keys of the holes that were PUT.
        misfit: a name that no broker gives to this directory; it was left out.
    """

    row: dict[str, Any] = field(default_factory=dict)
    stream: str = ""
    error: ColdstreamError | None = None
    claimed: Claimed | None = None
    report: CommitReport | None = None
    declared: tuple[str, ...] = ()
    misfit: QueueName | None = None


def answer(
    context: Context,
    row: Any,
    *,
    pause: Callable[[int], None],
    now_ms: int,
    time_left: Callable[[], bool] = lambda: True,
    renames: bool = False,
    cluster: str | None = None,
) -> Answered:
    """Do what an agent asks for, if what is in the bucket and the catalog allows it.

    Args:
        context: where.
        row: the request, a JSON value that may be anything.
        pause: as in `commit_runs`.
        now_ms: for the quarantine record; ms since the Unix epoch.
        time_left: as in `commit_runs`.
        renames: whether a stream may get another name than it has. Rules go by names, and may
            delete; so no agent may say it.
        cluster: name of the cluster, whatever the request says of it; None to believe that.
    """
    answered = Answered()
    try:
        request = parse(row)
        answered.stream = request.stream
        match request:
            case Open():
                request = replace(request, name=_named(request, answered, cluster))
                answered.row = _open(context, request, answered, pause, now_ms, time_left)
                _name(context, request, renames=renames)
            case Commit():
                answered.report = commit_runs(
                    context,
                    request.stream,
                    pause=pause,
                    time_left=time_left,
                    thorough=request.thorough,
                )
                answered.row = {"committed": _committed(answered.report).to_json()}
            case Declare():
                answered.row = _declare(context, request, answered, pause, time_left)
    except UnansweredError as exc:
        answered.row = {"question": exc.question.to_json()}
    except ColdstreamError as exc:
        answered.error = exc
        answered.row = {"error": error_to_json(exc)}
    return answered


def _open(
    context: Context,
    request: Open,
    answered: Answered,
    pause: Callable[[int], None],
    now_ms: int,
    time_left: Callable[[], bool],
) -> dict[str, Any]:
    stream, name = request.stream, request.name
    if request.anchor is not None:
        item = anchor(context, stream, request.anchor, name)
        if 0 < item.epoch < request.epoch and request.anchor > item.next_offset:
            # What its last writer has uploaded behind a gap must be looked at before this claim.
            raise ConflictError("another agent has begun the stream meanwhile", stream=stream)
    answered.claimed = claimed = land_claim(
        context,
        stream,
        request.epoch,
        log=request.said,
        pause=pause,
        now_ms=now_ms,
        alone=request.said.check_alone,
        shift=request.shift,
        max_leap=MAX_LEAP,
        time_left=time_left,
    )
    return {
        "claimed": {
            "truncated": truncation_to_json(claimed.truncated),
            "rooted": claimed.rooted,
        }
    }


def _named(request: Open, answered: Answered, cluster: str | None) -> QueueName:
    """The name of a request as far as it counts: no claim fails for a name."""
    name = request.name
    if not name.queue:
        return QueueName()
    if not name.fits(request.stream):
        answered.misfit = name
        return QueueName()
    return name if cluster is None else replace(name, cluster=cluster)


def _name(context: Context, request: Open, *, renames: bool) -> None:
    """Set the name of a stream, as far as nobody has said it."""
    item = context.catalog.get(request.stream)
    if item is None or not request.name.queue:
        return
    first, other = (request.name, item.name) if renames else (item.name, request.name)
    name = first.filled(other)
    if name != item.name:
        context.catalog.set_name(request.stream, name)


def _declare(
    context: Context,
    request: Declare,
    answered: Answered,
    pause: Callable[[int], None],
    time_left: Callable[[], bool],
) -> dict[str, Any]:
    """PUT holes over a gap that is there still, and that the claim of the agent reaches.

    Raises:
        ConflictError: it is another gap now, or another epoch has claimed.
    """

    def commit() -> CommitReport:
        report = commit_runs(
            context, request.stream, pause=pause, time_left=time_left, thorough=True
        )
        if report.more:
            raise ConflictError("not all that is uploaded is committed yet", stream=request.stream)
        return report

    _, gap = find_gap(
        context, request.stream, local_first=request.log_first, commit=commit, pause=pause
    )
    asked = (request.first_offset, request.next_offset, request.epoch)
    if gap is None or (gap.first_offset, gap.next_offset, gap.epoch) != asked or not gap.parts:
        raise ConflictError(
            f"offsets {request.first_offset} to {request.next_offset - 1} are no gap of epoch"
            f" {request.epoch} any more; nothing was declared",
            stream=request.stream,
            offset=request.first_offset,
        )
    if not gap.declared:
        keys = declare(context, request.stream, gap)
        answered.declared = tuple(key.path(context.prefix) for key in keys)
    return {"declared": list(answered.declared)}


def _committed(report: CommitReport) -> Committed:
    return Committed(
        next_offset=report.next_offset,
        commits=report.commits,
        fragments=report.fragments,
        waiting=report.waiting,
        more=report.more,
        refused=report.refused,
    )


@dataclass(frozen=True, slots=True)
class OwnRights:
    """The function `claim` without AWS: in the agent's own process, with the agent's own rights.

    For a remote tier that is a directory, and for operators, who have these rights anyway.

    Args:
        context: where.
        pause: as in `commit_runs`.
        now_ms: gives ms since the Unix epoch.
    """

    context: Context
    pause: Callable[[int], None]
    now_ms: Callable[[], int]

    def invoke(self, request: bytes) -> bytes:
        """As `ports.ClaimFunction` says."""
        if len(request) > MAX_MESSAGE:
            raise InvalidInputError(f"a request of {len(request)} bytes")
        answered = answer(
            self.context,
            json.loads(request),
            pause=self.pause,
            now_ms=self.now_ms(),
            renames=True,
        )
        return json.dumps(answered.row).encode()
