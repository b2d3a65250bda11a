"""Undo false claims and forged fragments: claim for a person, and put back what is true.

A thief of an agent's credentials can claim a stream with a made-up log, and upload made-up
fragments. What a false claim cuts off is in the quarantine. This claims once more, by an epoch that
is drawn and that no agent can have, and cuts the manifest where the truth ends: so all that is made
up is fenced, by the same rule that fences a deposed writer, however late it comes.

What is true and was cut off is copied under the new epoch, inside the bucket, and committed. The
brokers' epochs are below the new one, so the root says how much agents add to them from then on.
The next claim of an agent compares its log with all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
)
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import MAX_TIMELINES, QuarantineRecord
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import leaf_at
from coldstream.names import MAX_EPOCH
from coldstream.plans.claim import LocalChunk, claim
from coldstream.plans.truncate import Cut, Truncation
from coldstream.plans.undo_epoch import MAX_LEAP, drawn
from coldstream.ports import Composer
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.remote.trailers import epoch_at, read_index, trailer_of
from coldstream.usecases.amend import Terms, amend
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.extend import Extension
from coldstream.usecases.put_back import Copies, Source
from coldstream.usecases.quarantine import load_record, lost_data
from coldstream.usecases.truncate import cut_off


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What an undo is going to do.

    Attributes:
        stream: directory name.
        offset: where the truth ends in the manifest as it is; all above it is cut off.
        epoch: by which it claims.
        shift: what agents add to the epochs of brokers from then on.
        item: of the stream, when this was planned.
        false_claims: epochs of the claims that count as false, in rising order.
        sources: what is put back, in the order of offsets.
        to: where forged fragments end, and what is true follows; None if nothing does.
        next_offset: where what is put back ends; `offset` if nothing is.
    """

    stream: str
    offset: int
    epoch: int
    shift: int
    item: CatalogItem
    false_claims: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()
    to: int | None = None

    @property
    def next_offset(self) -> int:
        """See the class."""
        return max([self.offset, *(each.next for each in self.sources)])


@dataclass(slots=True)
class Undone:
    """What an undo did.

    Attributes:
        plan: that was carried out.
        sources: what was put back.
        cut: what was cut off; None if nothing was above the truth.
        fragments: how many fragments and holes were put back.
        bytes: of them.
        next_offset: of the manifest at the end.
        left: one error for each piece that could not be put back.
    """

    plan: UndoPlan
    sources: list[Source] = field(default_factory=list)
    cut: Truncation | None = None
    fragments: int = 0
    bytes: int = 0
    next_offset: int = 0
    left: list[CorruptDataError | NotFoundError] = field(default_factory=list)


def plan_undo(
    context: Context,
    stream: str,
    *,
    false_claims: Collection[int] = (),
    offset: int | None = None,
    to: int | None = None,
    broker_epoch: int | None = None,
) -> UndoPlan:
    """What undoing would do; nothing is written.

    Args:
        context: where.
        stream: directory name.
        false_claims: epochs of all false claims; no true one may have come after the first.
        offset: where forged fragments or a false hole begin, if no claim is false.
        to: where they end; what follows is put back. None if all that follows is forged.
        broker_epoch: an epoch that the broker has had; None for that of the last true claim.

    Raises:
        InvalidInputError: what is named is not there, or cannot be undone; the message says why.
        As `load` and `lost_data`.
    """
    if bool(false_claims) == (offset is not None) or (to is not None and offset is None):
        raise InvalidInputError("name the false claims, or where forged fragments begin")
    loaded = load(context, stream)
    item, root = loaded.item, loaded.root
    record = load_record(context, stream, root.quarantine_key)
    # Retention takes old claims out of ledgers, not out of records.
    known = {**dict(record.cuts()), **{c.epoch: c.floor for c in root.ledger.claims}}
    claims = sorted(known.items())
    false = [each for each in claims if each[0] in false_claims]
    sources: tuple[Source, ...] = ()
    if offset is None:
        _check_named(stream, claims, set(false_claims), root.shift)
        offset, sources = _what_was_cut(context, stream, record, false)
    elif to is not None:
        _check_boundary(context, stream, root, offset, to)
        if to < root.next_offset:
            sources = (Source(root, to, root.next_offset),)
    if offset > root.next_offset:
        raise InvalidInputError(
            f"the manifest ends at {root.next_offset}", stream=stream, offset=offset
        )
    if offset <= root.first_offset and sources and to is None:
        offset = sources[0].first
    if broker_epoch is None:
        true = max((epoch for epoch, _ in claims if epoch not in false_claims), default=0)
        broker_epoch = max(0, true - root.shift)
    epoch = _drawn(context, item)
    plan = UndoPlan(
        stream=stream,
        offset=offset,
        epoch=epoch,
        shift=max(0, epoch + 1 - broker_epoch),
        item=item,
        false_claims=tuple(each for each, _ in false),
        sources=sources,
        to=to,
    )
    _cut(context, plan, root)  # whether it can be cut there
    return plan


