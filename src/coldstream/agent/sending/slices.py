"""One slice of a segment becomes one object: read, check every chunk, PUT.

The data goes from the page cache into one buffer by `preadv`, is checked there, and leaves from
there: it is never copied inside Python. Buffers are used again, because fresh pages cost as much
as the checksums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coldstream import fragment
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.host import Condition
from coldstream.crc import combine, crc32
from coldstream.errors import CorruptDataError
from coldstream.fragment import Placement, Trailer
from coldstream.names import DataKey
from coldstream.osiris.segment import segment_name
from coldstream.plans.cut import Slice
from coldstream.ports import ObjectStore
from coldstream.soundness import chunks as soundness
from coldstream.soundness.chunks import FRAGMENT_INDEX_DTYPE, Records
from coldstream.soundness.findings import FindingKind


class BufferPool:
    """Buffers of one size class, bounded by a budget of bytes for the whole process.

    Args:
        budget: bytes that all buffers together may have.
        changed: guards the pool, and wakes those who wait for a buffer.
    """

    def __init__(self, budget: int, changed: Condition) -> None:
        self._budget = budget
        self._used = 0
        self._free: list[bytearray] = []
        self._changed = changed

    def take(self, size: int, *, stop: Callable[[], bool]) -> bytearray | None:
        """A buffer of at least `size` bytes, waiting for one; None once `stop` says so.

        A buffer larger than the whole budget is given out alone, so that one oversized chunk can
        pass, and with it the message that names it.
        """
        with self._changed:
            while not stop():
                fitting = [each for each in self._free if len(each) >= size]
                if fitting:
                    buffer = min(fitting, key=len)
                    self._free.remove(buffer)
                    return buffer
                while self._free and self._used + size > self._budget:
                    self._used -= len(self._free.pop())
                if self._used + size <= self._budget or self._used == 0:
                    made = bytearray(size)  # counted only once it is there: memory may be short
                    self._used += size
                    return made
                self._changed.wait(0.2)
        return None

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer that nothing refers to any more."""
        with self._changed:
            if self._used > self._budget:
                self._used -= len(buffer)
            else:
                self._free.append(buffer)
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Job:
    """A slice to upload, and under which claim."""

    log: StreamLog
    piece: Slice
    placement: Placement


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An object that is in the store.

    Attributes:
        key: what its key says.
        size: bytes of the object.
    """

    key: DataKey
    size: int


class FragmentNumbers:
    """Numbers the fragments that are cut from one segment after the other."""

    def __init__(self) -> None:
        self._segment, self._count = -1, 0

    def next(self, segment: int) -> int:
        """The number of the next fragment of a segment, from 0."""
        count = self._count if segment == self._segment else 0
        self._segment, self._count = segment, count + 1
        return count


def fragment_size(piece: Slice) -> int:
    """Bytes of the object that `piece` becomes."""
    return (
        len(fragment.HEADER)
        + piece.size
        + len(fragment.INDEX_HEADER)
        + len(piece.records) * fragment.INDEX_RECORD_SIZE
        + fragment.TRAILER_SIZE
    )


def upload(
    store: ObjectStore,
    log: StreamLog,
    piece: Slice,
    placement: Placement,
    *,
    prefix: str,
    uid: int,
    buffer: bytearray,
) -> Uploaded:
    """Read `piece` into `buffer`, check every chunk of it, and PUT it under a new key.

    Raises:
        CorruptDataError: a chunk is damaged or not what the index said; names stream, offset, file.
        UnavailableError, UnknownOutcomeError, PermissionDeniedError: the store.
        FileNotFoundError: local retention or a deletion took the segment.
    """
    size = fragment_size(piece)
    body = memoryview(buffer)[:size]
    trailer, crc = _fill(body, log, piece, placement)
    key = DataKey(log.stream, trailer.first_offset, trailer.next_offset, trailer.epoch, uid)
    store.put(key.path(prefix), body, write_id=f"{uid:016x}", crc=crc)
    return Uploaded(key, size)


def _fill(
    body: memoryview, log: StreamLog, piece: Slice, placement: Placement
) -> tuple[Trailer, int]:
    """Write a whole fragment into `body`; and its CRC, for whose data the checks have read it."""
    data_start = len(fragment.HEADER)
    data_end = data_start + piece.size
    body[:data_start] = fragment.HEADER
    data = body[data_start:data_end]
    _read(log, piece, data)
    data_crc = check_chunks(log, piece, data)

    index = np.empty(len(piece.records), FRAGMENT_INDEX_DTYPE)
    index["chunk_id"] = piece.records["offset"]
    index["timestamp"] = piece.records["timestamp"]
    index["position"] = piece.records["position"].astype(np.int64) - piece.start
    index_bytes = index.tobytes()

    trailer = fragment.build_trailer(
        placement=placement,
        index=index_bytes,
        next_offset=piece.next_offset,
        first_chunk_epoch=int(piece.records["epoch"][0]),
        last_chunk_epoch=int(piece.records["epoch"][-1]),
        data_size=piece.size,
        data_crc=data_crc,
    )
    end = fragment.INDEX_HEADER + index_bytes + trailer.encode()
    body[data_end:] = end
    crc = combine(crc32(fragment.HEADER), data_crc, piece.size)
    return trailer, combine(crc, crc32(end), len(end))


def _read(log: StreamLog, piece: Slice, into: memoryview) -> None:
    with log.files.open(log.directory, segment_name(piece.segment_offset)) as file:
        done = file.read_into(piece.start, into)
    if done < len(into):
        raise CorruptDataError(
            f"the segment ends at byte {piece.start + done}, its index goes on to {piece.end}",
            stream=log.stream,
            offset=piece.first_offset,
            key=str(log.segment_path(piece.segment_offset)),
        )


def check_chunks(log: StreamLog, piece: Slice, data: memoryview) -> int:
    """The CRC of `data`, of which every chunk is what its index record says, whole, with its CRC.

    Raises:
        CorruptDataError: with the offset of the first chunk that is not.
    """
    records = Records.of_segment(
        piece.records, start=piece.start, end=piece.end, next_offset=piece.next_offset
    )
    checked = soundness.check_chunks(data, records, 0, len(piece.records) - 1)
    fault = checked.fault
    if fault is None:
        return checked.crc or 0
    words = fault.words
    if fault.kind is FindingKind.CHUNK_HEADER:
        words = f"the chunk is not the one that its index record describes: {words}"
    raise CorruptDataError(
        words,
        stream=log.stream,
        offset=int(records.chunk_ids[len(checked)]),
        key=str(log.segment_path(piece.segment_offset)),
    )
