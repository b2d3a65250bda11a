"""Requests that would run at once, one after the other: a task of the simulator has no threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class Inline(Executor):
    """Carries everything out in the caller, when it is submitted or its result is asked for.

    Args:
        workers: of no meaning here.
    """

    def __init__(self, workers: int = 1) -> None:
        del workers

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Carry it out now."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as exc:  # noqa: BLE001 - it goes to who waits
            future.set_exception(exc)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Any,
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """All of them, now, as a pool begins all of them at once."""
        del timeout, chunksize
        return iter([fn(*each) for each in zip(*iterables, strict=False)])
