"""The agents of a campaign: processes of the command line, one beside each node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.wrong_clock import WrongClock

COLDSTREAM = Path(sys.executable).with_name("coldstream")


@dataclass(slots=True)
class AgentProcess:
    """One agent, killed and started again as often as one likes.

    Args:
        node: that it stands beside.
        environment: where the tier is.
        log: gets what it says on stderr.
        more: words behind those that it always gets.

    Attributes:
        kills: how often it was killed.
        deaths: how it ended when nobody had killed it.
        frozen: whether it is stopped just now.
        clock: how wrong its clock is from the next start on; None if it is right.
    """

    node: BrokerNode
    environment: Mapping[str, str]
    log: Path
    more: Sequence[str] = ()
    kills: int = 0
    deaths: list[str] = field(default_factory=list)
    frozen: bool = False
    clock: WrongClock | None = None
    _process: subprocess.Popen[bytes] | None = None
    _lock: Lock = field(default_factory=Lock)

    def start(self) -> None:
        """Start it."""
        words = [
            str(COLDSTREAM), "agent", "run", "--data-dir", str(self.node.data_dir),
            "--committed", "broker", "--flush", "1s", "--takeover", "3s",
            "--fragment-size", "256KiB",
            "--node", self.node.name, *self.more,
        ]  # fmt: skip
        told = {
            "COLDSTREAM_STREAM_URI": self.node.stream_uri,
            "COLDSTREAM_MANAGEMENT_URI": self.node.management_uri,
        }
        clock = self.clock
        wrong = clock.variables(clock.library) if clock is not None else {}
        with self.log.open("ab") as log:
            how = f", its clock {clock.seconds:+d} s" if clock is not None else ""
            log.write(f"--- {time.strftime('%H:%M:%S')} started{how}\n".encode())
            self._process = subprocess.Popen(
                words,
                env={**self.environment, **told, **wrong},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill it, and start it again at once; one that has died by itself is told."""
        with self._lock:
            self._look()
            if self._process is not None and not self.frozen:
                self._process.kill()
                self._process.wait()
                self.kills += 1
                self.start()

    def look(self) -> None:
        """See whether it lives; one that does not is told, and started again."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            self.deaths.append(f"{time.strftime('%H:%M:%S')} exit code {code}")
            self.start()

    def freeze(self, seconds: float) -> None:
        """Stop it for so long, and let it go on."""
        with self._lock:
            process, self.frozen = self._process, True
        if process is not None and process.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(process.pid, signal.SIGCONT)
        self.frozen = False

    def end(self) -> int:
        """End it as systemd does; its exit code."""
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return -signal.SIGKILL

    def discard(self) -> None:
        """Kill it for good, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
