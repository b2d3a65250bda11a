"""The streams that clients ask for: found once, shared by all who read them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from coldstream.agent.disk.log import StreamLog
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.local_tier import LocalStream
from coldstream.gateway.names import Found, Names
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.ports import Catalog, ObjectStore
from coldstream.read_policy import ReadPolicy
from coldstream.reader.budget import MemoryBudget
from coldstream.reader.open_fragments import SHARED_BYTES, OpenFragments
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.stream import StreamReader

DEFAULT_VHOST = "/"
#: Streams that are kept open: manifest, indexes and proofs. One that is read lives on by itself.
_KEPT = 512


@dataclass(slots=True)
class Streams:
    """Opens streams by what clients call them.

    Args:
        store: the bucket.
        catalog: the table.
        prefix: of all keys, ends in "/".
        settings: of reads.
        budget: bytes that all reads may have fetched ahead.
        pool: threads for what blocks.
        broker: the local tier; None without one.
        data_dir: where its files are on this machine; None if they are not here.
        tell: told of what a person should know: the stream's name and a sentence.
        policy: which tier is read where both have something.
    """

    store: ObjectStore
    catalog: Catalog
    prefix: str
    settings: ReaderSettings
    budget: MemoryBudget
    pool: Executor
    broker: BrokerTier | None
    data_dir: Path | None
    tell: Callable[[str, str], None]
    policy: ReadPolicy = ReadPolicy.NOT_IN_MEM
    names: Names = field(init=False)
    _opened: OpenFragments = field(default_factory=lambda: OpenFragments(SHARED_BYTES))
    _remote: OrderedDict[str, RemoteStream] = field(default_factory=OrderedDict)
    _local: OrderedDict[str, LocalStream] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.names = Names(self.catalog, self.pool)

    async def find(self, vhost: str, name: str) -> tuple[TieredStream, str, str] | None:
        """A stream, and the virtual host and name by which rights to it are decided.

        None if no tier that may be read has one.

        Raises:
            UnavailableError, PermissionDeniedError, CorruptDataError: nobody can say.
        """
        found = await self.names.find(vhost, name)
        queue = name if found is None else found.queue or found.directory
        if found is not None and not found.queue:
            # Of which virtual host it is, nobody has said. Whoever may read all of the one that he
            # has opened may not read it for that: his rights must name the directory itself.
            vhost = DEFAULT_VHOST
        has_history = found is not None and self.policy is not ReadPolicy.DISABLE
        if not has_history and (
            self.broker is None
            or self.policy is ReadPolicy.FORCE
            or not await self.broker.exists(vhost, queue)
        ):
            return None
        stream = self._made(vhost, queue, found)
        if found is not None and name == found.queue:  # who names a directory means that one
            stream.is_replaced = partial(self.names.is_replaced, found)
        return stream, vhost, queue

    def _made(self, vhost: str, name: str, found: Found | None) -> TieredStream:
        history = self.policy is not ReadPolicy.DISABLE
        tail = self.policy is not ReadPolicy.FORCE
        return TieredStream(
            vhost,
            name,
            self._remote_of(found.directory) if found is not None and history else None,
            self.broker if tail else None,
            self._local_of(found) if found is not None and tail else None,
            self.tell,
            find_remote=partial(self._find_remote, vhost, name) if history else None,
            local_first=self.policy is ReadPolicy.NOT_IN_DISK,
        )

    async def _find_remote(self, vhost: str, name: str) -> RemoteStream | None:
        found = await self.names.find(vhost, name)
        return None if found is None else self._remote_of(found.directory)

    def _remote_of(self, directory: str) -> RemoteStream:
        known = self._remote.get(directory)
        if known is None:
            reader = StreamReader(
                self.store,
                self.catalog,
                self.prefix,
                directory,
                settings=self.settings,
                budget=self.budget,
                opened=self._opened,
            )
            known = self._remote[directory] = RemoteStream(reader, self.pool)
        self._remote.move_to_end(directory)
        while len(self._remote) > _KEPT:
            self._remote.popitem(last=False)
        return known

    def _local_of(self, found: Found) -> LocalStream | None:
        if self.data_dir is None or self.broker is None or not found.queue:
            return None
        known = self._local.get(found.directory)
        if known is None:
            log = StreamLog(self.data_dir / found.directory)
            known = LocalStream(log, self.broker, found.vhost, found.queue, self.pool)
            self._local[found.directory] = known
        self._local.move_to_end(found.directory)
        while len(self._local) > _KEPT:
            self._local.popitem(last=False)
        return known
