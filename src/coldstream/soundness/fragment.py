"""The quick look: whether all of a fragment holds. Whatever does not is left to `diagnosis`.

All chunks of a range are looked at together, by numpy, and the bytes go by twice: once for the
CRC of each chunk and, while they are in the processor's cache, for the CRC of all.
"""

from __future__ import annotations

import numpy as np

from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER, FragmentIndex, Trailer, check_against_key, parse_trailer
from coldstream.manifest.entries import MAX_RECORDS
from coldstream.osiris.bloom import MIN_BLOOM_SIZE
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkType
from coldstream.osiris.tracking import parse_tracking
from coldstream.soundness.chunks import Checked, Records, check_chunks
from coldstream.soundness.entries import count_records
from coldstream.soundness.notes import Subject

_NOTHING = np.zeros(1, "V3")[0]


def trailer_holds(trailer: Trailer, subject: Subject) -> bool:
    """Whether a trailer says what key, manifest entry and ledger say."""
    entry = subject.entry
    try:
        check_against_key(trailer, subject.key, entry.size)
    except CorruptDataError:
        return False
    return (
        min(trailer.records, MAX_RECORDS) == entry.records
        and trailer.min_timestamp == entry.min_timestamp
        and trailer.max_timestamp == entry.max_timestamp
        and subject.floor in (None, trailer.floor)
    )


def chunks_hold(checked: Checked) -> bool:
    """Whether chunks that agree with index and CRC hold in everything else, too.

    That is what `reader.check` leaves to others: the number of records that the entries hold,
    inflated where they are compressed, the filter's size, tracking data, and reserved bytes.
    """
    headers = checked.headers
    if checked.error is not None:
        return False
    if not len(headers):
        return True
    bloom = headers["bloom_size"].astype(np.int64)
    if ((bloom > 0) & (bloom < MIN_BLOOM_SIZE)).any() or (headers["reserved"] != _NOTHING).any():
        return False
    begins = np.array(checked.bounds[:-1], np.int64) + CHUNK_HEADER_SIZE + bloom
    ends = begins + headers["data_size"]
    entries = headers["entries"].astype(np.int64)
    records = headers["records"].tolist()
    if count_records(checked.data, begins, ends, entries) != records:
        return False
    tracked = (headers["chunk_type"] != ChunkType.USER) | (headers["trailer_size"] > 0)
    try:
        for number in np.flatnonzero(tracked).tolist():
            for chunk in checked.part(number, number):
                parse_tracking(chunk)
    except CorruptDataError:
        return False
    return True


def holds(data: memoryview, subject: Subject) -> Trailer | None:
    """The trailer of a fragment of which all bytes hold; None if something is wrong with it.

    Args:
        data: the whole object.
        subject: what it should be.
    """
    if len(data) != subject.entry.size or bytes(data[: len(HEADER)]) != HEADER:
        return None
    try:
        trailer = parse_trailer(data)
        at = trailer.index_position
        section = data[at : at + trailer.index_size]
        index = FragmentIndex(section, trailer)
    except CorruptDataError:
        return None
    if not trailer_holds(trailer, subject):
        return None
    records = Records.of(section, index)
    checked = check_chunks(data[len(HEADER) : at], records, 0, trailer.chunks - 1)
    if checked.crc != trailer.data_crc or not chunks_hold(checked):
        return None
    return trailer
