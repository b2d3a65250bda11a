"""The wall clock, and the pause before another attempt. Pure code gets both as arguments."""

from __future__ import annotations

import secrets
import time


def now_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def pause(attempt: int, *, first: float = 0.05, most: float = 2.0) -> None:
    """Sleep before another attempt, with full jitter.

    Args:
        attempt: number of the attempt that failed, from 1.
        first: seconds, doubled for every failure.
        most: seconds that it may take.
    """
    time.sleep(min(most, first * 2**attempt) * secrets.randbelow(1000) / 1000)
