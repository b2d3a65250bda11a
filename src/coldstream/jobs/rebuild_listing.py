"""LIST and trailers of one stream, read in parallel, for use cases that ask page by page.

Keys carry zero-padded offsets, so the keys of a stream can be divided by offsets into shards, and a
worker lists each. `ListedAhead` is an object store that answers `list` of the stream's data, and
the trailers if they are wanted, out of what workers have read; everything else goes to the bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.fragment import TRAILER_SIZE, Buffer
from coldstream.names import MAX_OFFSET, data_prefix, list_start, parse_data_key
from coldstream.ports import ObjectInfo, ObjectStore

_PAGE = 1000
_TRAILERS_AT_ONCE = 16
#: Keys in a shard, about: ten LISTs.
SHARD_KEYS = 10_000
#: Shards of a stream of which nobody knows how many keys it has.
_UNKNOWN_SHARDS = 64


@dataclass(frozen=True, slots=True)
class Shard:
    """Data keys of a stream whose first offset is in [first, following)."""

    stream: str
    first: int
    following: int
    trailers: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """What a worker has read of a shard.

    Attributes:
        rows: of LIST, in order.
        trailers: last bytes of the fragments among them, by key.
    """

    rows: list[ObjectInfo]
    trailers: dict[str, bytes] = field(default_factory=dict)


_Page = list[ObjectInfo]

#: Reads shards, in any place, and gives them in their order.
Perform = Callable[[Sequence[Shard]], Iterable[Listed]]


class Lister(Protocol):
    """What a worker needs of an object store."""

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """As `ports.ObjectStore`."""
        ...

    def get_suffix(self, key: str, length: int) -> bytes:
        """As `ports.ObjectStore`."""
        ...


def read_shard(store: Lister, prefix: str, shard: Shard) -> Listed:
    """Read a shard.

    Raises:
        UnavailableError, PermissionDeniedError: the store.
    """
    rows: list[ObjectInfo] = []
    after = list_start(prefix, shard.stream, shard.first)
    end = None
    if shard.following < MAX_OFFSET:
        end = list_start(prefix, shard.stream, shard.following)
    while True:
        page = store.list(data_prefix(prefix, shard.stream), start_after=after, limit=_PAGE)
        rows += [row for row in page if end is None or row.key < end]
        if len(page) < _PAGE or (end is not None and page[-1].key >= end):
            break
        after = page[-1].key
    if not shard.trailers:
        return Listed(rows)

    def trailer(row: ObjectInfo) -> tuple[str, bytes | None]:
        try:
            return row.key, store.get_suffix(row.key, TRAILER_SIZE)
        except NotFoundError:
            return row.key, None  # whoever asks for it is told

    wanted = [row for row in rows if row.key.endswith(".fragment")]
    with ThreadPoolExecutor(_TRAILERS_AT_ONCE) as pool:
        found = {key: tail for key, tail in pool.map(trailer, wanted) if tail is not None}
    return Listed(rows, found)


def shards_of(
    store: Lister, prefix: str, stream: str, *, fragments: int | None, trailers: bool
) -> list[Shard]:
    """The shards of a stream, in order; together they are all its data keys.

    Args:
        store: the bucket.
        prefix: of all keys.
        stream: directory name.
        fragments: how many there are, about; None if nobody knows.
        trailers: whether trailers are wanted.
    """
    first, last = _extent(store, prefix, stream)
    count = _UNKNOWN_SHARDS if fragments is None else max(1, fragments // SHARD_KEYS)
    count = max(1, min(count, last - first + 1))
    borders = [first + (last + 1 - first) * number // count for number in range(count + 1)]
    borders[0], borders[-1] = 0, MAX_OFFSET
    return [Shard(stream, low, high, trailers) for low, high in pairwise(borders) if low < high]


def _extent(store: Lister, prefix: str, stream: str) -> tuple[int, int]:
    """First offsets of the first and the last data key: at most 65 LISTs of one key."""
    under = data_prefix(prefix, stream)

    def at_or_above(offset: int) -> int | None:
        for row in store.list(under, start_after=list_start(prefix, stream, offset), limit=1):
            try:
                return parse_data_key(row.key, prefix).first_offset
            except InvalidInputError:
                return None
        return None

    first = at_or_above(0)
    if first is None:
        return 0, 0
    low, high = first, MAX_OFFSET  # there is a key at or above `low`, none at or above `high`
    while low + 1 < high:
        middle = (low + high) // 2
        found = at_or_above(middle)
        if found is None:
            high = middle
        else:
            low = max(middle, found)
    return first, low


class ListedAhead:
    """An object store that knows the data keys of one stream, and their trailers, beforehand.

    Args:
        store: the bucket; answers everything else.
        prefix: of all keys.
        stream: directory name.
        fragments: see `shards_of`.
        trailers: whether trailers are read by the workers.
        perform: reads shards.
        at_once: shards that are held at once.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        stream: str,
        *,
        fragments: int | None,
        trailers: bool,
        perform: Perform,
        at_once: int = 64,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._stream = stream
        self._fragments = fragments
        self._with_trailers = trailers
        self._perform = perform
        self._at_once = at_once
        self._pages: Iterator[_Page] = iter(())
        self._after: str | None = None
        self._trailers: dict[str, bytes] = {}

    def put(self, key: str, body: Buffer, *, write_id: str) -> None:
        """As the port says."""
        self._store.put(key, body, write_id=write_id)

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As the port says."""
        return self._store.get(key, start, end)

    def get_all(self, key: str, *, limit: int) -> bytes:
        """As the port says."""
        return self._store.get_all(key, limit=limit)

    def get_suffix(self, key: str, length: int) -> bytes:
        """As the port says; a trailer that a worker has read is not read again."""
        known = self._trailers.get(key) if length == TRAILER_SIZE else None
        return known if known is not None else self._store.get_suffix(key, length)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """As the port says; pages of the stream's data in their order come from the workers."""
        if prefix != data_prefix(self._prefix, self._stream) or limit != _PAGE:
            return self._store.list(prefix, start_after=start_after, limit=limit)
        if not start_after:
            self._pages, self._after = self._read(), ""
        if start_after != self._after:
            return self._store.list(prefix, start_after=start_after, limit=limit)
        page = next(self._pages, [])
        self._after = page[-1].key if page else None
        return page

    def _read(self) -> Iterator[_Page]:
        """Full pages, and then one that is not: across the borders of shards."""
        shards = shards_of(
            self._store,
            self._prefix,
            self._stream,
            fragments=self._fragments,
            trailers=self._with_trailers,
        )
        rest: list[ObjectInfo] = []
        for at in range(0, len(shards), self._at_once):
            before, self._trailers = self._trailers, {}
            for listed in self._perform(shards[at : at + self._at_once]):
                self._trailers |= listed.trailers
                rest += listed.rows
            # What was listed before may not be decided yet.
            self._trailers |= before if len(before) < self._at_once * SHARD_KEYS * 2 else {}
            full = len(rest) - len(rest) % _PAGE
            for begin in range(0, full, _PAGE):
                yield rest[begin : begin + _PAGE]
            rest = rest[full:]
        yield rest
