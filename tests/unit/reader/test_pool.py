from __future__ import annotations

import threading
from concurrent.futures import Future, wait

import pytest

from coldstream.reader.pool import SharedPool, submit

LARGE, SMALL = 4 * 2**20, 2**10


class Busy:
    """A pool of one thread, which stands still until `go`; and what has run since, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []
        self.pool = SharedPool(1, lambda: self.now)
        self._go, begun = threading.Event(), threading.Event()
        self._first = self.pool.submit_sized(0, lambda: (begun.set(), self._go.wait(30)))
        begun.wait(30)

    def ask(self, name: str, size: int) -> Future[None]:
        return submit(self.pool.view(1), size, lambda: self.ran.append(name))

    def go(self, *futures: Future[None]) -> list[str]:
        self._go.set()
        wait(futures, 30)
        return self.ran


def test_a_small_get_does_not_wait_behind_large_ones() -> None:
    busy = Busy()
    asked = [busy.ask(f"large {n}", LARGE) for n in range(3)]
    busy.now = 0.05
    asked.append(busy.ask("small", SMALL))

    assert busy.go(*asked) == ["small", "large 0", "large 1", "large 2"]


def test_small_gets_do_not_keep_a_large_one_waiting_for_ever() -> None:
    busy = Busy()
    asked = [busy.ask("large", LARGE)]
    for n in range(4):
        busy.now = 0.05 * n
        asked.append(busy.ask(f"small {n}", SMALL))

    assert busy.go(*asked) == ["small 0", "small 1", "small 2", "large", "small 3"]


def test_who_shuts_his_view_down_drops_only_what_is_his() -> None:
    busy = Busy()
    mine, others = busy.pool.view(1), busy.pool.view(1)
    dropped = submit(mine, SMALL, lambda: busy.ran.append("mine"))
    stays = submit(others, SMALL, lambda: busy.ran.append("other"))

    mine.shutdown(cancel_futures=True)

    assert busy.go(stays) == ["other"]
    assert dropped.cancelled()


def test_an_error_is_told_to_who_asked() -> None:
    def broken() -> None:
        raise ValueError("broken")

    pool = SharedPool(1)
    with pytest.raises(ValueError, match="broken"):
        pool.view(1).submit(broken).result(30)
    pool.close()


def test_what_has_not_begun_is_dropped_when_the_pool_is_closed() -> None:
    busy = Busy()
    late = busy.ask("late", SMALL)

    busy.pool.close()

    assert late.cancelled()
    assert busy.go() == []
