"""Anchor a new stream, and claim it for the epoch of a new writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import (
    ConflictError,
    DivergedError,
    FencedError,
    ForeignBucketError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.ledger import COMPACT_FROM
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves_backwards
from coldstream.names import MAX_EPOCH, stream_prefix
from coldstream.plans.claim import LocalHistory
from coldstream.plans.claim import claim as plan_claim
from coldstream.plans.truncate import Truncation
from coldstream.ports import Landed
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import Snapshot, load_item
from coldstream.usecases.amend import PLAIN, Terms, amend
from coldstream.usecases.divergence import Alone, divergence, nobody_else
from coldstream.usecases.extend import Extension, extend
from coldstream.usecases.ours import holds_ours
from coldstream.usecases.overlap import Ends
from coldstream.usecases.quarantine import load_record
from coldstream.usecases.truncate import cut_off

#: The first claim of a stream is of an epoch up to this, unless it may leap further.
_FIRST_MOST = 2**20


def anchor(context: Context, stream: str, first_offset: int, name: QueueName) -> CatalogItem:
    """Write the stream's first item, before its first object; return the item that is there.

    Raises:
        ConflictError: objects of the stream exist without an item (a lost or restored table);
            nothing is written until they have been reconciled.
    """
    item = context.catalog.get(stream)
    if item is not None:
        return item
    if holds_ours(context, stream):
        item = context.catalog.get(stream)
        if item is not None:
            return item  # another agent has begun the stream between the two looks
        raise ConflictError(
            "the bucket holds objects of this stream but the catalog has no item for it;"
            " it must be reconciled before anything is written",
            stream=stream,
        )
    return context.catalog.anchor(
        CatalogItem(
            stream=stream,
            table_id=context.catalog.table_id(),
            first_offset=first_offset,
            next_offset=first_offset,
            name=name,
        )
    )


def foreign(item: CatalogItem, under: str) -> ForeignBucketError:
    """The error of a stream that has held data, in a bucket that has none of it."""
    return ForeignBucketError(
        f"the catalog has a manifest of {item.first_offset}..{item.next_offset} for this"
        f" stream, but this bucket has no object below {under}: the table belongs to another"
        " bucket, or this one was emptied; nothing was written",
        stream=item.stream,
        offset=item.next_offset,
        key=item.root_key,
    )


def root_again(context: Context, stream: str) -> bool:
    """Write the root of a manifest that has never held anything, where the bucket has nothing.

    A first run with the wrong bucket has left its claim in the catalog, and the root of it in that
    bucket. Such a root says nothing that the item does not say, so it can be written anew, with the
    same offset and ledger; who was fenced stays fenced. Whatever else the item may say, what it
    describes is in another bucket or gone, and a new root would hide that.

    Returns:
        Whether it was written, by a conditional write; False if the bucket has objects of the
        stream, or the item has moved on.

    Raises:
        ForeignBucketError: the manifest has held data; nothing was written.
        As `load_item` and `publish`.
    """
    item = load_item(context, stream)
    under = stream_prefix(context.prefix, stream)
    if not item.root_key or holds_ours(context, stream):
        return False
    if not item.never_held:
        raise foreign(item, under)
    root = Root(
        first_offset=item.first_offset,
        next_offset=item.next_offset,
        epoch=item.epoch,
        ledger=item.ledger,
    )
    return isinstance(publish(context, Snapshot(item, root), root), Landed)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim did.

    Attributes:
        loaded: the stream as it is after the claim.
        truncated: what was cut off, because the local log proves another history; None if nothing,
            or if an earlier life of this writer did it (the root's quarantine record says so).
        rooted: whether the root of an empty manifest was nowhere in the bucket and was made anew.
        held: a hole [first, next) at the end of the manifest that this epoch has claimed, and the
            local log has what it stands for; None if there is none, or if nobody has looked.
        new: whether this very call made it, as far as is known.
    """

    loaded: Snapshot
    truncated: Truncation | None = None
    rooted: bool = False
    held: tuple[int, int] | None = None
    new: bool = False


