"""What a rebuild reads of fragments: trailers, and the data of those that are contested."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError, NotFoundError, RefusedFragmentError
from coldstream.fragment import (
    HEADER,
    check_against_key,
)
from coldstream.osiris.blank import Erased, all_blank
from coldstream.plans.resolve import Listed, Verified
from coldstream.remote.context import Context
from coldstream.remote.erasures import erased_of
from coldstream.remote.trailers import listed_trailers, read_index

#: Bytes of one fragment's data that are held at once.
_PART_BYTES = 8 * 2**20


def floors(context: Context, listed: Sequence[Listed]) -> dict[str, int]:
    """By key, the floors that trailers say which hold and are those of their objects.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    found: dict[str, int] = {}
    for each, trailer in zip(listed, listed_trailers(context, listed), strict=True):
        if isinstance(trailer, RefusedFragmentError):
            continue
        try:
            check_against_key(trailer, each.data_key, each.size)
        except CorruptDataError:
            continue
        found[each.path] = trailer.floor
    return found


def sound(context: Context, fragments: Sequence[Verified]) -> list[bool]:
    """Whether all data and all index records of fragments are what their trailers say.

    One that still has what was erased is not sound either: another one is better. They are read one
    after the other, in parts, so that one part is held at a time; one with erased offsets as a
    whole.

    Raises:
        CorruptDataError: an erasure record is damaged.
        UnavailableError, PermissionDeniedError: from the store.
    """
    streams = {each.listed.data_key.stream for each in fragments}
    erased = {stream: erased_of(context, stream) for stream in streams}
    return [_is_sound(context, each, erased[each.listed.data_key.stream]) for each in fragments]


def _is_sound(context: Context, each: Verified, erased: Erased) -> bool:
    path, trailer = each.listed.path, each.trailer
    concerned = erased.overlaps(trailer.first_offset, trailer.next_offset)
    try:
        if bytes(context.store.get(path, 0, len(HEADER))) != HEADER:
            return False
        crc, at = 0, len(HEADER)
        while at < trailer.index_position:
            end = min(at + _PART_BYTES, trailer.index_position)
            crc = crc32(context.store.get(path, at, end), crc)
            at = end
        if crc != trailer.data_crc:
            return False
        read_index(context.store, path, trailer)
        if concerned:
            data = context.store.get(path, len(HEADER), trailer.index_position)
            return all_blank(data, erased)
    except (CorruptDataError, NotFoundError):
        return False
    return True
