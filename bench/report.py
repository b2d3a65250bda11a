"""How a result is printed: the figures first, then one line a ratio that a script can read."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def megabytes_per_second(size: int, seconds: Sequence[float]) -> str:
    """Median and spread of a throughput, in MB/s (10^6 bytes)."""
    rates = sorted(size / 1e6 / each for each in seconds)
    return f"{statistics.median(rates):7.0f} MB/s  ({rates[0]:.0f} .. {rates[-1]:.0f})"


def ratio(name: str, value: float, goal: str) -> None:
    """One result: `ratio NAME VALUE goal >= GOAL` or `<=`."""
    print(f"ratio {name} {value:.3f} goal {goal}", flush=True)
