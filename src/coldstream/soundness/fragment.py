"""The quick look: whether all of a fragment holds. Whatever does not is left to `diagnosis`.

All chunks of a range are looked at together, by numpy, and the bytes go by twice: once for the
CRC of each chunk and, while they are in the processor's cache, for the CRC of all.
"""

from __future__ import annotations

from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER, FragmentIndex, Trailer, parse_trailer
from coldstream.names import DataKey
from coldstream.soundness.chunks import Records, check_chunks, contents_hold
from coldstream.soundness.notes import Subject
from coldstream.soundness.trailer import differences, fits


def trailer_holds(trailer: Trailer, subject: Subject) -> bool:
    """Whether a trailer says what key, manifest entry and ledger say."""
    return not any(differences(trailer, subject.key, subject.entry, subject.floor))


def holds(data: memoryview, subject: Subject) -> Trailer | None:
    """The trailer of a fragment of which all bytes hold; None if something is wrong with it.

    Args:
        data: the whole object.
        subject: what it should be.
    """
    if len(data) != subject.entry.size:
        return None
    trailer = sound(data, subject.key, subject.floor)
    return trailer if trailer is not None and trailer_holds(trailer, subject) else None


def sound(data: memoryview, key: DataKey, floor: int | None) -> Trailer | None:
    """As `holds`, whatever the manifest's entry says of the object.

    Args:
        data: the whole object.
        key: of the object.
        floor: of its epoch in the ledger, None if the ledger does not have the epoch.
    """
    if bytes(data[: len(HEADER)]) != HEADER:
        return None
    try:
        trailer = parse_trailer(data)
        at = trailer.index_position
        section = data[at : at + trailer.index_size]
        index = FragmentIndex(section, trailer)
    except CorruptDataError:
        return None
    if trailer.size != len(data) or not fits(trailer, key, floor):
        return None
    chunks = data[len(HEADER) : at]
    records = Records.of(section, index)
    checked = check_chunks(chunks, records, 0, trailer.chunks - 1, entries=True)
    return trailer if checked.crc == trailer.data_crc and contents_hold(checked) else None
