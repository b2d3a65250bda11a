"""What was erased of a stream: all its erasure records together."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from coldstream.errors import CorruptDataError, InvalidInputError, UnknownVersionError
from coldstream.manifest.erasure import MAX_RECORD_SIZE, ErasureRecord, parse_erasure
from coldstream.names import (
    ErasureKey,
    erasure_path,
    erasure_prefix,
    metadata_prefix,
    parse_metadata_key,
)
from coldstream.osiris.blank import Erased
from coldstream.ports import ObjectStore
from coldstream.remote.listing import pages

#: Records of one stream; more than that many requests of people nobody has answered.
MAX_RECORDS = 10_000
#: With so many no other is written: one too many would stop all that reads them, and several may be
#: written at once.
FULL = 9_900


class Tier(Protocol):
    """What it takes to look; a `Context` is one."""

    @property
    def store(self) -> ObjectStore:
        """The bucket."""
        ...

    @property
    def prefix(self) -> str:
        """Of all keys."""
        ...


def erased_of(tier: Tier, stream: str) -> Erased:
    """The messages that were erased of a stream, or are about to be; one LIST if there are none.

    Raises:
        CorruptDataError: a record is damaged: then nobody knows what was erased.
        NotFoundError: a record went meanwhile: the stream is being deleted.
        UnavailableError, PermissionDeniedError: from the store.
    """
    rows: list[tuple[int, int, int]] = []
    for number, key in enumerate(_keys(tier, stream), 1):
        if number > MAX_RECORDS:
            raise CorruptDataError(f"more than {MAX_RECORDS} erasure records", stream=stream)
        rows += _read(tier.store, stream, key).erased.rows
    return Erased.of(rows)


def _keys(tier: Tier, stream: str) -> Iterator[str]:
    begin = erasure_prefix(tier.prefix, stream)
    # From just before the first record: what a LIST below a part of a name gives is not the same
    # in all stores.
    under = metadata_prefix(tier.prefix, stream)
    for page in pages(tier.store, under, after=begin[:-1]):
        for row in page:
            if not row.key.startswith(begin):
                if row.key > begin:
                    return
                continue
            try:
                if isinstance(parse_metadata_key(row.key, tier.prefix), ErasureKey):
                    yield row.key
            except InvalidInputError:
                continue  # a bucket may hold anything


def _read(store: ObjectStore, stream: str, key: str) -> ErasureRecord:
    try:
        return parse_erasure(store.get_all(key, limit=MAX_RECORD_SIZE))
    except (CorruptDataError, UnknownVersionError) as exc:
        exc.located(stream=stream, key=key)
        raise


def put_erasure(
    tier: Tier, stream: str, record: ErasureRecord, *, new_uid: Callable[[], int]
) -> str:
    """PUT a record; its key.

    Raises:
        As `check_erasure`, and UnknownOutcomeError: from the store.
    """
    data = check_erasure(tier, stream, record)
    uid = new_uid()
    key = erasure_path(tier.prefix, stream, record.created_ms, uid)
    tier.store.put(key, data, write_id=f"{uid:016x}-{zlib.crc32(data):08x}")
    return key


def check_erasure(tier: Tier, stream: str, record: ErasureRecord) -> bytes:
    """The bytes of a record that may be PUT.

    Raises:
        InvalidInputError: it says too much, or nothing, or there are too many of them.
        UnavailableError, PermissionDeniedError: from the store.
    """
    there = sum(1 for _ in _keys(tier, stream))
    if there >= FULL:
        raise InvalidInputError(
            f"the stream has {there} erasure records, and no more can be read: nothing was erased",
            stream=stream,
        )
    return record.encode()
