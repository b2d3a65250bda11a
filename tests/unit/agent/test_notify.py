"""What a manager of services hears, over real datagram sockets."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coldstream.agent.telling.notify import Manager, manager_of


class Ear:
    """A socket of a manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address[0] == "@" else address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(4096).decode())
        return found


@pytest.fixture(params=["path", "abstract"])
def ear(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ear]:
    abstract = f"@coldstream-test-{secrets.token_hex(8)}"
    made = Ear(abstract if request.param == "abstract" else str(tmp_path / "notify"))
    yield made
    made.socket.close()


def test_each_message_is_one_datagram_in_the_words_of_sd_notify(ear: Ear) -> None:
    manager = Manager(ear.address, clock=lambda: 12.5)

    manager.ready()
    manager.reloading()
    manager.stopping()

    assert ear.heard() == ["READY=1", "RELOADING=1\nMONOTONIC_USEC=12500000", "STOPPING=1"]


def test_a_status_is_one_line_and_said_when_it_changes(ear: Ear) -> None:
    manager = Manager(ear.address)

    for text in ("a\nREADY=1", "a\nREADY=1", "b" * 1000):
        manager.status(text)

    assert ear.heard() == ["STATUS=a READY=1", "STATUS=" + "b" * 400]


def test_the_watchdog_hears_of_the_loop_four_times_in_its_time(ear: Ear) -> None:
    now = [0.0]
    manager = Manager(ear.address, watchdog_seconds=8.0, clock=lambda: now[0])

    for _ in range(9):
        manager.alive()
        now[0] += 1.0

    assert ear.heard() == ["WATCHDOG=1"] * 5


def test_nobody_who_watches_hears_nothing(ear: Ear) -> None:
    Manager(ear.address).alive()

    assert ear.heard() == []


@pytest.mark.parametrize("address", ["", "relative", "/does/not/exist", "/" + "x" * 300])
def test_a_manager_that_cannot_be_told_is_no_error(address: str) -> None:
    manager = Manager(address, watchdog_seconds=1.0)

    manager.ready()
    manager.alive()
    manager.status("on")


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "600000000"}, 600.0),
        ({"WATCHDOG_USEC": "600000000", "WATCHDOG_PID": "7"}, 600.0),
        ({"WATCHDOG_USEC": "600000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_only_the_process_that_is_watched_speaks_to_the_watchdog(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert manager_of(environment, 7).watchdog_seconds == seconds
