"""What a rebuild reads of fragments: trailers, and the data of those that are contested."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError, NotFoundError, RefusedFragmentError
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    Trailer,
    check_against_key,
    parse_trailer,
)
from coldstream.plans.resolve import Listed, Verified
from coldstream.usecases.load import World

_TRAILERS_AT_ONCE = 16
#: Bytes of one fragment's data that are held at once.
_PART_BYTES = 8 * 2**20


def trailers(world: World, listed: Sequence[Listed]) -> list[Trailer | RefusedFragmentError]:
    """The trailers of fragments, in their order; an error for each that has none that holds.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """

    def read(each: Listed) -> Trailer | RefusedFragmentError:
        try:
            return parse_trailer(world.store.get_suffix(each.path, TRAILER_SIZE))
        except (CorruptDataError, NotFoundError) as exc:
            return RefusedFragmentError(
                f"fragment refused: {exc.reason}",
                stream=each.data_key.stream,
                offset=each.data_key.first_offset,
                key=each.path,
            )

    if len(listed) < 2:
        return [read(each) for each in listed]
    with world.pool(min(_TRAILERS_AT_ONCE, len(listed))) as pool:
        return list(pool.map(read, listed))


def floors(world: World, listed: Sequence[Listed]) -> dict[str, int]:
    """By key, the floors that trailers say which hold and are those of their objects.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    found: dict[str, int] = {}
    for each, trailer in zip(listed, trailers(world, listed), strict=True):
        if isinstance(trailer, RefusedFragmentError):
            continue
        try:
            check_against_key(trailer, each.data_key, each.size)
        except CorruptDataError:
            continue
        found[each.path] = trailer.floor
    return found


def sound(world: World, fragments: Sequence[Verified]) -> list[bool]:
    """Whether all data and all index records of fragments are what their trailers say.

    They are read one after the other, in parts, so that one part is held at a time.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    return [_is_sound(world, each) for each in fragments]


def _is_sound(world: World, each: Verified) -> bool:
    path, trailer = each.listed.path, each.trailer
    try:
        if bytes(world.store.get(path, 0, len(HEADER))) != HEADER:
            return False
        crc, at = 0, len(HEADER)
        while at < trailer.index_position:
            end = min(at + _PART_BYTES, trailer.index_position)
            crc = crc32(world.store.get(path, at, end), crc)
            at = end
        if crc != trailer.data_crc:
            return False
        begin = trailer.index_position
        FragmentIndex(world.store.get(path, begin, begin + trailer.index_size), trailer)
    except (CorruptDataError, NotFoundError):
        return False
    return True
