"""The data object: one chunk-aligned slice of one segment, its index records and a trailer.

    ┌──────────────┬───────────────┬──────────────┬────────────────────┬───────────────┐
    │ "OSIF" u32 1 │ chunks, as    │ "OSII" u32 1 │ index records      │ trailer       │
    │ 8 bytes      │ the broker    │ 8 bytes      │ 20 bytes a chunk   │ 156 bytes     │
    │              │ wrote them    │              │                    │               │
    └──────────────┴───────────────┴──────────────┴────────────────────┴───────────────┘
    0              8               index_position

All integers are big-endian, timestamps are signed milliseconds since the Unix epoch. The trailer
has a fixed size for its version and ends in `u32 version | u32 CRC32 of the trailer so far |
"OSIT"`, so one suffix range read of `TRAILER_SIZE` bytes finds and checks it. Two checksums in it
cover the data and the index, so every byte of a fragment but the two constant headers (which must
equal themselves) is under a CRC. `docs/reference/formats.md` draws every field.

This module reads no clock, talks to nobody and needs the standard library only: the Lambda that
verifies trailers does not carry numpy.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, UnknownVersionError
from coldstream.names import MAX_EPOCH, MAX_OFFSET, DataKey

Buffer = bytes | bytearray | memoryview

VERSION = 1
HEADER = b"OSIF" + struct.pack(">I", VERSION)
INDEX_HEADER = b"OSII" + struct.pack(">I", VERSION)
TRAILER_MAGIC = b"OSIT"

#: One S3 PUT takes at most 5 GiB; nothing larger can be a fragment.
MAX_FRAGMENT_SIZE = 5 * 2**30

_INDEX_RECORD = struct.Struct(
    ">"
    "Q"  # chunk id
    "q"  # timestamp, ms
    "I"  # position relative to the first chunk byte
)
INDEX_RECORD_SIZE = _INDEX_RECORD.size

_TRAILER = struct.Struct(
    ">"
    "Q"  # first offset
    "Q"  # next offset
    "q"  # first timestamp, ms
    "q"  # last timestamp, ms
    "q"  # minimum timestamp, ms
    "q"  # maximum timestamp, ms
    "Q"  # epoch of the uploading writer
    "Q"  # floor of that epoch
    "Q"  # first chunk epoch
    "Q"  # last chunk epoch
    "Q"  # id of the last chunk
    "Q"  # first offset of the segment
    "I"  # sequence number in the segment
    "I"  # position in the segment
    "I"  # number of chunks
    "I"  # number of records
    "Q"  # data size
    "Q"  # index position
    "Q"  # index size, with its header
    "I"  # CRC32 of the data
    "I"  # CRC32 of the index records
    "I"  # version
    "I"  # CRC32 of all trailer bytes before this field
    "4s"  # magic
)
TRAILER_SIZE = _TRAILER.size
_TRAILER_CHECKED = TRAILER_SIZE - 8
_VERSION = struct.Struct(">I")  # the end of what is checked
_MOST_VERSIONS = 255


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """Where one chunk begins.

    Attributes:
        chunk_id: offset of the chunk's first record.
        timestamp: of the chunk, in ms.
        position: bytes from the first chunk byte of the fragment.
    """

    chunk_id: int
    timestamp: int
    position: int


@dataclass(frozen=True, slots=True)
class Trailer:
    """What a fragment says about itself. Offsets are half-open, sizes are bytes, times are ms."""

    first_offset: int
    next_offset: int
    first_timestamp: int
    last_timestamp: int
    min_timestamp: int
    max_timestamp: int
    epoch: int
    floor: int
    first_chunk_epoch: int
    last_chunk_epoch: int
    last_chunk_id: int
    segment_offset: int
    sequence: int
    segment_position: int
    chunks: int
    records: int
    data_size: int
    index_position: int
    index_size: int
    data_crc: int
    index_crc: int

    @property
    def size(self) -> int:
        """Size of the whole object in bytes."""
        return self.index_position + self.index_size + TRAILER_SIZE

    def encode(self) -> bytes:
        """The trailer's bytes, with version, CRC and magic."""
        body = _TRAILER.pack(
            self.first_offset,
            self.next_offset,
            self.first_timestamp,
            self.last_timestamp,
            self.min_timestamp,
            self.max_timestamp,
            self.epoch,
            self.floor,
            self.first_chunk_epoch,
            self.last_chunk_epoch,
            self.last_chunk_id,
            self.segment_offset,
            self.sequence,
            self.segment_position,
            self.chunks,
            self.records,
            self.data_size,
            self.index_position,
            self.index_size,
            self.data_crc,
            self.index_crc,
            VERSION,
            0,
            TRAILER_MAGIC,
        )[:_TRAILER_CHECKED]
        return body + struct.pack(">I", zlib.crc32(body)) + TRAILER_MAGIC


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a slice stood on the node that cut it, and for whom it was cut.

    Attributes:
        epoch: epoch under which it is uploaded.
        floor: floor of that epoch in the ledger.
        segment_offset: first offset of the segment file.
        sequence: how many fragments of this segment came before.
        segment_position: byte position of the first chunk in the segment file.
    """

    epoch: int
    floor: int
    segment_offset: int
    sequence: int
    segment_position: int


def encode_index(records: Iterable[IndexRecord]) -> bytes:
    """The index section without its header."""
    pack = _INDEX_RECORD.pack
    return b"".join(pack(r.chunk_id, r.timestamp, r.position) for r in records)


def build_trailer(
    *,
    placement: Placement,
    index: Buffer,
    next_offset: int,
    first_chunk_epoch: int,
    last_chunk_epoch: int,
    data_size: int,
    data_crc: int,
) -> Trailer:
    """The trailer that belongs to `index` (without header) and the data it describes.

    Raises:
        CorruptDataError: the index is empty or breaks its format.
    """
    if len(index) < INDEX_RECORD_SIZE or len(index) % INDEX_RECORD_SIZE:
        raise CorruptDataError("a fragment needs at least one whole index record")
    timestamps = [timestamp for _, timestamp, _ in _INDEX_RECORD.iter_unpack(index)]
    first_chunk_id, first_timestamp, _ = _INDEX_RECORD.unpack_from(index, 0)
    last_chunk_id, last_timestamp, _ = _INDEX_RECORD.unpack_from(
        index, len(index) - INDEX_RECORD_SIZE
    )
    return Trailer(
        first_offset=first_chunk_id,
        next_offset=next_offset,
        first_timestamp=first_timestamp,
        last_timestamp=last_timestamp,
        min_timestamp=min(timestamps),
        max_timestamp=max(timestamps),
        epoch=placement.epoch,
        floor=placement.floor,
        first_chunk_epoch=first_chunk_epoch,
        last_chunk_epoch=last_chunk_epoch,
        last_chunk_id=last_chunk_id,
        segment_offset=placement.segment_offset,
        sequence=placement.sequence,
        segment_position=placement.segment_position,
        chunks=len(timestamps),
        records=next_offset - first_chunk_id,
        data_size=data_size,
        index_position=len(HEADER) + data_size,
        index_size=len(INDEX_HEADER) + len(index),
        data_crc=data_crc,
        index_crc=zlib.crc32(index),
    )


def parse_trailer(suffix: Buffer) -> Trailer:
    """Read and check the trailer that ends `suffix` (the last bytes of an object).

    Everything that one trailer alone can show is checked: checksum, ranges, order, and that the
    sizes add up. Whether it belongs to its key and its neighbours is `check_against_key` and
    `plans.resolve`.

    Raises:
        CorruptDataError: it is cut, flipped, or contradicts itself.
        UnknownVersionError: it is of a later version.
    """
    if len(suffix) < TRAILER_SIZE:
        raise CorruptDataError(f"{len(suffix)} bytes are too few for a fragment's trailer")
    tail = bytes(suffix[len(suffix) - TRAILER_SIZE :])
    *fields, version, crc, magic = _TRAILER.unpack(tail)
    if magic != TRAILER_MAGIC:
        raise CorruptDataError(f"a fragment ends in {TRAILER_MAGIC!r}, not in {magic!r}")
    if _is_later(tail, version, crc):
        raise UnknownVersionError(f"fragment version {version} is not known to this release")
    if version != VERSION:
        raise CorruptDataError(f"there is no fragment version {version}")
    if zlib.crc32(tail[:_TRAILER_CHECKED]) != crc:
        raise CorruptDataError("the trailer's checksum does not match")
    trailer = Trailer(*fields)
    problem = _contradiction(trailer)
    if problem:
        raise CorruptDataError(f"the trailer contradicts itself: {problem}")
    return trailer


def _is_later(tail: bytes, version: int, crc: int) -> bool:
    """Whether a later release wrote a trailer: of what its CRC is then, nobody knows here.

    It is damage where the CRC holds with this version in its place, and where the number is none
    that a release will reach.
    """
    if not VERSION < version <= _MOST_VERSIONS:
        return False
    ours = tail[: _TRAILER_CHECKED - _VERSION.size] + _VERSION.pack(VERSION)
    return zlib.crc32(ours) != crc


def _contradiction(t: Trailer) -> str | None:
    """The first rule that `t` breaks, in words, or None."""
    rules = (
        (t.first_offset < t.next_offset <= MAX_OFFSET, "the offsets are no range"),
        (t.records == t.next_offset - t.first_offset, "records and offsets differ"),
        (t.chunks >= 1, "there is no chunk"),
        (t.first_offset <= t.last_chunk_id < t.next_offset, "the last chunk lies outside"),
        (t.chunks <= t.last_chunk_id - t.first_offset + 1, "more chunks than offsets"),
        (t.chunks > 1 or t.last_chunk_id == t.first_offset, "one chunk with two ids"),
        (t.chunks > 1 or t.first_chunk_epoch == t.last_chunk_epoch, "one chunk of two epochs"),
        (t.chunks > 1 or t.min_timestamp == t.max_timestamp, "one chunk at two times"),
        (t.index_size == len(INDEX_HEADER) + t.chunks * INDEX_RECORD_SIZE, "index size is wrong"),
        (t.index_position == len(HEADER) + t.data_size, "index position is wrong"),
        (t.size <= MAX_FRAGMENT_SIZE, "it is larger than any object"),
        (t.data_size >= t.chunks * 48, "the chunks do not fit into the data"),
        (1 <= t.epoch <= MAX_EPOCH, "the epoch is out of range"),
        (t.first_chunk_epoch <= t.last_chunk_epoch <= t.epoch, "the chunk epochs fall or exceed"),
        (t.floor <= t.first_offset, "it begins below the floor of its epoch"),
        (t.segment_offset <= t.first_offset, "it begins before its segment"),
        (t.min_timestamp <= t.first_timestamp <= t.max_timestamp, "timestamps out of bounds"),
        (t.min_timestamp <= t.last_timestamp <= t.max_timestamp, "timestamps out of bounds"),
    )
    return next((words for holds, words in rules if not holds), None)


def check_against_key(trailer: Trailer, key: DataKey, size: int) -> None:
    """The trailer must say what the key says, and the object must be as long as it claims.

    Args:
        trailer: as parsed from the object.
        key: of the object.
        size: of the object in bytes, from LIST or HEAD.

    Raises:
        CorruptDataError: they differ; the message names stream and offset.
    """
    for what, ours, theirs in (
        ("first offset", trailer.first_offset, key.first_offset),
        ("next offset", trailer.next_offset, key.next_offset),
        ("epoch", trailer.epoch, key.epoch),
        ("size", trailer.size, size),
    ):
        if ours != theirs:
            raise CorruptDataError(
                f"the trailer says {what} {ours}, the key or the object says {theirs}",
                stream=key.stream,
                offset=key.first_offset,
            )


class FragmentIndex:
    """The index records of one fragment, over the bytes they came in.

    Args:
        section: the index section with its header, `trailer.index_size` bytes.
        trailer: of the same fragment.

    Raises:
        CorruptDataError: the section does not match its trailer, or its records are out of order.
    """

    __slots__ = ("_ids", "_positions", "_timestamps", "trailer")

    def __init__(self, section: Buffer, trailer: Trailer) -> None:
        if len(section) != trailer.index_size:
            raise CorruptDataError(
                f"the index has {len(section)} bytes, its trailer says {trailer.index_size}",
                offset=trailer.first_offset,
            )
        if bytes(section[: len(INDEX_HEADER)]) != INDEX_HEADER:
            raise CorruptDataError("no index section here", offset=trailer.first_offset)
        body = memoryview(section)[len(INDEX_HEADER) :]
        if zlib.crc32(body) != trailer.index_crc:
            raise CorruptDataError(
                "the index section's checksum does not match", offset=trailer.first_offset
            )
        self.trailer = trailer
        ids, timestamps, positions = zip(*_INDEX_RECORD.iter_unpack(body), strict=True)
        self._ids: Sequence[int] = ids
        self._timestamps: Sequence[int] = timestamps
        self._positions: Sequence[int] = positions
        in_order = all(a < b for a, b in itertools.pairwise(ids)) and all(
            a + 48 <= b for a, b in itertools.pairwise(positions)
        )
        ends_match = (
            ids[0] == trailer.first_offset
            and ids[-1] == trailer.last_chunk_id
            and positions[0] == 0
            and positions[-1] + 48 <= trailer.data_size
        )
        if not in_order or not ends_match:
            raise CorruptDataError(
                "the index records are out of order or outside the data",
                offset=trailer.first_offset,
            )
        times = (timestamps[0], timestamps[-1], min(timestamps), max(timestamps))
        if times != (
            trailer.first_timestamp,
            trailer.last_timestamp,
            trailer.min_timestamp,
            trailer.max_timestamp,
        ):
            raise CorruptDataError(
                "the index records have other timestamps than the trailer",
                offset=trailer.first_offset,
            )

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, number: int) -> IndexRecord:
        return IndexRecord(self._ids[number], self._timestamps[number], self._positions[number])

    def chunk_of_offset(self, offset: int) -> int:
        """Index of the chunk that contains `offset`, clamped to the first and the last."""
        return max(0, bisect_right(self._ids, offset) - 1)

    def chunk_at_position(self, position: int) -> int:
        """Number of the first chunk that begins at or after `position` in the data."""
        return bisect_left(self._positions, position)

    def data_range(self, first: int, last: int) -> tuple[int, int]:
        """Byte range in the object of the chunks first..last, `last` included: (start, end)."""
        end = (
            self._positions[last + 1] if last + 1 < len(self._positions) else self.trailer.data_size
        )
        return len(HEADER) + self._positions[first], len(HEADER) + end
