"""Guards taken out one by one: each mutant is the product without one rule, and must be caught.

A mutant replaces a function, or a method of a fake, for as long as its context lasts. It leaves
out the rule and nothing else, so that the violation it leads to is the reason for the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from coldstream.adapters import memory
from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.agent.broker import gate
from coldstream.agent.disk.history import CommittedHistory
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.stream import gaps
from coldstream.errors import AlreadyExistsError, NotFoundError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StreamState, moved
from coldstream.manifest.entries import Entry
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import group_path, root_path
from coldstream.plans.truncate import Cut
from coldstream.ports import CommitOutcome, Landed, NotLanded, outcome_of_failed_condition
from coldstream.remote import roots
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import Snapshot
from coldstream.usecases import (
    adopt,
    amend,
    claim,
    claim_function,
    classify,
    collect,
    divergence,
    truncate,
)
from coldstream_devkit.simulation import drafts, drafts_of_deletion
from coldstream_devkit.simulation.edits import Patch, applied
from coldstream_devkit.simulation.guards import GUARDS, SEEDS
from coldstream_devkit.simulation.history import ACTIONS
from coldstream_devkit.simulation.nodes import SimMembers


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard, and how it is taken out.

    Attributes:
        guard: the rule in words.
        seeds: within so many seeds a violation is found; 0 where other guards make up for it, so
            that none may be found; None where only a known history leads to it.
        patches: replacements, each (owner, name, value).
        actions: how long its histories are; some need a long story.
    """

    guard: str
    seeds: int | None
    patches: Callable[[], list[tuple[Any, str, Any]]]
    actions: int = ACTIONS


@contextmanager
def without(name: str) -> Iterator[None]:
    """The product without a guard."""
    with applied(MUTANTS[name].patches()):
        yield


def _commit_unless(*left_out: str) -> Callable[[MemoryCatalog, Commit], CommitOutcome]:
    """`MemoryCatalog.commit` without some clauses of its condition."""

    def commit(self: MemoryCatalog, commit: Commit) -> CommitOutcome:
        item = self.items.get(commit.stream)
        holds = item is not None and (
            ("version" in left_out or item.version == commit.read_version)
            and ("uid" in left_out or item.uid == commit.read_uid)
            and ("table" in left_out or item.table_id == commit.table_id)
            and ("state" in left_out or item.state is StreamState.LIVE)
            and (
                "epoch" in left_out
                or (
                    item.epoch < commit.root.epoch
                    if commit.claim
                    else item.epoch <= commit.root.epoch
                )
            )
        )
        if holds and item is not None:
            self.items[commit.stream] = moved(item, commit)
            return Landed(self.items[commit.stream])
        return outcome_of_failed_condition(item, commit)

    return commit


def _clauses(*left_out: str) -> Callable[[], list[tuple[Any, str, Any]]]:
    return lambda: [(MemoryCatalog, "commit", _commit_unless(*left_out))]


def _accepts_above_any_floor(self: Ledger, epoch: int, first: int, next_offset: int) -> bool:
    del next_offset
    floor = self.floor(epoch)
    return floor is not None and floor <= first


def _ceiling_of_next_epoch(self: Ledger, epoch: int) -> int:
    higher = [claim for claim in self.claims if claim.epoch > epoch]
    return higher[0].floor if higher else 2**64 - 1


def _condition_failed(item: CatalogItem | None, commit: Commit) -> CommitOutcome:
    """A failed condition means that it did not land, and nothing else."""
    del commit
    return NotLanded(item)


def _cleaning_up(
    context: Context,
    loaded: Snapshot,
    root: Root,
    *,
    nodes: Sequence[Node] = (),
    claim: bool = False,
    first_written: str = "",
) -> CommitOutcome:
    """`publish` that takes its root and groups away again when it has lost."""
    uids: list[int] = []

    def new_uid() -> int:
        uids.append(context.new_uid())
        return uids[-1]

    outcome = publish(replace(context, new_uid=new_uid), loaded, root, nodes=nodes, claim=claim)
    if isinstance(outcome, NotLanded):
        item, prefix = loaded.item, context.prefix
        keys = [root_path(prefix, item.stream, root.epoch, item.version + 1, uids[-1])]
        for node in nodes:
            first = node.entry().first_offset
            keys.append(group_path(prefix, item.stream, first, node.uid, node.kind))
        context.store.delete(keys)  # type: ignore[attr-defined]  # SimStore can
    return outcome


