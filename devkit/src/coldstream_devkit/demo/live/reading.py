"""The last act of the live demo: a stock client reads it all through the gateway, most of it in S3.

The broker's local retention takes the old segments. Then rstream, which knows nothing of all this,
reads from the first message to the live tail at the gateway's port, while messages are published.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

from coldstream_devkit.broker import free_ports
from coldstream_devkit.campaign.agents import COLDSTREAM
from coldstream_devkit.campaign.life import Life, wait_until
from coldstream_devkit.demo.live.stage import Stage
from coldstream_devkit.demo.live.watermarks import Scrape
from coldstream_devkit.stream_client import ClientError, StreamClient

#: Local retention keeps so much, and so much of the stream must be in S3 only.
_LOCAL_BYTES, _SHARE = 900_000, 0.9
#: All that is published at once fits into what local retention keeps, so that nothing is lost.
_BATCH, _BODY, _TAIL_BATCHES = 300, 1000, 2
_RETENTION_SECONDS, _START_SECONDS, _READ_SECONDS = 600.0, 60.0, 300.0


@dataclass(slots=True)
class Reading:
    """The act.

    Args:
        stage: that it is played on; its agent runs.
        life: what was published before, and where the broker delivers it.
        say: shows a line.
    """

    stage: Stage
    life: Life
    say: Callable[[str], None]
    _later: list[bytes] = field(default_factory=list)

    def play(self) -> list[str]:
        """Play it; sentences about what is not as it should be."""
        node = self.stage.node
        policy = f'{{"max-length-bytes": {_LOCAL_BYTES}}}'
        queue = self.life.queue
        node.control("set_policy", "short", f"^{queue}$", policy, "--apply-to", "queues")
        if not wait_until(self._taken, _RETENTION_SECONDS):
            return ["local retention takes nothing"]
        first, end = self._local_first(), self.life.next_offset + len(self._later)
        self.say(
            f"local retention has left offsets {first:,} to {end - 1:,}:"
            f" {100 * first / end:.0f} % of the stream is in S3 only"
        )
        with self._gateway() as (port, metrics):
            began = time.monotonic()
            found = asyncio.run(self._read(port))
            seconds = time.monotonic() - began
            self.say(self._figures(len(found), seconds, metrics))
        return self._compared(found)

    def _taken(self) -> bool:
        """Publish a little, and have it uploaded; whether most of all is in S3 only by now."""
        self._publish()
        if not wait_until(self._uploaded, _RETENTION_SECONDS):
            return False
        return self._local_first() >= _SHARE * (self.life.next_offset + len(self._later))

    def _uploaded(self) -> bool:
        scrape = Scrape(self.stage.metrics_port, self.life.directory)
        scrape.look()
        end = self.life.next_offset + len(self._later)
        return not scrape.old and scrape.marks["published"] >= end

    def _local_first(self) -> int:
        files = (self.stage.node.data_dir / self.life.directory).glob("*.segment")
        return min((int(path.stem) for path in files), default=0)

    def _publish(self) -> None:
        first = len(self._later)
        numbers = range(first, first + _BATCH)
        bodies = [f"later {number:09d} ".encode().ljust(_BODY, b".") for number in numbers]
        with contextlib.closing(StreamClient(self.stage.node.ports.stream, seconds=60)) as client:
            client.declare(self.life.queue)
            client.publish(list(zip(numbers, bodies, strict=True)))
            waiting = set(numbers)
            while waiting:
                confirmed = client.confirmed(60)
                if not confirmed:
                    raise ClientError("messages are not confirmed")
                waiting -= set(confirmed)
        self._later += bodies

    @contextmanager
    def _gateway(self) -> Iterator[tuple[int, int]]:
        """Run it; its port, and that of its metrics."""
        port, metrics = free_ports(2)
        users = self.stage.directory / "users"
        users.write_text("app:secret:.*\n")
        words = [
            *("gateway", "run", "--port", str(port), "--users", str(users)),
            *("--stream-uri", self.stage.node.stream_uri, "--metrics-port", str(metrics)),
        ]
        self.say(f"gateway: coldstream gateway run --port {port} --users users --stream-uri ...")
        with (self.stage.directory / "gateway.log").open("ab") as log:
            process = subprocess.Popen(
                [COLDSTREAM, *words],
                env=self.stage.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            if not wait_until(lambda: _listens(port), _START_SECONDS):
                raise ClientError("the gateway does not listen")
            yield port, metrics
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
            process.wait()

    async def _read(self, port: int) -> list[tuple[int, bytes]]:
        """(offset, body) of all that rstream gets, to the last of what is published meanwhile."""
        self.say(f'rstream: Consumer(host="127.0.0.1", port={port}, ...), from the first message')
        consumer = Consumer("127.0.0.1", port, username="app", password="secret", vhost="/")
        found: list[tuple[int, bytes]] = []
        come = asyncio.Condition()

        async def take(body: Any, context: Any) -> None:
            async with come:
                found.append((context.offset, bytes(body)))
                come.notify_all()

        await consumer.start()
        spec = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        await consumer.subscribe(self.life.queue, take, offset_specification=spec)
        for _ in range(_TAIL_BATCHES):
            await asyncio.to_thread(self._publish)
        last = self._later[-1]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READ_SECONDS), come:
                await come.wait_for(lambda: bool(found) and found[-1][1] == last)
        await consumer.close()
        return found

    def _figures(self, count: int, seconds: float, metrics: int) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as page:
            families = text_string_to_metric_families(page.read().decode())
        by_tier = {
            sample.labels["tier"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == "coldstream_gateway_bytes_total"
        }
        return (
            f"{count:,} messages from the first to the live tail in {seconds:.1f} s:"
            f" {by_tier['remote'] / 1e6:.1f} MB from S3, {by_tier['broker'] / 1e6:.1f} MB from the"
            " broker"
        )

    def _compared(self, found: list[tuple[int, bytes]]) -> list[str]:
        """What is not as it was published: each message once, in order, at its offset."""
        problems = []
        offsets = [offset for offset, _ in found]
        if offsets != sorted(set(offsets)):
            problems.append("the gateway gives messages twice, or not in order")
        before = {offset: digest for offset, (_, digest) in self.life.delivered.items()}
        old = [(offset, body) for offset, body in found if offset < self.life.next_offset]
        if {offset: hashlib.sha256(body).digest() for offset, body in old} != before:
            problems.append("the gateway does not give what the broker delivered before")
        if [body for _, body in found[len(old) :]] != self._later:
            problems.append("the gateway does not give what was published last")
        return problems


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False
