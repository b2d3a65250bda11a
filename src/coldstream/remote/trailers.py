"""Read what lies behind a fragment's data: trailer and index; and the epoch of one of its chunks.

A trailer that is given here was read whole and its own checksum holds. Where an entry or a listed
key was given, it also says what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import (
    CorruptDataError,
    NotFoundError,
    RefusedFragmentError,
    UnknownVersionError,
)
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    Trailer,
    check_against_key,
    parse_trailer,
)
from coldstream.manifest.entries import Entry
from coldstream.names import DataKey
from coldstream.plans.resolve import Listed
from coldstream.ports import ObjectStore
from coldstream.remote.context import Context

_CONCURRENCY = 16
#: Bytes of a chunk's header up to the end of its epoch.
_EPOCH_BYTES = 24


def read_trailer(store: ObjectStore, path: str) -> Trailer:
    """The trailer of the object under `path`: one GET of its last bytes.

    Raises:
        NotFoundError: the object is gone.
        CorruptDataError: it does not end in a trailer that holds.
    """
    try:
        return parse_trailer(store.get_suffix(path, TRAILER_SIZE))
    except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
        exc.located(key=path)
        raise


def trailer_of(store: ObjectStore, prefix: str, stream: str, entry: Entry) -> Trailer:
    """The trailer of the fragment that a manifest's entry names; it says what the entry says.

    Raises:
        NotFoundError, CorruptDataError: with stream, offset and key.
    """
    key = entry.data_key(stream)
    return _checked(store, key, key.path(prefix), entry.size)


def trailer_of_listed(store: ObjectStore, listed: Listed) -> Trailer:
    """The trailer of a fragment that LIST has shown; it says what key and size say.

    Raises:
        NotFoundError, CorruptDataError: with stream, offset and key.
    """
    return _checked(store, listed.data_key, listed.path, listed.size)


def _checked(store: ObjectStore, key: DataKey, path: str, size: int) -> Trailer:
    try:
        trailer = read_trailer(store, path)
        check_against_key(trailer, key, size)
    except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
        exc.located(stream=key.stream, offset=key.first_offset, key=path)
        raise
    return trailer


def read_index(store: ObjectStore, path: str, trailer: Trailer) -> FragmentIndex:
    """The index of a fragment, checked against its trailer: one GET.

    Raises:
        NotFoundError: the object is gone.
        CorruptDataError: the index is damaged.
    """
    begin = trailer.index_position
    try:
        return FragmentIndex(store.get(path, begin, begin + trailer.index_size), trailer)
    except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
        exc.located(offset=trailer.first_offset, key=path)
        raise


def epoch_at(store: ObjectStore, path: str, index: FragmentIndex, number: int) -> int:
    """Epoch of the chunk at an index: from the trailer where that says it, else one small GET.

    Raises:
        NotFoundError: the object is gone.
        CorruptDataError: the chunk has an epoch that the trailer excludes.
    """
    lowest, highest = index.trailer.first_chunk_epoch, index.trailer.last_chunk_epoch
    if lowest == highest or number + 1 == len(index):
        return highest
    start = len(HEADER) + index[number].position
    try:
        epoch = _chunk_epoch(bytes(store.get(path, start, start + _EPOCH_BYTES)))
        if not lowest <= epoch <= highest:
            raise CorruptDataError(f"a chunk of epoch {epoch}, which its trailer excludes")
    except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
        exc.located(offset=index[number].chunk_id, key=path)
        raise
    return epoch


def listed_trailers(
    context: Context, listed: Sequence[Listed], *, pass_later: bool = False
) -> list[Trailer | RefusedFragmentError]:
    """The trailers of fragments in their order, several at once; an error for each without one.

    A trailer need not say what the key says: what may enter a manifest is for the plan to decide.

    Args:
        context: where.
        listed: as LIST has shown them.
        pass_later: whether one of a later version has an error of its own, as what is damaged has.

    Raises:
        UnknownVersionError: one is of a later version, and `pass_later` is false.
        UnavailableError, PermissionDeniedError: from the store.
    """

    def read(each: Listed) -> Trailer | RefusedFragmentError:
        try:
            return read_trailer(context.store, each.path)
        except NotFoundError:
            return refusal(each, "it vanished after it was listed")
        except CorruptDataError as exc:
            return refusal(each, exc.reason)
        except UnknownVersionError as exc:
            if not pass_later:
                exc.located(stream=each.data_key.stream, offset=each.data_key.first_offset)
                raise
            return refusal(each, exc.reason, remedy=exc.remedy)

    if len(listed) < 2:
        return [read(each) for each in listed]
    with context.pool(min(_CONCURRENCY, len(listed))) as pool:
        return list(pool.map(read, listed))


def refusal(each: Listed, why: str, *, remedy: str | None = None) -> RefusedFragmentError:
    """Why a fragment must not enter the manifest."""
    return RefusedFragmentError(
        f"fragment refused: {why}",
        stream=each.data_key.stream,
        offset=each.data_key.first_offset,
        key=each.path,
        remedy=remedy,
    )


def _chunk_epoch(header: bytes) -> int:
    """The epoch in the first 24 bytes of a chunk (`osiris.chunk` has it all).

    Here, because the Lambdas carry no numpy and need nothing else of a chunk.

    Raises:
        CorruptDataError: no chunk begins here.
    """
    if len(header) < _EPOCH_BYTES or header[0] != 0x50:
        raise CorruptDataError("no chunk begins here")
    return int.from_bytes(header[16:24], "big")
