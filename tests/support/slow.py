"""What `make test` does in part and `make test-slow` in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

#: A test that takes `full` does less without it: a few cases of many, or a smaller scope.
in_part_and_in_full = pytest.mark.parametrize(
    "full",
    [pytest.param(False, id="in part"), pytest.param(True, id="in full", marks=pytest.mark.slow)],
)


#: Minutes by itself, and what it shows is shown in part elsewhere: `make test-slow ALL=1`.
LONG = (pytest.mark.slow, pytest.mark.long)


def some(count: int, full: bool, *, most: int = 3) -> list[int]:
    """The numbers below `count`: all of them, or `most` from the first to the last."""
    if full or count <= most:
        return list(range(count))
    return [number * (count - 1) // (most - 1) for number in range(most)]


def slow(cases: Iterable[Any]) -> list[Any]:
    """Cases of one parameter that only `make test-slow` looks at."""
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


def long(cases: Iterable[Any]) -> list[Any]:
    """Cases of one parameter that only `make test-slow ALL=1` looks at."""
    return [pytest.param(case, marks=LONG) for case in cases]