def _drawn(context: Context, item: CatalogItem) -> int:
    """An epoch that no agent can claim by, and by which nobody can have uploaded: it is drawn.

    Raises:
        InvalidInputError: none is left.
    """
    epoch = drawn(item.epoch, context.new_uid())
    if epoch >= MAX_EPOCH:
        raise InvalidInputError(
            "no epoch is left above those that were claimed", stream=item.stream
        )
    return epoch


def _last_undo(claims: Sequence[int], shift: int) -> int | None:
    """The epoch of the claim by which the last undo landed; None if none has.

    It is above all before it by more than an agent may leap, and is the least such from what it has
    set as the shift on. A long ledger drops claims that have cut nothing, so one that follows may
    seem to leap as far.
    """
    leaps = (epoch for before, epoch in pairwise(claims) if epoch - before > MAX_LEAP)
    return next((epoch for epoch in leaps if shift and epoch >= shift - 1), None)


def _check_named(
    stream: str, claims: Sequence[tuple[int, int]], named: set[int], shift: int
) -> None:
    """All claims from the first false one on are named, and none of them was an undo.

    Raises:
        InvalidInputError: it is not so.
    """
    known = [epoch for epoch, _ in claims]
    unknown = sorted(named - set(known))
    if unknown:
        newest = ", ".join(map(str, known[-5:]))
        raise InvalidInputError(
            f"no claim of epoch {unknown[0]}; the newest ones are {newest}", stream=stream
        )
    undone = _last_undo(known, shift)
    if undone is not None and undone > min(named):
        raise InvalidInputError(
            f"what was false before epoch {undone} is undone already, by that very claim: no"
            " agent's epoch is so far above the one before it",
            stream=stream,
        )
    later = [epoch for epoch in known if epoch > min(named) and epoch not in named]
    if later:
        raise InvalidInputError(
            f"epoch {later[0]} has claimed after a false claim. If that is true, its log has been"
            " compared, what was false is cut off, and nothing is to be undone; else name it, too",
            stream=stream,
        )


def _check_boundary(context: Context, stream: str, root: Root, offset: int, to: int) -> None:
    if not offset < to <= root.next_offset:
        raise InvalidInputError(
            f"forged from {offset} to {to} is no range of a manifest up to {root.next_offset}",
            stream=stream,
        )
    if to > root.first_offset:
        _last_chunk(context, stream, root, to)


def _what_was_cut(
    context: Context, stream: str, record: QuarantineRecord, false: Sequence[tuple[int, int]]
) -> tuple[int, tuple[Source, ...]]:
    """Where the truth ends after false claims, and where what they cut off is.

    What the first of them cut off is true; of a later one only what lies below all before it.
    """
    sources: list[Source] = []
    lowest: int | None = None
    for epoch, floor in false:
        timeline = record.timeline(epoch)
        begin = floor if timeline is None else min(floor, timeline.floor)
        if timeline is not None and (lowest is None or begin < lowest):
            root = lost_data(context, stream, timeline).root
            first = begin if root is None else max(begin, root.first_offset)
            end = first if root is None else root.next_offset
            end = end if lowest is None else min(end, lowest)
            if root is not None and first < end:
                sources.insert(0, Source(root, first, end))
        lowest = begin if lowest is None else min(lowest, begin)
    assert lowest is not None
    return lowest, tuple(sources)


def undo(
    context: Context,
    composer: Composer,
    plan: UndoPlan,
    *,
    pause: Callable[[int], None],
    now_ms: int,
    progress: Callable[[int], None] = lambda size: None,
) -> Undone:
    """Carry a plan out. One that dies half-way has changed nothing, or is finished by commits.

    Args:
        context: where.
        composer: of the same bucket.
        plan: from `plan_undo`.
        pause: as in `amend`.
        now_ms: for the quarantine record; ms since the Unix epoch.
        progress: called with the size of each piece that was copied, bytes.

    Raises:
        ConflictError: another claim came meanwhile: the thief is still there; nothing was changed.
        As `amend`, `cut_off` and `commit_runs`.
    """
    done = Undone(plan)

    def put_back(sources: tuple[Source, ...]) -> None:
        done.sources += sources
        copies = Copies(context, composer, plan.stream, plan.epoch, plan.offset, sources)
        for found in copies.put_all():
            if isinstance(found, CorruptDataError | NotFoundError):
                done.left.append(found)
                continue
            done.fragments += len(found)
            done.bytes += sum(found)
            progress(sum(found))

    def claimed(loaded: Snapshot) -> _Claim:
        if plan.to is not None and loaded.item.epoch == plan.item.epoch:
            copied, end = max([plan.to, *(s.next for s in done.sources)]), loaded.root.next_offset
            if copied < end:  # uploaded since, and perhaps in no log any more
                put_back((Source(loaded.root, copied, end),))
        return _claimed(context, plan, loaded, now_ms)

    # All copies are there before the claim: whoever commits first finds them, and no gap.
    put_back(plan.sources)
    step = amend(context, plan.stream, claimed, pause=pause, terms=lambda step: step.terms)
    done.cut = step.change.cut
    while True:
        report = commit_runs(context, plan.stream, pause=pause, thorough=True)
        done.next_offset = report.next_offset
        if not report.more:
            return done