def _root_before_groups(
    context: Context,
    loaded: Snapshot,
    root: Root,
    *,
    nodes: Sequence[Node] = (),
    claim: bool = False,
    first_written: str = "",
) -> CommitOutcome:
    """`publish` that PUTs the groups when their root has landed."""
    outcome = publish(context, loaded, root, claim=claim)
    publish_groups(context, loaded, root, nodes)
    return outcome


def publish_groups(context: Context, loaded: Snapshot, root: Root, nodes: Sequence[Node]) -> None:
    """The groups alone."""
    stream = loaded.item.stream
    for node in nodes:
        path = group_path(context.prefix, stream, node.entry().first_offset, node.uid, node.kind)
        context.store.put(path, node.encode(catalog_version=root.version), write_id="late")


def _publishing(how: Any) -> list[tuple[Any, str, Any]]:
    return [(module, "publish", how) for module in (amend, claim)]


def _anchor_anywhere(
    context: Context, stream: str, first_offset: int, name: QueueName
) -> CatalogItem:
    """`anchor` that does not look whether the bucket has objects of the stream."""
    return context.catalog.anchor(
        CatalogItem(
            stream, context.catalog.table_id(), first_offset=first_offset, next_offset=first_offset,
            name=name,
        )
    )  # fmt: skip


def _collect_at_once(*given: Any, **named: Any) -> Any:
    return _collect(*given, **(named | {"grace_ms": 0}))


_collect = collect.collect


def _never_anchored(
    context: Context, stream: str, first_offset: int, name: QueueName
) -> CatalogItem:
    return CatalogItem(stream, context.catalog.table_id(), name=name, first_offset=first_offset)


def _shorter_is_evidence(self: divergence._Comparison) -> Cut | None:
    cut = _compared(self)
    near = self._log.chunks_near(self._root.next_offset)
    if cut is not None or not near or near[-1].next_offset >= self._root.next_offset:
        return cut
    last = near[-1]
    return Cut(last.next_offset, LastChunk(last.chunk_id, last.epoch), last)


_compared = divergence._Comparison.result


def _beginning_of_the_claim(
    context: Context, stream: str, root: Root, old: Entry, cut: Cut
) -> Entry:
    """The beginning of a fragment under the epoch of the chunk that proves the claim."""
    made = _beginning(context, stream, root, old, cut)
    data = context.store.get_all(made.data_key(stream).path(context.prefix), limit=2**20)
    new = replace(made, epoch=cut.evidence.epoch, uid=context.new_uid())
    context.store.put(new.data_key(stream).path(context.prefix), data, write_id=f"{new.uid:x}")
    return new


_beginning = truncate._beginning


def _whatever_the_files_have(log: StreamLog, header: bytes | None) -> int | None:
    """`proved` by the log alone: what was written, whether a majority has it or not."""
    found = log.chunks_near(2**64 - 1, committed=2**64 - 1)
    return found[-1].next_offset if header is not None and found else None


def _load_any_table(context: Context, stream: str) -> CatalogItem:
    """`load_item` that does not compare the table's id."""
    item = context.catalog.get(stream)
    if item is None:
        raise NotFoundError("the catalog does not know this stream", stream=stream)
    return item


def _put_without_reading_back(
    self: MemoryObjectStore, key: str, body: Buffer, *, write_id: str, crc: int | None = None
) -> None:
    if key in self.objects:
        raise AlreadyExistsError("the key is taken", key=key)
    _put(self, key, body, write_id=write_id, crc=crc)


_put = MemoryObjectStore.put


def _edited(edited: Callable[[], Patch]) -> Callable[[], list[Patch]]:
    return lambda: [edited()]


