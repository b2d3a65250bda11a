"""The real agent on a machine that stands still, with calls that fail when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldstream.agent.broker.committed import AllCommitted, CommittedOffsets
from coldstream.agent.disk.files import DISK, LogFile
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.progress import Progress
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.remote.context import Context
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs

from .conftest import Site, no_pause
from .machine import Machine

PREFIX = "rabbitmq/"


class Broken(Exception):  # noqa: N818
    """What nobody expects."""


@dataclass
class Faults:
    """Counts calls, and makes those from `first` on fail, `length` of them."""

    first: int = 0
    length: int = 0
    error: Callable[[], BaseException] = lambda: UnavailableError("no answer")
    calls: int = 0
    names: list[str] = field(default_factory=list)
    breaks: tuple[str, ...] = ("",)

    def call(self, name: str) -> None:
        if not name.startswith(self.breaks):
            return
        self.calls += 1
        self.names.append(name)
        if self.first <= self.calls < self.first + self.length:
            raise self.error()


def no_answer() -> BaseException:
    """What a network says."""
    return UnavailableError("no answer")


class Failing:
    """Every call of `target` may fail, before it has done anything or after."""

    def __init__(self, target: Any, faults: Faults, what: str, *, after: bool = False) -> None:
        self._target, self._faults, self._what, self._after = target, faults, what, after

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._after:
                self._faults.call(f"{self._what}.{name}")
            answer = attribute(*args, **kwargs)
            if self._after:
                self._faults.call(f"{self._what}.{name}")
            return answer

        return call


class FailingFiles:
    """The disk, each look at which may fail."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def names(self, directory: Path) -> Any:
        self._faults.call("files.names")
        return DISK.names(directory)

    def open(self, directory: Path, name: str) -> Any:
        self._faults.call(f"files.open {name[-7:]}")
        return _Opened(DISK.open(directory, name), self._faults)

    def stamp(self, directory: Path, name: str) -> Any:
        self._faults.call("files.stamp")
        return DISK.stamp(directory, name)


class _Opened:
    def __init__(self, context: Any, faults: Faults) -> None:
        self._context, self._faults = context, faults

    def __enter__(self) -> Any:
        return _File(self._context.__enter__(), self._faults)

    def __exit__(self, *exc: Any) -> Any:
        return self._context.__exit__(*exc)


class _File:
    def __init__(self, file: LogFile, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def size(self) -> int:
        return self._file.size()

    def read(self, start: int, length: int) -> bytes:
        self._faults.call("file.read")
        return self._file.read(start, length)

    def read_into(self, start: int, into: memoryview) -> int:
        self._faults.call("file.read_into")
        return self._file.read_into(start, into)


@dataclass
class Run:
    """One agent from start to stop, with what happens to it on the way.

    Args:
        site: where.
        faults: of every call that the agent makes to the remote tier, its queue or its files.
        machine: under it.
        commits: whether the commit function works.
        happens: by the number of a look, what the broker does before it.
    """

    site: Site
    faults: Faults = field(default_factory=Faults)
    machine: Machine = field(default_factory=Machine)
    commits: bool = True
    after: bool = False
    happens: dict[int, Callable[[], object]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    breaks: tuple[str, ...] = ("",)  # begins of the names of calls that may fail
    never: bool = False  # nobody ever commits
    committed: CommittedOffsets = field(default_factory=AllCommitted)
    looks: int = 0
    reports: int = 0
    reported_at: float = -1.0
    most_looks: int = 1500
    agent: Agent = field(init=False)

    def __post_init__(self) -> None:
        context = self.site.context()
        self.clean = self.site.context()
        self.faults.breaks = self.breaks
        self.machine.files = FailingFiles(self.faults)
        failing = Context(
            store=Failing(context.store, self.faults, "store", after=self.after),  # type: ignore[arg-type]
            catalog=Failing(context.catalog, self.faults, "catalog", after=self.after),  # type: ignore[arg-type]
            prefix=PREFIX,
            new_uid=context.new_uid,
            pool=context.pool,
        )
        self.agent = Agent(
            context=failing,
            function=OwnRights(failing, no_pause, lambda: 0),
            data_dir=self.site.data_dir,
            committed=self.committed,
            settings=AgentSettings(
                **{
                    "target_size": 3_000,
                    "memory_budget": 4 * 2**20,
                    "flush_ms": 0,
                    **self.settings,
                }
            ),
            requests=Failing(self, self.faults, "queue"),  # type: ignore[arg-type]
            names={},
            pause=no_pause,
            report=self.report,
            host=self.machine,
        )

    def ask(self, stream: str) -> None:
        if self.commits and not self.never:
            with suppress(ColdstreamError):
                commit_runs(self.clean, stream, pause=no_pause)

    def report(self, rows: list[Progress]) -> None:
        self.reports += 1
        if self.machine.now == self.reported_at and self.reports < 20 * self.most_looks:
            return  # something came in the middle of a look
        self.reported_at = self.machine.now
        self.looks += 1
        for stream, item in list(self.site.catalog.items.items()):
            # An agent never is the first to commit.
            if not self.never and (self.commits or not item.fragments):
                with suppress(ColdstreamError):
                    commit_runs(self.clean, stream, pause=no_pause)
        if self.looks in self.happens:
            self.happens[self.looks]()
        if self.looks > max([0, *self.happens]) and self.done(rows):
            self.agent.stop()
        if self.looks >= self.most_looks:
            self.agent.stop()

    def done(self, rows: list[Progress]) -> bool:
        items = self.site.catalog.items
        behind = any(
            each.error is not None
            or each.stream not in items
            or items[each.stream].next_offset < each.cut_offset
            for each in rows
        )
        return not behind and all(durable(self.site, each.stream) for each in rows)

    def go(self) -> list[Progress]:
        return self.agent.run()


def durable(site: Site, stream: str) -> bool:
    """Whether all of a local log is in the manifest, byte for byte."""
    item = site.catalog.items.get(stream)
    if item is None or not item.root_key:
        return False
    return site.remote_chunks(stream) == site.local_chunks(stream)
