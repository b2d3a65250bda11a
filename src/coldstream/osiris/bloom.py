"""Filter section of a chunk: which filter values its publishers gave to the messages in it.

A Bloom filter of 16 to 255 bytes, one size for all chunks of a stream; empty if no message of the
chunk has a filter value. Bit 0, the top bit of the first byte, says that there are messages without
one. Every value sets two bits of the others, with Erlang's portable hash of the value and of the
list that has only the value:

    phash2(Value, Bits - 1) + 1     and     phash2([Value], Bits - 1) + 1

`phash2` of a binary is Bob Jenkins' "lookup2" over its bytes. Source: Osiris' osiris_bloom.erl and
ERTS' make_hash2; checked against the filters that RabbitMQ 4.3.6 wrote (tests/data/filter-4.3.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris.chunk import Buffer

MIN_BLOOM_SIZE = 16
MAX_BLOOM_SIZE = 255

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
# Multiples of the golden ratio that ERTS uses to tell types apart, and its number for [].
_BINARY = 0x08D12E65
_NIL = 0x3C6EF372
_NIL_TYPE = 2

Bits = tuple[int, int]
_UNFILTERED: Bits = (0, 0)


def check_bloom(bloom: Buffer) -> None:
    """Check the size of a chunk's filter section.

    Raises:
        CorruptDataError: neither empty nor 16 to 255 bytes.
    """
    if len(bloom) and not MIN_BLOOM_SIZE <= len(bloom) <= MAX_BLOOM_SIZE:
        raise CorruptDataError(f"a filter of {len(bloom)} bytes")


def encode_bloom(values: Iterable[bytes], size: int = MIN_BLOOM_SIZE) -> bytes:
    """The filter section for these values; b"" stands for a message without a value.

    Raises:
        InvalidInputError: `size` is not 16 to 255 bytes.
    """
    if not MIN_BLOOM_SIZE <= size <= MAX_BLOOM_SIZE:
        raise InvalidInputError(f"a filter of {size} bytes, not {MIN_BLOOM_SIZE} to 255")
    distinct = set(values)
    if distinct <= {b""}:
        return b""
    bloom = bytearray(size)
    for value in distinct:
        for bit in _bits(value, size):
            bloom[bit >> 3] |= 0x80 >> (bit & 7)
    return bytes(bloom)


@dataclass(frozen=True, slots=True)
class FilterMatcher:
    """Tells chunks that may hold wanted messages from those that surely do not.

    A chunk that matches may still hold other messages, or only others: the reader of the messages
    has to look at each, as every RabbitMQ client does.

    Args:
        values: filter values, any of which will do. With none, every chunk matches.
        match_unfiltered: whether messages without a filter value are wanted too.
    """

    values: tuple[bytes, ...]
    match_unfiltered: bool = False
    _bits_by_size: dict[int, tuple[Bits, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def matches(self, bloom: Buffer) -> bool:
        """Whether a chunk with this filter section may hold a wanted message.

        Raises:
            CorruptDataError: no filter has this size.
        """
        check_bloom(bloom)
        if not self.values:
            return True
        size = len(bloom)
        if not size:
            # The broker takes the empty value for that of every chunk without a filter.
            return self.match_unfiltered or b"" in self.values
        wanted = self._bits_by_size.get(size)
        if wanted is None:
            wanted = tuple(_bits(value, size) for value in self.values)
            if self.match_unfiltered:
                wanted = (_UNFILTERED, *wanted)
            self._bits_by_size[size] = wanted
        return any(_is_set(bloom, one) and _is_set(bloom, other) for one, other in wanted)


def _is_set(bloom: Buffer, bit: int) -> bool:
    return bool(bloom[bit >> 3] & 0x80 >> (bit & 7))


def _bits(value: bytes, size: int) -> Bits:
    if not value:
        return _UNFILTERED
    modulus = size * 8 - 1
    of_value = _hash_bytes(value, _BINARY)
    # A list hashes its first element, then its tail, here [].
    of_list = _mix((_NIL + _NIL_TYPE) & _MASK, _NIL, of_value)[2]
    return of_value % modulus + 1, of_list % modulus + 1


def _hash_bytes(data: bytes, start: int) -> int:
    """Bob Jenkins' lookup2: three 32-bit words that take twelve bytes at a time."""
    a = b = _GOLDEN
    c = start
    position = 0
    while len(data) - position >= 12:
        a = a + int.from_bytes(data[position : position + 4], "little") & _MASK
        b = b + int.from_bytes(data[position + 4 : position + 8], "little") & _MASK
        c = c + int.from_bytes(data[position + 8 : position + 12], "little") & _MASK
        a, b, c = _mix(a, b, c)
        position += 12
    rest = data[position:]
    a = a + int.from_bytes(rest[:4], "little") & _MASK
    b = b + int.from_bytes(rest[4:8], "little") & _MASK
    # The lowest byte of the last word belongs to the length.
    c = c + len(data) + (int.from_bytes(rest[8:], "little") << 8) & _MASK
    return _mix(a, b, c)[2]


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for first, second, third in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & _MASK) ^ c >> first
        b = (b - c - a & _MASK) ^ a << second & _MASK
        c = (c - a - b & _MASK) ^ b >> third
    return a, b, c
