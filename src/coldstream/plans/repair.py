"""What a damaged fragment still proves, and which of its chunks can be proved.

A chunk counts only if it holds by itself (its CRC, its entries, its tracking data) and is what is
still known of it elsewhere: the index and the trailer where their checksums hold, the epochs of the
neighbours where they do not. What no source has is missing, and stays a gap until a person declares
it lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError, UnknownVersionError
from coldstream.fragment import (
    HEADER,
    FragmentIndex,
    IndexRecord,
    Trailer,
    parse_trailer,
)
from coldstream.manifest.entries import Entry
from coldstream.names import DataKey
from coldstream.osiris.chunk import (
    CHUNK_HEADER_SIZE,
    CHUNK_MAGIC_VERSION,
    Chunk,
    ChunkHeader,
    chunk_at,
)
from coldstream.soundness.chunk import holds_by_itself


@dataclass(frozen=True, slots=True)
class Known:
    """What is still known of a fragment's chunks, beside the chunks.

    Attributes:
        first_offset: where it begins.
        next_offset: where it ends.
        trailer: if its checksum holds and it is this fragment's.
        data_crc: of all chunks, None if nothing says it: a trailer that was made of damaged data
            proves nothing of good data.
        records: of the index by chunk id, with the chunk's size in bytes and the offset after it;
            empty unless the index holds.
        lowest_epoch: no chunk is of a lower one.
        highest_epoch: no chunk is of a higher one.
        chain: where index and chunks contradict each other although both are whole: what the chunks
            say; taken if no source has what the index says.
    """

    first_offset: int
    next_offset: int
    trailer: Trailer | None
    data_crc: int | None
    records: Mapping[int, tuple[IndexRecord, int, int]]
    lowest_epoch: int
    highest_epoch: int
    chain: Mapping[int, tuple[IndexRecord, int, int]] = field(default_factory=dict)

    def by_chain(self) -> Known:
        """The same with the chunks' own word instead of the index."""
        crc = self.trailer.data_crc if self.trailer else None
        return replace(self, records=self.chain, data_crc=crc, chain={})

    def allows(self, header: ChunkHeader) -> bool:
        """Whether a chunk can be one of the fragment's."""
        if not self.first_offset <= header.chunk_id < header.next_offset <= self.next_offset:
            return False
        if not self.lowest_epoch <= header.epoch <= self.highest_epoch:
            return False
        if not self.records:
            return True
        known = self.records.get(header.chunk_id)
        if known is None:
            return False
        record, size, next_offset = known
        return (record.timestamp, size, next_offset) == (
            header.timestamp,
            header.size,
            header.next_offset,
        )


def known_of(data: memoryview, entry: Entry, key: DataKey) -> Known:
    """What an object still proves of a fragment; `data` is all of the object, b"" if it is gone.

    Raises:
        UnknownVersionError: a later release wrote it.
    """
    trailer: Trailer | None = None
    records: dict[int, tuple[IndexRecord, int, int]] = {}
    for end in dict.fromkeys((len(data), min(entry.size, len(data)))):
        try:
            found = parse_trailer(data[:end])
        except CorruptDataError:
            continue
        except UnknownVersionError as exc:
            exc.located(stream=key.stream, offset=key.first_offset)
            raise
        said = (found.first_offset, found.next_offset, found.epoch)
        if said == (key.first_offset, key.next_offset, key.epoch) and found.size == end:
            trailer = found
            break
    data_crc = None
    chain: dict[int, tuple[IndexRecord, int, int]] = {}
    if trailer is not None:
        section = data[len(HEADER) : trailer.index_position]
        chain = _chain(section, trailer)
        if crc32(section) != trailer.data_crc:
            data_crc, chain = trailer.data_crc, {}
            records = _index_of(data, trailer)
        else:
            # The trailer was made of these very bytes: it proves nothing that they do not.
            records = _index_of(data, trailer)
            if chain and records in ({}, chain):
                records, chain, data_crc = chain, {}, trailer.data_crc
    return Known(
        first_offset=entry.first_offset,
        next_offset=entry.next_offset,
        trailer=trailer,
        data_crc=data_crc,
        records=records,
        lowest_epoch=trailer.first_chunk_epoch if trailer else 0,
        highest_epoch=trailer.last_chunk_epoch if trailer else key.epoch,
        chain=chain,
    )


def _index_of(data: memoryview, trailer: Trailer) -> dict[int, tuple[IndexRecord, int, int]]:
    """The records of an index that holds, as in `Known`; none otherwise."""
    at = trailer.index_position
    try:
        index = FragmentIndex(data[at : at + trailer.index_size], trailer)
    except CorruptDataError:
        return {}
    rows = [index[number] for number in range(len(index))]
    sizes = [row.position for row in rows[1:]] + [trailer.data_size]
    nexts = [row.chunk_id for row in rows[1:]] + [trailer.next_offset]
    return {
        row.chunk_id: (row, end - row.position, next_offset)
        for row, end, next_offset in zip(rows, sizes, nexts, strict=True)
    }


def _chain(section: memoryview, trailer: Trailer) -> dict[int, tuple[IndexRecord, int, int]]:
    """What an index should say of chunks that are all whole and join; none if they do not."""
    found: dict[int, tuple[IndexRecord, int, int]] = {}
    at, expected, epoch = 0, trailer.first_offset, 0
    while at < len(section):
        chunk = _chunk_at(section, at)
        if chunk is None or chunk.header.chunk_id != expected or not holds_by_itself(chunk):
            return {}
        header = chunk.header
        if not epoch <= header.epoch <= trailer.epoch:
            return {}
        record = IndexRecord(header.chunk_id, header.timestamp, at)
        found[header.chunk_id] = (record, header.size, header.next_offset)
        at, expected, epoch = at + header.size, header.next_offset, header.epoch
    return found if expected == trailer.next_offset else {}


def chunks_in(data: memoryview, known: Known) -> list[Chunk]:
    """Chunks of a fragment's object that hold and are what is known of them.

    With an index that holds they are looked for where it says, and every byte of their headers is
    known from it. Without one a header could lie about its offsets and nobody would know; then a
    chunk counts only between neighbours that begin where it ends and end where it begins.
    """
    section = data[len(HEADER) : known.trailer.index_position] if known.trailer else data
    if known.records:
        found = [_chunk_at(section, record.position) for record, _, _ in known.records.values()]
        return [each for each in found if each and known.allows(each.header)
                and holds_by_itself(each)]  # fmt: skip
    chunks: list[Chunk] = []
    at = 0 if known.trailer else len(HEADER)
    expected = known.first_offset
    while at + CHUNK_HEADER_SIZE <= len(section):
        chunk = _chunk_at(section, at)
        if chunk is None or not known.allows(chunk.header) or chunk.header.chunk_id != expected:
            break
        following = _chunk_at(section, at + len(chunk.buffer))
        ends = chunk.header.next_offset == known.next_offset
        joined = following is not None and following.header.chunk_id == chunk.header.next_offset
        if not (ends or joined) or not holds_by_itself(chunk):
            break
        chunks.append(chunk)
        at += len(chunk.buffer)
        expected = chunk.header.next_offset
    return chunks


def _chunk_at(data: memoryview, at: int) -> Chunk | None:
    if at >= len(data) or data[at] != CHUNK_MAGIC_VERSION:
        return None
    try:
        return chunk_at(data, at, len(data))
    except CorruptDataError:
        return None
