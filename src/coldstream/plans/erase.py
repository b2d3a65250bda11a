"""A fragment without what was in some of its messages."""

from __future__ import annotations

from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER
from coldstream.manifest.entries import Entry
from coldstream.names import DataKey
from coldstream.osiris.blank import Erased, blank_chunk
from coldstream.osiris.chunk import iter_chunks
from coldstream.plans.assemble import FoundChunk, Fragment, fragment_of
from coldstream.plans.repair import known_of
from coldstream.soundness.fragment import sound


def blanked(
    data: memoryview, entry: Entry, key: DataKey, erased: Erased, *, floor: int | None
) -> Fragment | None:
    """The object that takes a fragment's place; None if all that is erased is blank already.

    It has the epoch, the place in the segment and the chunks of the old one. Its index and its
    trailer are made anew.

    Args:
        data: the whole object.
        entry: of the manifest.
        key: of the object.
        erased: of the stream.
        floor: of its epoch in the ledger.

    Raises:
        CorruptDataError: the fragment is damaged: what is made of it would have checksums that
            hold, and nobody could find the damage any more.
    """
    trailer = sound(data, key, floor)
    if trailer is None or floor is None:
        raise CorruptDataError(
            "the fragment is damaged: repair it first", stream=key.stream, offset=key.first_offset
        )
    changed = False
    run: list[FoundChunk] = []
    for chunk in iter_chunks(data, len(HEADER), trailer.index_position):
        blank = blank_chunk(chunk, erased)
        changed = changed or blank is not chunk
        run.append(FoundChunk(blank, "own object"))
    if not changed:
        return None
    return fragment_of(run, known_of(data, entry, key), epoch=entry.epoch, floor=floor)
