"""Start a rebalance behind a commit that has left a crowded root. It never holds the commit up."""

from __future__ import annotations

from coldstream import deployment
from coldstream.clock import now_ms
from coldstream.errors import ColdstreamError
from coldstream.plans.rebalance import crowd
from coldstream.usecases.commit_runs import CommitReport
from functions._runtime import setting, tell
from functions._starts import start

_HOUR_MS = 3_600_000


def start_rebalance(report: CommitReport) -> None:
    """Start the machine if the committed root asks for it; a failure is logged, the next commit
    tries again.

    The name of the execution says which oldest entry is to be grouped, so the commits that follow
    while it runs start nothing; and the hour, so that one that failed for good is no obstacle.
    """
    oldest = crowd(report.root, setting(deployment.ENV_BRANCHING))
    if oldest is None:
        return
    reason = f"{oldest.first_offset}-{now_ms() // _HOUR_MS}"
    document = {"work": [{"stream": report.stream}], "reason": "crowded"}
    try:
        start("rebalance", report.stream, reason, document)
    except ColdstreamError as error:
        tell(error.located(stream=report.stream))
