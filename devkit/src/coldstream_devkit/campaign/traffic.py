"""Who publishes to a life of a stream, and who takes down what its brokers deliver."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.campaign.life import Kind, Life, leader_of
from coldstream_devkit.stream_client import ClientError, StreamClient

_MOST_WAITING = 600
_SILENT_SECONDS = 10.0
_CONSUMER = "consumer"


@dataclass(slots=True)
class Publisher:
    """Publishes in a thread, through any failure, until it is told to stop.

    Args:
        life: that it publishes to.
        nodes: of the cluster.
        seed: of what it sends.
        pause: seconds between two batches.
    """

    life: Life
    nodes: Sequence[BrokerNode]
    seed: int
    pause: float = 0.25
    ending: Event = field(default_factory=Event)
    last_confirm: float = 0.0
    _waiting: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    _next: int = 1
    _stored_at: float = 0.0
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = Thread(target=self._run, name=f"publish {self.life.uid}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait until it has ended; whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        rng = random.Random(self.seed)
        while not self.life.quiet.is_set():
            node = leader_of(rng.sample(list(self.nodes), len(self.nodes)), self.life.queue)
            if node is not None:
                with suppress(ClientError), closing(StreamClient(node.ports.stream)) as client:
                    self._publish(client, rng)
            if self.ending.is_set() and not self._waiting:
                return
            time.sleep(0.3)

    def _publish(self, client: StreamClient, rng: random.Random) -> None:
        """Publish until it is to end, the connection breaks, or nobody confirms any more."""
        named = self.life.kind is Kind.NAMED
        client.declare(self.life.queue, "campaign" if named else "")
        if named:
            for number, rows in self._waiting.items():
                self.life.again.add(number)
                client.publish([(number, rows[0][1])])
        else:
            self._waiting.clear()  # nobody will ever know
        heard = time.monotonic()
        while not self.life.quiet.is_set():
            if not self.ending.is_set() and len(self._waiting) < _MOST_WAITING:
                self._send(client, rng)
            confirmed = client.confirmed(self.pause)
            for number in confirmed:
                self.life.confirmed.update(each for each, _ in self._waiting.pop(number, ()))
                heard = self.last_confirm = time.monotonic()
            if client.moved or (not self._waiting and self.ending.is_set()):
                return
            if self._waiting and time.monotonic() - heard > _SILENT_SECONDS:
                return
            if not confirmed and not self.ending.is_set():
                continue
            time.sleep(self.pause * rng.random())

    def _send(self, client: StreamClient, rng: random.Random) -> None:
        count = rng.randrange(1, 30)
        rows = []
        for _ in range(count):
            rows.append((self._next, self.life.body(self._next, rng)))
            self._next += 1
        if self.life.kind is Kind.TOGETHER and rng.random() < 0.7:
            self._waiting[rows[0][0]] = rows
            client.publish_together(rows[0][0], [body for _, body in rows])
        else:
            self._waiting.update((number, [(number, body)]) for number, body in rows)
            if self.life.kind is Kind.FILTERED:
                client.publish_filtered([(n, f"value {n % 7}", body) for n, body in rows])
            else:
                client.publish(rows)
        if self.life.kind is Kind.TOGETHER and time.monotonic() - self._stored_at > 1.0:
            self._stored_at = time.monotonic()
            client.store_offset(self.life.queue, _CONSUMER, rng.randrange(self._next))


@dataclass(slots=True)
class Tap:
    """Takes down what the brokers deliver of a life, in a thread; from any node, ever another.

    Args:
        life: that it is of.
        nodes: of the cluster.
        seed: of the choice of nodes.
    """

    life: Life
    nodes: Sequence[BrokerNode]
    seed: int
    ending: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = Thread(target=self._run, name=f"tap {self.life.uid}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait until it has ended; whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        rng = random.Random(self.seed)
        while not self.ending.is_set():
            port = rng.choice(self.nodes).ports.stream
            with suppress(ClientError), closing(StreamClient(port)) as client:
                client.subscribe(self.life.queue, self.life.next_offset)
                self._take(client, time.monotonic() + rng.uniform(5, 60))
            if self.life.deleted.is_set():
                return
            time.sleep(0.2)

    def _take(self, client: StreamClient, until: float) -> None:
        life = self.life
        while not self.ending.is_set() and time.monotonic() < until and not client.moved:
            for chunk in client.delivered(0.5):
                if chunk.first > life.next_offset:
                    life.unseen.append((life.next_offset, chunk.first))
                for offset, body in enumerate(chunk.bodies, chunk.first):
                    row = life.number(body), hashlib.sha256(body).digest()
                    if life.delivered.setdefault(offset, row) != row:
                        life.contradictions.append(f"offset {offset}, epoch {chunk.epoch}")
                life.next_offset = max(life.next_offset, chunk.first + len(chunk.bodies))
