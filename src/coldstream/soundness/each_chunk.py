"""Every chunk of a fragment against itself, its neighbours, its index record and the trailer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER, IndexRecord
from coldstream.osiris.chunk import CHUNK_MAGIC_VERSION, Chunk, ChunkHeader, ChunkType
from coldstream.soundness.anatomy import Slot, slots
from coldstream.soundness.chunk import contents_faults
from coldstream.soundness.ends import Sections
from coldstream.soundness.entries import count_records
from coldstream.soundness.findings import FindingKind
from coldstream.soundness.notes import Edges, Notes


class Chunks:
    """The chunks of one fragment, looked at one after the other.

    Attributes:
        slots: where they are.
        ids: the true id of each, as well as it can be told.
        times: the timestamp of each, ms.
        edges: epochs of the first and the last.
    """

    def __init__(self, sections: Sections, notes: Notes) -> None:
        self._sections = sections
        self._chunks = sections.chunks
        self._notes = notes
        self.slots: list[Slot] = []
        self.ids: list[int] = []
        self.times: list[int] = []
        self.edges = Edges(None, None)

    def look(self) -> None:
        """Fill the attributes and the notes."""
        entry, chunks = self._notes.subject.entry, self._chunks
        found = slots(
            chunks,
            [record.position for record in self._sections.records],
            first_offset=entry.first_offset,
            next_offset=entry.next_offset,
        )
        at_position = {record.position: record for record in self._sections.records}
        counts = self._counts(found)
        expected, epoch = entry.first_offset, None
        good: list[int] = []
        for number, slot in enumerate(found):
            next_offset = self._begins(found, number + 1)
            record = at_position.get(slot.start)
            self.ids.append(expected)
            if slot.header is None or not slot.is_header:
                end = next_offset or self._record_after(slot) or entry.next_offset
                self._bad_header(slot, expected, end)
                expected = max(end, expected)
                self.times.append(record.timestamp if record else 0)
                continue
            chunk_id = self._chunk_id(slot, slot.header, expected, record)
            self.ids[-1] = chunk_id
            expected = self._look_at_chunk(slot, slot.header, chunk_id, next_offset, counts[number])
            if self._epoch_holds(slot, slot.header, chunk_id, expected, epoch):
                epoch = slot.header.epoch
                # What is not of this place says nothing about the neighbours, which may be sound.
                if entry.first_offset <= slot.header.chunk_id < entry.next_offset:
                    good.append(epoch)
            self.times.append(slot.header.timestamp)
        self.slots = found
        if found and expected != entry.next_offset and not self._notes.damaged:
            gap = sorted((expected, entry.next_offset))
            self._notes.add(
                FindingKind.OFFSETS,
                f"the last chunk ends at offset {expected}, the fragment at {entry.next_offset}",
                first=gap[0],
                next_offset=gap[1],
                position=len(HEADER) + len(chunks),
                expected=entry.next_offset,
                found=expected,
            )
        if good:
            self.edges = Edges(good[0], good[-1])

    def _begins(self, found: Sequence[Slot], number: int) -> int | None:
        """The id of a chunk as its header has it; the fragment's end behind the last."""
        if number == len(found):
            return self._notes.subject.entry.next_offset
        slot = found[number]
        return slot.header.chunk_id if slot.header and slot.is_header else None

    def _record_after(self, slot: Slot) -> int | None:
        return next((r.chunk_id for r in self._sections.records if r.position >= slot.end), None)

    def _counts(self, found: Sequence[Slot]) -> list[int | CorruptDataError | None]:
        """Records of the entries of every chunk whose header and CRC hold; None for the others."""
        counts: list[int | CorruptDataError | None] = [None] * len(found)
        whole = [
            number
            for number, slot in enumerate(found)
            if slot.header
            and slot.is_header
            and slot.header.size == slot.end - slot.start
            and crc32(self._section(slot, slot.header)) == slot.header.crc
        ]
        headers = [found[number].header for number in whole]
        begins = np.array(
            [found[n].start + h.data_position for n, h in zip(whole, headers, strict=True) if h],
            np.int64,
        )
        sizes = np.array([h.data_size for h in headers if h], np.int64)
        entries = np.array([h.entries for h in headers if h], np.int64)
        for number, count in zip(
            whole, count_records(self._chunks, begins, begins + sizes, entries), strict=True
        ):
            counts[number] = count
        return counts

    def _section(self, slot: Slot, header: ChunkHeader) -> memoryview:
        start = slot.start + header.data_position
        return self._chunks[start : start + header.data_size]

    def _bad_header(self, slot: Slot, first: int, next_offset: int) -> None:
        header = slot.header
        expected: object = ""
        found: object = ""
        if header is None:
            words = f"{slot.end - slot.start} bytes are too few for a chunk header"
        elif slot.magic != CHUNK_MAGIC_VERSION:
            words, expected, found = "no chunk begins here", CHUNK_MAGIC_VERSION, slot.magic
        elif header.chunk_type > ChunkType.TRACKING_SNAPSHOT:
            words, expected, found = "a chunk of an unknown type", "0 to 2", header.chunk_type
        else:
            words = f"a chunk with {header.entries} entries and {header.records} records"
        self._notes.add(
            FindingKind.CHUNK_HEADER,
            words,
            first=first,
            next_offset=next_offset,
            position=len(HEADER) + slot.start,
            expected=expected,
            found=found,
        )

    def _chunk_id(
        self, slot: Slot, header: ChunkHeader, expected: int, record: IndexRecord | None
    ) -> int:
        """The true id of a chunk: two of three witnesses, or what came before."""
        if header.chunk_id == expected:
            return expected
        position = len(HEADER) + slot.start
        if (record is not None and record.chunk_id == expected) or not (
            record is not None and record.chunk_id == header.chunk_id
        ):
            self._notes.add(
                FindingKind.CHUNK_HEADER,
                f"the chunk's header says id {header.chunk_id}, it is chunk {expected}",
                first=expected,
                next_offset=expected + header.records,
                position=position,
                expected=expected,
                found=header.chunk_id,
            )
            return expected
        low, high = sorted((expected, header.chunk_id))
        entry = self._notes.subject.entry
        if not entry.first_offset <= header.chunk_id < entry.next_offset:
            # Another fragment's chunks: of this one's offsets none is here from now on.
            low, high = expected, entry.next_offset
        self._notes.add(
            FindingKind.OFFSETS,
            f"chunk {header.chunk_id} follows where offset {expected} should",
            first=low,
            next_offset=high,
            position=position,
            expected=expected,
            found=header.chunk_id,
        )
        return header.chunk_id

    def _look_at_chunk(
        self,
        slot: Slot,
        header: ChunkHeader,
        chunk_id: int,
        next_offset: int | None,
        count: int | CorruptDataError | None,
    ) -> int:
        """What is wrong with one chunk; the offset after it."""
        position = len(HEADER) + slot.start
        end = self._offset_after(header, chunk_id, next_offset, count)
        length = slot.end - slot.start

        def add(kind: FindingKind, words: str, expected: object = "", found: object = "") -> None:
            self._notes.add(
                kind,
                words,
                first=chunk_id,
                next_offset=end,
                position=position,
                expected=expected,
                found=found,
            )

        if header.size != length:
            words = f"the chunk claims {header.size} bytes and has {length}"
            add(FindingKind.CHUNK_HEADER, words, length, header.size)
            return end
        chunk = Chunk(header, self._chunks[slot.start : slot.end])
        for fault in contents_faults(chunk, count):
            add(fault.kind, fault.words, fault.expected, fault.found)
        if count == header.records != end - chunk_id:
            words = f"the header says {header.records} records, the next chunk is {end}"
            add(FindingKind.CHUNK_ENTRIES, words, end - chunk_id, header.records)
        return end

    def _offset_after(
        self,
        header: ChunkHeader,
        chunk_id: int,
        next_offset: int | None,
        count: int | CorruptDataError | None,
    ) -> int:
        """Where the chunk ends: what its header says, unless its entries and its neighbour differ.

        A neighbour that alone says something else is the one that is wrong, and is told so.
        """
        end = chunk_id + header.records
        if next_offset is None or next_offset == end:
            return end
        if isinstance(count, int) and count == header.records:
            return end
        return next_offset if next_offset > chunk_id else end

    def _epoch_holds(
        self, slot: Slot, header: ChunkHeader, chunk_id: int, end: int, before: int | None
    ) -> bool:
        trailer, key = self._sections.trailer, self._notes.subject.key
        lowest, highest = before or 0, key.epoch
        if trailer is not None:
            lowest = max(lowest, trailer.first_chunk_epoch)
            highest = min(highest, trailer.last_chunk_epoch)
        if lowest <= header.epoch <= highest:
            return True
        self._notes.add(
            FindingKind.EPOCHS,
            f"chunk epoch {header.epoch}, where only {lowest} to {highest} can be",
            first=chunk_id,
            next_offset=end,
            position=len(HEADER) + slot.start,
            expected=f"{lowest} to {highest}",
            found=header.epoch,
        )
        return False

    def end_of(self, number: int) -> int:
        """The offset after chunk `number`."""
        next_offset = number + 1 < len(self.ids)
        return self.ids[number + 1] if next_offset else self._notes.subject.entry.next_offset
