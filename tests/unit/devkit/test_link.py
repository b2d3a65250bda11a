"""The proxy of campaigns: what it is told to do to connections, it does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from coldstream_devkit.campaign.link import Fault, Link

SIZE = 300_000


class Echo:
    """A server that gives back what it gets, and counts it."""

    def __init__(self) -> None:
        self.got = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                taken, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with taken:
            try:
                while block := taken.recv(65536):
                    with self.changed:
                        self.got += len(block)
                        self.changed.notify_all()
                    taken.sendall(block)
            except OSError:
                return  # whoever sent it does not want it back

    def has(self, size: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.got >= size, 60)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.listener.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    made = Link(echo.port)
    made.start()
    yield made
    made.close()


def connected(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), 60)


def received(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (block := client.recv(size - len(data))):
        data += block
    return data


def test_everything_passes_both_ways_through_a_link_that_is_whole_or_slow(link: Link) -> None:
    for fault in (None, Fault.SLOW):
        if fault:
            link.spoil("test", fault, 2_000_000)
        with connected(link) as client:
            threading.Thread(target=client.sendall, args=(b"x" * SIZE,), daemon=True).start()
            assert received(client, SIZE) == b"x" * SIZE


def test_a_link_that_refuses_breaks_what_there_is_and_takes_nothing_until_it_is_healed(
    link: Link,
) -> None:
    with connected(link) as client:
        client.sendall(b"a")
        assert received(client, 1) == b"a"
        link.spoil("test", Fault.REFUSED)
        with pytest.raises(ConnectionError):
            # Closed in order, or broken: it is over either way.
            raise ConnectionError if not received(client, 1) else AssertionError
        with pytest.raises(ConnectionRefusedError):
            connected(link)

    link.heal("test")

    with connected(link) as client:
        client.sendall(b"b")
        assert received(client, 1) == b"b"


def test_what_was_sent_into_a_link_that_hangs_arrives_later_though_nobody_waits(
    link: Link, echo: Echo
) -> None:
    link.spoil("test", Fault.HUNG)
    with connected(link) as client:
        client.sendall(b"late")
    assert echo.got == 0

    link.heal("test")

    assert echo.has(4)


def test_a_fault_stays_until_who_wanted_it_heals_it(link: Link) -> None:
    link.spoil("one", Fault.REFUSED)
    link.spoil("other", Fault.HUNG)

    link.heal("other")

    with pytest.raises(ConnectionRefusedError):
        connected(link)
