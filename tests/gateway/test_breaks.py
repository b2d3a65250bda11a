"""How late a read is after its broker has hung up: the pauses between attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import cast

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.broker_tier import BrokerTier, SubscriptionEndedError
from coldstream.gateway.feed import Fed
from coldstream.gateway.stream import TieredStream, Wanted


class EnoughError(Exception):
    """The test has seen what it wants to."""


class Quiet:
    """A broker with nothing new, whose subscriptions end after so many seconds of its own clock."""

    def __init__(self, error: UnavailableError, lasts: list[float]) -> None:
        self.now = 0.0
        self.error, self.lasts = error, lasts
        self.pauses: list[float] = []

    async def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        del vhost, stream, position, more
        if not self.lasts:
            raise EnoughError
        self.now += self.lasts.pop(0)
        raise self.error
        yield

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


def pauses(error: UnavailableError, lasts: list[float]) -> list[float]:
    """What is waited after attempts that last so many seconds and give nothing."""
    broker = Quiet(error, lasts)
    stream = TieredStream(
        "/", "s", None, cast(BrokerTier, broker), None, lambda *_: None,
        clock=lambda: broker.now, sleep=broker.sleep,
    )  # fmt: skip

    async def read() -> None:
        async for _ in stream.follow(0, Wanted(None, {})):
            pass

    with pytest.raises(EnoughError):
        asyncio.run(read())
    return broker.pauses


ENDED, DEAD = SubscriptionEndedError("hung up"), UnavailableError("does not answer")


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(ENDED, 5.0), (ENDED, 86_400.0), (DEAD, 86_400.0)],
    ids=["leader changes", "weeks apart", "another tier"],
)
def test_breaks_that_were_long_over_make_nobody_who_waits_at_the_end_late(
    error: UnavailableError, seconds: float
) -> None:
    """After six of them, on a quiet stream, the next message came half a minute late."""
    assert max(pauses(error, [seconds] * 12)) <= 1.0


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(ENDED, 0.1), (DEAD, 0.0), (DEAD, 10.0)],
    ids=["cut", "refused", "silent"],
)
def test_attempts_that_fail_one_after_the_other_are_made_less_and_less_often(
    error: UnavailableError, seconds: float
) -> None:
    assert pauses(error, [seconds] * 8) == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
