"""The real `coldstream agent run` in a process of its own, and what it takes of the machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from bench.limits import Limits

_TICKS = os.sysconf("SC_CLK_TCK")


class AgentProcess:
    """An agent that runs.

    Args:
        data_dir: holds one directory a stream.
        arguments: of `coldstream agent run`, behind `--data-dir`.
        environment: where AWS is.
        limits: of its CPU time.
        log: takes what it says.
    """

    def __init__(
        self,
        data_dir: Path,
        arguments: list[str],
        environment: Mapping[str, str],
        limits: Limits,
        log: Path,
    ) -> None:
        command = [str(Path(sys.executable).with_name("coldstream")), "agent", "run"]
        self.log = log
        with log.open("ab") as out:
            self.began = time.monotonic()
            self._process = subprocess.Popen(
                limits.command([*command, "--data-dir", str(data_dir), *arguments]),
                env={**os.environ, **environment},
                stderr=out,
                stdout=out,
            )
        limits.take(self._process.pid)
        self._peak, self._used = 0, [(self.began, 0.0)]

    def __enter__(self) -> AgentProcess:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _watch(self) -> None:
        while self._process.poll() is None:
            self._peak = max(self._peak, self.resident)
            with suppress(OSError):
                self._used.append((time.monotonic(), self.cpu))
            time.sleep(0.1)

    @property
    def cpu(self) -> float:
        """CPU seconds of all its threads since it began."""
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICKS

    def cpu_at(self, moment: float) -> float:
        """CPU seconds that it had used at a moment, by samples of every 0.1 s."""
        times, used = zip(*self._used, strict=True)
        return float(np.interp(moment, times, used))

    @property
    def resident(self) -> int:
        """Resident bytes now; 0 if it is gone."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    @property
    def peak(self) -> int:
        """The most resident bytes so far."""
        return self._peak

    def check(self) -> None:
        """See that it runs.

        Raises:
            SystemExit: it does not; with the end of its log.
        """
        if self._process.poll() is not None:
            words = self.log.read_text()[-2000:]
            raise SystemExit(f"the agent ended with {self._process.returncode}: {words}")

    def stop(self) -> None:
        """End it as a service manager does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
