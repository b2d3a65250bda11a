"""The numbers that subscriptions have on one connection to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from coldstream.errors import UnavailableError

#: That a subscription can have.
_NUMBERS = 256


class Subscribed(Protocol):
    """What has a number."""

    number: int
    stream: str

    def put(self, data: bytes) -> bool:
        """A Deliver has come; False if it was not asked for."""
        ...

    def end(self, error: UnavailableError) -> None:
        """Nothing more comes, and why."""
        ...


T = TypeVar("T", bound=Subscribed)


class Numbers:
    """Who has which number; each is used by one at a time."""

    def __init__(self) -> None:
        self._taken: dict[int, Subscribed] = {}
        self._freed = asyncio.Event()
        self._over: UnavailableError | None = None

    def __bool__(self) -> bool:
        return bool(self._taken)

    def of(self, number: int) -> Subscribed | None:
        """Who has it."""
        return self._taken.get(number)

    async def take(self, make: Callable[[int], T]) -> T:
        """Make something that has a number; waits where many want one at once.

        Raises:
            UnavailableError: the connection is broken.
        """
        while True:
            number = next((each for each in range(_NUMBERS) if each not in self._taken), None)
            if number is not None:
                made = make(number)
                self._taken[number] = made
                return made
            if self._over is not None:
                raise self._over
            self._freed.clear()
            await self._freed.wait()

    def free(self, number: int) -> None:
        """Another one may have it."""
        self._taken.pop(number, None)
        self._freed.set()

    def end(self, error: UnavailableError) -> None:
        """The connection is broken: everybody is told, who waits, too."""
        self._over = error
        for each in self._taken.values():
            each.end(error)
        self._freed.set()

    def lost(self, stream: str, error: UnavailableError) -> None:
        """Those of one stream have ended."""
        for each in self._taken.values():
            if each.stream == stream:
                each.end(error)
