"""Chunks of every kind of message, from a seed: what decoders are tested and fuzzed with.

Messages are mostly well-formed AMQP 1.0 with all sections and value types; some have bytes changed,
some are no AMQP at all. Chunks mix simple entries and sub-batches of every codec; their CRCs are
right, so whatever is wrong inside has to be found by the decoder.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from coldstream.osiris.chunk import ChunkHeader, ChunkType, iter_chunks
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch
from coldstream.osiris.headers import CHUNK_DTYPE
from coldstream.osiris.tracking import Tracked, TrackingType, encode_tracked

_TEXTS = ("", "a", "orders", "größe", "日本", "😀", "x" * 300, 'quote"\\', "line\nbreak", "\u0000")
_BYTES = (b"", b"abc", b"\xff\xfe", bytes(range(256)), b"\x00" * 20)


def text(rng: random.Random, symbol: bool = False) -> bytes:
    """A string, or a symbol, in either width."""
    value = rng.choice(_TEXTS[:3] if symbol else _TEXTS).encode()
    if len(value) < 256 and rng.random() < 0.8:
        return bytes((0xA3 if symbol else 0xA1, len(value))) + value
    return bytes((0xB3 if symbol else 0xB1,)) + struct.pack(">I", len(value)) + value


def binary(rng: random.Random) -> bytes:
    """A binary, in either width."""
    value = rng.choice(_BYTES)
    if len(value) < 256 and rng.random() < 0.8:
        return bytes((0xA0, len(value))) + value
    return b"\xb0" + struct.pack(">I", len(value)) + value


def integer(rng: random.Random) -> bytes:
    """An integer of any width and sign."""
    code, size = rng.choice(
        [(0x43, 0), (0x44, 0), (0x50, 1), (0x51, 1), (0x52, 1), (0x53, 1), (0x54, 1), (0x55, 1),
         (0x60, 2), (0x61, 2), (0x70, 4), (0x71, 4), (0x80, 8), (0x81, 8)]
    )  # fmt: skip
    value = rng.choice([bytes(size), b"\xff" * size, b"\x80" + bytes(7), rng.randbytes(8)])
    return bytes((code,)) + value[:size].ljust(size, b"\x01")


def uuid(rng: random.Random) -> bytes:
    """A UUID."""
    return b"\x98" + rng.randbytes(16)


def time(rng: random.Random) -> bytes:
    """A timestamp: sensible, or at the ends of what 64 bits hold."""
    value = rng.choice([1_795_227_161_842, 0, -1, 2**63 - 1, -(2**63), rng.getrandbits(62)])
    return b"\x83" + struct.pack(">q", value)


def boolean(rng: random.Random) -> bytes:
    """A boolean, in each of its forms."""
    return rng.choice([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])


def null(_: random.Random) -> bytes:
    """Null."""
    return b"\x40"


def rare(rng: random.Random) -> bytes:
    """A value of a rare type: floats, decimals, a character, or composed of others."""
    return rng.choice(
        [
            b"\x72" + struct.pack(">f", rng.choice([1.5, float("nan"), 3e38])),
            b"\x82" + struct.pack(">d", rng.choice([0.1, 1e22, -0.0, float("inf"), 5.0])),
            b"\x74" + rng.randbytes(4),
            b"\x94" + rng.randbytes(16),
            b"\x73\x00\x00\x00\x41",
            b"\x45",
            _list([integer(rng), text(rng)]),
            _map([(text(rng), integer(rng))]),
            b"\x00" + text(rng, symbol=True) + integer(rng),
            b"\xe0\x06\x02\xa1\x01a\x01b",
        ]
    )


def _framed(short: int, count: int, content: bytes, wide: bool = False) -> bytes:
    if wide or len(content) > 250 or count > 255:
        return bytes((short | 0x10,)) + struct.pack(">II", len(content) + 4, count) + content
    return bytes((short, len(content) + 1, count)) + content


def _list(values: Sequence[bytes], wide: bool = False) -> bytes:
    return _framed(0xC0, len(values), b"".join(values), wide)


def _map(pairs: Sequence[tuple[bytes, bytes]], wide: bool = False) -> bytes:
    return _framed(0xC1, 2 * len(pairs), b"".join(k + v for k, v in pairs), wide)


def _any(rng: random.Random) -> bytes:
    simple = (text, integer, boolean, null, time, uuid)
    if rng.random() < 0.06:
        return rng.choice((rare, binary))(rng)
    return rng.choice(simple)(rng)


def _section(code: int, value: bytes, rng: random.Random) -> bytes:
    form = rng.random()
    if form < 0.02:
        return b"\x00\x80" + struct.pack(">Q", code) + value
    return b"\x00\x53" + bytes((code,)) + value


def _fields(rng: random.Random, makers: Sequence[Callable[[random.Random], bytes]]) -> bytes:
    wanted = rng.randint(0, len(makers))
    if not wanted and rng.random() < 0.5:
        return b"\x45"
    values = [null(rng) if rng.random() < 0.3 else maker(rng) for maker in makers[:wanted]]
    return _list(values, wide=rng.random() < 0.1)


def _identifier(rng: random.Random) -> bytes:
    return rng.choice((integer, uuid, binary, text))(rng)


def _symbol(rng: random.Random) -> bytes:
    return text(rng, symbol=True)


_PROPERTIES = (
    _identifier, binary, text, text, text, _identifier, _symbol, _symbol, time, time, text, integer,
    text,
)  # fmt: skip
_HEADER = (boolean, integer, integer, boolean, integer)


def _entries(
    rng: random.Random, key: Callable[[random.Random, int], bytes]
) -> list[tuple[bytes, bytes]]:
    count = rng.choice([0, 1, 2, 4, 8]) if rng.random() < 0.98 else rng.randint(60, 70)
    return [(key(rng, n), _any(rng)) for n in range(count)]


def _named(rng: random.Random, number: int) -> bytes:
    name = b"k%d" % (number if rng.random() < 0.98 else 0)
    return bytes((0xA1, len(name))) + name


def _annotation(rng: random.Random, number: int) -> bytes:
    if rng.random() < 0.2:
        return b"\x53" + bytes((number if rng.random() < 0.9 else 0,))
    name = b"x-opt-%d" % number
    return bytes((0xA3, len(name))) + name


def well_formed(rng: random.Random) -> bytes:
    """A message as a client would send it, with any of the sections."""
    parts = []
    if rng.random() < 0.3:
        parts.append(_section(0x70, _fields(rng, _HEADER), rng))
    if rng.random() < 0.05:
        parts.append(_section(0x71, _map(_entries(rng, _annotation)), rng))
    if rng.random() < 0.4:
        parts.append(_section(0x72, _map(_entries(rng, _annotation), rng.random() < 0.2), rng))
    if rng.random() < 0.6:
        parts.append(_section(0x73, _fields(rng, _PROPERTIES), rng))
    if rng.random() < 0.6:
        parts.append(_section(0x74, _map(_entries(rng, _named), rng.random() < 0.2), rng))
    body = rng.random()
    if body < 0.8:
        parts += [_section(0x75, binary(rng), rng) for _ in range(rng.choice([1, 1, 1, 1, 3]))]
    elif body < 0.9:
        parts.append(_section(0x77, rng.choice([text, binary, _any])(rng), rng))
    elif body < 0.95:
        parts.append(_section(0x76, _list([_any(rng), _any(rng)]), rng))
    if rng.random() < 0.05:
        parts.append(_section(0x78, _map(_entries(rng, _annotation)), rng))
    return b"".join(parts) or _section(0x75, b"\xa0\x00", rng)


def any_message(rng: random.Random, *, damage: float = 0.1) -> bytes:
    """A message; with this probability one with bytes changed, cut, doubled, or no message."""
    wire = bytearray(well_formed(rng))
    if rng.random() >= damage:
        return bytes(wire)
    kind = rng.random()
    if kind < 0.5:
        for _ in range(rng.choice([1, 1, 2, 5])):
            wire[rng.randrange(len(wire))] = rng.choice(
                [0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8)]
            )
    elif kind < 0.7:
        del wire[rng.randrange(len(wire)) :]
    elif kind < 0.9:
        at = rng.randrange(len(wire))
        wire[at:at] = wire[at : at + rng.randint(1, 9)]
    else:
        return plain_bytes(rng)
    return bytes(wire)


def plain_bytes(rng: random.Random) -> bytes:
    """What a publisher may send instead of AMQP 1.0; some of it begins as a section does."""
    begin = rng.choice(
        [b"", b'{"a": ', b"\x00", b"\x00\x53", b"\x00\x53\x75", b"\x00\x80" + bytes(7)]
    )
    return begin + rng.randbytes(rng.choice([0, 1, 2, 3, 4, 40]))


def cut_values(rng: random.Random) -> Iterator[bytes]:
    """Messages that end in a value of each type, cut at each of its bytes, whatever holds it.

    Lists and maps have the size of what is left, so only the value's own length can tell.
    """
    simple = [null, boolean, integer, time, uuid, text, binary, _symbol, rare]
    values = {value[0]: value for _ in range(200) for value in (make(rng) for make in simple)}
    key = b"\xa1\x01k"
    for value in values.values():
        for size in range(min(len(value), 40) + 1):
            cut = value[:size]
            for wide in (False, True):
                yield _section(0x70, _framed(0xC0, 1, cut, wide), rng)
                yield _section(0x73, _framed(0xC0, 1, cut, wide), rng)
                yield _section(0x72, _framed(0xC1, 2, cut, wide), rng)
                yield _section(0x74, _framed(0xC1, 2, key + cut, wide), rng)
            yield _section(0x75, cut, rng)
            yield _section(0x77, cut, rng)


def any_chunk(rng: random.Random, chunk_id: int, *, damage: float = 0.1) -> bytes:
    """A user chunk, or a tracking chunk; with this probability one whose entries are damaged."""
    if rng.random() < 0.05:
        tracked = encode_tracked(Tracked(TrackingType.OFFSET, b"consumer", rng.getrandbits(40)))
        return _chunk(rng, chunk_id, [encode_simple(tracked)], 1, ChunkType.TRACKING_DELTA)
    entries: list[bytes] = []
    records = 0
    for _ in range(rng.choice([1, 2, 5, 20])):
        if rng.random() < 0.75:
            entries.append(encode_simple(any_message(rng)))
            records += 1
        else:
            messages = [any_message(rng) for _ in range(rng.choice([1, 2, 7, 30]))]
            entries.append(encode_sub_batch(messages, rng.choice(list(Codec))))
            records += len(messages)
    if rng.random() < damage:
        kind = rng.random()
        if kind < 0.3:
            records = max(records + rng.choice([-1, 1, 3]), len(entries))
        elif kind < 0.6:
            # Cut by little: a check that is off by one reads beyond the end.
            entries[-1] = entries[-1][: -rng.randint(1, 5)]
        else:
            at = rng.randrange(len(entries))
            broken = bytearray(entries[at])
            broken[rng.randrange(min(len(broken), 40))] ^= 1 << rng.randrange(8)
            entries[at] = bytes(broken[: rng.choice([len(broken), rng.randint(1, len(broken))])])
    return _chunk(rng, chunk_id, entries, records, ChunkType.USER)


def _chunk(
    rng: random.Random, chunk_id: int, entries: list[bytes], records: int, kind: ChunkType
) -> bytes:
    data = b"".join(entries)
    bloom = rng.choice([b"", rng.randbytes(16)])
    trailer = b""
    if kind is ChunkType.USER and rng.random() < 0.3:
        names = rng.sample([b"pub-1", b"pub-2", "größe".encode(), b"\xff"], rng.randint(1, 3))
        trailer = b"".join(
            encode_tracked(Tracked(TrackingType.SEQUENCE, name, rng.getrandbits(64)))
            for name in names
        )
    header = ChunkHeader(
        kind, len(entries), records, rng.choice([1_795_227_161_842, -5, 2**62]) + chunk_id,
        rng.randint(1, 3), chunk_id, zlib.crc32(data), len(data), len(trailer), len(bloom),
    )  # fmt: skip
    return b"".join((header.encode(), bloom, data, trailer))


def any_chunks(rng: random.Random, count: int, *, first: int = 0) -> bytes:
    """Chunks back to back, each one's id the next offset of the one before."""
    found = []
    for _ in range(count):
        chunk = any_chunk(rng, first)
        found.append(chunk)
        first += next(iter_chunks(chunk)).header.records
    return b"".join(found)


def headers_and_bounds(data: bytes) -> tuple[NDArray[np.void], list[int]]:
    """Whole chunks as `Decoder.decode` wants them."""
    chunks = list(iter_chunks(data))
    raw = b"".join(bytes(chunk.buffer[:48]) for chunk in chunks)
    bounds = [0]
    for chunk in chunks:
        bounds.append(bounds[-1] + len(chunk.buffer))
    return np.frombuffer(raw, CHUNK_DTYPE), bounds
