"""Write what a truncating claim needs before its commit: the good beginnings, and the record.

Everything here only adds objects. If the claim does not land they are garbage, and the next attempt
plans anew with new ids; if it lands and this process dies, the record is there already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.fragment import (
    HEADER,
    IndexRecord,
    Trailer,
)
from coldstream.manifest.entries import MAX_RECORDS, Entry, EntryKind
from coldstream.manifest.quarantine import CLAIMED_TIMELINES, MAX_LISTED, ListedData, Timeline
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import last_bytes, leaf_at, over_hole
from coldstream.osiris.chunk import Chunk, iter_chunks
from coldstream.plans.assemble import FoundChunk, fragment_of
from coldstream.plans.overlap import LOOK_BYTES, look_from
from coldstream.plans.repair import Known
from coldstream.plans.resolve import Listed
from coldstream.plans.truncate import Cut, Remainder, Truncation, remainder, truncated
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.remote.trailers import read_index, trailer_of
from coldstream.soundness.chunk import holds_by_itself
from coldstream.usecases.divergence import has_data
from coldstream.usecases.extend import Extension
from coldstream.usecases.quarantine import load_record, write_record

#: Pages of a LIST that are looked through for what no root names; what is not named is kept too.
_MAX_PAGES = 100


def cut_off(
    context: Context,
    loaded: Snapshot,
    extension: Extension,
    cut: Cut,
    epoch: int,
    *,
    now_ms: int,
    most: int = CLAIMED_TIMELINES,
) -> tuple[Root, Truncation]:
    """PUT what the truncated root refers to; give that root, not yet claimed, and what it lost.

    Args:
        context: where.
        loaded: the stream as it was read; its root has landed.
        extension: what could be appended to it, in whose root the cut lies.
        cut: where.
        epoch: that claims.
        now_ms: ms since the Unix epoch.
        most: timelines in the record, this one among them.

    Raises:
        CorruptDataError: the fragment that has to be cut in two, a group or the quarantine record
            is damaged: repair it first. Nothing refers to what was written.
        NotFoundError: one of them is gone.
        InvalidInputError: the quarantine is full: a person has to give a lost timeline up, and
            then claim again.
        UnavailableError, UnknownOutcomeError: the store.
    """
    stream, root = loaded.item.stream, extension.root
    fetch = context.fetch(stream)
    rest: Remainder | None = None
    beginning: Entry | None = None
    if not cut.anew:
        rest = remainder(root, cut.offset, fetch)
        if rest.across is not None:
            beginning = _beginning(context, stream, root, rest.across, cut)
    after = truncated(root, cut, rest, beginning, fetch)
    truncation = Truncation(
        epoch=epoch,
        offset=cut.offset,
        old_first_offset=root.first_offset,
        old_next_offset=root.next_offset,
        anew=cut.anew,
        evidence=cut.evidence,
        fragments=root.fragments - after.fragments + (beginning is not None),
        bytes=root.total_size - after.total_size + (beginning.size if beginning else 0),
        record_key="",
        why=cut.why,
        first_written=_path(context, stream, beginning) if beginning else "",
    )
    return _recorded(
        context, loaded, extension, cut, epoch, after, truncation, now_ms=now_ms, most=most
    )


def _recorded(
    context: Context,
    loaded: Snapshot,
    extension: Extension,
    cut: Cut,
    epoch: int,
    after: Root,
    truncation: Truncation,
    *,
    now_ms: int,
    most: int,
) -> tuple[Root, Truncation]:
    """PUT the quarantine record of what is cut off, if anything is; the root that names it."""
    stream, root = loaded.item.stream, extension.root
    floor = cut.floor(root)
    low = look_from(after, last_bytes(after, LOOK_BYTES, context.fetch(stream)), end=floor)
    listed, complete = _listed(context, loaded, extension, epoch, floor, low)
    if not listed and not has_data(context, stream, root, floor):
        return after, truncation
    timeline = Timeline(
        epoch=epoch,
        floor=floor,
        next_offset=root.next_offset,
        root_key=loaded.item.root_key,
        created_ms=now_ms,
        reason=truncation.reason,
        listed=listed,
        complete=complete,
    )
    try:
        record = load_record(context, stream, root.quarantine_key).with_timeline(
            timeline, most=most
        )
        key = write_record(context, stream, epoch, record)
    except InvalidInputError as exc:
        exc.located(stream=stream)
        raise
    first = truncation.first_written or key
    truncation = replace(truncation, record_key=key, first_written=first)
    return replace(after, quarantine_key=key), truncation


def _beginning(context: Context, stream: str, root: Root, old: Entry, cut: Cut) -> Entry:
    """PUT what a fragment or hole holds below the cut; the entry for it.

    It has the epoch of what it replaces, and so its rights: the ledger lets it end at the cut.
    """
    uid = context.new_uid()
    if old.kind is EntryKind.HOLE:
        new = replace(old, next_offset=cut.offset, uid=uid)
        context.store.put(_path(context, stream, new), b"", write_id=f"{uid:016x}")
        return new
    floor = root.ledger.floor(old.epoch)
    path = _path(context, stream, old)
    if floor is None or cut.last_chunk is None:
        raise CorruptDataError(
            f"a fragment of epoch {old.epoch}, which never claimed",
            stream=stream,
            offset=old.first_offset,
            key=path,
        )
    try:
        trailer, chunks = _chunks_below(context, stream, old, path, cut.offset)
        _check_chain(chunks, trailer, cut.offset, cut.last_chunk)
    except (CorruptDataError, NotFoundError) as exc:
        exc.located(stream=stream, offset=old.first_offset, key=path)
        raise
    first = chunks[0].header
    begins = IndexRecord(first.chunk_id, first.timestamp, 0)  # where the old one began
    known = Known(
        first_offset=old.first_offset,
        next_offset=cut.offset,
        trailer=trailer,
        data_crc=None,
        records={first.chunk_id: (begins, first.size, first.next_offset)},
        lowest_epoch=trailer.first_chunk_epoch,
        highest_epoch=trailer.last_chunk_epoch,
    )
    made = fragment_of(
        [FoundChunk(chunk, "own object") for chunk in chunks], known, epoch=old.epoch, floor=floor
    )
    new = Entry(
        first_offset=made.trailer.first_offset,
        next_offset=made.trailer.next_offset,
        min_timestamp=made.trailer.min_timestamp,
        max_timestamp=made.trailer.max_timestamp,
        kind=EntryKind.FRAGMENT,
        size=len(made.data),
        records=min(made.trailer.records, MAX_RECORDS),
        epoch=old.epoch,
        uid=uid,
    )
    context.store.put(
        _path(context, stream, new), made.data, write_id=f"{uid:016x}-{made.trailer.data_crc:08x}"
    )
    return new


def _chunks_below(
    context: Context, stream: str, entry: Entry, path: str, offset: int
) -> tuple[Trailer, list[Chunk]]:
    """The chunks of a fragment that end at or below `offset`, which is the end of one of them."""
    trailer = trailer_of(context.store, context.prefix, stream, entry)
    index = read_index(context.store, path, trailer)
    last = index.chunk_of_offset(offset - 1)
    _, end = index.data_range(0, last)
    data = memoryview(context.store.get(path, 0, end))
    if bytes(data[: len(HEADER)]) != HEADER:
        raise CorruptDataError("no fragment begins here")
    chunks = list(iter_chunks(data, len(HEADER)))
    # No checksum covers a chunk's header; what is carried over gets new ones that hold.
    said = [(index[number].chunk_id, index[number].timestamp) for number in range(last + 1)]
    if [(chunk.header.chunk_id, chunk.header.timestamp) for chunk in chunks] != said:
        raise CorruptDataError("other chunks than its index says")
    return trailer, chunks


def _check_chain(chunks: list[Chunk], trailer: Trailer, end: int, last: LastChunk) -> None:
    """The chunks are whole, join, and end in the common chunk: nothing else is ever carried over.

    Raises:
        CorruptDataError: they do not.
    """
    at, epoch = trailer.first_offset, trailer.first_chunk_epoch
    for chunk in chunks:
        header = chunk.header
        if header.chunk_id != at or header.epoch < epoch or not holds_by_itself(chunk):
            raise CorruptDataError(f"chunk {at} is damaged; repair the fragment, then claim again")
        at, epoch = header.next_offset, header.epoch
    if at != end or (chunks[-1].header.chunk_id, epoch) != (last.chunk_id, last.epoch):
        raise CorruptDataError(f"its chunks do not end at {end} in chunk {last.chunk_id}")


def _listed(
    context: Context, loaded: Snapshot, extension: Extension, epoch: int, floor: int, low: int
) -> tuple[tuple[ListedData, ...], bool]:
    """Fragments above `floor` that only this claim shuts out, and whether these are all.

    With them the holes between those that it would have taken: without these nobody can put
    together again what lies behind one. They had a right to the manifest, and are not in its landed
    tree. What other objects of that tree stand for is not named: `collect` may be about to delete
    it. What an earlier claim has shut out is that claim's. None that reaches above `floor` begins
    below `low`.
    """
    stream, root, landed = loaded.item.stream, extension.root, loaded.root
    fetch = context.fetch(stream)
    found: dict[str, ListedData] = {}
    for each in extension.run:
        key = each.listed.data_key
        if key.next_offset > floor:
            found[each.listed.path] = ListedData(each.listed.path, each.listed.size)
    complete = True
    for number, rows in _pages_of(context, stream, low, floor):
        if number >= _MAX_PAGES or len(found) > MAX_LISTED:
            complete = False
            break
        for row in rows:
            key = row.data_key
            if key.kind != "fragment" or key.epoch >= epoch or key.next_offset <= floor:
                continue
            if not root.ledger.accepts(key.epoch, key.first_offset, key.next_offset):
                continue
            entry = leaf_at(landed, max(key.first_offset, landed.first_offset), fetch)
            if entry is not None and entry.data_key(stream) == key:
                continue
            ahead = key.next_offset > root.next_offset
            if ahead or over_hole(root, key.first_offset, key.next_offset, fetch):
                found[row.path] = ListedData(row.path, row.size)
    listed = tuple(found.values())
    return listed[:MAX_LISTED], complete and len(listed) <= MAX_LISTED


def _pages_of(
    context: Context, stream: str, low: int, floor: int
) -> Iterator[tuple[int, list[Listed]]]:
    """What begins at `floor` or above, then what begins between `low` and it, by numbered pages."""
    yield from enumerate(context.data_pages(stream, floor))
    if low >= floor:
        return
    for number, rows in enumerate(context.data_pages(stream, low)):
        below = [row for row in rows if row.data_key.first_offset < floor]
        yield number, below
        if len(below) < len(rows):
            return


def _path(context: Context, stream: str, entry: Entry) -> str:
    return entry.data_key(stream).path(context.prefix)
