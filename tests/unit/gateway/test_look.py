from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coldstream.errors import NotFoundError, UnavailableError
from coldstream.gateway.look import SharedLook


class Store:
    """Answers when it is let; counts how often it was asked."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.may_answer = threading.Semaphore(0)

    def __call__(self) -> int:
        self.asked += 1
        assert self.may_answer.acquire(timeout=60)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def with_look(store: Store, test: Callable[[SharedLook[int], list[float]], Any]) -> None:
    now = [1.0]

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            await test(SharedLook(store, pool, lambda: now[0]), now)

    asyncio.run(run())


async def asked(store: Store, times: int) -> None:
    while store.asked < times:
        await asyncio.sleep(0.001)


def test_all_who_wait_hear_of_an_outage_after_one_look_and_the_next_is_answered() -> None:
    store = Store(UnavailableError("no answer"), 7)

    async def test(look: SharedLook[int], now: list[float]) -> None:
        waiting = [asyncio.create_task(look.since(now[0])) for _ in range(100)]
        await asked(store, 1)
        now[0] = 2.0
        late = asyncio.create_task(look.since(2.0))
        await asyncio.sleep(0)
        store.may_answer.release()
        for each in (*waiting, late):
            with pytest.raises(UnavailableError):
                await each
        assert store.asked == 1
        store.may_answer.release()
        assert await look.since(2.0) == 7

    with_look(store, test)


@pytest.mark.parametrize("early", [6, NotFoundError("no such stream")])
def test_a_look_that_began_too_early_is_no_answer(early: int | Exception) -> None:
    store = Store(early, 7)

    async def test(look: SharedLook[int], now: list[float]) -> None:
        first = asyncio.create_task(look.since(1.0))
        await asked(store, 1)
        now[0] = 2.0
        late = [asyncio.create_task(look.since(2.0)) for _ in range(3)]
        await asyncio.sleep(0)
        store.may_answer.release(2)
        assert [await each for each in late] == [7, 7, 7]
        assert store.asked == 2
        if isinstance(early, Exception):
            with pytest.raises(NotFoundError):
                await first

    with_look(store, test)


def test_who_asks_first_may_hang_up_and_the_others_have_their_answer() -> None:
    store = Store(7)

    async def test(look: SharedLook[int], now: list[float]) -> None:
        first, second = (asyncio.create_task(look.since(1.0)) for _ in range(2))
        await asked(store, 1)
        first.cancel()
        await asyncio.sleep(0)
        store.may_answer.release()
        assert await second == 7
        assert await look.since(1.0) == 7
        assert store.asked == 1

    with_look(store, test)
