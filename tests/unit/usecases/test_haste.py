"""A process that is stopped between what it writes for a root and the root must not commit it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ConflictError
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.tree import leaves
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim import anchor
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, log_of, no_pause, piece

GRACE_MS = 86_400_000
OLD = [piece(0, 50), piece(50, 100)]
LOG = KnownHistory((*log_of(*OLD).chunks[:7], *(LocalChunk(a, a + 10, 2) for a in (70, 80))))


class Stopped:
    """A store whose user is stopped for days before its first PUT of some kind of object."""

    def __init__(self, site: Site, kind: str) -> None:
        self._site = site
        self._kind = kind

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        if self._kind and key.endswith(self._kind):
            self._kind = ""
            self._site.days_pass()
        self._site.store.put(key, body, write_id=write_id, crc=crc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site.store, name)


class Site:
    def __init__(self) -> None:
        self.now = 10 * GRACE_MS
        self.store = MemoryObjectStore(lambda: self.now)
        self.catalog = MemoryCatalog()
        self.uids = count(1000)
        anchor(self.context(), STREAM, 0, QueueName())
        claim(self.context(), STREAM, 1, log=KnownHistory(), pause=no_pause)

    def context(self, store: Any = None) -> Context:
        return Context(store or self.store, self.catalog, PREFIX, lambda: next(self.uids))

    def upload(self, *fragments: Any) -> None:
        for each in fragments:
            self.store.put(each.path(PREFIX), each.data, write_id=f"{each.key.uid}")
        commit_runs(self.context(), STREAM, pause=no_pause)

    def days_pass(self) -> None:
        for _ in range(3):
            self.now += 2 * GRACE_MS
            context = self.context()
            collect(
                context,
                self.store,
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=self.now,
                now_ms=self.now,
                held=lambda _: False,
            )

    def everything_is_there(self) -> bool:
        context = self.context()
        live = leaves(load(context, STREAM).root, context.fetch(STREAM))
        return all(e.data_key(STREAM).path(PREFIX) in self.store.objects for e in live)


def test_a_claim_that_was_stopped_while_what_it_wrote_was_collected_does_not_land() -> None:
    """A virtual machine that was suspended: its commit would still hold, for nobody was here."""
    site = Site()
    site.upload(*OLD)
    before = site.catalog.items[STREAM]

    with pytest.raises(ConflictError, match="try again"):
        claim(site.context(Stopped(site, ".record")), STREAM, 2, log=LOG, pause=no_pause)

    assert site.catalog.items[STREAM] == before
    assert site.everything_is_there()

    claim(site.context(), STREAM, 2, log=LOG, pause=no_pause)
    assert site.catalog.items[STREAM].next_offset == 70
    assert site.everything_is_there()


def test_a_rebalance_that_was_stopped_behind_its_group_does_not_land() -> None:
    site = Site()
    site.upload(*(piece(at, at + 10) for at in range(0, 90, 10)))

    with pytest.raises(ConflictError, match="try again"):
        rebalance(site.context(Stopped(site, ".manifest")), STREAM, branching=4, pause=no_pause)

    assert site.everything_is_there()
    rebalance(site.context(), STREAM, branching=4, pause=no_pause)
    assert site.everything_is_there()


def test_a_root_that_is_written_protects_what_it_refers_to_however_late_it_lands() -> None:
    site = Site()
    site.upload(*OLD)
    context = site.context()
    landing = site.catalog.commit

    def late(commit: Any) -> Any:
        site.days_pass()
        return landing(commit)

    site.catalog.commit = late  # type: ignore[method-assign]
    claim(context, STREAM, 2, log=LOG, pause=no_pause)

    assert site.catalog.items[STREAM].next_offset == 70
    assert site.everything_is_there()
