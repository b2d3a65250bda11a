"""What claims have cut off: the record of it, what it names, and giving it up.

A record is PUT before the root that names it, and never changes. What it names is kept by `collect`
for as long as the current root, or one that may be adopted yet, names the record.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnknownVersionError,
)
from coldstream.manifest.entries import MAX_RECORDS, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import (
    MAX_RECORD_SIZE,
    QuarantineRecord,
    Timeline,
    parse_record,
)
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import (
    DataKey,
    GroupKey,
    data_prefix,
    parse_data_key,
    quarantine_path,
)
from coldstream.plans.collect import named_by, refers
from coldstream.plans.resolve import Listed, VerifiedHole
from coldstream.remote.context import Context
from coldstream.remote.publish import modified_ms
from coldstream.remote.roots import Snapshot, load, root_at
from coldstream.remote.trailers import trailer_of_listed
from coldstream.usecases.amend import Amended, amend


def load_record(context: Context, stream: str, key: str) -> QuarantineRecord:
    """The record under `key`; an empty one if the key is "".

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: it is damaged.
    """
    if not key:
        return QuarantineRecord()
    try:
        return parse_record(context.store.get_all(key, limit=MAX_RECORD_SIZE))
    except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
        exc.located(stream=stream, key=key)
        raise


def write_record(context: Context, stream: str, epoch: int, record: QuarantineRecord) -> str:
    """PUT a record; give its key. No root names it yet."""
    uid = context.new_uid()
    data = record.encode()
    key = quarantine_path(context.prefix, stream, epoch, uid)
    context.store.put(key, data, write_id=f"{uid:016x}-{zlib.crc32(data):08x}")
    return key


def load_cut_root(context: Context, stream: str, timeline: Timeline) -> Root | None:
    """The root that was current before a claim cut it off; None if there was none.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: it is damaged.
    """
    if not timeline.root_key:
        return None
    root = context.roots.get(timeline.root_key)
    if root is None:
        root = root_at(context.store, timeline.root_key, stream)
        context.roots.put(timeline.root_key, root)
    return root


@dataclass(frozen=True, slots=True)
class _Lost:
    """A timeline, its root, and whether the current root's record names it."""

    timeline: Timeline
    root: Root | None
    certain: bool


class Quarantine:
    """What the records of some roots name: all of it is kept.

    Args:
        context: where.
        stream: directory name.
        current: the current root; what its record names must be readable.
        rivals: roots that may be adopted instead; one whose record cannot be read is adopted by
            nobody, so it names nothing.

    Raises:
        NotFoundError: something that the current root's record names is gone.
        CorruptDataError: it is damaged.
    """

    def __init__(
        self, context: Context, stream: str, current: Root, rivals: Collection[Root]
    ) -> None:
        self._fetch = context.fetch(stream)
        #: Of the current root.
        self.record = load_record(context, stream, current.quarantine_key)
        self.record_keys = {current.quarantine_key} - {""}
        self._lost = list(_lost(context, stream, self.record, certain=True))
        for root in rivals:
            if not root.quarantine_key or root.quarantine_key in self.record_keys:
                continue
            try:
                record = load_record(context, stream, root.quarantine_key)
                lost = list(_lost(context, stream, record, certain=False))
            except (CorruptDataError, NotFoundError):
                continue
            self.record_keys.add(root.quarantine_key)
            self._lost += lost
        self.root_keys = {each.timeline.root_key for each in self._lost} - {""}
        self.listed = {row.key for each in self._lost for row in each.timeline.listed}

    @property
    def roots(self) -> Iterator[tuple[Timeline, Root]]:
        """Every timeline of the current record with the root that it was cut from."""
        for each in self._lost:
            if each.certain and each.root is not None:
                yield each.timeline, each.root

    def names(self, key: DataKey | GroupKey) -> bool:
        """Whether the tree of a lost timeline names an object, as far as that was cut off.

        Raises:
            NotFoundError, CorruptDataError: a group of a tree that must be there.
        """
        for each in self._lost:
            if each.root is None:
                continue
            if isinstance(key, DataKey) and key.next_offset <= each.timeline.floor:
                continue
            ask = named_by if each.certain else refers
            if ask(each.root, key, self._fetch):
                return True
        return False


