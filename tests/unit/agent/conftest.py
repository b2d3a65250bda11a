"""A world in memory, and agents that look at a temporary data directory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.agent.broker.committed import AllCommitted
from coldstream.agent.host import Host
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.progress import Progress
from coldstream.manifest.entries import EntryKind
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs

from .machine import Machine


def no_pause(attempt: int) -> None:
    del attempt


@dataclass
class Site:
    """A data directory, and the remote tier that agents fill from it."""

    data_dir: Path
    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    seed: int = 0
    asked: list[str] = field(default_factory=list)

    def context(self, store: Any = None) -> Context:
        """What one process sees; every process has ids of its own."""
        self.seed += 1
        source = random.Random(self.seed)
        return Context(
            store=store if store is not None else self.store,
            catalog=self.catalog,
            prefix="rabbitmq/",
            new_uid=lambda: source.getrandbits(64),
        )

    def ask(self, stream: str) -> None:
        self.asked.append(stream)
        commit_runs(self.context(), stream, pause=no_pause)

    def agent(
        self,
        *,
        committed: Any = None,
        store: Any = None,
        members: Any = None,
        host: Host | None = None,
        **settings: Any,
    ) -> Agent:
        """An agent whose time passes only where it waits, unless it gets another machine."""
        values = {
            "target_size": 20_000,
            "memory_budget": 4 * 2**20,
            "nudge_seconds": 0.05,
            "once": True,
            "poll_seconds": 0.05,
            "rescan_seconds": 0.1,
            **settings,
        }
        context = self.context(store)
        return Agent(
            context=context,
            function=OwnRights(context, no_pause, lambda: 0),
            data_dir=self.data_dir,
            committed=committed if committed is not None else AllCommitted(),
            settings=AgentSettings(**values),
            requests=self,
            names={},
            pause=no_pause,
            members=members,
            host=Machine() if host is None else host,
        )

    def run(self, **arguments: Any) -> dict[str, Progress]:
        return {each.stream: each for each in self.agent(**arguments).run()}

    def remote_chunks(self, stream: str) -> bytes:
        """Every chunk byte that the manifest refers to, in offset order."""
        root = load(self.context(), stream).root
        parts = []
        for entry in root.entries:
            if entry.kind is EntryKind.HOLE:
                continue
            data = self.store.objects[entry.data_key(stream).path("rabbitmq/")]
            from coldstream.fragment import TRAILER_SIZE, parse_trailer

            trailer = parse_trailer(data[-TRAILER_SIZE:])
            parts.append(data[8 : trailer.index_position])
        return b"".join(parts)

    def local_chunks(self, stream: str) -> bytes:
        """Every chunk byte of the local segments, in offset order."""
        paths = sorted((self.data_dir / stream).glob("*.segment"))
        return b"".join(path.read_bytes()[8:] for path in paths)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    data_dir = tmp_path / "streams"
    data_dir.mkdir()
    return Site(data_dir)


@pytest.fixture
def data() -> Callable[[str], Path]:
    return lambda name: Path(__file__).parents[2] / "data" / name


@pytest.fixture
def thief(site: Site) -> Any:
    """One who finds 200 messages of epoch 1, all of them uploaded."""
    from .theft import Thief, write

    write(site, 200)
    site.run()
    return Thief(site)
