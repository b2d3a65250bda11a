"""The fixed-width entries of a manifest node, looked at in the bytes that they came in.

    0        8       16        24        32     33          40        44      48       56
    ┌────────┬────────┬─────────┬─────────┬──────┬───────────┬─────────┬───────┬────────┐
    │ first  │ next   │ min ts  │ max ts  │ kind │ size      │ records │ epoch │ uid    │
    │ u64    │ u64    │ i64 ms  │ i64 ms  │ u8   │ u56 bytes │ u32     │ u32   │ u64    │
    └────────┴────────┴─────────┴─────────┴──────┴───────────┴─────────┴───────┴────────┘

Look-ups are binary searches that unpack only the entries they touch. `array` gives the same bytes
to numpy, without a copy, for work over all entries; only then numpy is imported, because the commit
Lambda does not carry it (docs/decisions/0002).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, starmap
from typing import TYPE_CHECKING

from coldstream.errors import CorruptDataError, InternalError
from coldstream.names import MAX_OFFSET, DataKey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ENTRY = struct.Struct(
    ">"
    "Q"  # first offset
    "Q"  # next offset
    "q"  # minimum timestamp, ms
    "q"  # maximum timestamp, ms
    "Q"  # kind (8 bits), size in bytes (56 bits)
    "I"  # records, or children of a group
    "I"  # epoch
    "Q"  # uid
)
ENTRY_SIZE = _ENTRY.size
MAX_SIZE = 2**56 - 1
MAX_RECORDS = 2**32 - 1


class EntryKind(IntEnum):
    """What an entry stands for."""

    FRAGMENT = 0
    GROUP = 1
    KILO_GROUP = 2
    MEGA_GROUP = 3
    HOLE = 4

    @property
    def level(self) -> int:
        """0 for data (a fragment or a hole), 1 for a group, 2 and 3 for the groups above."""
        return _LEVELS[self]


_LEVELS = tuple(0 if kind is EntryKind.HOLE else int(kind) for kind in EntryKind)


@dataclass(frozen=True, slots=True)
class Entry:
    """One child of a node.

    Attributes:
        first_offset: first offset below it.
        next_offset: one past the last.
        min_timestamp: smallest chunk timestamp below it, ms.
        max_timestamp: greatest chunk timestamp below it, ms.
        kind: fragment, group of some level, or hole.
        size: bytes of the object; of all fragments below, for a group.
        records: records of a fragment, capped at 2**32 - 1; fragments and holes below a group.
        epoch: epoch in the object's key; the highest below a group.
        uid: uid in the object's key.
    """

    first_offset: int
    next_offset: int
    min_timestamp: int
    max_timestamp: int
    kind: EntryKind
    size: int
    records: int
    epoch: int
    uid: int

    @property
    def fragments(self) -> int:
        """Fragments and holes that it stands for: one, or all below a group."""
        return self.records if self.kind.level else 1

    def data_key(self, stream: str) -> DataKey:
        """The key of the fragment or hole that this entry stands for."""
        if self.kind not in (EntryKind.FRAGMENT, EntryKind.HOLE):
            raise InternalError(f"a {self.kind.name} is not a data object", stream=stream)
        return DataKey(
            stream=stream,
            first_offset=self.first_offset,
            next_offset=self.next_offset,
            epoch=self.epoch,
            uid=self.uid,
            kind="hole" if self.kind is EntryKind.HOLE else "fragment",
        )

    def encode(self) -> bytes:
        """The entry's 56 bytes.

        Raises:
            InternalError: the size does not fit; it would turn into another kind.
        """
        if not 0 <= self.size <= MAX_SIZE:
            raise InternalError(f"an entry of {self.size} bytes", offset=self.first_offset)
        return _ENTRY.pack(
            self.first_offset,
            self.next_offset,
            self.min_timestamp,
            self.max_timestamp,
            self.kind << 56 | self.size,
            min(self.records, MAX_RECORDS),
            self.epoch,
            self.uid,
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """What all entries of a sequence are together.

    Attributes:
        min_timestamp: smallest of all, ms; 0 if there are no entries.
        max_timestamp: greatest of all, ms; 0 if there are no entries.
        size: bytes of all.
        fragments: fragments and holes that they stand for.
        epoch: highest of all, 0 if there are no entries.
        levels: which levels occur.
    """

    min_timestamp: int
    max_timestamp: int
    size: int
    fragments: int
    epoch: int
    levels: frozenset[int]


_KINDS = tuple(EntryKind)


def _entry(first: int, next_offset: int, low: int, high: int, kind_size: int, *rest: int) -> Entry:
    """The value of one entry's fields as they are packed."""
    kind = _KINDS[kind_size >> 56]
    return Entry(first, next_offset, low, high, kind, kind_size & MAX_SIZE, *rest)


