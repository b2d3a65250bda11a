"""Checks of fetched chunks against what the fragment's index and trailer promise.

Pure functions over bytes, on all chunks of a range at once (numpy), because a range may hold
thousands of small chunks. The CRC of a chunk covers its entries only; its header is checked against
the index record, which is under the fragment's own CRC. What is left (the chunk's type, number of
entries, bloom filter, trailer) is covered by the CRC of the whole data section, which is checked
wherever a fragment is read from its first chunk to its last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.fragment import INDEX_HEADER, Buffer, FragmentIndex, Trailer
from coldstream.osiris.chunk import (
    CHUNK_HEADER_SIZE,
    CHUNK_MAGIC_VERSION,
    Chunk,
    ChunkHeader,
    ChunkType,
    parse_chunk_header,
)
from coldstream.osiris.headers import CHUNK_DTYPE

USER = ChunkType.USER

# Plain numbers: numpy asks an IntEnum for attributes that it has not, which takes longer than all
# the rest for a small fragment.
_USER = int(ChunkType.USER)
_LAST_TYPE = int(ChunkType.TRACKING_SNAPSHOT)

_HEADER_BYTES = np.arange(CHUNK_HEADER_SIZE)
_CACHED_BYTES = 128 * 2**10
_INDEX = np.dtype([("chunk_id", ">u8"), ("timestamp", ">i8"), ("position", ">u4")])


@dataclass(frozen=True, slots=True)
class Records:
    """The index of a fragment as native arrays, with one more row for where its data ends.

    Attributes:
        chunk_ids: u64 of shape (chunks + 1,); the last is the next offset.
        timestamps: i64 of shape (chunks,), ms.
        positions: i64 of shape (chunks + 1,), bytes from the first chunk.
        trailer: of the fragment.
    """

    chunk_ids: NDArray[np.uint64]
    timestamps: NDArray[np.int64]
    positions: NDArray[np.int64]
    trailer: Trailer

    @classmethod
    def of(cls, section: Buffer, index: FragmentIndex) -> Records:
        """From an index section that `index` has checked."""
        trailer = index.trailer
        rows = np.frombuffer(section, _INDEX, offset=len(INDEX_HEADER))
        chunk_ids = np.empty(len(rows) + 1, np.uint64)
        chunk_ids[:-1], chunk_ids[-1] = rows["chunk_id"], trailer.next_offset
        positions = np.empty(len(rows) + 1, np.int64)
        positions[:-1], positions[-1] = rows["position"], trailer.data_size
        return cls(chunk_ids, rows["timestamp"].astype(np.int64), positions, trailer)


@dataclass(frozen=True, slots=True)
class Checked:
    """Chunks that hold, up to the first that does not; iterating makes them, as views.

    Attributes:
        data: what was fetched.
        headers: of the good chunks.
        bounds: byte positions in `data` where they begin, and one more where the last ends.
        crc: CRC32 over all bytes of `data`, None if there is an error.
        error: what is wrong with the chunk after them, None if nothing is.
    """

    data: memoryview
    headers: NDArray[np.void]
    bounds: list[int]
    crc: int | None = None
    error: CorruptDataError | None = None

    def __len__(self) -> int:
        return len(self.headers)

    def __iter__(self) -> Iterator[Chunk]:
        if not len(self.headers):
            return
        data, begin = self.data, self.bounds[0]
        for fields, end in zip(self.headers.tolist(), self.bounds[1:], strict=False):
            yield Chunk(ChunkHeader(*fields[1:11]), data[begin:end])
            begin = end

    def part(self, first: int, last: int) -> Checked:
        """Only the chunks `first` to `last` (included), and the error if it comes by then."""
        error = self.error if last >= len(self) else None
        headers, bounds = self.headers[first : last + 1], self.bounds[first : last + 2]
        return Checked(self.data, headers, bounds, None, error)

    def refused(self, error: CorruptDataError) -> Checked:
        """None of the chunks, but an error."""
        return Checked(self.data, self.headers[:0], self.bounds[:1], None, error)


def check_chunks(data: memoryview, records: Records, first: int, last: int) -> Checked:
    """Check the chunks `first` to `last` (included) of a fragment.

    Args:
        data: their bytes, nothing before and nothing after.
        records: index of the fragment.
        first: number of the first chunk.
        last: number of the last chunk.
    """
    positions = records.positions[first : last + 2] - records.positions[first]
    raw = np.frombuffer(data, np.uint8)
    headers = raw[positions[:-1, None] + _HEADER_BYTES].view(CHUNK_DTYPE)[:, 0]
    bounds: list[int] = positions.tolist()
    agree = _agree(headers, records, first, last)
    good = len(headers) if agree.all() else int(agree.argmin())
    good, crc = _check_crcs(data, headers[:good], bounds)
    if good == len(headers):
        return Checked(data, headers, bounds, crc)
    words = _in_words(data, headers, records, first, good)
    error = CorruptDataError(words, offset=int(records.chunk_ids[first + good]))
    return Checked(data, headers[:good], bounds[: good + 1], None, error)


def _agree(headers: NDArray[np.void], records: Records, first: int, last: int) -> NDArray[np.bool_]:
    """For each chunk, whether its header agrees with the index, the trailer and itself."""
    ids = records.chunk_ids[first : last + 2]
    sizes = np.diff(records.positions[first : last + 2])
    claimed = (
        headers["bloom_size"].astype(np.int64)
        + headers["data_size"]
        + headers["trailer_size"]
        + CHUNK_HEADER_SIZE
    )
    agree: NDArray[np.bool_] = (
        (headers["magic_version"] == CHUNK_MAGIC_VERSION)
        & (headers["chunk_type"] <= _LAST_TYPE)
        & ((headers["chunk_type"] == _USER) | (headers["records"] == 1))
        & (headers["entries"] >= 1)
        & (headers["entries"] <= headers["records"])
        & (headers["chunk_id"] == ids[:-1])
        & (headers["records"] == ids[1:] - ids[:-1])
        & (headers["timestamp"] == records.timestamps[first : last + 1])
        & (claimed == sizes)
        & _epochs_hold(headers["epoch"].astype(np.uint64), records, first, last)
    )
    return agree


def _epochs_hold(
    epochs: NDArray[np.uint64], records: Records, first: int, last: int
) -> NDArray[np.bool_]:
    """Epochs never fall, and begin and end as the trailer says."""
    trailer = records.trailer
    lowest, highest = np.uint64(trailer.first_chunk_epoch), np.uint64(trailer.last_chunk_epoch)
    before = np.concatenate((epochs[:1], epochs[:-1]))
    hold: NDArray[np.bool_] = (epochs >= lowest) & (epochs <= highest) & (epochs >= before)
    if first == 0:
        hold[0] &= epochs[0] == lowest
    if last + 1 == trailer.chunks:
        hold[-1] &= epochs[-1] == highest
    return hold


def _check_crcs(data: memoryview, headers: NDArray[np.void], bounds: list[int]) -> tuple[int, int]:
    """Number of chunks before the first whose CRC is wrong, and the CRC over all bytes of these.

    The second CRC follows the first closely, while the bytes are still in the processor's cache.
    """
    starts = headers["bloom_size"].astype(np.int64) + CHUNK_HEADER_SIZE
    sizes, expected = headers["data_size"].tolist(), headers["crc"].tolist()
    of_all = done = 0
    number = -1
    for number, (begin, start, size, crc) in enumerate(
        zip(bounds, starts.tolist(), sizes, expected, strict=False)
    ):
        at = begin + start
        if begin - done >= _CACHED_BYTES:
            of_all, done = crc32(data[done:begin], of_all), begin
        if crc32(data[at : at + size]) != crc:
            return number, of_all
    return number + 1, crc32(data[done : bounds[number + 1]], of_all)


def _in_words(
    data: memoryview, headers: NDArray[np.void], records: Records, first: int, number: int
) -> str:
    """What is wrong with the chunk `first + number`."""
    at = first + number
    position, end = (
        int(each - records.positions[first]) for each in records.positions[at : at + 2]
    )
    expected, following = int(records.chunk_ids[at]), int(records.chunk_ids[at + 1])
    try:
        header = parse_chunk_header(data, position)
    except CorruptDataError as error:
        return error.reason
    timestamp = int(records.timestamps[at])
    if header.chunk_id != expected:
        return f"the index has chunk {expected} here, the data has chunk {header.chunk_id}"
    if header.timestamp != timestamp:
        return f"the index says timestamp {timestamp}, the chunk says {header.timestamp}"
    if header.next_offset != following:
        return f"the chunk ends at offset {header.next_offset}, not at {following}"
    if header.size != end - position:
        return f"the chunk claims {header.size} bytes and has {end - position}"
    if header.chunk_type != USER and header.records != 1:
        return f"a tracking chunk with {header.records} records"
    if not _epochs_hold(
        headers["epoch"].astype(np.uint64), records, first, first + len(headers) - 1
    )[number]:
        return f"chunk epoch {header.epoch} falls or is not within those of the trailer"
    return "the chunk's CRC does not match"
