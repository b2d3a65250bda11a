"""The product's bounds made small, so that a history of minutes meets what months would.

Bounds are constants of modules, or defaults of arguments: how many objects one step looks at, how
many rivals are read, from how many claims on a ledger is made shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from coldstream.manifest import quarantine
from coldstream.plans import consolidate as plan_of_consolidate
from coldstream.plans import overlap as plan_of_overlap
from coldstream.usecases import (
    claim,
    collect,
    commit_runs,
    consolidate,
    extend,
    holes,
    overlap,
    rebuild_state,
    references,
    repair,
    repair_sources,
    truncate,
)
from coldstream_devkit.simulation.edits import Patch, applied

#: Modules that have imported the bound, its name, how small it is made.
_CONSTANTS: tuple[tuple[Sequence[ModuleType], str, int], ...] = (
    ((claim,), "COMPACT_FROM", 2),
    ((plan_of_consolidate,), "MIN_PIECES", 2),
    ((plan_of_overlap,), "_RECENT", 2),
    ((collect,), "_ROWS_AT_ONCE", 2),
    ((collect,), "_PROOFS", 2),
    ((collect,), "_AT_ONCE", 2),
    ((extend,), "_SUSPECTS_AT_ONCE", 2),
    ((extend,), "_MAX_SUSPECTS", 3),
    ((extend,), "_REFUSALS", 1),
    ((consolidate,), "_LEAVES", 5),
    ((consolidate,), "_MERGES_AT_ONCE", 1),
    ((overlap,), "_MAX_FOUND", 2),
    ((overlap,), "_MAX_TURNS", 8),
    ((holes,), "_MAX_LOOKS", 2),
    ((rebuild_state,), "_SAME", 1),
    ((references,), "MAX_RIVALS", 2),
    ((references,), "_FRAGMENTS_AT_ONCE", 3),
    ((references,), "_SPANS_AT_ONCE", 1),
    ((repair,), "_BYTES_AT_ONCE", 600),
    ((repair_sources,), "_FEW", 1),
    ((truncate, quarantine), "MAX_LISTED", 2),
)
#: Functions whose default of an argument is made small.
_DEFAULTS: tuple[tuple[Callable[..., Any], str, int], ...] = (
    (commit_runs.commit_runs, "limit", 2),
    (claim.land_claim, "limit", 2),
)


@contextmanager
def small(page_size: int) -> Iterator[None]:
    """All of them small, for as long as one history is played.

    Args:
        page_size: keys in one LIST answer; a step of collect always takes a page.
    """
    patches: list[Patch] = [
        (module, name, value) for modules, name, value in _CONSTANTS for module in modules
    ]
    patches.append((collect, "MAX_CANDIDATES", page_size + 3))
    for function, name, value in _DEFAULTS:
        assert function.__kwdefaults__ is not None
        patches.append((function, "__kwdefaults__", {**function.__kwdefaults__, name: value}))
    with applied(patches):
        yield
