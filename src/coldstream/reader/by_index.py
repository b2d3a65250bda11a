"""What the indexes of fragments tell without their data: how chunks lie, and their headers.

The index of a fragment has every chunk's id and time, and so the number of its records. What it
does not say is whether a chunk holds messages or tracking data; but tracking data is always one
record, so only chunks of one record are in doubt, and their headers are looked at. A stream of many
such chunks is read with its data. Counting a petabyte takes 0.02 % of its bytes.

Data that is not read is not checked: a damaged chunk has the same rows, and nobody hears of the
damage. So this is not done where damage is to stop the query, or `error` is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkType, parse_chunk_header
from coldstream.osiris.headers import CHUNK_DTYPE
from coldstream.ports import ObjectStore
from coldstream.reader.follow import Followed
from coldstream.reader.locate import leaves_between
from coldstream.reader.objects import StreamObjects
from coldstream.reader.open_fragments import OpenFragment
from coldstream.soundness.chunks import Checked

#: Columns that need nothing else.
COLUMNS = frozenset(
    {
        *("stream", "vhost", "queue", "super_stream", "routing_key"),
        *("offset", "timestamp", "chunk_id", "epoch"),
    }
)
#: Headers of a fragment that are looked at one by one; where there are more in doubt, all is read.
_MAX_DOUBTS = 8


def enough(columns: Iterable[str]) -> bool:
    """Whether the index says all that these columns need."""
    return COLUMNS.issuperset(columns)


def chunks_by_index(
    entry: Entry, first: int, next_offset: int, objects: StreamObjects
) -> Checked | None:
    """The headers of a fragment's chunks as far as rows need them, and no data.

    Only of chunks that hold some of the offsets `first` to `next_offset` (left out). None where the
    index does not say enough, or cannot be had: then it must be read, which tells what is wrong,
    too.

    Raises:
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    if entry.kind is EntryKind.HOLE:
        return None
    try:
        fragment = objects.fragments.open(entry)
        trailer, records = fragment.trailer, fragment.records
        low = fragment.index.chunk_of_offset(first)
        high = fragment.index.chunk_of_offset(next_offset - 1) + 1
        counts = np.diff(records.chunk_ids[low : high + 1]).astype(np.int64)
        doubts = np.flatnonzero(counts == 1).tolist()
        if trailer.first_chunk_epoch != trailer.last_chunk_epoch or len(doubts) > _MAX_DOUBTS:
            return None
        headers = np.zeros(len(counts), CHUNK_DTYPE)
        headers["chunk_id"] = records.chunk_ids[low:high]
        headers["timestamp"] = records.timestamps[low:high]
        headers["records"] = counts
        headers["entries"] = 1  # of no meaning for these columns
        headers["epoch"] = trailer.first_chunk_epoch
        for number in doubts:
            headers["chunk_type"][number] = _kind(fragment, low + number, objects.store)
    except (NotFoundError, CorruptDataError):
        return None
    # Chunks of nothing but a header each.
    bounds = list(range(0, (len(headers) + 1) * CHUNK_HEADER_SIZE, CHUNK_HEADER_SIZE))
    return Checked(memoryview(headers.tobytes()), headers, bounds)


def _kind(fragment: OpenFragment, number: int, store: ObjectStore) -> ChunkType:
    """What a chunk holds, by its header."""
    begin, _ = fragment.index.data_range(number, number)
    header = parse_chunk_header(store.get(fragment.path, begin, begin + CHUNK_HEADER_SIZE))
    if header.chunk_id != fragment.index[number].chunk_id:
        raise CorruptDataError("the header is of another chunk")
    return ChunkType(header.chunk_type)


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """How the chunks of a fragment lie.

    Attributes:
        chunk_ids: of each chunk, and the offset after the last.
        positions: of each chunk, bytes from the first.
        timestamps: of each chunk, ms.
        size: bytes of all chunks.
    """

    chunk_ids: list[int]
    positions: list[int]
    timestamps: list[int]
    size: int


def layout(entry: Entry, manifest: Followed, objects: StreamObjects) -> ChunkLayout | None:
    """How the chunks of a planned fragment lie; None if they are nowhere any more.

    If the object is gone because a newer manifest has its chunks in another one (consolidation,
    erasure), that one's index tells the same ids and times. An erasure may have changed how long a
    compressed chunk is, and so where all behind it lie.

    Args:
        entry: of the fragment.
        manifest: of a plan (`Followed.planned`), with the entry.
        objects: of the stream.

    Raises:
        NotFoundError: it is gone, and no newer manifest explains it.
        CorruptDataError: its index is damaged.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    first, next_offset = entry.first_offset, entry.next_offset
    while True:
        root = manifest.root
        if root.first_offset > first or min(manifest.cut(), root.next_offset) < next_offset:
            return None
        try:
            covering = list(leaves_between(root, first, next_offset, objects.groups))
            if any(each.kind is EntryKind.HOLE for each in covering):
                return None
            return _layout(covering, first, next_offset, objects)
        except NotFoundError as error:
            manifest.after_missing(error, first)


def _layout(
    entries: list[Entry], first: int, next_offset: int, objects: StreamObjects
) -> ChunkLayout:
    ids: list[int] = []
    positions: list[int] = []
    timestamps: list[int] = []
    position = 0
    for entry in entries:
        records = objects.fragments.open(entry).records
        numbers = (
            records.chunk_ids.tolist(),
            records.positions.tolist(),
            records.timestamps.tolist(),
        )
        for number, timestamp in enumerate(numbers[2]):
            if first <= numbers[0][number] < next_offset:
                ids.append(numbers[0][number])
                positions.append(position)
                timestamps.append(timestamp)
                position += numbers[1][number + 1] - numbers[1][number]
    return ChunkLayout([*ids, next_offset], positions, timestamps, position)