def land_claim(
    context: Context,
    stream: str,
    epoch: int,
    *,
    log: LocalHistory,
    pause: Callable[[int], None],
    now_ms: int,
    alone: Alone,
    attempts: int = 8,
    limit: int = 500,
    shift: int = 0,
    max_leap: int = MAX_EPOCH,
    time_left: Callable[[], bool] = lambda: True,
) -> Claimed:
    """Claim the stream for `epoch`, once; a second call finds the claim and returns.

    What is uploaded and good, also the part of a fragment that reaches over the end, is appended in
    the same commit: nothing below the floor can be missing for want of a writer. Where the local
    log proves that the end is another history, it is cut off in the same commit, and named in a
    quarantine record.

    Args:
        context: where.
        stream: directory name.
        epoch: of a committed chunk that the local log holds.
        log: the committed part of the local log.
        pause: called with the number of the failed attempt before the next one.
        now_ms: for the quarantine record; ms since the Unix epoch.
        alone: asked where the local log begins above what it would have to be compared with: a
            member with an older log must claim then, or another history's end would stay.
        attempts: how many commits in a row may fail.
        limit: fragments in one commit.
        shift: of the root, as it was when `epoch` was made of it.
        max_leap: by how much an epoch may be above the one that claimed before it.
        time_left: asked before each commit.

    Raises:
        FencedError: a higher epoch has claimed, or this epoch was passed over.
        LostRangeError: from `alone`; nothing was changed.
        DivergedError: nothing shows where the histories part; nothing was changed.
        UnavailableError: no time was left; another call goes on.
        ConflictError: the stream takes no commits, or another writer won `attempts` times.
        ForeignBucketError: the bucket has nothing of a stream that has held data.
        CorruptDataError: the current root, or an object that the comparison needs, is damaged;
            nothing was changed.
        NotFoundError: it is gone.
        InvalidInputError: quarantine or ledger are full, or the epoch leaps; nothing was changed.
    """
    claiming = _Claiming(context, stream, epoch, log, limit, now_ms, alone, shift, max_leap)
    rooted = False
    while True:
        if not time_left():
            raise UnavailableError("no time was left for the claim; it goes on", stream=stream)
        try:
            step = claiming.step(pause, attempts)
        except NotFoundError as exc:
            if exc.key is None or rooted or not (rooted := root_again(context, stream)):
                raise
            continue
        if step.claimed is not None:
            return replace(claiming.claimed(step.claimed), rooted=rooted)


@dataclass(frozen=True, slots=True)
class _ClaimStep:
    """A step to a claim: what is to be appended first, the claim itself, or that it has landed.

    Attributes:
        root: as it should be; the current one if nothing is to be committed.
        claimed: the stream with the claim, once it has landed.
        terms: of the commit.
    """

    root: Root
    claimed: Snapshot | None = None
    terms: Terms = PLAIN

    @property
    def nodes(self) -> Sequence[Node]:
        """None."""
        return ()


class _Claiming:
    """The steps of one claim, each planned from the stream as it is; see `land_claim`."""

    def __init__(
        self,
        context: Context,
        stream: str,
        epoch: int,
        log: LocalHistory,
        limit: int,
        now_ms: int,
        alone: Alone,
        shift: int,
        max_leap: int,
    ) -> None:
        self._context = context
        self._stream = stream
        self._epoch = epoch
        self._shift = shift
        self._max_leap = max_leap
        self._log = log
        self._limit = limit
        self._now_ms = now_ms
        self._alone = alone
        self._ends = Ends(context, stream, thorough=True, time_left=lambda: True)
        self._planned: Truncation | None = None
        self._new = False

    def step(self, pause: Callable[[int], None], attempts: int) -> _ClaimStep:
        """Commit the next step to the claim; the step that it was.

        Raises:
            As `land_claim`.
        """
        amended = amend(
            self._context,
            self._stream,
            self._plan,
            pause=pause,
            attempts=attempts,
            terms=lambda step: step.terms,
        )
        self._new |= amended.landed and amended.change.terms.claim
        return amended.change

    def _plan(self, loaded: Snapshot) -> _ClaimStep:
        if loaded.item.epoch >= self._epoch:
            check_not_fenced(loaded, self._epoch)
            return _ClaimStep(loaded.root, loaded)
        check_leap(loaded.item, self._epoch, self._max_leap)
        self._check_shift(loaded.root)
        self._planned = None
        extension = extend(
            self._context, self._stream, loaded.root, limit=self._limit, left=self._ends.left
        )
        if extension.more:
            return _ClaimStep(extension.root)
        if self._ends.go_on(extension, stalled=True):
            return _ClaimStep(loaded.root)  # the floor would shut out for ever what reaches over it
        if self._ends.out_of_time:
            raise ConflictError("fragments overlap without end", stream=self._stream)
        return self._claim(loaded, extension)

    def _claim(self, loaded: Snapshot, extension: Extension) -> _ClaimStep:
        context, stream, root = self._context, self._stream, extension.root
        cut = divergence(context, stream, root, self._log, alone=self._alone)
        first_written = ""
        if cut is not None:
            root, self._planned = cut_off(
                context, loaded, extension, cut, self._epoch, now_ms=self._now_ms
            )
            first_written = self._planned.first_written
        root = plan_claim(root, self._epoch, recorded=_recorded(context, stream, root))
        return _ClaimStep(root, terms=Terms(claim=True, first_written=first_written))

    def _check_shift(self, root: Root) -> None:
        """An undo has not changed meanwhile what epochs mean.

        Raises:
            ConflictError: it has.
        """
        if root.shift != self._shift:
            raise ConflictError(
                f"agents add {root.shift} to the epochs of brokers now, and this claim has added"
                f" {self._shift}; it is made again",
                stream=self._stream,
            )

    def claimed(self, loaded: Snapshot) -> Claimed:
        """What a claim that has landed did."""
        truncated = self._planned if _is_ours(self._planned, loaded.root) else None
        return Claimed(loaded, truncated, new=self._new)


