"""Both ends of a fragment's object, its trailer against all who speak of it, and its sections."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    INDEX_RECORD_SIZE,
    TRAILER_SIZE,
    IndexRecord,
    Trailer,
    parse_trailer,
)
from coldstream.soundness.findings import FindingKind
from coldstream.soundness.notes import Notes
from coldstream.soundness.trailer import differences

_RECORD = struct.Struct(">QqI")


def read_ends(data: memoryview, notes: Notes) -> Trailer | None:
    """The trailer of a fragment, None if it cannot be read; notes what is wrong at both ends."""
    entry = notes.subject.entry
    trailer: Trailer | None = None
    reason = ""
    if len(data) != entry.size:
        notes.add(
            FindingKind.OBJECT_SIZE,
            f"the object has {len(data)} bytes, the manifest says {entry.size}",
            position=min(len(data), entry.size),
            expected=entry.size,
            found=len(data),
        )
    if bytes(data[: len(HEADER)]) != HEADER:
        notes.add(
            FindingKind.FRAGMENT_HEADER,
            "no fragment begins here",
            position=0,
            expected=HEADER.hex(),
            found=bytes(data[: len(HEADER)]).hex(),
        )
    # Bytes behind the end must not hide a trailer that is whole.
    for end in dict.fromkeys((len(data), min(entry.size, len(data)))):
        try:
            trailer = parse_trailer(data[:end])
            break
        except CorruptDataError as error:
            reason = error.reason
    else:
        at = max(0, min(len(data), entry.size) - TRAILER_SIZE)
        notes.add(FindingKind.TRAILER, reason, position=at)
    if trailer is not None:
        _compare(trailer, notes)
    return trailer


def _compare(trailer: Trailer, notes: Notes) -> None:
    """The trailer against key, entry and ledger."""
    subject = notes.subject
    at = trailer.index_position + trailer.index_size
    for each in differences(trailer, subject.key, subject.entry, subject.floor):
        notes.add(each.kind, each.words, position=at, expected=each.theirs, found=each.ours)


@dataclass(frozen=True, slots=True)
class Sections:
    """A fragment's sections.

    Attributes:
        chunks: the data section.
        index_at: byte of the object at which the index section begins.
        index: the section's records as bytes, without its header.
        records: the same as values, right or wrong.
        data_holds: whether the CRC over the data is the trailer's.
        trailer: None if it cannot be read.
    """

    chunks: memoryview
    index_at: int
    index: memoryview
    records: tuple[IndexRecord, ...]
    data_holds: bool
    trailer: Trailer | None


def read_sections(data: memoryview, trailer: Trailer | None, notes: Notes) -> Sections:
    """Take a fragment apart; notes where no index can be found."""
    if trailer is not None and trailer.size <= len(data):
        at, end = trailer.index_position, trailer.index_position + trailer.index_size
    else:
        at, end = _search_index(data, notes)
    chunks = data[len(HEADER) : at]
    section = data[at:end]
    if bytes(section[: len(INDEX_HEADER)]) != INDEX_HEADER:
        notes.add(
            FindingKind.INDEX,
            "no index section begins where the trailer says"
            if trailer is not None
            else "no index section can be found",
            position=at,
            expected=INDEX_HEADER.hex(),
            found=bytes(section[: len(INDEX_HEADER)]).hex(),
        )
    whole = len(section) - (len(section) - len(INDEX_HEADER)) % INDEX_RECORD_SIZE
    body = section[len(INDEX_HEADER) : max(whole, len(INDEX_HEADER))]
    return Sections(
        chunks=chunks,
        index_at=at,
        index=body,
        records=tuple(IndexRecord(*each) for each in _RECORD.iter_unpack(body)),
        data_holds=trailer is not None and crc32(chunks) == trailer.data_crc,
        trailer=trailer,
    )


def _search_index(data: memoryview, notes: Notes) -> tuple[int, int]:
    """Where the index section is, when the trailer cannot say it."""
    entry = notes.subject.entry
    size = min(len(data), entry.size)
    raw = np.frombuffer(data[:size], np.uint8)
    begin = np.frombuffer(INDEX_HEADER, np.uint8)
    candidates = np.flatnonzero(raw[: max(0, size - len(begin) + 1)] == begin[0])
    for at in reversed(candidates.tolist()):
        if bytes(data[at : at + len(begin)]) != INDEX_HEADER:
            continue
        end = size - TRAILER_SIZE if len(data) >= entry.size else size
        first = data[at + len(begin) : at + len(begin) + 8]
        # A message may hold the same eight bytes; the first record tells them apart.
        if int.from_bytes(first, "big") == entry.first_offset or len(first) < 8:
            return int(at), max(int(at), end)
    return size, size
