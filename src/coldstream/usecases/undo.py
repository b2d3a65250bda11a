"""Undo false claims and forged fragments: claim for a person, and put back what is true.

A thief of an agent's credentials can claim a stream with a made-up log, and upload made-up
fragments. What a false claim cuts off is in the quarantine. This claims once more, by an epoch that
no agent can have, and cuts the manifest where the truth ends: so all that is made up is fenced, by
the same rule that fences a deposed writer, however late it comes. What the false claims cut off is
copied under the new epoch, inside the bucket, and committed. The brokers' epochs are below the new
one, so the root says how much agents add to them from then on. The next claim of an agent compares
its log with all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
)
from coldstream.fragment import Trailer
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import QuarantineRecord
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import leaf_at
from coldstream.plans.claim import LocalChunk, claim
from coldstream.plans.truncate import Cut, Truncation
from coldstream.ports import Composer
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.remote.trailers import epoch_at, read_index, trailer_of
from coldstream.usecases.amend import Terms, amend
from coldstream.usecases.claim import recorded
from coldstream.usecases.claim_function import MAX_LEAP
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.extend import Extension
from coldstream.usecases.put_back import Copies, Source
from coldstream.usecases.quarantine import load_record, lost_data
from coldstream.usecases.truncate import cut_off

_AT_ONCE = 8
_BATCH = 256


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
        next_offset: where what is put back ends; `offset` if nothing is.
    """

    stream: str
    offset: int
    epoch: int
    shift: int
    item: CatalogItem
    false_claims: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def next_offset(self) -> int:
        """See the class."""
        return max([self.offset, *(each.next for each in self.sources)])


@dataclass(slots=True)
class Undone:
    """What an undo did.

    Attributes:
        plan: that was carried out.
        cut: what was cut off; None if nothing was above the truth.
        fragments: how many fragments and holes were put back.
        bytes: of them.
        next_offset: of the manifest at the end.
        left: one error for each piece that could not be put back.
    """

    plan: UndoPlan
    cut: Truncation | None = None
    fragments: int = 0
    bytes: int = 0
    next_offset: int = 0
    left: list[CorruptDataError | NotFoundError] = field(default_factory=list)


def plan_undo(
    context: Context,
    stream: str,
    *,
    false_claim: int | None = None,
    offset: int | None = None,
    broker_epoch: int | None = None,
) -> UndoPlan:
    """What undoing would do; nothing is written.

    Args:
        context: where.
        stream: directory name.
        false_claim: epoch of the first false claim; all later ones count as false, too.
        offset: where forged fragments begin, if no claim is false.
        broker_epoch: at most the epoch that the broker has now; None for that of the last claim
            that is not false.

    Raises:
        InvalidInputError: not one of both is given; there is no such claim or offset.
        ConflictError: a fragment begins below `offset` and ends above it, and no chunk ends there.
        As `load` and `lost_data`.
    """
    if (false_claim is None) == (offset is None):
        raise InvalidInputError("name the first false claim, or where forged fragments begin")
    loaded = load(context, stream)
    item, root = loaded.item, loaded.root
    record = load_record(context, stream, root.quarantine_key)
    claims = [(each.epoch, each.floor) for each in root.ledger.claims]
    false = [each for each in claims if false_claim is not None and each[0] >= false_claim]
    sources: tuple[Source, ...] = ()
    if false_claim is not None:
        for before, after in pairwise(false):
            if after[0] - before[0] > MAX_LEAP:
                raise InvalidInputError(
                    f"what claims made of it before epoch {after[0]} is undone already: no agent"
                    " can have claimed by that one; name the first false claim after it",
                    stream=stream,
                )
        if not false or false[0][0] != false_claim:
            newest = ", ".join(str(epoch) for epoch, _ in claims[-5:])
            raise InvalidInputError(
                f"no claim of epoch {false_claim}; the newest ones are {newest}", stream=stream
            )
        offset, sources = _what_was_cut(context, stream, record, false)
    assert offset is not None
    if offset > root.next_offset:
        raise InvalidInputError(
            f"the manifest ends at {root.next_offset}", stream=stream, offset=offset
        )
    if offset <= root.first_offset and sources:
        offset = sources[0].first
    if broker_epoch is None:
        true = max((epoch for epoch, _ in claims if (epoch, _) not in false), default=0)
        broker_epoch = max(0, true - root.shift)
    # No agent can claim this one, so what is copied under it is of nobody else.
    epoch = item.epoch + MAX_LEAP + 1
    return UndoPlan(
        stream=stream,
        offset=offset,
        epoch=epoch,
        shift=epoch + 1 - broker_epoch,
        item=item,
        false_claims=tuple(each for each, _ in false),
        sources=sources,
    )


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
    # All copies are there before the claim: whoever commits first finds them, and no gap.
    with context.pool(_AT_ONCE) as pool:
        copies = Copies(context, composer, plan.stream, plan.epoch, plan.offset, plan.sources)
        wanted = copies.leaves()
        while batch := list(islice(wanted, _BATCH)):
            for found in pool.map(copies.put, batch):
                if isinstance(found, CorruptDataError | NotFoundError):
                    done.left.append(found)
                    continue
                done.fragments += len(found)
                done.bytes += sum(found)
                progress(sum(found))
    step = amend(
        context,
        plan.stream,
        lambda loaded: _claimed(context, plan, loaded, now_ms),
        pause=pause,
        terms=lambda step: step.terms,
    )
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
        root, truncation = cut_off(context, loaded, unchanged, cut, plan.epoch, now_ms=now_ms)
    root = claim(root, plan.epoch, recorded=recorded(context, stream, root))
    terms = Terms(claim=True, first_written=truncation.first_written if truncation else "")
    return _Claim(replace(root, shift=plan.shift), truncation, terms)


def _cut(context: Context, plan: UndoPlan, root: Root) -> Cut | None:
    offset = plan.offset
    claims = ", ".join(map(str, plan.false_claims))
    why = f"undone: what false claims (epoch {claims}) have made of the stream"
    if not claims:
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


def _trailer(context: Context, stream: str, leaf: Entry) -> Trailer:
    return trailer_of(context.store, context.prefix, stream, leaf)