@dataclass(frozen=True, slots=True)
class _Claim:
    """The claim as it is to be committed; a `Change` of `amend`."""

    root: Root
    cut: Truncation | None = None
    terms: Terms = field(default_factory=Terms)

    @property
    def nodes(self) -> Sequence[Node]:
        """None."""
        return ()


def _claimed(context: Context, plan: UndoPlan, loaded: Snapshot, now_ms: int) -> _Claim:
    stream, root = plan.stream, loaded.root
    if root.ledger.floor(plan.epoch) == plan.offset:
        return _Claim(root)  # it has landed, and the answer was lost
    if loaded.item.epoch != plan.item.epoch or root.next_offset < plan.offset:
        raise ConflictError(
            f"epoch {loaded.item.epoch} has claimed the stream meanwhile; stop whoever it is, and"
            " begin again. Nothing was changed",
            stream=stream,
            offset=root.next_offset,
        )
    truncation: Truncation | None = None
    cut = _cut(context, plan, root)
    if cut is not None:
        unchanged = Extension(root, (), (), more=False)
        root, truncation = cut_off(
            context, loaded, unchanged, cut, plan.epoch, now_ms=now_ms, most=MAX_TIMELINES
        )
    kept = {epoch for epoch, _ in load_record(context, stream, root.quarantine_key).cuts()}
    # The right of a claim with no lower floor is empty from now on. So many false ones fill no
    # ledger.
    claims = tuple(c for c in root.ledger.claims if c.floor < plan.offset or c.epoch in kept)
    root = claim(replace(root, ledger=Ledger(claims)), plan.epoch)
    terms = Terms(claim=True, first_written=truncation.first_written if truncation else "")
    return _Claim(replace(root, shift=plan.shift), truncation, terms)


def _cut(context: Context, plan: UndoPlan, root: Root) -> Cut | None:
    offset = plan.offset
    claims = f"epochs {min(plan.false_claims, default=0)} to {max(plan.false_claims, default=0)}"
    why = f"undone: what {len(plan.false_claims)} false claims, {claims}, have made of the stream"
    if not plan.false_claims:
        why = f"undone: fragments that were forged, from {offset} on"
    if offset == root.next_offset:
        return None
    nothing = LocalChunk(offset, offset, 0)
    if offset <= root.first_offset:
        return Cut(offset, None, nothing, anew=True, why=why)
    return Cut(offset, _last_chunk(context, plan.stream, root, offset), nothing, why=why)


def _last_chunk(context: Context, stream: str, root: Root, offset: int) -> LastChunk | None:
    """The last chunk of a manifest below `offset`, at which a chunk or a hole must end.

    Raises:
        InvalidInputError: none does.
        CorruptDataError, NotFoundError: of the fragment.
    """
    fetch = context.fetch(stream)
    leaf = leaf_at(root, offset - 1, fetch)
    while leaf is not None and leaf.kind is EntryKind.HOLE:
        below = leaf.first_offset
        leaf = leaf_at(root, below - 1, fetch) if below > root.first_offset else None
        offset = min(offset, below)
    if leaf is None:
        return None
    path = leaf.data_key(stream).path(context.prefix)
    try:
        index = read_index(
            context.store, path, trailer_of(context.store, context.prefix, stream, leaf)
        )
        number = index.chunk_of_offset(offset - 1)
        following = index[number + 1].chunk_id if number + 1 < len(index) else leaf.next_offset
        if following != offset:
            raise InvalidInputError(
                f"offset {offset} is inside chunk {index[number].chunk_id}..{following}: name one"
                " of these",
                stream=stream,
                offset=offset,
            )
        return LastChunk(index[number].chunk_id, epoch_at(context.store, path, index, number))
    except (CorruptDataError, NotFoundError) as exc:
        exc.located(stream=stream, offset=leaf.first_offset, key=path)
        raise
