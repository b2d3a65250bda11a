"""Real RabbitMQ nodes beside the deployed app on the embedded AWS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rstream import ConfirmationStatus, Producer

from coldstream_devkit.broker import BrokerNode, installed
from tests.e2e.conftest import Site, site, wait_for

__all__ = ["Site", "site", "wait_for"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it needs the package, and is run by `make test-broker`.

    The stock client leaves sockets open when its broker is killed; that is told whenever Python
    collects them, in any test.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.broker)
            item.add_marker(pytest.mark.emulator)
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A directory that the package's user may enter."""
    made = Path("/tmp") / f"coldstream-broker-{os.getpid()}-{secrets.token_hex(4)}"
    made.mkdir(mode=0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def node(base: Path) -> Iterator[BrokerNode]:
    """A node of its own for one test."""
    assert installed(), "rabbitmq-server is not installed: apt-get install rabbitmq-server"
    made = BrokerNode(base / secrets.token_hex(4))
    made.start()
    yield made
    made.stop()


@dataclass
class Publisher:
    """A stock client that publishes in a thread, through any failure of the broker.

    A message that was not confirmed is published again, so one may be there twice; what is
    confirmed must be there.

    Attributes:
        confirmed: bodies that the broker has confirmed.
    """

    node: BrokerNode
    stream: str
    pause: float = 0.002
    batch: int = 50
    size: int = 100
    confirmed: set[bytes] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _number: int = 0

    def __enter__(self) -> Publisher:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(30)

    async def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(Exception):  # it is down: another try
                await asyncio.wait_for(self._publish(), 60)
            await asyncio.sleep(0.2)

    async def _publish(self) -> None:
        port = self.node.ports.stream
        waiting: dict[int, bytes] = {}
        failed = asyncio.Event()

        def done(status: ConfirmationStatus) -> None:
            if status.is_confirmed:
                self.confirmed.add(waiting.pop(status.message_id))

        async def lost(*_: object) -> None:
            failed.set()

        producer = Producer(
            "127.0.0.1", port=port, username="guest", password="guest",
            on_close_handler=lost,
        )  # fmt: skip
        try:
            await producer.create_stream(self.stream, exists_ok=True)
            while not self._stop.is_set() and not failed.is_set():
                bodies = []
                for _ in range(self.batch):
                    self._number += 1
                    bodies.append((b"%09d " % self._number).ljust(self.size, b"."))
                ids = await producer.send_batch(self.stream, bodies, on_publish_confirm=done)
                waiting |= dict(zip(ids, bodies, strict=True))
                await asyncio.sleep(self.pause)
            for _ in range(100):
                if not waiting or failed.is_set():
                    break
                await asyncio.sleep(0.05)
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(producer.close(), 2)
