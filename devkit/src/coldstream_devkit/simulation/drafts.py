"""What drafts of the protocol did instead of a rule: the parts of some mutants (see `mutants`).

Each was once thought to be enough, and each lost data in a history that is known by now. Here is
what is about claims, commits, holes and files; the rest is in `drafts_of_deletion`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from coldstream.agent.disk.files import Disk, LogFile
from coldstream.agent.stream import gaps
from coldstream.agent.stream import step as steps
from coldstream.errors import RefusedFragmentError
from coldstream.fragment import Trailer, build_trailer
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.names import data_prefix, list_start, parse_data_key
from coldstream.plans import resolve as resolving
from coldstream.plans.claim import LocalHistory
from coldstream.plans.resolve import Listed, Resolution, Step, Verified, check_fragment
from coldstream.plans.truncate import Cut, Truncation
from coldstream.ports import CommitOutcome
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import Snapshot, load
from coldstream.usecases import amend, claim, claim_function, commit_runs
from coldstream.usecases import extend as extending
from coldstream.usecases.divergence import divergence
from coldstream.usecases.extend import Extension, extend
from coldstream.usecases.holes import ChainGap
from coldstream.usecases.truncate import cut_off
from coldstream_devkit import fragments
from coldstream_devkit.simulation.cluster import ReplicaFiles
from coldstream_devkit.simulation.edits import edit

#: Replacements, each (owner, name, value), and the rule that they take out.
Draft = tuple[str, Callable[[], list[tuple[Any, str, Any]]]]

# Methods as the product has them, also while they are replaced.
_open_in_memory = ReplicaFiles.open


# --- claims ---


def _unnamed_cut(*given: Any, **named: Any) -> tuple[Root, Truncation]:
    """The record comes after the claim: its root cannot name it, and who claims may die."""
    root, truncation = cut_off(*given, **named)
    return replace(root, quarantine_key=""), truncation


def _floor_of_keys(
    context: Context,
    loaded: Snapshot,
    root: Root,
    *,
    nodes: Sequence[Node] = (),
    claim: bool = False,
    first_written: str = "",
) -> CommitOutcome:
    """A claim whose floor is the end of what keys say, verified or not."""
    if claim:
        stream, before = loaded.item.stream, loaded.root
        run = resolving.resolve_run(
            before.next_offset, before.ledger, _listed(context, stream, before)
        )
        end = max([root.next_offset, *(each.data_key.next_offset for each in run)])
        root = replace(root, ledger=before.ledger.claimed(root.epoch, end))
    return publish(context, loaded, root, nodes=nodes, claim=claim)


def _listed(context: Context, stream: str, root: Root) -> list[Listed]:
    rows = context.store.list(
        data_prefix(context.prefix, stream),
        start_after=list_start(context.prefix, stream, root.next_offset),
    )
    return [Listed(parse_data_key(row.key, context.prefix), row.key, row.size) for row in rows]


def _never_anew(
    context: Context, stream: str, root: Root, log: LocalHistory, **named: Any
) -> Cut | None:
    """Where nothing is common there is nothing to compare."""
    cut = divergence(context, stream, root, log, **named)
    return None if cut is None or cut.anew else cut


def _divergence_from_entries(
    context: Context, stream: str, root: Root, log: LocalHistory, **named: Any
) -> Cut | None:
    """What the root remembers of its last chunk does not count, only what it has."""
    return divergence(context, stream, replace(root, last_chunk=None), log, **named)


# --- commits ---


def _under_the_fragments_epoch(root: Root, run: Sequence[Step]) -> Root:
    """A commit under the epoch of the last fragment that it appends."""
    appended = resolving.append_run(root, run)
    return replace(appended, epoch=appended.entries[-1].epoch) if run else root


def _up_to_the_refused(context: Context, stream: str, root: Root, **named: Any) -> Extension:
    """What is refused ends the run, although another upload of the same range may be good."""
    found = extend(context, stream, root, **named)
    if not found.refused:
        return found
    end = min(each.offset or 0 for each in found.refused)
    run = tuple(each for each in found.run if each.listed.data_key.next_offset <= end)
    return replace(found, root=resolving.append_run(root, run), run=run, more=False)


def _strict_neighbours() -> Callable[..., Verified]:
    """A fragment must go on in its segment where the one before it ended, or begin a segment."""
    ends: dict[int, Trailer] = {}

    def check(listed: Listed, trailer: Trailer, **named: Any) -> Verified:
        before = ends.get(trailer.first_offset)
        begins = trailer.segment_offset == trailer.first_offset
        goes_on = before is not None and (
            before.segment_offset == trailer.segment_offset
            and before.sequence + 1 == trailer.sequence
        )
        if before is not None and not (begins or goes_on):
            raise RefusedFragmentError(
                "not the next of its segment",
                stream=listed.data_key.stream,
                offset=trailer.first_offset,
                key=listed.path,
            )
        ends[trailer.next_offset] = trailer
        return check_fragment(listed, trailer, **named)

    return check


def _first_and_last(*, index: bytes, **named: Any) -> Trailer:
    """Times of the first and the last chunk, as if a clock never fell."""
    trailer = build_trailer(index=index, **named)
    return replace(
        trailer, min_timestamp=trailer.first_timestamp, max_timestamp=trailer.last_timestamp
    )


# --- holes ---


def _holes_like_data(self: resolving.Candidates) -> Resolution:
    """The run that reaches furthest, of whatever it is made."""
    candidates = sorted(
        [*self._fragments, *self._holes],
        key=lambda each: (each.data_key.first_offset, each.data_key.next_offset),
    )
    ways = resolving._ways(self._start, candidates, 0)
    end = max(ways)
    return Resolution(tuple(resolving._way(ways, end)), listed_to=end)


def _gap_behind_the_manifest(
    context: Context, stream: str, *, local_first: int, **_: Any
) -> tuple[Any, ChainGap | None]:
    """The gap between the manifest and the local log, whatever waits in the bucket."""
    root = load(context, stream).root
    report = SimpleNamespace(next_offset=root.next_offset, root=root)
    if root.next_offset >= local_first:
        return report, None
    epoch = root.ledger.epoch
    parts = ((root.next_offset, local_first, epoch),)
    return report, ChainGap(root.next_offset, local_first, epoch, False, False, (), parts=parts)


# --- files ---


def _kept_files() -> Callable[..., Any]:
    """A file that was opened once stays what it was, as a hard link of it does."""
    kept: dict[Path, bytes] = {}

    @contextmanager
    def opened(self: ReplicaFiles, directory: Path, name: str) -> Generator[LogFile, None, None]:
        path = directory / name
        with _open_in_memory(self, directory, name) as file:
            data = file.read(0, file.size())
            if path not in kept or data.startswith(kept[path]):
                kept[path] = data
            yield _Kept(kept[path])

    return opened


class _Kept:
    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def read_into(self, start: int, into: memoryview) -> int:
        found = self._data[start : start + len(into)]
        into[: len(found)] = found
        return len(found)


@contextmanager
def _mapped(self: Disk, directory: Path, name: str) -> Generator[LogFile, None, None]:
    """Files under memory maps."""
    del self
    with (directory / name).open("rb") as file:
        yield _Kept(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


DRAFTS: Mapping[str, Draft] = MappingProxyType(
    {
        "data-wins": (
            "a hole is never taken over a range in which an acceptable fragment begins",
            lambda: [(resolving.Candidates, "resolved", _holes_like_data)],
        ),
        "gap-behind-the-manifest": (
            "a hole begins where the resolved chain ends, not where the manifest does",
            lambda: [
                (gaps, "find_gap", _gap_behind_the_manifest),
                (claim_function, "find_gap", _gap_behind_the_manifest),
            ],
        ),
        "hole-at-chain": (
            "a hole begins where the resolved chain ends, not where the manifest does; data wins",
            lambda: [
                (gaps, "find_gap", _gap_behind_the_manifest),
                (claim_function, "find_gap", _gap_behind_the_manifest),
                (resolving.Candidates, "resolved", _holes_like_data),
            ],
        ),
        "hole-after-transfers": (
            "nothing is declared lost while own transfers are under way",
            lambda: [edit(steps._begins_above, "if course.flying:", "if False:")],
        ),
        "record-first": (
            "the quarantine record is PUT before the claim, whose root names it",
            lambda: [(claim, "cut_off", _unnamed_cut)],
        ),
        "floor-verified": (
            "a claim's floor is the next offset of its own root, below which all is verified",
            lambda: [(amend, "publish", _floor_of_keys)],
        ),
        "items-epoch": (
            "a commit that is no claim passes the epoch of the item",
            lambda: [(extending, "append_run", _under_the_fragments_epoch)],
        ),
        "resolve-again": (
            "what is refused is left out, and the run is resolved again",
            lambda: [(module, "extend", _up_to_the_refused) for module in (commit_runs, claim)],
        ),
        "by-path": (
            "files are read by their path at every look",
            lambda: [(ReplicaFiles, "open", _kept_files())],
        ),
        "pread": (
            "files are read with pread, never under a memory map",
            lambda: [(Disk, "open", _mapped)],
        ),
        "last-chunk": (
            "the root remembers the last chunk below its end",
            lambda: [(claim, "divergence", _divergence_from_entries)],
        ),
        "start-anew": (
            "where nothing is common the manifest begins anew with the local log",
            lambda: [(claim, "divergence", _never_anew)],
        ),
        "neighbours": (
            "only offsets and chunk epochs bind neighbours",
            lambda: [(extending, "check_fragment", _strict_neighbours())],
        ),
        "min-max": (
            "a fragment's times are the minimum and the maximum of its chunks",
            lambda: [(fragments, "build_trailer", _first_and_last)],
        ),
    }
)