def check_leap(item: CatalogItem, epoch: int, max_leap: int) -> None:
    """Return unless an epoch is further above the last one than elections can have brought it.

    A broker counts its epochs up by one. A stream may be old when it is tiered first, but no stream
    has had a million elections; above that an undo would have no room.

    Raises:
        InvalidInputError: it is.
    """
    if epoch > (item.epoch + max_leap if item.epoch else max(_FIRST_MOST, max_leap)):
        raise InvalidInputError(
            f"epoch {epoch} would claim the stream after epoch {item.epoch}, and no broker counts"
            f" up by more than {max_leap} between two claims; nothing was changed",
            stream=item.stream,
            offset=item.next_offset,
        )


def check_not_fenced(loaded: Snapshot, epoch: int) -> None:
    """The claim of `epoch` has landed, and no higher one.

    Raises:
        FencedError: it has not, or there is one.
    """
    if loaded.item.ledger.floor(epoch) is None or loaded.item.epoch > epoch:
        raise FencedError(
            f"epoch {loaded.item.epoch} has claimed the stream, this writer has {epoch}",
            stream=loaded.item.stream,
            offset=loaded.root.next_offset,
        )


def _recorded(context: Context, stream: str, root: Root) -> set[int] | None:
    """Epochs of the claims that the quarantine record names; None where the ledger is short.

    Raises:
        As `load_record`.
    """
    if len(root.ledger.claims) < COMPACT_FROM:
        return None
    return {epoch for epoch, _ in load_record(context, stream, root.quarantine_key).cuts()}


def _is_ours(planned: Truncation | None, root: Root) -> bool:
    """Whether a truncation that was planned last is the one that landed."""
    if planned is None or root.ledger.floor(planned.epoch) != planned.offset:
        return False
    return not planned.record_key or root.quarantine_key == planned.record_key


def check_history(
    context: Context, stream: str, root: Root, log: LocalHistory
) -> tuple[int, int] | None:
    """Compare a log with the manifest that its epoch has claimed; nothing can be cut off any more.

    Returns:
        The hole [first, next) in which the manifest ends, if the log has what it stands for: a
        rebuild or a repair gave up what this writer still has. That is no other history.

    Raises:
        DivergedError: the log is another history than the manifest's.
    """
    cut = divergence(context, stream, root, log, alone=nobody_else)
    if cut is None:
        return None
    end, chunk = _end_of_data(context, stream, root), cut.evidence
    if chunk.next_offset == root.next_offset and end <= (
        root.first_offset if cut.anew else cut.offset
    ):
        return max(end, cut.offset), root.next_offset
    raise DivergedError(
        f"the local chunk {chunk.chunk_id}..{chunk.next_offset} of epoch {chunk.epoch} is not"
        f" in the remote tier of {root.first_offset}..{root.next_offset}, which this very epoch"
        " has claimed; nothing was changed",
        stream=stream,
        offset=chunk.chunk_id,
    )


def _end_of_data(context: Context, stream: str, root: Root) -> int:
    """Where the last fragment ends, and nothing but holes follows."""
    live = leaves_backwards(root, context.fetch(stream))
    ends = (leaf.next_offset for leaf in live if leaf.kind is not EntryKind.HOLE)
    return next(ends, root.first_offset)
