"""A claim by one process that has both the log and every right, as no deployed part has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldstream.plans.claim import LocalHistory
from coldstream.remote.context import Context
from coldstream.usecases.claim import Claimed, check_history, land_claim
from coldstream.usecases.divergence import Alone, nobody_else


def claim(
    context: Context,
    stream: str,
    epoch: int,
    *,
    log: LocalHistory,
    now_ms: int = 0,
    alone: Alone = nobody_else,
    **more: Any,
) -> Claimed:
    """`land_claim`, and then `check_history`, as the function and then the agent do.

    Raises:
        As both.
    """
    landed = land_claim(context, stream, epoch, log=log, now_ms=now_ms, alone=alone, **more)
    return replace(landed, held=check_history(context, stream, landed.loaded.root, log))
