"""How many waits, one after another, stand before the second fragment of a read.

Every GET waits for a turn that the test gives: all that are under way get it together, so the
number of turns is the number of round trips. A busy machine can only add turns (a GET comes after
the quiet that it should have ended), so a count too high is taken again with a longer quiet.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from coldstream.reader import Offset, ReaderSettings
from tests.support.tier import Tier, chunk

K = 1024
SETTINGS = ReaderSettings(
    range_size=40 * K, first_range_size=10 * K, in_flight=16, index_guess=2 * K
)


class Turns:
    """Passes GETs on, all that wait at once."""

    def __init__(self, inner: Any, quiet_s: float) -> None:
        self._inner = inner
        self._quiet_s = quiet_s
        self._changed = threading.Condition()
        self.turns = self._waiting = 0
        self._over = False

    def _turn(self) -> None:
        with self._changed:
            if self._over:
                return
            self._waiting += 1
            now = self.turns
            self._changed.wait_for(lambda: self._over or self.turns > now, 20)

    def serve(self) -> None:
        """Give a turn whenever nothing new has begun for a while."""
        while not self._over:
            before = self._waiting
            time.sleep(self._quiet_s)
            with self._changed:
                if self._waiting and self._waiting == before:
                    self.turns, self._waiting = self.turns + 1, 0
                    self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def get(self, *args: Any) -> Any:
        self._turn()
        return self._inner.get(*args)

    def get_suffix(self, *args: Any) -> Any:
        self._turn()
        return self._inner.get_suffix(*args)

    def get_all(self, *args: Any, **more: Any) -> Any:
        self._turn()
        return self._inner.get_all(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def turns_to(made: Tier, start: int, chunk_id: int, quiet_s: float) -> int:
    """Turns that a read from offset `start` takes until it has the chunk `chunk_id`."""
    store = Turns(made.store, quiet_s)
    threading.Thread(target=store.serve, daemon=True).start()
    chunks = Tier(store=store, catalog=made.catalog).reader("s", SETTINGS).chunks(Offset(start))
    try:
        next(each for each in chunks if each.header.chunk_id >= chunk_id)
        return store.turns
    finally:
        store.end()
        chunks.close()


@pytest.mark.parametrize(("per", "size", "start"), [(17, 2400, 16), (1, 50_000, 0), (2, 26_000, 0)])
def test_the_second_fragment_comes_no_later_than_five_round_trips(
    per: int, size: int, start: int
) -> None:
    made = Tier()
    made.add(
        "s", [[chunk(n, bytes(size)) for n in range(i * per, (i + 1) * per)] for i in range(8)]
    )

    assert any(turns_to(made, start, per, quiet_s) <= 5 for quiet_s in (0.25, 0.5, 1.0, 2.0))