def _lost(
    context: Context, stream: str, record: QuarantineRecord, *, certain: bool
) -> Iterator[_Lost]:
    for timeline in record.timelines:
        yield _Lost(timeline, load_cut_root(context, stream, timeline), certain)


@dataclass(frozen=True, slots=True)
class LostData:
    """A lost timeline as it can be read.

    Attributes:
        timeline: as recorded.
        root: as of a manifest that ends where the lost timeline did; None if no tree has anything.
        strays: keys that are listed but not part of it: of fragments that are gone, damaged or of
            another stream, and of what does not join the rest.
    """

    timeline: Timeline
    root: Root | None
    strays: tuple[str, ...]


def lost_data(context: Context, stream: str, timeline: Timeline) -> LostData:
    """Put a lost timeline together again, for a reader.

    The fragments that were listed only continue the tree wherever one begins at its end; of several
    the longest does that is there and whole. A hole does where no fragment can, and only with one
    behind it. Without a tree the lowest fragment begins.

    Raises:
        NotFoundError, CorruptDataError: the root.
        UnavailableError: the store did not answer.
    """
    root = load_cut_root(context, stream, timeline)
    waiting: dict[int, list[_Listed]] = {}
    strays: list[str] = []
    for row in timeline.listed:
        try:
            key = parse_data_key(row.key, context.prefix)
        except InvalidInputError:
            strays.append(row.key)
            continue
        if key.stream == stream:
            waiting.setdefault(key.first_offset, []).append((key, row.key, row.size))
        else:
            strays.append(row.key)
    if root is not None:
        root = _continued(context, root, waiting, strays)
    while root is None and (begins := [at for at, rows in waiting.items() if _has_data(rows)]):
        begin = min(begins)
        empty = Root(first_offset=begin, next_offset=begin)
        begun = _continued(context, empty, waiting, strays)
        root = begun if begun.next_offset > begin else None
    strays += [each[1] for rows in waiting.values() for each in rows]
    return LostData(timeline, root, tuple(sorted(strays)))


#: A fragment that a timeline lists: what its key says, the key, and the size.
_Listed = tuple[DataKey, str, int]


def _has_data(rows: Sequence[_Listed]) -> bool:
    return any(key.kind == "fragment" for key, _, _ in rows)


def _continued(
    context: Context, root: Root, waiting: dict[int, list[_Listed]], strays: list[str]
) -> Root:
    """The root with all that is `waiting` at its end; what cannot be used goes to `strays`."""
    behind_data, holes = root, list[str]()  # where the last fragment ends; holes behind it
    while candidates := waiting.pop(root.next_offset, []):
        candidates.sort(key=lambda each: (each[0].kind == "fragment", each[0].next_offset))
        while candidates:
            key, path, size = candidates.pop()
            try:
                root = _joined(context, root, key, path, size)
            except (CorruptDataError, NotFoundError):
                strays.append(path)
                continue
            if key.kind == "hole":
                holes.append(path)
            else:
                behind_data, holes = root, []
            break
        strays += [each[1] for each in candidates]
    strays += holes
    return behind_data


def _joined(context: Context, root: Root, key: DataKey, path: str, size: int) -> Root:
    """A root with one fragment or hole more.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: it is damaged, or not what its key says.
    """
    if key.kind == "hole":
        hole = VerifiedHole(Listed(key, path, size), root.last_timestamp)
        return root.appended([hole.entry()], root.last_chunk)
    trailer = trailer_of_listed(context.store, Listed(key, path, size))
    entry = Entry(
        first_offset=trailer.first_offset,
        next_offset=trailer.next_offset,
        min_timestamp=trailer.min_timestamp,
        max_timestamp=trailer.max_timestamp,
        kind=EntryKind.FRAGMENT,
        size=size,
        records=min(trailer.records, MAX_RECORDS),
        epoch=key.epoch,
        uid=key.uid,
    )
    return root.appended([entry], LastChunk(trailer.last_chunk_id, trailer.last_chunk_epoch))


