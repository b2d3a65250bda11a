"""Whole pages of data keys, read by numpy: what `names.parse_data_key` says of each, in columns.

A petabyte has 16.8 million keys. Below the prefix of one stream every fragment's key has the same
width, so a page is a table of characters, and its numbers are sums over columns:

    <first:020d>-<next:020d>.<epoch:010d>.<uid:016x>.fragment

Keys of any other width are no fragments. Holes are few, and read one by one. numpy is needed here,
and only here and in what builds on it: no Lambda imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import InvalidInputError
from coldstream.manifest.entries import MAX_SIZE, Entry, EntryKind, entry_dtype
from coldstream.manifest.ledger import Ledger
from coldstream.names import HOLE_SUFFIX, MAX_EPOCH, MAX_OFFSET, data_prefix, parse_data_key

#: What an entry says of times that nobody has looked up: all there are. Look-ups by time then go
#: to the fragment itself, so they stay right, and age alone never retires it.
UNKNOWN_MIN_TIMESTAMP = -(2**63)
UNKNOWN_MAX_TIMESTAMP = 2**63 - 1

_TEMPLATE = "{0}-{0}.{1}.{2}.fragment".format("0" * 20, "0" * 10, "0" * 16)
_FIXED = [20, 41, 52, *range(69, len(_TEMPLATE))]  # where "-", "." and ".fragment" stand
_DECIMAL = [*range(20), *range(21, 41), *range(42, 52)]
_HEX = slice(53, 69)
_TEN = 10**10

# Ten digits at a time: their sums are exact in a float64, and floats multiply fastest.
_POWERS = np.zeros((50, 5))
for _digit in range(50):
    _POWERS[_digit, _digit // 10] = 10.0 ** (9 - _digit % 10)
_HEX_POWERS = np.zeros((16, 2))
for _digit in range(16):
    _HEX_POWERS[_digit, _digit // 8] = 16.0 ** (7 - _digit % 8)
_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[list(b"0123456789abcdef")] = range(16)


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads the fragments' keys of one stream.

    Args:
        prefix: of all keys, ends in "/".
        stream: directory name.

    Raises:
        InvalidInputError: no such prefix or stream can be.
    """

    prefix: str
    stream: str

    def entries(self, keys: Sequence[str], sizes: Sequence[int]) -> NDArray[np.void]:
        """Entries of the fragments among `keys`, in their order, with no times and no records.

        Keys of holes and of other streams, and keys that break the grammar in any way, are left
        out, as are sizes that no entry can hold.

        Args:
            keys: of one answer of LIST.
            sizes: of the objects, bytes.
        """
        begin = data_prefix(self.prefix, self.stream)
        width = len(begin) + len(_TEMPLATE)
        if any(len(key) != width or not key.isascii() for key in keys):
            right = [n for n, key in enumerate(keys) if len(key) == width and key.isascii()]
            keys, sizes = [keys[n] for n in right], [sizes[n] for n in right]
        text = np.frombuffer("".join(keys).encode("ascii"), np.uint8).reshape(-1, width)
        rows = text[:, len(begin) :]
        digits = rows[:, _DECIMAL] - np.uint8(ord("0"))  # what is below "0" wraps to above 9
        nibbles = _NIBBLES[rows[:, _HEX]]
        valid = (
            (text[:, : len(begin)] == np.frombuffer(begin.encode(), np.uint8)).all(axis=1)
            & (rows[:, _FIXED] == np.frombuffer(_TEMPLATE.encode(), np.uint8)[_FIXED]).all(axis=1)
            & (digits <= 9).all(axis=1)
            & (nibbles <= 15).all(axis=1)
        )
        halves = (digits.astype(np.float64) @ _POWERS).astype(np.uint64)
        first, first_fits = _number(halves[:, 0], halves[:, 1])
        next_offset, next_fits = _number(halves[:, 2], halves[:, 3])
        epoch = halves[:, 4]
        words = (nibbles.astype(np.float64) @ _HEX_POWERS).astype(np.uint64)
        size = np.array(sizes, np.uint64)
        valid &= first_fits & next_fits & (first < next_offset) & (epoch <= MAX_EPOCH)
        valid &= size <= MAX_SIZE
        found = np.empty(len(rows), entry_dtype())
        found["first_offset"] = first
        found["next_offset"] = next_offset
        found["min_timestamp"] = UNKNOWN_MIN_TIMESTAMP
        found["max_timestamp"] = UNKNOWN_MAX_TIMESTAMP
        found["kind_size"] = size | np.uint64(EntryKind.FRAGMENT << 56)
        found["records"] = 0
        found["epoch"] = np.where(valid, epoch, 0)
        found["uid"] = words[:, 0] << np.uint64(32) | words[:, 1]
        return found if valid.all() else found[valid]

    def holes(self, keys: Sequence[str], sizes: Sequence[int]) -> NDArray[np.void]:
        """Entries of the holes among `keys`, in their order, with unknown times.

        What breaks the grammar is left out, and so is every hole that has something in it.

        Args:
            keys: of one answer of LIST.
            sizes: of the objects, bytes.
        """
        found: list[Entry] = []
        for path, size in zip(keys, sizes, strict=True):
            if size or not path.endswith(HOLE_SUFFIX):
                continue
            try:
                key = parse_data_key(path, self.prefix)
            except InvalidInputError:
                continue
            if key.stream == self.stream:
                found.append(
                    Entry(
                        key.first_offset,
                        key.next_offset,
                        UNKNOWN_MIN_TIMESTAMP,
                        UNKNOWN_MAX_TIMESTAMP,
                        EntryKind.HOLE,
                        0,
                        0,
                        key.epoch,
                        key.uid,
                    )
                )
        return np.frombuffer(b"".join(each.encode() for each in found), entry_dtype())


def _number(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], ...]:
    """Numbers from their upper and lower ten digits, and which of them fit into 64 bits."""
    most, rest = divmod(MAX_OFFSET, _TEN)
    fits = (high < most) | ((high == most) & (low <= rest))
    return high * np.uint64(_TEN) + low, fits


def acceptable(entries: NDArray[np.void], ledger: Ledger) -> NDArray[np.void]:
    """Those of `entries` that `Ledger.accepts`, in their order."""
    epochs = entries["epoch"]
    taken = np.zeros(len(entries), bool)
    for epoch in np.unique(epochs).tolist():
        floor = ledger.floor(epoch)
        if floor is not None:
            taken |= (
                (epochs == epoch)
                & (entries["first_offset"] >= np.uint64(floor))
                & (entries["next_offset"] <= np.uint64(ledger.ceiling(epoch)))
            )
    return entries if taken.all() else entries[taken]
