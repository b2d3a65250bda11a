"""Guards taken out one by one: each twin is the product without one rule, and must be caught.

A twin replaces a function, or a method of a fake, for as long as its context lasts. What it leaves
out is the rule and nothing else, so that the violation it leads to is the reason for the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from coldstream.adapters.memory import MemoryCatalog
from coldstream.manifest.catalog import CatalogItem, Commit, StreamState, moved
from coldstream.manifest.ledger import Ledger
from coldstream.ports import CommitOutcome, Landed, outcome_of_failed_condition


@dataclass(frozen=True, slots=True)
class Twin:
    """One guard, and how it is taken out.

    Attributes:
        guard: the rule in words.
        seeds: within so many seeds a violation is found.
        patches: replacements, each (owner, name, value).
    """

    guard: str
    seeds: int
    patches: Callable[[], list[tuple[Any, str, Any]]]


@contextmanager
def without(name: str) -> Iterator[None]:
    """The product without a guard."""
    patches = [patch.object(*each) for each in TWINS[name].patches()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


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


def _accepts_above_any_floor(self: Ledger, epoch: int, first: int, following: int) -> bool:
    del following
    floor = self.floor(epoch)
    return floor is not None and floor <= first


def _ceiling_of_next_epoch(self: Ledger, epoch: int) -> int:
    higher = [claim for claim in self.claims if claim.epoch > epoch]
    return higher[0].floor if higher else 2**64 - 1


def _item(value: CatalogItem) -> CatalogItem:
    return value


TWINS: Mapping[str, Twin] = MappingProxyType(
    {
        "version": Twin(
            "a commit holds only if nobody has committed since (version and uid of the item)",
            2000,
            _clauses("version", "uid"),
        ),
        "ledger-ceiling": Twin(
            "what a lower epoch uploads above the floor of a higher one never enters",
            2000,
            lambda: [(Ledger, "accepts", _accepts_above_any_floor)],
        ),
        "ledger-minimum": Twin(
            "the minimum of ALL higher floors counts, not the next one",
            20_000,
            lambda: [(Ledger, "ceiling", _ceiling_of_next_epoch)],
        ),
    }
)