def has_cut_off(
    context: Context, stream: str, root: Root, record: QuarantineRecord, epoch: int
) -> bool:
    """Whether there is something that the claim of `epoch` has cut off and nobody has given up.

    A timeline is; a late upload is found by a LIST of all of the stream's data.

    Raises:
        UnavailableError: the store did not answer.
    """
    if record.timeline(epoch) is not None:
        return True
    claims = [(claim.epoch, claim.floor) for claim in root.ledger.claims]
    if not any(each == epoch for each, _ in (*claims, *record.cuts())):
        return False
    listed = context.pages(data_prefix(context.prefix, stream))
    for row in chain.from_iterable(listed):
        try:
            key = parse_data_key(row.key, context.prefix)
        except InvalidInputError:
            continue
        if (
            key.kind == "fragment"
            and record.first_cut(key, iter(claims)) == epoch
            and not root.ledger.accepts(key.epoch, key.first_offset, key.next_offset)
            and not record.gives_up(key, row.modified_ms, iter(claims))
        ):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Drop:
    """What giving a timeline up makes of a manifest; a `Change` of `amend`.

    Attributes:
        root: that names the new record.
        nodes: none.
        timeline: that is given up; None if the claim cut off nothing but late uploads.
        floor: where it begins.
    """

    root: Root
    nodes: Sequence[Node]
    timeline: Timeline | None
    floor: int


def drop(
    context: Context,
    stream: str,
    epoch: int,
    *,
    pause: Callable[[int], None],
    dry_run: bool = False,
) -> Amended[Drop]:
    """Give up what the claim of `epoch` cut off, as far as S3 has it now; `collect` deletes it.

    "Now" is S3's own: the time of a copy of the record, written for this. A clock that is ahead
    would give up what nobody has seen yet.

    Args:
        context: where.
        stream: directory name.
        epoch: of the claim.
        pause: as in `amend`.
        dry_run: only say what would be given up.

    Raises:
        NotFoundError: no claim of this epoch has cut off anything, or the stream is unknown.
        ConflictError: the stream takes no commits, or other writers won again and again.
        CorruptDataError: the root or the record is damaged.
        UnavailableError: S3 or DynamoDB did not answer.
    """

    def plan(loaded: Snapshot) -> Drop:
        root = loaded.root
        record = load_record(context, stream, root.quarantine_key)
        timeline = record.timeline(epoch)
        given_up = next((each for each in record.dropped if each.epoch == epoch), None)
        known = timeline or given_up
        floor = known.floor if known is not None else root.ledger.floor(epoch)
        if floor is None:
            raise NotFoundError(f"no claim of epoch {epoch} has cut off anything", stream=stream)
        key = root.quarantine_key
        if not dry_run:
            copy = write_record(context, stream, root.epoch, record)
            now_ms = modified_ms(context, copy)
            if now_ms is None:
                raise ConflictError("a record went as it was written", stream=stream, key=copy)
            key = write_record(
                context, stream, root.epoch, record.without(epoch, floor, until_ms=now_ms)
            )
        return Drop(replace(root, quarantine_key=key), (), timeline, floor)

    return amend(context, stream, plan, pause=pause, dry_run=dry_run)


def current_record(context: Context, stream: str) -> tuple[Snapshot, QuarantineRecord]:
    """A stream and the record that its root names.

    Raises:
        As `load` and `load_record`.
    """
    loaded = load(context, stream)
    return loaded, load_record(context, stream, loaded.root.quarantine_key)
