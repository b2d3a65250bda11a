"""A machine that stands still: one thread, and a clock that only waiting moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldstream.agent.disk.directory import Directories, scan
from coldstream.agent.disk.files import DISK

EPOCH_MS = 1_800_000_000_000


class Flag:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._set = machine, False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        self._machine.now += timeout
        return self._set


class Condition:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float) -> bool:
        self._machine.now += timeout
        return True

    def notify_all(self) -> None:
        return None


class Workers:
    def __init__(self, machine: Machine, name: str) -> None:
        self._machine, self._name = machine, name

    def submit(self, act: Callable[..., object], /, *args: Any) -> object:
        return self._machine.submit(self._name, lambda: act(*args))


class Mailbox:
    """Results; whoever waits for one carries out the work that waits."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, seconds: float) -> Any:
        if not self._items and seconds:
            self._machine.work()
        if self._items:
            return self._items.popleft()
        self._machine.now += seconds
        return None


@dataclass
class Machine:
    """A `Host` whose time passes only where somebody waits.

    Args:
        submits: called with the number of each task that is submitted; may raise.
        queues: whether a task whose submission fails is in the queue all the same.
    """

    now: float = 0.0
    submits: Callable[[int], None] = lambda number: None
    queues: bool = False
    held: bool = False  # uploads stand still
    _submitted: int = 0
    _tasks: deque[tuple[str, Callable[[], object]]] = field(default_factory=deque)
    files: Any = DISK

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def jitter(self, most: float) -> float:
        return most / 2

    def scan(self, data_dir: Path, known: Collection[str]) -> Directories:
        return scan(data_dir, known)

    def open_files(self) -> int:
        return 1000

    def workers(self, count: int, name: str) -> Any:
        return nullcontext(Workers(self, name))

    def submit(self, name: str, act: Callable[[], object]) -> None:
        self._submitted += 1
        if self.queues:
            self._tasks.append((name, act))
        self.submits(self._submitted)
        if not self.queues:
            self._tasks.append((name, act))

    def work(self) -> None:
        """Carry out one task."""
        free = [each for each in self._tasks if each[0] != "upload" or not self.held]
        if free:
            self._tasks.remove(free[0])
            with suppress(Exception):  # a worker's last exception is seen by nobody
                free[0][1]()

    def flag(self) -> Flag:
        return Flag(self)

    def condition(self) -> Condition:
        return Condition(self)

    def mailbox(self) -> Mailbox:
        return Mailbox(self)
