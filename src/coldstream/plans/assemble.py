"""A damaged fragment put together again, out of the chunks that several sources have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from coldstream.crc import crc32
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    IndexRecord,
    Placement,
    Trailer,
    build_trailer,
    encode_index,
    parse_trailer,
)
from coldstream.osiris.chunk import Chunk
from coldstream.plans.repair import Known


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A chunk, and the name of the source that has it."""

    chunk: Chunk
    source: str


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the sources have of a fragment.

    Attributes:
        parts: chunks in offset order.
        missing: offsets [first, next) that no source has, in order.
        proved: whether the CRC of all of it is the one in the trailer, so that it is the lost
            fragment byte for byte; or two sources have all of it alike.
    """

    parts: tuple[FoundChunk, ...]
    missing: tuple[tuple[int, int], ...]
    proved: bool

    def runs(self) -> Iterator[list[FoundChunk]]:
        """Parts without a gap between them."""
        run: list[FoundChunk] = []
        for part in self.parts:
            if run and run[-1].chunk.header.next_offset != part.chunk.header.chunk_id:
                yield run
                run = []
            run.append(part)
        if run:
            yield run

    def taken_from(self) -> dict[str, int]:
        """Number of chunks by source."""
        counts: dict[str, int] = {}
        for part in self.parts:
            counts[part.source] = counts.get(part.source, 0) + 1
        return counts


@dataclass(frozen=True, slots=True)
class Fragment:
    """A new object and what a manifest says of it."""

    data: bytes
    trailer: Trailer


@dataclass(slots=True)
class Sources:
    """Chunks that hold by themselves, by their ids; the first source that has one wins."""

    chunks: dict[int, list[FoundChunk]] = field(default_factory=dict)

    def add(self, name: str, found: Iterable[Chunk]) -> None:
        """Put a source behind those before it."""
        for chunk in found:
            self.chunks.setdefault(chunk.header.chunk_id, []).append(FoundChunk(chunk, name))


def assemble(known: Known, sources: Sequence[Sources]) -> Assembled:
    """The fragment out of what the sources have.

    Args:
        known: what is still known of it.
        sources: in the order in which they are asked. If what they have does not come to the CRC
            in the trailer, the first are left out, one after the other: the CRC of a chunk does
            not cover its filter, nor its tracking data.
    """
    best = Assembled((), ((known.first_offset, known.next_offset),), proved=False)
    crcs: list[int] = []
    for begin in range(len(sources)):
        if begin and not sources[begin - 1].chunks:
            continue  # the same as before
        found, crc = _assembled(known, sources[begin:])
        if found.proved:
            return found
        if not found.missing:
            if crc in crcs:
                return replace(found, proved=True)
            crcs.append(crc)
        if _covered(found) > _covered(best):
            best = found
    return best


def _covered(assembled: Assembled) -> int:
    return sum(part.chunk.header.records for part in assembled.parts)


def _assembled(known: Known, sources: Sequence[Sources]) -> tuple[Assembled, int]:
    parts: list[FoundChunk] = []
    missing: list[tuple[int, int]] = []
    at, epoch = known.first_offset, known.lowest_epoch
    starts = sorted({each for source in sources for each in source.chunks} | set(known.records))
    while at < known.next_offset:
        part = next(
            (
                each
                for source in sources
                for each in source.chunks.get(at, ())
                if known.allows(each.chunk.header) and each.chunk.header.epoch >= epoch
            ),
            None,
        )
        if part is not None:
            parts.append(part)
            at, epoch = part.chunk.header.next_offset, part.chunk.header.epoch
            continue
        next_offset = next((each for each in starts if each > at), known.next_offset)
        if missing and missing[-1][1] == at:
            missing[-1] = (missing[-1][0], next_offset)
        else:
            missing.append((at, next_offset))
        at = next_offset
    crc = 0
    for part in parts:
        crc = crc32(part.chunk.buffer, crc)
    proved = not missing and crc == known.data_crc
    return Assembled(tuple(parts), tuple(missing), proved), crc


def fragment_of(run: Sequence[FoundChunk], known: Known, *, epoch: int, floor: int) -> Fragment:
    """The object of a run of chunks, with the epoch, and so the rights, of what it replaces."""
    chunks = [part.chunk for part in run]
    first = chunks[0].header
    records: list[IndexRecord] = []
    position = 0
    for chunk in chunks:
        records.append(IndexRecord(chunk.header.chunk_id, chunk.header.timestamp, position))
        position += len(chunk.buffer)
    index = encode_index(records)
    data = b"".join(chunk.buffer for chunk in chunks)
    trailer = build_trailer(
        placement=_placement(known, first.chunk_id, epoch, floor),
        index=index,
        next_offset=chunks[-1].header.next_offset,
        first_chunk_epoch=first.epoch,
        last_chunk_epoch=chunks[-1].header.epoch,
        data_size=len(data),
        data_crc=crc32(data),
    )
    body = b"".join((HEADER, data, INDEX_HEADER, index, trailer.encode()))
    parse_trailer(body)  # nothing that readers would refuse is ever written
    return Fragment(body, trailer)


def _placement(known: Known, first: int, epoch: int, floor: int) -> Placement:
    """Where the run stood in its segment, as far as that is still known."""
    old, row = known.trailer, known.records.get(first)
    if old is None or row is None:
        return Placement(epoch, floor, first, 0, 8)
    return Placement(
        epoch,
        floor,
        old.segment_offset,
        old.sequence,
        old.segment_position + row[0].position,
    )
