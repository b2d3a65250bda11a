"""Tables filled from a remote tier in memory by what workers of Spark do, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from coldstream.adapters.place import Place
from coldstream.jobs.materialise import spark_engine
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.spark_engine import SparkEngine, stream_now
from coldstream.manifest.entries import Entries, EntryKind
from coldstream.manifest.root import Root
from coldstream.names import group_path
from coldstream.osiris.amqp import encode_data
from coldstream.remote.roots import load
from tests.support.tier import PREFIX, Tier, chunk
from tests.unit.jobs.test_materialise_run import Site
from tests.unit.spark.context import remote_of

#: No two groups of this process are alike: it keeps those that it has read.
_UIDS = count(2**50)
#: What is no message, so it becomes a dead letter.
BROKEN = b"broken"


class Workers(SparkEngine):
    """The engine of the job, whose tasks are done one after the other in this process."""

    def __init__(self, partition_bytes: int) -> None:
        spark: Any = None
        super().__init__(spark, Place("", "", PREFIX), partition_bytes=partition_bytes)
        self.rounds: list[int] = []

    def _results(self, work: Callable[[Any], Any], count: int, tasks: int) -> list[str]:
        del tasks
        self.rounds.append(count)
        said: list[str] = []
        for number in range(count):
            one = pa.RecordBatch.from_arrays([pa.array([number])], ["number"])
            said += [batch.column(1)[0].as_py() for batch in work(iter([one]))]
        return said


@dataclass
class TierSite(Site):
    """A remote tier, and a table that is filled from it.

    Attributes:
        tier: has the streams.
        partition_bytes: what one task reads.
    """

    tier: Tier = field(default_factory=lambda: Tier(uids=_UIDS))
    partition_bytes: int = 2**20

    def patched(self, patch: pytest.MonkeyPatch) -> TierSite:
        """This site, with which workers of this process are connected from now on."""
        patch.setattr(spark_engine, "connect", lambda _: remote_of(self.tier))
        patch.setattr(spark_engine, "StoredFiles", lambda **_: self.store)
        return self

    def add(
        self, stream: str, bodies: Sequence[bytes], *, a_chunk: int = 5, chunks: int = 2
    ) -> Root:
        """A stream in fragments of some chunks, below groups of four where there are many."""
        self.bodies[stream] = list(bodies)
        found = [
            chunk(n, *map(_wire, bodies[n : n + a_chunk])) for n in range(0, len(bodies), a_chunk)
        ]
        fragments = [found[n : n + chunks] for n in range(0, len(found), chunks)]
        return self.tier.add_tree(stream, fragments)

    def more(self, stream: str, bodies: Sequence[bytes]) -> None:
        """One more fragment of one chunk at the end of a stream."""
        first = len(self.bodies[stream])
        self.bodies[stream] += bodies
        root = self.root(stream)
        entry = self.tier.upload(stream, [chunk(first, *map(_wire, bodies))], epoch=1, floor=0)
        entries = Entries.of([*root.entries, entry])
        self.tier.commit(stream, replace(root, next_offset=entry.next_offset, entries=entries))

    def root(self, stream: str) -> Root:
        return load(remote_of(self.tier).context(), stream).root

    def now(self, stream: str) -> StreamNow:
        item = self.tier.catalog.get(stream)
        assert item is not None
        return stream_now(remote_of(self.tier), item)

    @property
    def engine(self) -> Any:
        return Workers(self.partition_bytes)

    def group(self, stream: str, number: int = 0) -> str:
        """Key of a group of a stream."""
        root = self.root(stream)
        groups = [each for each in root.entries if each.kind is EntryKind.GROUP]
        entry = groups[number]
        return group_path(PREFIX, stream, entry.first_offset, entry.uid, entry.kind)

    def fragment(self, stream: str, number: int) -> str:
        """Key of a fragment of a stream."""
        leaves = self.tier.leaves(stream, self.root(stream))
        return leaves[number].data_key(stream).path(PREFIX)

    def covered(self, stream: str, *, dead: bool = False) -> Ranges:
        """What a table says that it has of a stream."""
        table = self.tables.dead if dead else self.tables.rows
        loaded = table.peek()
        return Ranges() if loaded is None else loaded.state.of(stream)

    def of(self, bodies: dict[str, Sequence[bytes | None]]) -> Any:
        """The rows and dead letters of these messages, as `content` tells them."""
        rows = [(s, n, b) for s, each in bodies.items() for n, b in enumerate(each) if b != BROKEN]
        dead = [(s, n) for s, each in bodies.items() for n, b in enumerate(each) if b == BROKEN]
        return sorted(rows), sorted(dead)


def _wire(body: bytes) -> bytes:
    return body if body == BROKEN else encode_data(body)
