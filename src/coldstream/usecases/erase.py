"""Erase messages: the same fragments without what was in them take the place of the old ones.

The record of what is erased comes first, then new objects, then one commit for some of them, as in
a repair. One that dies is finished by any later one: the record says what was asked for. What was
replaced is made to go by `purge`, with all its versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from coldstream.crc import crc32
from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError, NotFoundError
from coldstream.fragment import HEADER, Trailer
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.erasure import ErasureRecord
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaf_at, leaves
from coldstream.osiris.blank import Erased
from coldstream.osiris.chunk import iter_chunks
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.erase import blanked
from coldstream.plans.policy import PolicySet
from coldstream.remote.context import Context
from coldstream.remote.erasures import check_erasure, erased_of, put_erasure
from coldstream.remote.roots import Snapshot, load
from coldstream.remote.trailers import trailer_of
from coldstream.soundness.trailer import entry_of
from coldstream.usecases.delete_stream import check_hold
from coldstream.usecases.swap import swap

#: Fragments in one commit, ...
_AT_ONCE = 8
#: ... and bytes of them that are written before it, unless one alone has more: on a slow link, too,
#: that must be done within the time that a root may take (`publish`).
_BYTES_AT_ONCE = 32 * 2**20
#: Times that all fragments are looked at, where other writers replace some meanwhile.
_PASSES = 8
#: Manifests by which something is looked for, each newer than the one before.
_MANIFESTS = 3
#: Trailers that are read at once.
_CONCURRENCY = 16

T = TypeVar("T")


@dataclass(slots=True)
class ErasureReport:
    """What an erasure did, or would do.

    Attributes:
        stream: directory name.
        prefix: of its keys.
        offsets: what was asked for now.
        erased: that, and all that was asked for earlier.
        record: key of the record of this run, "" if it had nothing new to say.
        fragments: of the manifest, with an erased offset that is not blank yet.
        written: of the new ones.
        damaged: fragments that nobody may rewrite before they are repaired.
        version: of the manifest at the end.
    """

    stream: str
    prefix: str
    offsets: OffsetSet
    erased: Erased
    record: str = ""
    fragments: list[Entry] = field(default_factory=list)
    written: list[Entry] = field(default_factory=list)
    damaged: list[CorruptDataError] = field(default_factory=list)
    version: int = 0


def erase(
    context: Context,
    stream: str,
    offsets: OffsetSet,
    policies: PolicySet,
    *,
    reason: str,
    now_ms: int,
    branching: int,
    pause: Callable[[int], None],
    epoch: int | None = None,
    dry_run: bool = False,
) -> ErasureReport:
    """Take what is in messages out of a stream's manifest, and finish erasures that died.

    Args:
        context: where.
        stream: directory name.
        offsets: of the messages; none to finish what was begun.
        policies: all rules; a legal hold forbids it.
        reason: for the record.
        now_ms: ms since the Unix epoch.
        branching: entries of a full group.
        pause: as in `amend`.
        epoch: of the last claim when the offsets were found; None if that does not matter. A claim
            may put other messages at the same offsets, which nobody has asked to erase.
        dry_run: only say what would be done; every fragment that is concerned is read.

    Raises:
        InvalidInputError: offsets that the manifest does not reach: what is not there yet would
            come in later as it is; or no such record can be written (`check_erasure`).
        NotFoundError: the catalog does not know the stream, or a group or a fragment is gone.
        ConflictError: a legal hold, the stream takes no commits, another claim came since the
            offsets were found, or other writers won again and again.
        CorruptDataError: the manifest or an erasure record is damaged.
        UnavailableError: S3 or DynamoDB did not answer.
    """

    def asked(now: Snapshot) -> Erased:
        _check(now, offsets, policies, epoch)
        return dated(context, stream, now.root, offsets)

    loaded, wanted = by_newest(partial(load, context, stream), asked)
    known = erased_of(context, stream)
    report = ErasureReport(
        stream, context.prefix, offsets, known | wanted, version=loaded.item.version
    )
    if report.erased != known:
        record = ErasureRecord(wanted, now_ms, reason)
        if dry_run:
            check_erasure(context, stream, record)
        else:
            report.record = put_erasure(context, stream, record, new_uid=context.new_uid)
    step = _EraseStep(context, report, branching, pause, dry_run)
    for _ in range(_PASSES):
        if not step.rewrite():
            return report
    raise ConflictError("other writers replace the fragments again and again", stream=stream)


def _check(now: Snapshot, offsets: OffsetSet, policies: PolicySet, epoch: int | None) -> None:
    """See that a stream is one of which this may be erased; raises as `erase`."""
    stream = now.item.stream
    check_hold(now.item, policies)
    if epoch is not None and now.item.epoch != epoch:
        raise ConflictError(
            f"epoch {now.item.epoch} has claimed the stream since the offsets were found: there"
            " may be other messages at them; run it again",
            stream=stream,
        )
    end = now.root.next_offset
    if offsets.end > end:
        raise InvalidInputError(
            f"the stream ends before offset {end} in the remote tier: what is behind it cannot be"
            " erased yet",
            stream=stream,
            offset=offsets.end - 1,
        )


class _EraseStep:
    def __init__(
        self,
        context: Context,
        report: ErasureReport,
        branching: int,
        pause: Callable[[int], None],
        dry_run: bool,
    ) -> None:
        self._context = context
        self._report = report
        self._stream = report.stream
        self._fetch = context.fetch(report.stream)
        self._branching = branching
        self._pause = pause
        self._dry_run = dry_run

    def rewrite(self) -> bool:
        """Rewrite every fragment that is concerned; whether another look is needed."""
        root, report = load(self._context, self._stream).root, self._report
        report.damaged.clear()
        overtaken = 0
        waiting: dict[Entry, tuple[Entry, ...]] = {}
        for leaf in concerned(root, report.erased.offsets, self._fetch):
            try:
                new = self._rewritten(leaf, root)
            except CorruptDataError as error:
                report.damaged.append(error)
                continue
            except NotFoundError:
                if not self._is_gone(leaf):
                    raise
                overtaken += 1
                continue
            if new is not None:
                waiting[leaf] = (new,)
            written = sum(each.size for (each,) in waiting.values())
            if len(waiting) >= _AT_ONCE or written >= _BYTES_AT_ONCE:
                overtaken += self._commit(waiting)
                waiting = {}
        return bool(overtaken + self._commit(waiting))

    def _rewritten(self, leaf: Entry, root: Root) -> Entry | None:
        """PUT what takes a fragment's place; None if there is nothing to do, or in a dry run."""
        context, key = self._context, leaf.data_key(self._stream)
        path = key.path(context.prefix)
        data = memoryview(context.store.get(path, 0, leaf.size))
        try:
            floor = root.ledger.floor(leaf.epoch)
            made = blanked(data, leaf, key, self._report.erased, floor=floor)
        except CorruptDataError as exc:
            raise exc.located(stream=self._stream, offset=leaf.first_offset, key=path) from exc
        if made is None:
            return None
        if self._dry_run:
            self._report.fragments.append(leaf)
            return None
        uid = context.new_uid()
        new = entry_of(made.trailer, replace(key, uid=uid))
        context.store.put(
            new.data_key(self._stream).path(context.prefix),
            made.data,
            write_id=f"{uid:016x}-{made.trailer.data_crc:08x}",
        )
        return new

    def _commit(self, swaps: dict[Entry, tuple[Entry, ...]]) -> int:
        """Swap them in; how many another writer has replaced meanwhile."""
        if not swaps:
            return 0
        first = next(iter(swaps.values()))[0].data_key(self._stream).path(self._context.prefix)
        swapped = swap(
            self._context,
            self._stream,
            swaps,
            branching=self._branching,
            pause=self._pause,
            first_written=first,
        )
        self._report.version = swapped.version
        self._report.fragments += swaps
        self._report.written += [new for each in swaps.values() for new in each]
        return swapped.overtaken

    def _is_gone(self, leaf: Entry) -> bool:
        """Whether the manifest does not name a fragment any more."""
        root = load(self._context, self._stream).root
        return leaf_at(root, max(leaf.first_offset, root.first_offset), self._fetch) != leaf


