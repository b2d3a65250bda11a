"""Runs of materialise at once, in any order of their calls: each message once, and one wins."""

from __future__ import annotations

import random
from threading import Condition, Thread, current_thread
from typing import Any

import pytest

from coldstream.errors import ConflictError
from coldstream.jobs.materialise.rules import TableFiles, TablePartition, TableRule
from tests.support.slow import in_part_and_in_full
from tests.unit.jobs.test_latest import LatestSite, dictionary, random_messages
from tests.unit.jobs.test_materialise_run import (
    BILLS,
    ORDERS,
    Clock,
    Engine,
    Killed,
    Site,
    Source,
)


class Turns(Clock):
    """Lets one thread go on at a time; who is next is drawn at each call, and who dies.

    Args:
        seed: of what is drawn.
        mortal: one call in so many kills; None kills nobody.
    """

    def __init__(self, seed: int, mortal: int | None) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self._mortal = mortal
        self._waiting: dict[Thread, bool] = {}
        self._changed = Condition()
        self._now: Thread | None = None

    def tick(self) -> None:
        me = current_thread()
        with self._changed:
            if me not in self._waiting:
                return
            self._draw()
            self._changed.wait_for(lambda: self._now is me)
            if self._mortal and not self._rng.randrange(self._mortal):
                raise Killed

    def play(self, threads: list[Thread]) -> None:
        self._waiting = dict.fromkeys(threads, True)
        with self._changed:
            self._draw()
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def begin(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._now is current_thread())

    def end(self) -> None:
        with self._changed:
            del self._waiting[current_thread()]
            self._draw()

    def _draw(self) -> None:
        self._now = self._rng.choice(list(self._waiting)) if self._waiting else None
        self._changed.notify_all()


class Strict(Source):
    """Messages as a run with another rule sees them: more of them are dead letters."""

    def _row(self, offset: int) -> dict[str, Any]:
        row = super()._row(offset)
        if offset % 5 == 2:
            row |= {"body": None, "body_kind": None, "error": "too strict for this"}
        return row


def bodies(length: int) -> list[bytes | None]:
    return [b"broken" if n % 31 == 5 else b"%d" % n for n in range(length)]


def play(seed: int, site: Site, deaths: bool = False) -> list[bool]:
    """Some runs at once; whether each came to its end, but for those that died."""
    rng = random.Random(seed)
    turns = site.store.clock = Turns(seed, rng.choice([20, 60, 200]) if deaths else None)
    ended: list[bool] = []

    def run(engine: Engine, window_bytes: int) -> None:
        turns.begin()
        try:
            site.run(engine, window_bytes=window_bytes)
            ended.append(True)
        except ConflictError:
            ended.append(False)
        except Killed:
            pass
        finally:
            turns.end()

    threads = []
    for _ in range(rng.choice([2, 3, 4])):
        engine = site.engine
        if site.source is Source:
            engine.source = rng.choice([Source, Strict])
        arguments = engine, rng.choice([1, 3, 100])
        threads.append(Thread(target=run, args=arguments, daemon=True))
    turns.play(threads)
    site.store.clock = Clock()
    assert deaths or len(ended) == len(threads)
    return ended


@in_part_and_in_full
@pytest.mark.parametrize("deaths", [False, True], ids=["all live", "some die"])
@pytest.mark.parametrize("files", list(TableFiles))
def test_of_runs_at_once_one_comes_to_its_end_and_each_message_is_there_once(
    files: TableFiles, deaths: bool, full: bool
) -> None:
    for seed in range(60 if full else 8):
        rule = TableRule(".*", "db.t", files=files, partition=TablePartition.NONE)
        site = Site({ORDERS: bodies(10), BILLS: bodies(20)}, rule)
        site.run()
        site.bodies = {ORDERS: bodies(90), BILLS: bodies(60 + seed % 50)}

        ended = play(seed, site, deaths)

        assert deaths or any(ended), f"seed {seed}"
        site.run()
        rows, dead = site.content()
        found = sorted([row[:2] for row in rows] + dead)
        every = [(stream, n) for stream, each in site.bodies.items() for n in range(len(each))]
        assert found == sorted(every), f"seed {seed}"


@in_part_and_in_full
@pytest.mark.parametrize("deaths", [False, True], ids=["all live", "some die"])
def test_of_runs_at_once_that_fill_a_table_of_the_latest_one_comes_to_its_end(
    deaths: bool, full: bool
) -> None:
    for seed in range(30 if full else 4):
        rng = random.Random(seed)
        site = LatestSite({ORDERS: random_messages(rng, 16), BILLS: random_messages(rng, 6)})
        site.run()
        for each in site.bodies.values():
            each += random_messages(rng, 20)

        ended = play(seed, site, deaths)

        assert deaths or any(ended), f"seed {seed}"
        site.run()
        assert site.latest() == dictionary(site.bodies), f"seed {seed}"