class Entries:
    """An immutable sequence of entries that tile [first, next) without gap or overlap.

    Args:
        data: a whole number of 56-byte entries.

    Raises:
        CorruptDataError: an entry is cut, of an unknown kind, empty, or does not join the next.
    """

    __slots__ = ("_data", "_length", "_maxima", "_summary")

    def __init__(self, data: bytes = b"") -> None:
        self._length, rest = divmod(len(data), ENTRY_SIZE)
        if rest:
            raise CorruptDataError("the last manifest entry is cut")
        self._data = data
        self._maxima: array[int] | None = None
        self._summary: Summary | None = None
        self._check()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Entries:
        """Entries from values."""
        return cls(b"".join(entry.encode() for entry in entries))

    def _check(self) -> None:
        joint: int | None = None
        for first, next_offset, low, high, kind_size, *_ in _ENTRY.iter_unpack(self._data):
            if not first < next_offset <= MAX_OFFSET or low > high:
                raise CorruptDataError("a manifest entry that is no range", offset=first)
            if kind_size >> 56 > EntryKind.HOLE:
                raise CorruptDataError("a manifest entry of an unknown kind", offset=first)
            if joint is not None and first != joint:
                raise CorruptDataError(
                    f"manifest entries leave a gap or overlap: {joint} is followed by {first}",
                    offset=joint,
                )
            joint = next_offset

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Entry:
        if number < 0:
            number += self._length
        if not 0 <= number < self._length:
            raise IndexError(number)
        return _entry(*_ENTRY.unpack_from(self._data, number * ENTRY_SIZE))

    def __iter__(self) -> Iterator[Entry]:
        return starmap(_entry, _ENTRY.iter_unpack(self._data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entries) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return f"Entries({list(self)!r})"

    def __bytes__(self) -> bytes:
        return self._data

    def appended(self, more: Iterable[Entry]) -> Entries:
        """These entries and then `more`.

        Raises:
            CorruptDataError: they do not join.
        """
        return Entries(self._data + b"".join(entry.encode() for entry in more))

    def part(self, start: int, end: int | None = None) -> Entries:
        """Entries number `start` to `end` (not included), as a sequence of their own."""
        end = self._length if end is None else end
        return Entries(self._data[start * ENTRY_SIZE : end * ENTRY_SIZE])

    def number_of_offset(self, offset: int) -> int | None:
        """Number of the entry that contains `offset`, None if it lies outside all."""
        low, high = 0, self._length
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(self._data, middle * ENTRY_SIZE)[0] <= offset:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        next_offset = _ENTRY.unpack_from(self._data, (low - 1) * ENTRY_SIZE)[1]
        return low - 1 if offset < next_offset else None

    def number_of_timestamp(self, timestamp: int) -> int | None:
        """Number of the first entry that has a chunk at or after `timestamp`, None if none has.

        Clocks fall across fail-overs, so the maxima of the entries need not rise; but the first
        entry whose maximum reaches `timestamp` is also the first whose *running* maximum does, and
        running maxima can be searched. They are made once, at the first look-up by time.
        """
        if self._maxima is None:
            self._maxima = array(
                "q", accumulate((fields[3] for fields in _ENTRY.iter_unpack(self._data)), max)
            )
        number = bisect_left(self._maxima, timestamp)
        return number if number < self._length else None

    def levels(self) -> list[int]:
        """The level of each entry's kind, without a value for each entry."""
        return [_LEVELS[fields[4] >> 56] for fields in _ENTRY.iter_unpack(self._data)]

    def summary(self) -> Summary:
        """Extremes and sums over all entries; made once, without a value for each entry."""
        if self._summary is None:
            self._summary = self._summarised()
        return self._summary

    def _summarised(self) -> Summary:
        if not self._length:
            return Summary(0, 0, 0, 0, 0, frozenset())
        low, high = self._times(0)
        size = fragments = epoch = 0
        kinds = set()
        # One pass without columns: a root of a foreign writer may have a million entries.
        for _, _, lowest, highest, kind_size, records, its_epoch, _ in _ENTRY.iter_unpack(
            self._data
        ):
            if lowest < low:
                low = lowest
            if highest > high:
                high = highest
            if its_epoch > epoch:
                epoch = its_epoch
            kind = kind_size >> 56
            kinds.add(kind)
            size += kind_size & MAX_SIZE
            fragments += records if _LEVELS[kind] else 1
        return Summary(
            low, high, size, fragments, epoch, frozenset(_LEVELS[each] for each in kinds)
        )

    def _times(self, number: int) -> tuple[int, int]:
        """Minimum and maximum timestamp of an entry."""
        _, _, low, high, *_ = _ENTRY.unpack_from(self._data, number * ENTRY_SIZE)
        return low, high

    def array(self) -> NDArray[np.void]:
        """A numpy view of shape (entries,), without a copy; fields as in `entry_dtype`."""
        import numpy as np

        return np.frombuffer(self._data, entry_dtype())


def entry_dtype() -> np.dtype[np.void]:
    """One entry for numpy; fields as in the picture at the top of this module.

    `kind_size` holds the kind in its top 8 bits and the size in bytes in the other 56.
    """
    import numpy as np

    return np.dtype(
        [
            ("first_offset", ">u8"),
            ("next_offset", ">u8"),
            ("min_timestamp", ">i8"),
            ("max_timestamp", ">i8"),
            ("kind_size", ">u8"),
            ("records", ">u4"),
            ("epoch", ">u4"),
            ("uid", ">u8"),
        ]
    )
