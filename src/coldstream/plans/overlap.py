"""Fragments that begin below the end of a manifest and reach over it: what of them can follow.

Two agents, or two lives of one, may cut the same log at different places. Where the manifest has
taken the shorter cut, the longer one holds data that the manifest lacks, and cannot be appended as
it is. Its part from the manifest's end on can: it is copied into fragments of their own, under the
epoch of what they come from, and these are resolved and verified like any others.

A part joins only where both have the same history. So a chunk of the fragment begins exactly where
the manifest ends, and the chunk in which the manifest ends is in both: the same chunk id and the
same chunk epoch mean the same history below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.errors import CorruptDataError
from coldstream.fragment import MAX_FRAGMENT_SIZE, FragmentIndex, IndexRecord
from coldstream.manifest.entries import MAX_RECORDS
from coldstream.manifest.root import LastChunk, Root
from coldstream.osiris.chunk import Chunk, chunk_at
from coldstream.plans.assemble import FoundChunk, Fragment, fragment_of
from coldstream.plans.repair import Known
from coldstream.soundness.chunk import holds_by_itself

#: Objects have fewer than six bytes for each byte of chunks, however small they are. So what
#: reaches over the end of a manifest of the same history begins in so many bytes of its last ones.
LOOK_BYTES = 6 * MAX_FRAGMENT_SIZE
#: Last entries of the root that are looked behind at every commit, at no cost in requests.
_RECENT = 64


def look_from(root: Root, within: int | None, *, end: int | None = None) -> int:
    """No fragment that the ledger accepts begins below this and reaches over the manifest's end.

    Args:
        root: of the manifest.
        within: first offset of the entry with which its last ones come to `LOOK_BYTES`; None if all
            of them have fewer.
        end: the offset that is meant, if not the manifest's end.
    """
    end, ledger = root.next_offset if end is None else end, root.ledger
    floors = (c.floor for c in ledger.claims if ledger.ceiling(c.epoch) > end)
    return max(min(floors, default=end), within or 0, end - MAX_RECORDS)


def recent(root: Root) -> int:
    """Where the last few fragments and holes of the root begin; its end if it has none."""
    entries = root.entries
    for number in range(max(0, len(entries) - _RECENT), len(entries)):
        if not entries[number].kind.level:
            return max(entries[number].first_offset, look_from(root, None))
    return root.next_offset


def witness_of(index: FragmentIndex, last: LastChunk | None, *, joined: bool) -> int | None:
    """Index of the chunk in which the manifest ends, whose epoch must be the manifest's.

    Args:
        index: of the fragment.
        last: chunk of the manifest.
        joined: whether the manifest's data ends where the manifest does, and not in a hole.

    Returns:
        None if the fragment begins behind that chunk, or nobody knows it.

    Raises:
        CorruptDataError: the fragment has other chunks there: another history.
    """
    if last is None:
        return None
    if last.chunk_id < index[0].chunk_id:
        if joined:
            raise CorruptDataError(
                f"it begins inside chunk {last.chunk_id}, in which the manifest ends"
            )
        return None
    number = index.chunk_of_offset(last.chunk_id)
    if index[number].chunk_id != last.chunk_id:
        raise CorruptDataError(f"it has no chunk {last.chunk_id}, in which the manifest ends")
    return number


def begin_of(index: FragmentIndex, end: int) -> int:
    """Index of the chunk that begins where the manifest ends.

    Raises:
        CorruptDataError: none does.
    """
    number = index.chunk_of_offset(end)
    if index[number].chunk_id != end:
        raise CorruptDataError(f"no chunk of it begins at {end}, where the manifest ends")
    return number


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring chunks of a fragment that are read at once.

    Attributes:
        records: of the index.
        end: byte position after the last one, from the first chunk byte of the fragment.
        next_offset: offset after the last one.
    """

    records: tuple[IndexRecord, ...]
    end: int
    next_offset: int

    @property
    def start(self) -> int:
        """Byte position of the first one."""
        return self.records[0].position

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    def chunks(self, data: memoryview, *, lowest: int, highest: int) -> Iterator[Chunk | None]:
        """Each of its chunks, None in the place of one that does not hold.

        Args:
            data: the block's bytes.
            lowest: epoch of the chunk before; epochs never fall.
            highest: no chunk of a higher epoch is in the fragment.
        """
        ends = [*(record.position for record in self.records[1:]), self.end]
        nexts = [*(record.chunk_id for record in self.records[1:]), self.next_offset]
        for record, end, next_offset in zip(self.records, ends, nexts, strict=True):
            chunk = _whole(data[record.position - self.start : end - self.start])
            good = chunk is not None and (
                chunk.header.chunk_id == record.chunk_id
                and chunk.header.next_offset == next_offset
                and chunk.header.timestamp == record.timestamp
                and lowest <= chunk.header.epoch <= highest
            )
            if chunk is not None and good:
                lowest = chunk.header.epoch
            yield chunk if good else None


def blocks(index: FragmentIndex, begin: int, size: int) -> Iterator[Block]:
    """The chunks from number `begin` on, in blocks of at most `size` bytes, or of one chunk."""
    trailer, count = index.trailer, len(index)
    while begin < count:
        start, end = index[begin].position, begin + 1
        while end < count and _end(index, end) - start <= size:
            end += 1
        records = tuple(index[number] for number in range(begin, end))
        next_offset = index[end].chunk_id if end < count else trailer.next_offset
        yield Block(records, _end(index, end - 1), next_offset)
        begin = end


def _end(index: FragmentIndex, number: int) -> int:
    last = number + 1 == len(index)
    return index.trailer.data_size if last else index[number + 1].position


def _whole(data: memoryview) -> Chunk | None:
    """The one chunk that `data` is, if CRC, filter and tracking data of it hold."""
    try:
        chunk = chunk_at(data, 0, len(data))
    except CorruptDataError:
        return None
    whole = len(chunk.buffer) == len(data) and holds_by_itself(chunk, inflate=False)
    return chunk if whole else None


def runs(chunks: Iterable[Chunk | None]) -> Iterator[list[Chunk]]:
    """Neighbours that hold."""
    run: list[Chunk] = []
    for chunk in chunks:
        if chunk is not None:
            run.append(chunk)
        elif run:
            yield run
            run = []
    if run:
        yield run


def part_of(run: list[Chunk], index: FragmentIndex, floor: int) -> Fragment:
    """The fragment that a run of chunks of another one becomes."""
    first, trailer = run[0].header, index.trailer
    record = index[index.chunk_of_offset(first.chunk_id)]
    known = Known(
        first_offset=trailer.first_offset,
        next_offset=trailer.next_offset,
        trailer=trailer,
        data_crc=None,
        records={first.chunk_id: (record, first.size, first.next_offset)},
        lowest_epoch=trailer.first_chunk_epoch,
        highest_epoch=trailer.last_chunk_epoch,
    )
    parts = [FoundChunk(chunk, "the bucket") for chunk in run]
    return fragment_of(parts, known, epoch=trailer.epoch, floor=floor)
