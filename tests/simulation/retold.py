"""What known histories are told with: a stream with its clock, and how a story ends.

A story sets up what was there, lets everybody do what they did, and looks at the end. It fails by
an AssertionError in words that say what is lost or stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import CatalogItem, Commit
from coldstream.manifest.root import Root
from coldstream.plans.claim import LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import CommitOutcome
from coldstream.reader import First, StreamReader
from coldstream.reader.gap import Gap
from coldstream.remote.context import Context
from coldstream.remote.nodes import NodeCache
from coldstream.usecases import collect as collecting
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.retention import retain
from coldstream_devkit.bucket import referenced
from coldstream_devkit.fragments import START_MS, SyntheticFragment
from coldstream_devkit.simulation.mutants import without
from coldstream_devkit.simulation.points import Place
from tests.support.stage import (
    CHUNK,
    PREFIX,
    STREAM,
    M,
    anchored,
    claiming,
    context_of,
    holds,
    item_of,
    no_pause,
    piece,
    root_at,
    upload,
)

GRACE_MS = 1000
SIZE = len(piece(0, 10, uid=1).data)

#: Chunks [first, next_offset) by the epoch that wrote them.
Run = tuple[int, int, int]


class Tapped:
    """An adapter; before each of its calls somebody is told, and may do something.

    Args:
        inner: the adapter.
        before: told the method's name and the first argument.
    """

    def __init__(self, inner: Any, before: Callable[[str, Any], object]) -> None:
        self._inner = inner
        self._before = before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        def call(*args: Any, **named: Any) -> Any:
            self._before(name, args[0] if args else None)
            return method(*args, **named)

        return call


class Retrying:
    """A table whose first commit lands without an answer; the SDK sends the very same again.

    Args:
        inner: the table.
        meanwhile: what others do before it is sent again.
    """

    def __init__(self, inner: MemoryCatalog, meanwhile: Callable[[], object]) -> None:
        self._inner = inner
        self._meanwhile: Callable[[], object] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, commit: Commit) -> CommitOutcome:
        """As the port says."""
        outcome = self._inner.commit(commit)
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
            return self._inner.commit(commit)
        return outcome


def once_before(name: str, word: str, act: Callable[[], object]) -> Callable[[str, Any], object]:
    """Something that happens once: before the first call `name` whose argument ends in `word`."""
    left = [act]

    def before(called: str, argument: Any) -> None:
        if called == name and left and (not word or str(argument).endswith(word)):
            left.pop()()

    return before


class Stream:
    """A stream in memory that epoch `epoch` has claimed at 0, and everybody who works on it."""

    def __init__(self, *, epoch: int = 1, place: Place | None = None) -> None:
        self.now = 10_000
        self._ids = count(5000)
        self._uids = count(100)
        self.place = place or anchored(lambda: self.now, epoch=epoch)

    def context(self, *, store: Any = None, catalog: Any = None) -> Context:
        """What a new process sees."""
        context = context_of(self.place, self._ids)
        return replace(context, store=store or context.store, catalog=catalog or context.catalog)

    @property
    def item(self) -> CatalogItem:
        return item_of(self.place)

    @property
    def root(self) -> Root:
        return root_at(self.place, self.item.root_key)

    @property
    def keys(self) -> set[str]:
        """All that the current manifest refers to."""
        return referenced(PREFIX, self.item, self.root, self.context().fetch(STREAM))

    @property
    def objects(self) -> dict[str, bytes]:
        return self.place.store.objects

    # --- what is done ---

    def upload(
        self, first: int, next_offset: int, *, uid: int = 0, **more: Any
    ) -> SyntheticFragment:
        """An agent uploads a range; its trailer has the floor that the ledger has."""
        floor = self.item.ledger.floor(more.get("epoch", 1)) if STREAM in self._items else 0
        made = piece(
            first, next_offset, uid=uid or next(self._uids), **({"floor": floor or 0} | more)
        )
        upload(self.place, made)
        return made

    @property
    def _items(self) -> dict[str, CatalogItem]:
        return self.place.catalog.items

    def upload_tens(self, first: int, next_offset: int, **more: Any) -> None:
        """A range in fragments of ten."""
        for at in range(first, next_offset, 10):
            self.upload(at, at + 10, **more)

    def commit(self, context: Context | None = None) -> CommitReport:
        return commit_runs(context or self.context(), STREAM, pause=no_pause)

    def claim(
        self, epoch: int, log: tuple[LocalChunk, ...], context: Context | None = None
    ) -> object:
        return claiming(context or self.context(), epoch, log)

    def regroup(self, context: Context | None = None) -> None:
        rebalance(context or self.context(), STREAM, branching=M, pause=no_pause)

    def retire(self, max_bytes: int) -> None:
        rules = PolicySet((Rule("r", max_bytes=max_bytes),))
        retain(self.context(), STREAM, rules, now_ms=START_MS, pause=no_pause)

    def consolidate(self) -> None:
        consolidate(
            self.context(),
            self.place.store,
            STREAM,
            target_size=3 * SIZE,
            branching=M,
            pause=no_pause,
        )

    def reconcile(self) -> None:
        reconcile(self.context(), STREAM, pause=no_pause)

    def collect(self, times: int = 4, *, wait: int = 2 * GRACE_MS, store: Any = None) -> None:
        """Several runs of the collector, some time apart."""
        for _ in range(times):
            self.now += wait
            collecting.collect(
                self.context(store=store),
                self.place.store,
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=self.now,
                now_ms=self.now,
                held=lambda _: False,
            )

    def lose_table(self, items: dict[str, CatalogItem] | None = None) -> None:
        """The table is gone; there is a new one, with what a backup had."""
        self.place = replace(self.place, catalog=MemoryCatalog("table 2"))
        self._items.update(items or {})

    # --- what must hold ---

    def reads(self) -> tuple[list[tuple[int, int]], list[Gap]]:
        """Id and epoch of every chunk that a reader finds, and the gaps that it is told of."""
        gaps: list[Gap] = []
        reader = StreamReader(
            self.place.store, self.place.catalog, PREFIX, STREAM, nodes=NodeCache()
        )
        try:
            found = reader.chunks(First(), on_gap=gaps.append)
            return [(each.header.chunk_id, each.header.epoch) for each in found], gaps
        except ColdstreamError as exc:
            raise AssertionError(f"a reader fails: {exc}") from exc

    def ends_with(self, *runs: Run, holes: Iterable[tuple[int, int]] = ()) -> None:
        """All invariants hold, and a reader finds just this."""
        try:
            self.commit()
            holds(self.place)
        except ColdstreamError as exc:
            raise AssertionError(f"the stream is broken: {exc}") from exc
        wanted = [(at, epoch) for first, end, epoch in runs for at in range(first, end, CHUNK)]
        found, gaps = self.reads()
        assert found == wanted, f"a reader finds other chunks: {_told(found)} for {_told(wanted)}"
        assert [(each.first_offset, each.next_offset) for each in gaps] == [*holes]

    def named(self) -> set[str]:
        """Keys of the fragments and holes of the manifest."""
        return {key for key in self.keys if "/data/" in key}


def _told(chunks: list[tuple[int, int]]) -> str:
    """Chunks in runs of one epoch: first..next of epoch."""
    runs: list[list[int]] = []
    for at, epoch in chunks:
        if runs and runs[-1][1:] == [at, epoch]:
            runs[-1][1] += CHUNK
        else:
            runs.append([at, at + CHUNK, epoch])
    return ", ".join(f"{a}..{b} of epoch {e}" for a, b, e in runs) or "nothing"


@dataclass(frozen=True)
class History:
    """Something that has happened to a draft.

    Attributes:
        story: tells it; raises an AssertionError if it ends badly.
        rule: name of the mutant without the rule that it taught.
        words: how it ends then.
    """

    story: Callable[[], None]
    rule: str
    words: str

    def ends_badly_without_its_rule(self) -> None:
        """It does, and in these words."""
        with without(self.rule), pytest.raises(AssertionError, match=self.words):
            self.story()
