"""Checks of fetched chunks against what the fragment's index and trailer promise.

Pure functions over bytes. The CRC of a chunk covers its entries only; its header is checked against
the index record, which is under the fragment's own CRC. What is left (the chunk's type, number of
entries, bloom filter, trailer) is covered by the CRC of the whole data section, which is checked
wherever a fragment is read from its first chunk to its last.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import CorruptDataError
from coldstream.fragment import FragmentIndex, IndexRecord
from coldstream.osiris.chunk import Chunk, ChunkType, parse_chunk_header
from coldstream.reader.crc import crc32

USER = ChunkType.USER


@dataclass(frozen=True, slots=True)
class Checked:
    """Chunks that hold, up to the first that does not.

    Attributes:
        chunks: good ones, in order.
        error: what is wrong with the one after them, None if nothing is.
    """

    chunks: list[Chunk]
    error: CorruptDataError | None = None


def check_chunks(data: memoryview, index: FragmentIndex, first: int, last: int) -> Checked:
    """Parse and check the chunks `first` to `last` (included) of a fragment.

    Args:
        data: their bytes, nothing before and nothing after; the chunks are views into it.
        index: of the fragment.
        first: number of the first chunk.
        last: number of the last chunk.
    """
    trailer = index.trailer
    chunks: list[Chunk] = []
    epoch = trailer.first_chunk_epoch
    record = index[first]
    base = record.position
    for number in range(first, last + 1):
        following = _following(index, number)
        start, end = record.position - base, following.position - base
        try:
            chunk = Chunk(parse_chunk_header(data, start), data[start:end])
            problem = _problem(chunk, record, following, (epoch, trailer.last_chunk_epoch))
            if problem is None and crc32(chunk.data) != chunk.header.crc:
                problem = "the chunk's CRC does not match"
        except CorruptDataError as error:
            problem = error.reason
        if problem is not None:
            return Checked(chunks, CorruptDataError(problem, offset=record.chunk_id))
        epoch = chunk.header.epoch
        record = following
        chunks.append(chunk)
    if last + 1 == len(index) and epoch != trailer.last_chunk_epoch:
        problem = f"the last chunk has epoch {epoch}, the trailer says {trailer.last_chunk_epoch}"
        return Checked(chunks[:-1], CorruptDataError(problem, offset=trailer.last_chunk_id))
    return Checked(chunks)


def _following(index: FragmentIndex, number: int) -> IndexRecord:
    """Where chunk `number` must end: the next record, or the end of the fragment."""
    if number + 1 < len(index):
        return index[number + 1]
    trailer = index.trailer
    return IndexRecord(trailer.next_offset, trailer.last_timestamp, trailer.data_size)


def _problem(
    chunk: Chunk, record: IndexRecord, following: IndexRecord, epochs: tuple[int, int]
) -> str | None:
    """What the header says that the index does not, in words, or None."""
    header = chunk.header
    if header.chunk_id != record.chunk_id:
        return f"the index has chunk {record.chunk_id} here, the data has chunk {header.chunk_id}"
    if header.timestamp != record.timestamp:
        return f"the index says timestamp {record.timestamp}, the chunk says {header.timestamp}"
    if header.next_offset != following.chunk_id:
        return f"the chunk ends at offset {header.next_offset}, not at {following.chunk_id}"
    if header.size != len(chunk.buffer):
        return f"the chunk claims {header.size} bytes and has {len(chunk.buffer)}"
    if not epochs[0] <= header.epoch <= epochs[1]:
        return f"chunk epoch {header.epoch} lies outside {epochs[0]} to {epochs[1]}"
    if header.chunk_type != USER and (header.records != 1 or header.entries != 1):
        return f"a tracking chunk with {header.records} records"
    return None
