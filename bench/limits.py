"""The limits under which a process of a benchmark runs: those of the agent's unit, and others.

The unit of the package gives the agent `Nice=10`, `CPUQuota=100%` and, in a slice of its own, a
weight of 20 against the 100 of the broker's slice. A benchmark has no systemd; it makes control
groups with the same shares. Where it may not, only the niceness is left, and it says so.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_SHARES = 1024  # of a weight of 100
_PERIOD = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one process and its children.

    Attributes:
        nice: niceness.
        group: its control group; None where none could be made.
    """

    nice: int = 0
    group: Path | None = None

    def command(self, arguments: list[str]) -> list[str]:
        """The command with what is set by programs."""
        if self.nice:
            return ["nice", "-n", str(self.nice), "ionice", "-c2", "-n7", *arguments]
        return arguments

    def take(self, pid: int) -> None:
        """Put a process that has just begun into the group, and with it all that it starts."""
        if self.group is not None:
            (self.group / "cgroup.procs").write_text(str(pid))

    def take_all(self, pid: int) -> None:
        """Put a process into the group that has been running for a while, with its children."""
        children = Path(f"/proc/{pid}/task/{pid}/children")
        for child in children.read_text().split() if children.exists() else ():
            self.take_all(int(child))
        self.take(pid)


@contextmanager
def group(weight: int, *, quota: float = 0.0, idle: bool = False) -> Iterator[Path | None]:
    """A control group for CPU time while the context lasts; None where none can be made.

    Args:
        weight: as systemd's CPUWeight.
        quota: cores that it may use; 0 for all.
        idle: whether it only gets what nobody else wants, whatever its weight.
    """
    name = f"coldstream-bench-{os.getpid()}-{secrets.token_hex(3)}"
    try:
        made = _version_1(name, weight, quota) if _has_1() else _version_2(name, weight, quota)
        if idle:
            (made / "cpu.idle").write_text("1")
    except OSError:
        yield None
        return
    try:
        yield made
    finally:
        with suppress(OSError):  # somebody is still in it: it goes with the machine
            made.rmdir()


def _has_1() -> bool:
    return (_ROOT / "cpu" / "cpu.shares").exists() or (_ROOT / "cpu" / "tasks").exists()


def _version_1(name: str, weight: int, quota: float) -> Path:
    made = _ROOT / "cpu" / name
    made.mkdir()
    (made / "cpu.shares").write_text(str(max(2, _SHARES * weight // 100)))
    if quota:
        (made / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (made / "cpu.cfs_quota_us").write_text(str(int(_PERIOD * quota)))
    return made


def _version_2(name: str, weight: int, quota: float) -> Path:
    made = _ROOT / name
    made.mkdir()
    (made / "cpu.weight").write_text(str(weight))
    if quota:
        (made / "cpu.max").write_text(f"{int(_PERIOD * quota)} {_PERIOD}")
    return made
