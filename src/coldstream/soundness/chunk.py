"""What one whole chunk shows by itself, whatever index and neighbours say of it.

Needs the standard library only: the Lambdas that copy chunks carry no numpy. Many chunks at once
are for `chunks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.osiris.bloom import MAX_BLOOM_SIZE, MIN_BLOOM_SIZE, check_bloom
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Chunk, ChunkType
from coldstream.osiris.entry import iter_messages
from coldstream.osiris.tracking import parse_tracking
from coldstream.soundness.findings import Fault, FindingKind

_RESERVED = slice(CHUNK_HEADER_SIZE - 3, CHUNK_HEADER_SIZE)

#: Records that the entries of a chunk hold; why that cannot be said; None if its CRC is wrong.
Count = int | CorruptDataError | None


def contents_faults(chunk: Chunk, count: Count) -> Iterator[Fault]:
    """What is wrong with a chunk whose header can be read and says how long it is.

    Args:
        chunk: with all of its bytes.
        count: what is known of its data section, from `counted` or `entries.count_records`.
    """
    header = chunk.header
    if any(chunk.buffer[_RESERVED]):
        words = "the chunk header's reserved bytes are not zero"
        yield Fault(FindingKind.CHUNK_HEADER, words, 0)
    if count is None:
        found = f"{crc32(chunk.data):08x}"
        words = "the chunk's CRC does not match"
        yield Fault(FindingKind.CHUNK_CRC, words, f"{header.crc:08x}", found)
    elif isinstance(count, CorruptDataError):
        yield Fault(FindingKind.CHUNK_ENTRIES, count.reason, header.records)
    elif count != header.records:
        words = f"the header says {header.records} records, the entries hold {count}"
        yield Fault(FindingKind.CHUNK_ENTRIES, words, header.records, count)
    try:
        check_bloom(chunk.bloom)
    except CorruptDataError as error:
        sizes = f"0 or {MIN_BLOOM_SIZE} to {MAX_BLOOM_SIZE}"
        yield Fault(FindingKind.CHUNK_FILTER, error.reason, sizes, header.bloom_size)
    if header.chunk_type == ChunkType.USER or isinstance(count, int):
        try:
            parse_tracking(chunk)
        except CorruptDataError as error:
            yield Fault(FindingKind.CHUNK_TRACKING, error.reason)


def counted(chunk: Chunk) -> Count:
    """Records that the entries of a chunk hold, inflated where they are compressed."""
    if not crc_holds(chunk):
        return None
    if chunk.header.chunk_type != ChunkType.USER:
        return chunk.header.records  # its one entry is for `parse_tracking`
    try:
        return sum(1 for _ in iter_messages(chunk))
    except CorruptDataError as error:
        return error


def crc_holds(chunk: Chunk) -> bool:
    """Whether the data section is what the header's CRC says."""
    return crc32(chunk.data) == chunk.header.crc


def holds_by_itself(chunk: Chunk, *, inflate: bool = True) -> bool:
    """Whether CRC, entries, filter, tracking data and reserved bytes of a chunk are whole.

    Args:
        chunk: with all of its bytes.
        inflate: whether its entries are walked; a Lambda has nothing to inflate sub-batches with,
            and takes the CRC's word for them.
    """
    count = counted(chunk) if inflate or not crc_holds(chunk) else chunk.header.records
    return not any(True for _ in contents_faults(chunk, count))
