"""What a service tells systemd, as sd_notify(3) says: one datagram a message, to $NOTIFY_SOCKET.

    READY=1                              it has begun, or begun anew after a reload
    RELOADING=1  MONOTONIC_USEC=...      it reads its settings again
    WATCHDOG=1                           its loop goes round
    STATUS=...                           one line for `systemctl status`
    STOPPING=1                           it is about to end

Nothing here ever fails: a manager that does not listen is no reason to stop an upload.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

_MAX_STATUS = 400
_US = 1_000_000
#: A manager that is busy must not hold the loop for long.
_PATIENCE_SECONDS = 1.0


@dataclass(slots=True)
class Manager:
    """The service manager that has started this process; nobody if no address is known.

    Args:
        address: path of its socket, or "@" and an abstract name; "" for nobody.
        watchdog_seconds: it expects to hear from the loop at least this often; None if it does not.
        clock: monotonic seconds, of CLOCK_MONOTONIC.
    """

    address: str = ""
    watchdog_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    _status: str = ""
    _alive_at: float = float("-inf")

    def ready(self) -> None:
        """The service has begun, or has read its settings again."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The service reads its settings again; `ready` says when it has."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(self.clock() * _US)}")

    def stopping(self) -> None:
        """The service is about to end."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for a person; sent when it is another one than before."""
        line = " ".join(text.split())[:_MAX_STATUS]
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    def alive(self) -> None:
        """The loop goes round; sent four times in the time that the manager waits."""
        if self.watchdog_seconds is None:
            return
        now = self.clock()
        if now - self._alive_at >= self.watchdog_seconds / 4 and self._send("WATCHDOG=1"):
            self._alive_at = now

    def _send(self, message: str) -> bool:
        if self.address[:1] not in ("/", "@"):
            return False
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError, ValueError):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.settimeout(_PATIENCE_SECONDS)
                out.sendto(message.encode(), address)
            return True
        return False


def manager_of(environment: Mapping[str, str], pid: int) -> Manager:
    """The manager that an environment names, for the process `pid`."""
    address = environment.get("NOTIFY_SOCKET", "")
    return Manager(address, _watchdog(environment, pid))


def _watchdog(environment: Mapping[str, str], pid: int) -> float | None:
    """Seconds; None if the manager does not watch this process."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / _US if text.isascii() and text.isdigit() and int(text) else None
