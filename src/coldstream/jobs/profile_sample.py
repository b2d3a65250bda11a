"""What the job profile learns from the chunks of a sample: messages, batching, codecs, tracking.

Only headers are looked at: of chunks, entries and sub-batches. No message is decoded and nothing is
inflated, so the sizes of messages in a compressed sub-batch are known as their mean only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from coldstream.errors import CorruptDataError
from coldstream.jobs.profile_count import Histogram
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Chunk, ChunkType
from coldstream.osiris.entry import Codec
from coldstream.osiris.tracking import TrackingType, parse_tracking

_LENGTH = struct.Struct(">I")
_SUB_BATCH = struct.Struct(">BHII")
#: Of one consumer: more stored positions than this are thinned out by halves.
MAX_POSITIONS = 512


@dataclass(slots=True)
class Compression:
    """Sub-batches of one codec.

    Attributes:
        sub_batches: how many.
        records: messages in them.
        size: their bytes as stored.
        inflated: their bytes inflated.
    """

    sub_batches: int = 0
    records: int = 0
    size: int = 0
    inflated: int = 0

    def merge(self, other: Compression) -> None:
        """Count what another one has counted, too."""
        self.sub_batches += other.sub_batches
        self.records += other.records
        self.size += other.size
        self.inflated += other.inflated


@dataclass(frozen=True, slots=True)
class Seen:
    """A tracked value, and where it stood.

    Attributes:
        value: last publishing id, or stored offset.
        chunk_id: of the chunk that says so.
        timestamp: of that chunk, ms.
    """

    value: int
    chunk_id: int
    timestamp: int


@dataclass(slots=True)
class Sample:
    """What was learnt from some chunks of one stream.

    Attributes:
        chunks: user chunks.
        tracking_chunks: deltas and snapshots; each takes an offset that no message has.
        messages: in the user chunks.
        simple: entries of one message.
        bytes: of all these chunks.
        headers: bytes of chunk headers and bloom filters.
        trailers: bytes of trailers: what named publishers cost.
        sizes: bytes of each message.
        message_bytes: of all messages, inflated.
        codecs: sub-batches by codec.
        publishers: by reference, the newest.
        consumers: by reference, in the order of the stream.
        errors: why some chunks could not be looked at, the first few.
    """

    chunks: int = 0
    tracking_chunks: int = 0
    messages: int = 0
    simple: int = 0
    bytes: int = 0
    headers: int = 0
    trailers: int = 0
    sizes: Histogram = field(default_factory=Histogram)
    message_bytes: int = 0
    codecs: dict[str, Compression] = field(default_factory=dict)
    publishers: dict[str, Seen] = field(default_factory=dict)
    consumers: dict[str, list[Seen]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Look at chunks, in the order of the stream."""
        for chunk in chunks:
            try:
                self._add(chunk)
            except CorruptDataError as error:
                self.fail(error.located(offset=chunk.header.chunk_id))

    def fail(self, error: Exception) -> None:
        """Remember why something could not be looked at."""
        if len(self.errors) < 10:
            self.errors.append(str(error))

    def _add(self, chunk: Chunk) -> None:
        header = chunk.header
        if header.chunk_type == ChunkType.USER:
            self._add_entries(chunk)
            self.chunks += 1
            self.messages += header.records
        else:
            self.tracking_chunks += 1
        self.bytes += header.size
        self.headers += CHUNK_HEADER_SIZE + header.bloom_size
        self.trailers += header.trailer_size
        for tracked in parse_tracking(chunk):
            seen = Seen(tracked.value, header.chunk_id, header.timestamp)
            if tracked.tracking_type is TrackingType.SEQUENCE:
                if tracked.chunk_id is not None:
                    seen = Seen(tracked.value, tracked.chunk_id, header.timestamp)
                self._see_publisher(tracked.name, seen)
            elif tracked.tracking_type is TrackingType.OFFSET:
                self.consumers.setdefault(tracked.name, []).append(seen)
        self._thin()

    def _add_entries(self, chunk: Chunk) -> None:
        data, position = chunk.data, 0
        end = len(data)
        simple: list[int] = []
        for _ in range(chunk.header.entries):
            if end - position < _LENGTH.size:
                raise CorruptDataError("an entry is cut")
            (length,) = _LENGTH.unpack_from(data, position)
            if length >> 31:
                position = self._add_sub_batch(data, position)
                continue
            position += _LENGTH.size + length
            if position > end:
                raise CorruptDataError(f"an entry of {length} bytes is cut")
            simple.append(length)
        self.simple += len(simple)
        self.message_bytes += sum(simple)
        self.sizes.add(np.array(simple, np.int64))

    def _add_sub_batch(self, data: memoryview, position: int) -> int:
        if len(data) - position < _SUB_BATCH.size:
            raise CorruptDataError("a sub-batch header is cut")
        kind, records, inflated, size = _SUB_BATCH.unpack_from(data, position)
        position += _SUB_BATCH.size + size
        if position > len(data):
            raise CorruptDataError(f"a sub-batch of {size} bytes is cut")
        number = kind >> 4 & 7
        name = Codec(number).name.lower() if number <= Codec.ZSTD else f"codec {number}"
        self.codecs.setdefault(name, Compression()).merge(Compression(1, records, size, inflated))
        content = max(0, inflated - _LENGTH.size * records)
        self.message_bytes += content
        if records:
            self.sizes.add(np.array([content / records]), np.array([records]))
        return position

    def _see_publisher(self, name: str, seen: Seen) -> None:
        known = self.publishers.get(name)
        if known is None or known.chunk_id <= seen.chunk_id:
            self.publishers[name] = seen

    def _thin(self) -> None:
        for name, positions in self.consumers.items():
            if len(positions) > 2 * MAX_POSITIONS:
                # The newest is always kept.
                self.consumers[name] = positions[-1::-2][::-1]

    def merge(self, later: Sample) -> None:
        """Add what was learnt from chunks behind these."""
        for name in ("chunks", "tracking_chunks", "messages", "simple", "bytes", "headers",
                     "trailers", "message_bytes"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.sizes.merge(later.sizes)
        for codec, compression in later.codecs.items():
            self.codecs.setdefault(codec, Compression()).merge(compression)
        for reference, seen in later.publishers.items():
            self._see_publisher(reference, seen)
        for reference, positions in later.consumers.items():
            mine = self.consumers.setdefault(reference, [])
            mine.extend(positions)
            mine.sort(key=lambda each: each.chunk_id)
        self._thin()
        self.errors = [*self.errors, *later.errors][:10]

    @property
    def ratio(self) -> float | None:
        """How many times smaller compressed sub-batches are; None if there are none."""
        packed = [each for name, each in self.codecs.items() if name != "none"]
        size = sum(each.size for each in packed)
        return sum(each.inflated for each in packed) / size if size else None