def by_newest(load: Callable[[], Snapshot], read: Callable[[Snapshot], T]) -> tuple[Snapshot, T]:
    """What is read by a stream's manifest, and that manifest.

    An object that is gone may have been replaced meanwhile, by another erasure or a consolidation:
    then a newer manifest names what took its place.

    Args:
        load: gives the stream as it is now.
        read: reads by a manifest.

    Raises:
        NotFoundError: an object is gone that the newest manifest names, too; or the manifest moves
            too fast.
        What `load` and `read` raise.
    """
    now = load()
    for _ in range(_MANIFESTS - 1):
        try:
            return now, read(now)
        except NotFoundError:
            newer = load()
            if newer.item.root_key == now.item.root_key:
                raise
            now = newer
    return now, read(now)


def dated(context: Context, stream: str, root: Root, offsets: OffsetSet) -> Erased:
    """The offsets with the epochs of the chunks that have them; 0 where the manifest has none.

    Costs a trailer for each fragment, and all of one that has chunks of several epochs.

    Raises:
        NotFoundError: a fragment is gone.
        CorruptDataError: one is damaged: repair it first.
    """
    rows: list[tuple[int, int, int]] = []
    fragments = list(concerned(root, offsets, context.fetch(stream)))
    for leaf, trailer in zip(fragments, _trailers(context, stream, fragments), strict=True):
        path = leaf.data_key(stream).path(context.prefix)
        spans = [(leaf.first_offset, leaf.next_offset, trailer.first_chunk_epoch)]
        if trailer.first_chunk_epoch != trailer.last_chunk_epoch:
            data = context.store.get(path, len(HEADER), trailer.index_position)
            if crc32(data) != trailer.data_crc:
                # What a damaged header says is no epoch, and a record is never corrected.
                raise CorruptDataError(
                    "the fragment is damaged, so nobody knows the epochs of its chunks: repair it"
                    " first",
                    stream=stream,
                    offset=leaf.first_offset,
                    key=path,
                )
            headers = [chunk.header for chunk in iter_chunks(data)]
            spans = [(each.chunk_id, each.next_offset, each.epoch) for each in headers]
        for first, next_offset, epoch in spans:
            rows += [(*each, epoch) for each in offsets.within(first, next_offset).ranges]
    found = OffsetSet.of((first, next_offset) for first, next_offset, _ in rows)
    return Erased.of((*rows, *((*each, 0) for each in offsets.without(found).ranges)))


def _trailers(context: Context, stream: str, fragments: Sequence[Entry]) -> list[Trailer]:
    read = partial(trailer_of, context.store, context.prefix, stream)
    if len(fragments) < 2:
        return [read(each) for each in fragments]
    with context.pool(min(_CONCURRENCY, len(fragments))) as pool:
        return list(pool.map(read, fragments))


def concerned(root: Root, erased: OffsetSet, fetch: Fetch) -> Iterator[Entry]:
    """Live fragments that hold some of the offsets, each once, in order; one that begins below the
    first offset of the manifest is live as a whole.
    """
    at = root.first_offset
    for first, next_offset in erased.ranges:
        if not len(root.entries) or max(first, at) >= root.next_offset:
            continue
        for leaf in leaves(root, fetch, start=max(first, at)):
            if leaf.first_offset >= next_offset:
                break
            if leaf.kind is EntryKind.FRAGMENT and erased.overlaps(
                leaf.first_offset, leaf.next_offset
            ):
                yield leaf
            at = leaf.next_offset
