"""Everything that is wrong with one fragment, found by looking at its whole object.

This is the slow and exact look: it is taken at fragments of which `sound` has said that something
does not hold. It goes on behind damage, and it tells what stands against what: a chunk against its
index record, the index and the data against the trailer, the trailer against key, manifest entry
and ledger. Where two disagree, the CRC over the data says which of them was changed.
"""

from __future__ import annotations

from coldstream.crc import crc32
from coldstream.fragment import HEADER
from coldstream.soundness.each_chunk import Chunks
from coldstream.soundness.each_record import look_at_records
from coldstream.soundness.ends import Sections, read_ends, read_sections
from coldstream.soundness.findings import Finding, FindingKind
from coldstream.soundness.notes import Edges, Notes, Subject


def diagnose(data: memoryview, subject: Subject) -> tuple[list[Finding], Edges]:
    """Everything that is wrong with a fragment.

    Args:
        data: the whole object.
        subject: what it should be.
    """
    notes = Notes(subject)
    trailer = read_ends(data, notes)
    sections = read_sections(data, trailer, notes)
    chunks = Chunks(sections, notes)
    chunks.look()
    look_at_records(sections, chunks, notes)
    _look_at_summary(sections, chunks, notes)
    return notes.findings, chunks.edges


def _look_at_summary(sections: Sections, chunks: Chunks, notes: Notes) -> None:
    """What the trailer says of all of it."""
    trailer = sections.trailer
    if trailer is None:
        return
    if not sections.data_holds and not notes.damaged:
        notes.add(
            FindingKind.DATA_CRC,
            "the CRC of the data section does not match, though that of every chunk does: a"
            " byte of a header, a filter or a chunk's trailer was changed",
            position=len(HEADER),
            expected=f"{trailer.data_crc:08x}",
            found=f"{crc32(sections.chunks):08x}",
        )
    if notes.damaged or not chunks.slots:
        return
    found = [slot.header for slot in chunks.slots if slot.header]
    at = trailer.index_position + trailer.index_size
    for what, ours, theirs in (
        ("number of chunks", trailer.chunks, len(found)),
        ("first timestamp", trailer.first_timestamp, chunks.times[0]),
        ("last timestamp", trailer.last_timestamp, chunks.times[-1]),
        ("minimum timestamp", trailer.min_timestamp, min(chunks.times)),
        ("maximum timestamp", trailer.max_timestamp, max(chunks.times)),
        ("first chunk epoch", trailer.first_chunk_epoch, found[0].epoch),
        ("last chunk epoch", trailer.last_chunk_epoch, found[-1].epoch),
        ("last chunk id", trailer.last_chunk_id, found[-1].chunk_id),
        ("first offset", trailer.first_offset, found[0].chunk_id),
        ("next offset", trailer.next_offset, found[-1].next_offset),
    ):
        if ours != theirs:
            notes.add(
                FindingKind.TRAILER,
                f"the trailer says {what} {ours}, the chunks have {theirs}",
                position=at,
                expected=theirs,
                found=ours,
            )