MUTANTS: Mapping[str, Mutant] = MappingProxyType(
    {
        "version": Mutant(
            "a commit holds only if nobody has committed since: version and uid of the item",
            2000,
            _clauses("version", "uid"),
        ),
        "table-id": Mutant(
            "nothing is committed by an item of another table",
            2000,
            lambda: [
                (roots, "load_item", _load_any_table),
                (MemoryCatalog, "commit", _commit_unless("table")),
            ],
        ),
        "ledger-ceiling": Mutant(
            "what a lower epoch uploads above the floor of a higher one never enters",
            2000,
            lambda: [(Ledger, "accepts", _accepts_above_any_floor)],
        ),
        "ledger-minimum": Mutant(
            "the minimum of ALL higher floors counts, not the next one",
            5000,
            lambda: [(Ledger, "ceiling", _ceiling_of_next_epoch)],
        ),
        "three-outcomes": Mutant(
            "a failed condition may mean landed, or unknown; no committer deletes",
            10_000,
            lambda: [
                (memory, "outcome_of_failed_condition", _condition_failed),
                *_publishing(_cleaning_up),
            ],
        ),
        "groups-first": Mutant(
            "groups are PUT before the root that refers to them",
            2000,
            lambda: _publishing(_root_before_groups),
        ),
        "grace": Mutant(
            "a grace time passes between being seen unreferenced and being deleted",
            2000,
            lambda: [(collect, "collect", _collect_at_once)],
        ),
        "two-marks": Mutant(
            "a record of a grace time ago must name what is deleted",
            2000,
            lambda: [
                (collect._CollectStep, "_seen", lambda self, rows, limit_ms, records: set(rows))
            ],
        ),
        "re-read": Mutant(
            "the item is read again right before each batch of deletes",
            None,
            lambda: [(collect._CollectStep, "_proved_again", lambda self, batch: list(batch))],
        ),
        "rivals": Mutant(
            "what a root refers to that may be adopted yet is kept",
            None,
            lambda: [(classify, "rivals", lambda context, item, **_: [])],
        ),
        "adopt-complete": Mutant(
            "no root is adopted that misses anything",
            3000,
            lambda: [(adopt, "first_missing", lambda context, stream, root: None)],
        ),
        "anchor-empty": Mutant(
            "an item is made only where the bucket has no object of the stream",
            2000,
            lambda: [(claim_function, "anchor", _anchor_anywhere)],
        ),
        "anchor-first": Mutant(
            "the item is there before the first object",
            500,
            lambda: [(claim_function, "anchor", _never_anchored)],
        ),
        "evidence": Mutant(
            "a local log that is merely shorter is no evidence",
            None,
            lambda: [(divergence._Comparison, "result", _shorter_is_evidence)],
        ),
        "claim-proof": Mutant(
            "the log still has a chunk of the claimed epoch when it is compared",
            None,  # one of some ten thousand histories: tests/unit/agent/test_claims.py
            lambda: [(CommittedHistory, "_proved", lambda self, near: near)],
        ),
        "alone": Mutant(
            "a log that does not reach down to what is compared leaves the claim to a longer one",
            20_000,
            lambda: [(gaps, "check_alone", lambda *given, **named: None)],
        ),
        "divergence": Mutant(
            "a claim compares the end of the manifest with the writer's own log",
            2000,
            lambda: [(claim, "divergence", lambda *given, **named: None)],
        ),
        "members": Mutant(
            "a hole is declared only over what no other member has",
            10_000,
            lambda: [(gaps, "check_lost", lambda *given, **named: None)],
        ),
        "all-members": Mutant(
            "every member is asked before a range is declared lost or a short log claims",
            None,
            lambda: [
                (
                    SimMembers,
                    "_enough",
                    lambda self, answers, cluster: answers >= cluster.majority,
                )
            ],
        ),
        "content-proof": Mutant(
            "what the ledger refuses is garbage only if the manifest holds its last chunk",
            5000,
            lambda: [
                (classify, "holds_last_chunk", lambda *given, **named: True),
                (truncate, "write_record", lambda context, stream, epoch, record: ""),
            ],
        ),
        "replacement-epoch": Mutant(
            "what a claim carries over has the epoch of what it replaces",
            2000,
            lambda: [(truncate, "_beginning", _beginning_of_the_claim)],
        ),
        "commit-gate": Mutant(
            "only what the local broker delivers is uploaded",
            500,
            lambda: [(gate, "proved", _whatever_the_files_have)],
        ),
        "write-id": Mutant(
            "a PUT that finds its own write under the key has landed",
            5000,
            lambda: [(MemoryObjectStore, "put", _put_without_reading_back)],
        ),
        "uid": Mutant(
            "a commit holds only if the item has the uid that was read",
            0,
            _clauses("uid"),
        ),
        "epoch": Mutant(
            "a claim is the first of its epoch; no other commit lowers it",
            0,
            _clauses("epoch"),
        ),
        **{
            name: Mutant(guard, SEEDS.get(name), _edited(edited))
            for name, (guard, edited) in GUARDS.items()
        },
        **{
            name: Mutant(guard, None, patches)
            for some in (drafts.DRAFTS, drafts_of_deletion.DRAFTS)
            for name, (guard, patches) in some.items()
        },
    }
)
