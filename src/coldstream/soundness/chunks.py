"""Chunks against what their index says, and against themselves: all chunks of a range at once.

Pure functions over bytes (numpy), because a range may hold thousands of small chunks. The CRC of a
chunk covers its entries only; so its header is checked against its index record: of a fragment,
which is under the fragment's own CRC, or of a segment that is to become one. What is left (number
of entries, filter, the chunk's trailer) is covered by the CRC of the whole data section, which is
checked wherever a fragment is read from its first chunk to its last; `contents_faults` looks at it
chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ne

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import CorruptDataError
from coldstream.fragment import INDEX_HEADER, Buffer, FragmentIndex
from coldstream.osiris.bloom import MIN_BLOOM_SIZE
from coldstream.osiris.chunk import (
    CHUNK_HEADER_SIZE,
    CHUNK_MAGIC_VERSION,
    Chunk,
    ChunkHeader,
    ChunkType,
    parse_chunk_header,
)
from coldstream.osiris.headers import CHUNK_DTYPE
from coldstream.soundness import chunk as one
from coldstream.soundness.crcs import check_crcs
from coldstream.soundness.entries import count_records
from coldstream.soundness.findings import Fault, FindingKind

USER = ChunkType.USER

# Plain numbers: numpy asks an IntEnum for attributes that it has not, which takes longer than all
# the rest for a small fragment.
_USER = int(ChunkType.USER)
_LAST_TYPE = int(ChunkType.TRACKING_SNAPSHOT)

_HEADER_BYTES = np.arange(CHUNK_HEADER_SIZE)
_NOTHING = np.zeros(1, "V3")[0]
#: An index record of a fragment.
FRAGMENT_INDEX_DTYPE = np.dtype([("chunk_id", ">u8"), ("timestamp", ">i8"), ("position", ">u4")])


@dataclass(frozen=True, slots=True)
class Records:
    """What an index says of chunks as native arrays, with one more row for where their data ends.

    Attributes:
        chunk_ids: u64 of shape (chunks + 1,); the last is the next offset.
        timestamps: i64 of shape (chunks,), ms.
        positions: i64 of shape (chunks + 1,), bytes from the first chunk.
        first_epoch: of the first chunk.
        last_epoch: of the last chunk.
        epochs: u64 of shape (chunks,); None if the index has none, as that of a fragment.
        types: u8 of shape (chunks,); None if the index has none.
    """

    chunk_ids: NDArray[np.uint64]
    timestamps: NDArray[np.int64]
    positions: NDArray[np.int64]
    first_epoch: int
    last_epoch: int
    epochs: NDArray[np.uint64] | None = None
    types: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, section: Buffer, index: FragmentIndex) -> Records:
        """From an index section that `index` has checked."""
        trailer = index.trailer
        rows = np.frombuffer(section, FRAGMENT_INDEX_DTYPE, offset=len(INDEX_HEADER))
        chunk_ids = np.empty(len(rows) + 1, np.uint64)
        chunk_ids[:-1], chunk_ids[-1] = rows["chunk_id"], trailer.next_offset
        positions = np.empty(len(rows) + 1, np.int64)
        positions[:-1], positions[-1] = rows["position"], trailer.data_size
        timestamps = rows["timestamp"].astype(np.int64)
        epochs = (trailer.first_chunk_epoch, trailer.last_chunk_epoch)
        return cls(chunk_ids, timestamps, positions, *epochs)

    @classmethod
    def of_segment(
        cls, rows: NDArray[np.void], *, start: int, end: int, next_offset: int
    ) -> Records:
        """From index records of a broker's segment.

        Args:
            rows: `osiris.index.INDEX_DTYPE`, shape (chunks,), at least one.
            start: byte position of the first chunk in the segment.
            end: byte position after the last one.
            next_offset: offset after the last one.
        """
        chunk_ids = np.append(rows["offset"].astype(np.uint64), np.uint64(next_offset))
        positions = np.append(rows["position"].astype(np.int64), np.int64(end)) - start
        epochs = rows["epoch"].astype(np.uint64)
        return cls(
            chunk_ids,
            rows["timestamp"].astype(np.int64),
            positions,
            int(epochs[0]),
            int(epochs[-1]),
            epochs,
            rows["type"].astype(np.uint8),
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """Chunks that hold, up to the first that does not; iterating makes them, as views.

    Attributes:
        data: what was fetched.
        headers: of the good chunks.
        bounds: byte positions in `data` where they begin, and one more where the last ends.
        crc: CRC32 over all bytes of `data`, None if there is an error.
        error: what is wrong with the chunk after them, None if nothing is.
        fault: the same as a value.
        simple: of the good chunks, as `soundness.crcs.Crcs` has it; None where nobody has looked.
    """

    data: memoryview
    headers: NDArray[np.void]
    bounds: list[int]
    crc: int | None = None
    error: CorruptDataError | None = None
    fault: Fault | None = None
    simple: NDArray[np.bool_] | None = None

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
        reached = last >= len(self)
        headers, bounds = self.headers[first : last + 1], self.bounds[first : last + 2]
        error, fault = (self.error, self.fault) if reached else (None, None)
        simple = None if self.simple is None else self.simple[first : last + 1]
        return Checked(self.data, headers, bounds, None, error, fault, simple)

    def refused(self, error: CorruptDataError) -> Checked:
        """None of the chunks, but an error."""
        return Checked(self.data, self.headers[:0], self.bounds[:1], None, error)


def check_chunks(
    data: memoryview, records: Records, first: int, last: int, *, entries: bool = False
) -> Checked:
    """Headers and CRCs of the chunks `first` to `last` (included) against their index.

    Args:
        data: their bytes, nothing before and nothing after.
        records: index.
        first: number of the first chunk.
        last: number of the last chunk.
        entries: whether `counts_of` will be asked: then it is cheaper.
    """
    positions = records.positions[first : last + 2] - records.positions[first]
    raw = np.frombuffer(data, np.uint8)
    bounds: list[int] = positions.tolist()
    room = len(raw) - CHUNK_HEADER_SIZE
    if room < 0:
        headers = np.empty(0, CHUNK_DTYPE)
        return _until(Checked(data, headers, bounds), records, first, 0)
    # Where an index lies, no chunk there has the size that the index says.
    starts = np.clip(positions[:-1, None], 0, room)
    headers = raw[starts + _HEADER_BYTES].view(CHUNK_DTYPE)[:, 0]
    agree = _agree(headers, records, first, last)
    good = len(headers) if agree.all() else int(agree.argmin())
    crcs = check_crcs(data, headers[:good], positions[: good + 1], entries=entries)
    if crcs.good == len(headers):
        return Checked(data, headers, bounds, crcs.crc, simple=crcs.simple)
    every = Checked(data, headers, bounds, simple=crcs.simple)
    return _until(every, records, first, crcs.good)


def _until(every: Checked, records: Records, first: int, good: int) -> Checked:
    """The first `good` chunks, and what is wrong with the next."""
    fault = _fault(every, records, first, good)
    error = CorruptDataError(fault.words, offset=int(records.chunk_ids[first + good]))
    headers, bounds = every.headers[:good], every.bounds[: good + 1]
    simple = None if every.simple is None else every.simple[:good]
    return Checked(every.data, headers, bounds, None, error, fault, simple)


def contents_hold(checked: Checked) -> bool:
    """Whether chunks that agree with index and CRC hold in everything else, too."""
    return checked.error is None and not any(contents_faults(checked, counts_of(checked)))


def counts_of(checked: Checked) -> list[int | CorruptDataError]:
    """How many records the entries of each good chunk hold, or why that cannot be said."""
    headers = checked.headers
    begins = np.array(checked.bounds[:-1], np.int64) + CHUNK_HEADER_SIZE + headers["bloom_size"]
    ends = begins + headers["data_size"]
    entries = headers["entries"].astype(np.int64)
    return count_records(checked.data, begins, ends, entries, simple=checked.simple)


def contents_faults(
    checked: Checked, counts: Sequence[int | CorruptDataError]
) -> Iterator[tuple[int, Fault]]:
    """What is wrong with each of the good chunks beside index and CRC: (index in them, fault).

    That is the number of records that the entries hold, inflated where they are compressed, the
    filter's size, tracking data, and reserved bytes.

    Args:
        checked: of `check_chunks`.
        counts: of `counts_of`.
    """
    headers = checked.headers
    bloom = headers["bloom_size"]
    suspect = (
        ((bloom > 0) & (bloom < MIN_BLOOM_SIZE))
        | (headers["reserved"] != _NOTHING)
        | (headers["chunk_type"] != _USER)
        | (headers["trailer_size"] > 0)
    )
    records = headers["records"].tolist()
    if counts != records:
        suspect |= np.fromiter(map(ne, counts, records), bool, len(records))
    for number in np.flatnonzero(suspect).tolist():
        for chunk in checked.part(number, number):
            for fault in one.contents_faults(chunk, counts[number]):
                yield number, fault


def _agree(headers: NDArray[np.void], records: Records, first: int, last: int) -> NDArray[np.bool_]:
    """For each chunk, whether its header agrees with the index and itself."""
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
    if records.types is not None:
        agree &= headers["chunk_type"] == records.types[first : last + 1]
    return agree


def _epochs_hold(
    epochs: NDArray[np.uint64], records: Records, first: int, last: int
) -> NDArray[np.bool_]:
    """Epochs never fall and are those of the index; else they begin and end as the trailer says."""
    before = np.concatenate((epochs[:1], epochs[:-1]))
    hold: NDArray[np.bool_] = epochs >= before
    if records.epochs is not None:
        hold &= epochs == records.epochs[first : last + 1]
        return hold
    lowest, highest = np.uint64(records.first_epoch), np.uint64(records.last_epoch)
    hold &= (epochs >= lowest) & (epochs <= highest)
    if first == 0:
        hold[0] &= epochs[0] == lowest
    if last + 1 == len(records.timestamps):
        hold[-1] &= epochs[-1] == highest
    return hold


def _fault(checked: Checked, records: Records, first: int, number: int) -> Fault:
    """What is wrong with the chunk `first + number`."""
    at = first + number
    position, end = (
        int(each - records.positions[first]) for each in records.positions[at : at + 2]
    )
    try:
        header = parse_chunk_header(checked.data, position)
    except CorruptDataError as error:
        return Fault(FindingKind.CHUNK_HEADER, error.reason)
    expected, next_offset = int(records.chunk_ids[at]), int(records.chunk_ids[at + 1])
    timestamp = int(records.timestamps[at])
    words = ""
    if header.chunk_id != expected:
        words = f"the index has chunk {expected} here, the data has chunk {header.chunk_id}"
    elif header.timestamp != timestamp:
        words = f"the index says timestamp {timestamp}, the chunk says {header.timestamp}"
    elif header.next_offset != next_offset:
        words = f"the chunk ends at offset {header.next_offset}, not at {next_offset}"
    elif header.size != end - position:
        words = f"the chunk claims {header.size} bytes and has {end - position}"
    elif header.chunk_type != USER and header.records != 1:
        words = f"a tracking chunk with {header.records} records"
    elif records.types is not None and header.chunk_type != records.types[at]:
        words = f"the index says type {records.types[at]}, the chunk says {header.chunk_type}"
    else:
        epochs = checked.headers["epoch"].astype(np.uint64)
        if not _epochs_hold(epochs, records, first, first + len(epochs) - 1)[number]:
            words = f"chunk epoch {header.epoch} falls or is not one that index and trailer allow"
    if words:
        return Fault(FindingKind.CHUNK_HEADER, words)
    return Fault(FindingKind.CHUNK_CRC, "the chunk's CRC does not match", f"{header.crc:08x}")
