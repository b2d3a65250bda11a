"""Which fragments continue a manifest: the longest acceptable run from its next offset.

Keys alone decide the run; trailers are then checked one by one, and a fragment that fails is left
out and the run resolved again, because another upload of the same range may be good. Events play no
part: any of them may be lost, late, doubled or reordered (DESIGN sections 5 and 6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, RefusedFragmentError
from coldstream.fragment import Trailer, check_against_key
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import DataKey


@dataclass(frozen=True, slots=True)
class Listed:
    """A data object as LIST shows it: what its key says, the key itself, and its size in bytes."""

    data_key: DataKey
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A listed fragment whose trailer holds."""

    listed: Listed
    trailer: Trailer

    def entry(self) -> Entry:
        """The manifest entry for it."""
        trailer, key = self.trailer, self.listed.data_key
        return Entry(
            first_offset=trailer.first_offset,
            next_offset=trailer.next_offset,
            min_timestamp=trailer.min_timestamp,
            max_timestamp=trailer.max_timestamp,
            kind=EntryKind.FRAGMENT,
            size=self.listed.size,
            records=trailer.records,
            epoch=trailer.epoch,
            uid=key.uid,
        )


def resolve_run(
    next_offset: int,
    ledger: Ledger,
    listed: Iterable[Listed],
    *,
    without: Collection[str] = (),
) -> tuple[Listed, ...]:
    """The run of fragments from `next_offset` that reaches furthest.

    Only fragments that the ledger accepts take part. Among runs that reach the same offset the one
    with the fewest fragments wins; then, fragment by fragment from the end, the one that begins
    first, then the smaller uid. So every committer that sees the same objects decides alike.

    Args:
        next_offset: where the run must start.
        ledger: claims so far.
        listed: candidates in any order.
        without: paths that were refused before.

    Returns:
        The run in offset order, empty if nothing continues the manifest.
    """
    candidates = sorted(
        (
            each
            for each in listed
            if each.data_key.kind == "fragment"
            and each.path not in without
            and each.data_key.first_offset >= next_offset
            and ledger.accepts(
                each.data_key.epoch, each.data_key.first_offset, each.data_key.next_offset
            )
        ),
        key=lambda each: (each.data_key.first_offset, each.data_key.next_offset, each.data_key.uid),
    )
    # best[offset] = (fragments needed, last fragment): the shortest run from next_offset to offset.
    # Candidates come in order of their first offset, so a run to it is final when it is looked up.
    best: dict[int, tuple[int, Listed | None]] = {next_offset: (0, None)}
    for each in candidates:
        so_far = best.get(each.data_key.first_offset)
        if so_far is None:
            continue
        there = best.get(each.data_key.next_offset)
        if there is None or so_far[0] + 1 < there[0]:
            best[each.data_key.next_offset] = (so_far[0] + 1, each)
    run: list[Listed] = []
    offset = max(best)
    while (last := best[offset][1]) is not None:
        run.append(last)
        offset = last.data_key.first_offset
    return tuple(reversed(run))


def check_fragment(
    listed: Listed, trailer: Trailer, *, ledger: Ledger, last_chunk: LastChunk | None
) -> Verified:
    """A fragment may enter the manifest: its trailer holds against key, size, ledger, neighbour.

    Between neighbours only two things are asked: that offsets join (the run sees to it) and that
    chunk epochs never fall. Segment, sequence and position are no condition, because another node
    may have rolled its segments elsewhere.

    Args:
        listed: the object.
        trailer: parsed from its last bytes.
        ledger: claims so far.
        last_chunk: of the fragment (or manifest) before it, None where there is none.

    Raises:
        RefusedFragmentError: with stream, offset and key in its message.
    """
    key = listed.data_key
    try:
        check_against_key(trailer, key, listed.size)
        floor = ledger.floor(key.epoch)
        if trailer.floor != floor:
            raise CorruptDataError(
                f"the trailer says floor {trailer.floor}, the ledger says {floor}"
                f" for epoch {key.epoch}"
            )
        if last_chunk is not None and trailer.first_chunk_epoch < last_chunk.epoch:
            raise CorruptDataError(
                f"chunk epochs fall from {last_chunk.epoch} to {trailer.first_chunk_epoch}"
            )
    except CorruptDataError as exc:
        raise RefusedFragmentError(
            f"fragment refused: {exc.reason}",
            stream=key.stream,
            offset=key.first_offset,
            key=listed.path,
        ) from exc
    return Verified(listed, trailer)


def last_chunk_of(run: Iterable[Verified], before: LastChunk | None) -> LastChunk | None:
    """Identity of the last chunk after `run`, `before` if the run is empty."""
    for each in run:
        before = LastChunk(each.trailer.last_chunk_id, each.trailer.last_chunk_epoch)
    return before


def append_run(root: Root, run: Iterable[Verified]) -> Root:
    """`root` with a verified run at its end; the very same root if the run is empty."""
    run = tuple(run)
    last = last_chunk_of(run, root.last_chunk)
    if not run or last is None:
        return root
    return root.appended((each.entry() for each in run), last)
