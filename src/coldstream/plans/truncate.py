"""The manifest without what the writer's own log proves to be another history.

A truncate keeps everything below the end of the last common chunk, and nothing above it. A fragment
or hole that reaches over that offset is cut: its good part takes its place. Groups are immutable;
one that reaches over it is dissolved into the root as far as it stays, so nothing is rewritten. If
nothing is common, the manifest begins anew where the log begins. What is cut off stays in the
bucket and is named in a quarantine record (`manifest.quarantine`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from coldstream.errors import CorruptDataError, InternalError
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.manifest.tree import Fetch, head_of
from coldstream.plans.claim import LocalChunk


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the manifest and the local log part.

    Attributes:
        offset: the kept manifest ends here, and the claim's floor is here.
        last_chunk: identity of the last chunk below it; None if nothing is kept.
        evidence: the local chunk that proves it; one without offsets if a person says so.
        anew: whether nothing is common, and the manifest begins anew at `offset`.
        why: what that person says.
    """

    offset: int
    last_chunk: LastChunk | None
    evidence: LocalChunk
    anew: bool = False
    why: str = ""

    def floor(self, root: Root) -> int:
        """Where the lost timeline begins: what was in the manifest from here on is cut off."""
        return min(root.first_offset, self.offset) if self.anew else self.offset


@dataclass(frozen=True, slots=True)
class Remainder:
    """What stays of a manifest.

    Attributes:
        kept: entries of the new root, all of which end at or below the cut.
        across: the fragment or hole that reaches over it, whose beginning comes after them; None
            if the cut lies between two.
    """

    kept: tuple[Entry, ...]
    across: Entry | None


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a claim has cut off, for whoever has to tell people.

    Attributes:
        epoch: of the claim.
        offset: where the manifest ends now; the claim's floor.
        old_first_offset: where it began before.
        old_next_offset: where it, and what could be appended to it, ended before.
        anew: whether nothing of it was common, so that it begins anew.
        evidence: the local chunk that proves it; one without offsets if a person has said so.
        fragments: fragments and holes of the tree that were cut off, one that was cut in two too.
        bytes: their size.
        record_key: key of the quarantine record; "" if no data was cut off.
        why: what that person has said.
        first_written: key of the first object that was written for it; "" if none was.
    """

    epoch: int
    offset: int
    old_first_offset: int
    old_next_offset: int
    anew: bool
    evidence: LocalChunk
    fragments: int
    bytes: int
    record_key: str
    why: str = ""
    first_written: str = field(default="", compare=False)

    @property
    def reason(self) -> str:
        """Why, in words."""
        if self.why:
            return self.why
        chunk = self.evidence
        words = (
            f"the log of epoch {self.epoch} has chunk {chunk.chunk_id}..{chunk.next_offset} of"
            f" epoch {chunk.epoch}, which the manifest of {self.old_first_offset}"
            f"..{self.old_next_offset} does not have; "
        )
        if self.anew:
            return words + f"they share nothing, and the manifest begins anew at {self.offset}"
        return words + f"they are the same below {self.offset}"


def remainder(root: Root, offset: int, fetch: Fetch) -> Remainder:
    """What stays of `root` below `offset`, which lies in (first, next].

    Args:
        root: current one.
        offset: where it is cut.
        fetch: gives the groups; only those that reach over `offset` are asked for.
    """
    kept: list[Entry] = []
    entries = root.entries
    while True:
        across: Entry | None = None
        for entry in entries:
            if entry.next_offset <= root.first_offset:
                continue  # below a group that is dissolved; retention has taken it
            if entry.next_offset <= offset:
                kept.append(entry)
                continue
            across = entry if entry.first_offset < offset else None
            break
        if across is None or not across.kind.level:
            return Remainder(tuple(kept), across)
        entries = fetch(across).entries


def cut_sums(root: Root, floor: int, fetch: Fetch) -> tuple[int, int]:
    """Fragments and holes of `root` that reach above `floor`, and their bytes."""
    if floor <= root.first_offset:
        return root.fragments, root.total_size
    fragments = size = 0
    entries = root.entries
    while True:
        across: Entry | None = None
        for number in range(len(entries) - 1, -1, -1):
            entry = entries[number]
            if entry.next_offset <= floor:
                break
            if entry.kind.level and entry.first_offset < floor:
                across = entry
                break
            fragments += entry.fragments
            size += entry.size
        if across is None:
            return fragments, size
        entries = fetch(across).entries


def truncated(
    root: Root, cut: Cut, rest: Remainder | None, beginning: Entry | None, fetch: Fetch
) -> Root:
    """`root` after the cut, not yet claimed.

    Args:
        root: current one.
        cut: where.
        rest: what stays; None where the manifest begins anew.
        beginning: in the place of `rest.across`: what it holds below the cut.
        fetch: gives the groups of the tree.

    Raises:
        InternalError: the parts do not fit, or the result is no root that could be read again.
    """
    if rest is None:
        after = replace(
            root,
            first_offset=cut.offset,
            next_offset=cut.offset,
            entries=Entries(),
            head=None,
            last_chunk=None,
        )
    else:
        entries = Entries.of((*rest.kept, *((beginning,) if beginning else ())))
        after = replace(
            root,
            next_offset=cut.offset,
            entries=entries,
            head=head_of(entries, root.first_offset, fetch),
            last_chunk=cut.last_chunk,
        )
    try:
        parse_root(after.encode())
    except CorruptDataError as exc:
        raise InternalError(f"a truncated {exc.reason}", offset=cut.offset) from exc
    return after
