"""What the agent's loop needs of the machine it runs on: clocks, threads, waiting, directories.

The simulator brings a host of its own, so that it plays the very loop that ships.
"""

from __future__ import annotations

import queue
import random
import resource
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from coldstream import clock
from coldstream.agent.disk.directory import Directories, Scanner
from coldstream.agent.disk.files import DISK, LogFiles

T = TypeVar("T")


class Workers(Protocol):
    """Threads, or what stands for them."""

    def submit(self, act: Callable[..., object], /, *args: Any) -> object:
        """Have `act` called once, when a worker is free."""
        ...


class Flag(Protocol):
    """Set once, by any thread or a signal handler."""

    def set(self) -> None:
        """Set it, and wake whoever waits."""
        ...

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait for it for at most `timeout` seconds; whether it is set."""
        ...


class Condition(AbstractContextManager[Any], Protocol):
    """As `threading.Condition`."""

    def wait(self, timeout: float) -> bool:
        """Let the lock go until notified, for at most `timeout` seconds."""
        ...

    def notify_all(self) -> None:
        """Wake all who wait."""
        ...


class Mailbox(Protocol[T]):
    """Takes results from workers to the main thread."""

    def put(self, item: T) -> None:
        """Leave one."""
        ...

    def get(self, seconds: float) -> T | None:
        """Take the oldest one, waiting at most so long; None if there is none."""
        ...


class Host(Protocol):
    """The machine under an agent."""

    @property
    def files(self) -> LogFiles:
        """Where the streams' files are."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never falls."""
        ...

    def now_ms(self) -> int:
        """The wall clock, ms since the Unix epoch."""
        ...

    def jitter(self, most: float) -> float:
        """A random number of seconds in [0, most)."""
        ...

    def scan(self, data_dir: Path, known: Collection[str]) -> Directories:
        """As `directory.scan`."""
        ...

    def open_files(self) -> int:
        """How many files this process may have open."""
        ...

    def workers(self, count: int, name: str) -> AbstractContextManager[Workers]:
        """This many workers; leaving the context waits for what they do.

        Args:
            count: how many.
            name: of each.
        """
        ...

    def flag(self) -> Flag:
        """A new flag, not set."""
        ...

    def condition(self) -> Condition:
        """A new condition with its lock."""
        ...

    def mailbox(self) -> Mailbox[Any]:
        """A new mailbox, empty."""
        ...


class _Queue(Generic[T]):
    def __init__(self) -> None:
        self._queue: queue.Queue[T] = queue.Queue()

    def put(self, item: T) -> None:
        self._queue.put(item)

    def get(self, seconds: float) -> T | None:
        try:
            return self._queue.get(timeout=seconds) if seconds > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None


class ThisMachine:
    """The host that ships: threads, the system's clocks, the disk."""

    def __init__(self) -> None:
        self._scanner = Scanner()

    @property
    def files(self) -> LogFiles:
        """As `Host` says."""
        return DISK

    def monotonic(self) -> float:
        """As `Host` says."""
        return time.monotonic()

    def now_ms(self) -> int:
        """As `Host` says."""
        return clock.now_ms()

    def jitter(self, most: float) -> float:
        """As `Host` says."""
        return random.uniform(0, most)

    def scan(self, data_dir: Path, known: Collection[str]) -> Directories:
        """As `Host` says."""
        return self._scanner.scan(data_dir, known)

    def open_files(self) -> int:
        """As `Host` says: the limit is raised as far as it may be."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def workers(self, count: int, name: str) -> AbstractContextManager[Workers]:
        """As `Host` says."""
        return ThreadPoolExecutor(count, name)

    def flag(self) -> Flag:
        """As `Host` says."""
        return threading.Event()

    def condition(self) -> Condition:
        """As `Host` says."""
        return threading.Condition()

    def mailbox(self) -> Mailbox[Any]:
        """As `Host` says."""
        return _Queue()
