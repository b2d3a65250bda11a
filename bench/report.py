"""What benchmarks share: their one option, and how a result is printed.

The figures come first, then one line a ratio that a script can read.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence


def quick(description: str | None) -> bool:
    """Whether the command line says `--quick`: then little is measured, once.

    It shows that the benchmark still runs, which CI asks of each; its figures mean nothing.
    """
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--quick", action="store_true", help="small and once: shows that it runs, and nothing else"
    )
    return bool(options.parse_args().quick)


def megabytes_per_second(size: int, seconds: Sequence[float]) -> str:
    """Median and spread of a throughput, in MB/s (10^6 bytes)."""
    rates = sorted(size / 1e6 / each for each in seconds)
    return f"{statistics.median(rates):7.0f} MB/s  ({rates[0]:.0f} .. {rates[-1]:.0f})"


def ratio(name: str, value: float, goal: str) -> None:
    """One result: `ratio NAME VALUE goal >= GOAL` or `<=`."""
    print(f"ratio {name} {value:.3f} goal {goal}", flush=True)
