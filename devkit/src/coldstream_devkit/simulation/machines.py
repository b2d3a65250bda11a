"""The machine under an agent: the host of the real loop, in tasks of the simulator.

Its clocks are the scheduler's; the wall clock may be wrong, and may jump. Its disk is the node's:
one directory for each stream, whose files change between any two looks, and which may fail.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from coldstream.agent.disk.directory import Directories
from coldstream.agent.disk.files import LogFile, LogFiles, Stamp
from coldstream.agent.host import Condition, Flag, Mailbox, Workers
from coldstream_devkit.simulation.cluster import Replica, ReplicaFiles
from coldstream_devkit.simulation.scheduler import Scheduler, Task

_WAIT_MS = 200
_OPEN_FILES = 10_000


class Node:
    """A machine: the replicas on it, its clock, its disk.

    Args:
        name: of it.
        skew: ms by which its wall clock is wrong at first.

    Attributes:
        replicas: by stream.
        disk_percent: of all looks at files, how many fail.
    """

    def __init__(self, name: str, skew: int) -> None:
        self.name = name
        self.skew = skew
        self.replicas: dict[str, Replica] = {}
        self.disk_percent = 0.0

    def add(self, stream: str, replica: Replica) -> None:
        """A stream has a replica here; its stamps are from this machine's clock."""
        self.replicas[stream] = replica
        replica.skew = self.skew

    def jump(self, ms: int) -> None:
        """Somebody sets the clock."""
        self.skew += ms
        for replica in self.replicas.values():
            replica.skew = self.skew


class NodeFiles:
    """The files of a machine, by directory.

    Args:
        node: whose.
        scheduler: decides what fails.
    """

    def __init__(self, node: Node, scheduler: Scheduler) -> None:
        self._node = node
        self._scheduler = scheduler

    def names(self, directory: Path) -> Sequence[str]:
        """As `LogFiles` says."""
        return self._files(directory).names(directory)

    def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
        """As `LogFiles` says."""
        return self._files(directory).open(directory, name)

    def stamp(self, directory: Path, name: str) -> Stamp:
        """As `LogFiles` says."""
        return self._files(directory).stamp(directory, name)

    def _files(self, directory: Path) -> ReplicaFiles:
        node = self._node
        if node.disk_percent and self._scheduler.choices.chance(node.disk_percent):
            raise OSError(errno.EIO, "input/output error", str(directory))
        replica = node.replicas.get(directory.name)
        if replica is None:
            raise FileNotFoundError(2, "no such directory", str(directory))
        return ReplicaFiles(replica)


class _Mailbox:
    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._items: list[Any] = []
        self._waiting: Task | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting is not None:
            self._host.scheduler.wake(self._waiting)

    def get(self, seconds: float) -> Any:
        host = self._host
        if not self._items and seconds > 0:
            self._waiting, host.waits = host.scheduler.task, True
            try:
                host.scheduler.sleep(max(1, int(seconds * 1000)))
            finally:
                self._waiting, host.waits = None, False
        return self._items.pop(0) if self._items else None


class _Flag:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        if not self._set:
            self._scheduler.sleep(int(timeout * 1000))
        return self._set


class _Condition:
    """No task is interrupted but where it waits, so there is nothing to lock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> _Condition:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float) -> bool:
        self._scheduler.sleep(int(timeout * 1000))
        return True

    def notify_all(self) -> None:
        pass


class _Workers:
    def __init__(self, host: SimHost, count: int, name: str) -> None:
        self._host = host
        self._name = name
        self._count = count
        self._busy = 0
        self._queue: list[Callable[[], object]] = []

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        while kind is None and self._busy:
            self._host.scheduler.sleep(_WAIT_MS)

    def submit(self, act: Callable[..., object], /, *args: Any) -> None:
        self._queue.append(lambda: act(*args))
        if self._busy < self._count:
            self._busy += 1
            owner = self._host.owner
            self._host.scheduler.spawn(f"{owner} {self._name}", self._work, owner)

    def _work(self) -> None:
        while self._queue:
            act = self._queue.pop(0)
            self._host.begin(self._name)
            try:
                act()
            finally:
                self._host.end(self._name)
        self._busy -= 1


class SimHost:
    """`agent.host.Host` of one process on a node.

    Args:
        scheduler: runs it.
        node: the machine.
        owner: of all tasks of the process.

    Attributes:
        idle: whether the loop waits for something to do, and nobody looks at a stream.
        before_work: called when an upload is about to begin; the files may change there.
    """

    def __init__(self, scheduler: Scheduler, node: Node, owner: str) -> None:
        self.scheduler = scheduler
        self.node = node
        self.owner = owner
        self.waits = True
        self.looks = 0
        self.before_work: Callable[[], None] = lambda: None
        self._files = NodeFiles(node, scheduler)

    @property
    def idle(self) -> bool:
        """As the class says."""
        return self.waits and not self.looks

    def begin(self, name: str) -> None:
        """A worker begins."""
        if name == "upload":
            self.before_work()
        else:
            self.looks += 1

    def end(self, name: str) -> None:
        """A worker ends."""
        self.looks -= name != "upload"

    @property
    def files(self) -> LogFiles:
        """As `Host` says."""
        return self._files

    def monotonic(self) -> float:
        """As `Host` says."""
        return self.scheduler.now / 1000

    def now_ms(self) -> int:
        """As `Host` says."""
        return self.scheduler.now + self.node.skew

    def jitter(self, most: float) -> float:
        """As `Host` says."""
        return most * self.scheduler.choices.below(3) / 2

    def scan(self, data_dir: Path, known: Collection[str]) -> Directories:
        """As `Host` says."""
        del data_dir, known
        return Directories(tuple(sorted(self.node.replicas)), (), ())

    def open_files(self) -> int:
        """As `Host` says."""
        return _OPEN_FILES

    def workers(self, count: int, name: str) -> AbstractContextManager[Workers]:
        """As `Host` says."""
        return _Workers(self, count, name)

    def flag(self) -> Flag:
        """As `Host` says."""
        return _Flag(self.scheduler)

    def condition(self) -> Condition:
        """As `Host` says."""
        return _Condition(self.scheduler)

    def mailbox(self) -> Mailbox[Any]:
        """As `Host` says."""
        return _Mailbox(self)
