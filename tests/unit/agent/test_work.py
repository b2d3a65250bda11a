"""Looks and uploads under way: whatever becomes of a stream, each has its room again at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from coldstream.agent.turns import Turns
from coldstream.agent.work import Work
from coldstream.errors import UnavailableError

from .machine import Machine

STREAM = "__orders_1745252105682952932"


class Follower:
    """Of a stream that is gone, and of which nothing more is to be done."""

    progress = SimpleNamespace(stream=STREAM)
    failures = 0

    def step(self, now: float, now_ms: int, *, most: int) -> list[Any]:
        return []

    def over(self, now: float) -> bool:
        return True

    def failed(self, *_: object) -> None:
        self.failures += 1


def test_an_upload_that_ends_while_a_later_life_of_its_stream_is_found_to_be_gone_is_over() -> None:
    """A rule had left the stream alone, and taken it again: its room was never given back."""
    machine, turns = Machine(), Turns()
    before, now = Follower(), Follower()
    followers: Any = {STREAM: now}

    def over(stream: str) -> None:
        del followers[stream]
        turns.forget(stream)

    work = Work(machine, turns, followers, 4, lambda: 1.0, over)
    job: Any = SimpleNamespace(log=SimpleNamespace(stream=STREAM), piece=None)
    work.jobs[id(job)] = job
    work.room -= 1
    turns.begin(STREAM)
    with machine.workers(1, "look") as lookers:
        work.look(lookers, 1)
    uploader: Any = SimpleNamespace(outcome=lambda *_: UnavailableError("no answer"))
    follower: Any = before
    work._upload(follower, job, uploader)

    for _ in range(3):
        work.collect(1.0, None, uploader)

    assert followers == {}
    assert (before.failures, work.jobs, work.room) == (1, {}, 4)
