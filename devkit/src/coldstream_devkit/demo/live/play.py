"""The story of the live demo: a publisher, an agent and a broker that are killed, a settlement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from coldstream_devkit.broker import BrokerError
from coldstream_devkit.campaign.life import ARGUMENTS, Kind, Life, wait_until
from coldstream_devkit.campaign.traffic import Publisher, Tap
from coldstream_devkit.demo.live.stage import Stage
from coldstream_devkit.demo.live.watermarks import HEAD, Scrape, line
from coldstream_devkit.stream_client import StreamClient

QUEUE = "live"
_AGENT, _BROKER = "agent", "broker"
_PUBLISH_PAUSE = 0.1
_KILLS = ((_AGENT,), (_BROKER,), (_AGENT, _BROKER))
_DOWN_SECONDS = 3.0
_RECOVERY_SECONDS = 300.0
_CONFIRM_SECONDS = 300.0
_SETTLE_SECONDS = 600.0
_LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Play:
    """One run.

    Args:
        stage: that it is played on.
        publish_seconds: for how long messages are published while all is well; what the kills cost
            comes on top.
        every_seconds: between two lines.
        say: shows a line.
    """

    stage: Stage
    publish_seconds: float
    every_seconds: float
    say: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _down: set[str] = field(default_factory=set)

    def run(self) -> tuple[Life, bool]:
        """Play it to its end.

        Returns:
            What was sent, confirmed and delivered; and whether broker and agent came back each
            time, all was confirmed, and the five watermarks met at the end of the stream.

        Raises:
            BrokerError: the broker does not come back.
            ClientError: it creates no stream.
        """
        node = self.stage.node
        life = Life(QUEUE, "live", Kind.NAMED)
        client = StreamClient(node.ports.stream, seconds=60)
        client.create(QUEUE, ARGUMENTS[Kind.NAMED])
        client.close()
        if not wait_until(lambda: any(node.data_dir.glob(f"__{QUEUE}_*")), 60):
            raise BrokerError(f"there is no directory of {QUEUE} in {node.data_dir}")
        node.flush()
        (life.directory,) = (path.name for path in node.data_dir.glob(f"__{QUEUE}_*"))
        scrape = Scrape(self.stage.metrics_port, life.directory)
        publisher = Publisher(life, [node], seed=1, pause=_PUBLISH_PAUSE)
        tap = Tap(life, [node], seed=1)
        self.stage.agent.start()
        self._began = time.monotonic()
        tap.start()
        publisher.start()
        try:
            with self._showing(life, scrape):
                good = self._kill_and_publish(life, scrape)
                self._event(f"publishing ends; {len(life.confirmed):,} messages are confirmed")
                publisher.ending.set()
                good = publisher.join(_CONFIRM_SECONDS) and good
                self._event("waiting until the five watermarks meet")
                good = wait_until(lambda: _settled(life, scrape), _SETTLE_SECONDS) and good
        finally:
            life.quiet.set()
            tap.ending.set()
            publisher.join(30)
            tap.join(30)
        self._line(life, scrape)
        return life, good

    def _event(self, words: str) -> None:
        self.say(f"{time.monotonic() - self._began:6.1f} s  -- {words}")

    def _line(self, life: Life, scrape: Scrape) -> None:
        seconds = time.monotonic() - self._began
        down = sorted(self._down)
        self.say(line(seconds, len(life.confirmed), scrape.marks, old=scrape.old, down=down))

    @contextmanager
    def _showing(self, life: Life, scrape: Scrape) -> Iterator[None]:
        """Look all the time, and show a line every few seconds."""
        stop = Event()

        def run() -> None:
            shown = float("-inf")
            while not stop.wait(_LOOK_SECONDS):
                scrape.look()
                if time.monotonic() - shown >= self.every_seconds:
                    shown = time.monotonic()
                    self._line(life, scrape)

        self.say(HEAD)
        thread = Thread(target=run, name="show", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)

    def _kill_and_publish(self, life: Life, scrape: Scrape) -> bool:
        """Publish for as long as told, with the kills in between; whether both came back each time.

        The time begins anew with each of them, so that a slow machine sees the same story.
        """
        part = self.publish_seconds / (len(_KILLS) + 1)
        good = self._both_work(life, scrape)
        time.sleep(part)
        for who in _KILLS:
            for name in who:
                self._kill(name)
            time.sleep(_DOWN_SECONDS)
            for name in who:
                self._start(name)
            good = self._both_work(life, scrape) and good
            time.sleep(part)
        return good

    def _both_work(self, life: Life, scrape: Scrape) -> bool:
        """Wait until something more is confirmed, and the agent has seen it; whether it came."""
        before = len(life.confirmed)
        behind = scrape.marks.get("committed", 0)
        return wait_until(
            lambda: (
                len(life.confirmed) > before
                and not scrape.old
                and scrape.marks["committed"] > behind
            ),
            _RECOVERY_SECONDS,
        )

    def _kill(self, name: str) -> None:
        if name == _AGENT:
            self.stage.agent.discard()
        else:
            self.stage.node.kill()
        self._down.add(name)
        self._event(f"kill -9 of the {name}")

    def _start(self, name: str) -> None:
        self._event(f"the {name} is started again")
        if name == _AGENT:
            self.stage.agent.start()
        else:
            self.stage.node.start()
        self._down.discard(name)


def _settled(life: Life, scrape: Scrape) -> bool:
    """Whether all five marks are where the broker's own deliveries end, confirmed ones included."""
    delivered = {number for number, _ in dict(life.delivered).values()}
    ends = {life.next_offset, *scrape.marks.values()}
    return scrape.equal() and len(ends) == 1 and life.confirmed <= delivered
