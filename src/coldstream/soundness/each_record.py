"""The index records of a fragment against the chunks that they point to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coldstream.crc import crc32
from coldstream.fragment import HEADER, INDEX_HEADER, INDEX_RECORD_SIZE, IndexRecord
from coldstream.osiris.chunk import ChunkHeader
from coldstream.soundness.each_chunk import Chunks
from coldstream.soundness.ends import Sections
from coldstream.soundness.findings import FindingKind
from coldstream.soundness.notes import Notes

#: With more wrong records than this the index as a whole is named instead of each of them.
_MAX_RECORDS = 64


def look_at_records(sections: Sections, chunks: Chunks, notes: Notes) -> None:
    """Note every index record that does not point to its chunk, and every chunk without one."""
    wrong, seen = _compared(sections, chunks, notes)
    _tell_wrong(wrong, sections, chunks, notes)
    missing = [n for n in range(len(chunks.slots)) if n not in seen]
    if not wrong and missing and sections.records:
        notes.add(
            FindingKind.INDEX_RECORD,
            f"{len(missing)} chunks have no index record, the first of them at byte"
            f" {len(HEADER) + chunks.slots[missing[0]].start}",
            first=chunks.ids[missing[0]],
            next_offset=chunks.end_of(missing[-1]),
            position=sections.index_at,
            expected=len(chunks.slots),
            found=len(sections.records),
        )
    trailer = sections.trailer
    if trailer is None or wrong or missing:
        return
    if crc32(sections.index) != trailer.index_crc and not notes.has(FindingKind.INDEX):
        notes.add(
            FindingKind.INDEX,
            "the index section's checksum does not match, though its records do"
            if not notes.damaged
            else "the index section's checksum does not match",
            position=sections.index_at,
            expected=f"{trailer.index_crc:08x}",
            found=f"{crc32(sections.index):08x}",
        )


class _Wrong(NamedTuple):
    """Index record `number` says of its `what` another `value` than the chunk at `at`."""

    number: int
    what: str
    at: int
    expected: object
    value: object


def _compared(sections: Sections, chunks: Chunks, notes: Notes) -> tuple[list[_Wrong], set[int]]:
    """What records say wrongly, and the chunks that a record points to."""
    found, trailer = chunks.slots, sections.trailer
    starts = {slot.start: number for number, slot in enumerate(found)}
    wrong: list[_Wrong] = []
    seen: set[int] = set()
    for number, record in enumerate(sections.records):
        at = starts.get(record.position)
        if at is None:
            # By its place among the others, it is this chunk's.
            chunk = min(number, len(found) - 1)
            expected: object = found[chunk].start if found else ""
            wrong.append(_Wrong(number, "position", chunk, expected, record.position))
            continue
        seen.add(at)
        header = found[at].header
        if record.chunk_id != chunks.ids[at]:
            wrong.append(_Wrong(number, "chunk id", at, chunks.ids[at], record.chunk_id))
        elif header and found[at].is_header and record.timestamp != header.timestamp:
            if trailer is not None and not sections.data_holds:
                _bad_timestamp(header, at, record, chunks, notes)
            else:
                wrong.append(_Wrong(number, "timestamp", at, header.timestamp, record.timestamp))
    return wrong, seen


def _tell_wrong(wrong: Sequence[_Wrong], sections: Sections, chunks: Chunks, notes: Notes) -> None:
    if len(wrong) > _MAX_RECORDS:
        notes.add(
            FindingKind.INDEX,
            f"{len(wrong)} of {len(sections.records)} index records do not point to their chunks",
            position=sections.index_at,
        )
    else:
        for number, what, at, expected, value in wrong:
            notes.add(
                FindingKind.INDEX_RECORD,
                f"index record {number} says {what} {value}, the chunk has {expected}",
                first=chunks.ids[at] if chunks.ids else None,
                next_offset=chunks.end_of(at),
                position=sections.index_at + len(INDEX_HEADER) + number * INDEX_RECORD_SIZE,
                expected=expected,
                found=value,
            )


def _bad_timestamp(
    header: ChunkHeader, at: int, record: IndexRecord, chunks: Chunks, notes: Notes
) -> None:
    """The data was changed, the index was not: the chunk's own timestamp is wrong."""
    notes.add(
        FindingKind.CHUNK_HEADER,
        f"the chunk's header says timestamp {header.timestamp}, the index says {record.timestamp}",
        first=chunks.ids[at],
        next_offset=chunks.end_of(at),
        position=len(HEADER) + chunks.slots[at].start,
        expected=record.timestamp,
        found=header.timestamp,
    )
