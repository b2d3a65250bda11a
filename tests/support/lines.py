"""How much work a call is, the same on every machine: lines of Python that it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def lines_of(call: Callable[[], T]) -> tuple[T, int]:
    """What a call gives, and how many lines of Python it has run, in this thread."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = call()
    finally:
        sys.settrace(before)
    return found, count
