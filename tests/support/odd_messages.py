"""Messages of every AMQP type in every place, and chunks of them, written by hand.

No product code here either.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence

import cramjam

#: Every primitive type in each of its encodings, and composed ones.
VALUES = [
    b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01", b"\x50\xff", b"\x51\x80",
    b"\x60\xff\xff", b"\x61\x80\x00", b"\x43", b"\x52\xff", b"\x70\xff\xff\xff\xff", b"\x54\x80",
    b"\x71\x80\x00\x00\x00", b"\x44", b"\x53\x07", b"\x80" + b"\xff" * 8, b"\x55\xff",
    b"\x81\x80" + bytes(7), b"\x72" + struct.pack(">f", 1.5), b"\x82" + struct.pack(">d", -0.1),
    b"\x82" + struct.pack(">d", float("inf")), b"\x82" + struct.pack(">d", float("-inf")),
    b"\x72" + struct.pack(">f", float("nan")), b"\x73\x00\x01\xf6\x00",
    b"\x83" + struct.pack(">q", 1_790_000_000_123), b"\x83" + struct.pack(">q", -1),
    b"\x98" + bytes(range(16)), b"\x74\xb1\x80\x07\xcf", b"\x74\x78\x00\x00\x00",
    b"\x84\x31\xc0\x00\x00\x00\x00\x00\x01", b"\x94\x30\x40" + bytes(13) + b"\x0a",
    b"\xa0\x03\xff\x00\x01", b"\xa0\x02ok", b"\xb0\x00\x00\x00\x02\xfe\xff",
    b"\xa1\x06gr\xc3\xb6\xc3\x9f", b"\xb1\x00\x00\x00\x04\xf0\x9f\x98\x80", b"\xa1\x00",
    b"\xa3\x03sym", b"\xb3\x00\x00\x00\x01s", b"\x45", b"\xc0\x04\x02\x54\x01\x40",
    b"\xd0\x00\x00\x00\x06\x00\x00\x00\x01\x54\x05", b"\xc1\x06\x02\xa1\x01k\x54\x07",
    b"\xc1\x05\x02\x54\x01\x54\x02", b"\xc1\x01\x00", b"\xe0\x05\x03\x54\x01\x02\x03",
    b"\xf0\x00\x00\x00\x08\x00\x00\x00\x01\xa1\x02ab", b"\xe0\x06\x02\x00\x53\x01\x50\x07\x08",
    b"\x00\xa3\x03foo\xa1\x03bar", b"\x00\x53\x24\xc0\x03\x01\x54\x09",
]  # fmt: skip
#: Ids of messages: what AMQP allows, and what clients have sent all the same.
IDS = [
    b"\x44", b"\x53\x2a", b"\x80" + b"\xff" * 8, b"\x98" + bytes(range(16)), b"\xa0\x03\xff\x00a",
    b"\xa1\x05order", b"\x43", b"\x52\x2a", b"\x70\xff\xff\xff\xff", b"\x54\xff", b"\x55\x01",
]  # fmt: skip


def _section(code: int, value: bytes) -> bytes:
    return bytes([0, 0x53, code]) + value


def _composed(code: int, count: int, content: bytes) -> bytes:
    return bytes([code | 0x10]) + struct.pack(">II", len(content) + 4, count) + content


def _list(*values: bytes) -> bytes:
    return _composed(0xC0, len(values), b"".join(values))


def _map(*pairs: tuple[bytes, bytes]) -> bytes:
    return _composed(0xC1, 2 * len(pairs), b"".join(key + value for key, value in pairs))


_DATA = _section(0x75, b"\xa0\x02hi")


def messages() -> Iterator[bytes]:
    """The messages."""
    for value in VALUES:
        yield _section(0x77, value)
        yield _section(0x74, _map((b"\xa1\x01k", value), (b"\xa1\x03two", b"\x54\x02"))) + _DATA
        annotations = _map((b"\xa3\x05x-opt", value), (b"\x53\x07", value))
        yield _section(0x71, annotations) + _section(0x72, annotations) + _DATA
        yield _DATA + _section(0x78, annotations)
        yield _section(0x76, _list(value, b"\x54\x01")) + _section(0x76, _list(value))
    # What a broker makes of AMQP 0.9.1: neither symbol is ASCII.
    symbol = b"\xa3\x06" + "größ".encode()
    yield (
        _section(0x72, _map((symbol, b"\x54\x05")))
        + _section(0x73, _list(*[b"\x40"] * 6, symbol))
        + _DATA
    )
    for each in IDS:
        fields = (each, *[b"\x40"] * 4, each)
        yield _section(0x73, _list(*fields)) + _DATA
    yield _section(0x73, _list(
        b"\xa1\x02id", b"\xa0\x02me", b"\xa1\x02to", b"\xa1\x04subj", b"\xa1\x05reply",
        b"\xa1\x04corr", b"\xa3\x0aimage/jpeg", b"\xa3\x04gzip",
        b"\x83" + struct.pack(">q", 1_790_000_000_123), b"\x83" + struct.pack(">q", -5),
        b"\xa1\x05group", b"\x70\x00\x00\x00\x09", b"\xa1\x02rg",
    )) + _DATA  # fmt: skip
    for header in (
        b"\x45", _list(b"\x41"),
        _list(b"\x42", b"\x50\x04", b"\x70\x00\x00\x03\xe8", b"\x41", b"\x43"),
        _list(b"\x40", b"\x40", b"\x40", b"\x42"),
    ):  # fmt: skip
        yield _section(0x70, header) + _DATA
    yield _section(0x70, b"\x45")
    yield _DATA + _section(0x75, b"\xb0\x00\x00\x00\x01!")
    yield from (b'{"plain": "json"}', b"\x00", b"\x00\x53\x75\xa0\x05cut", b"\x00" * 40, b"")


#: Number of the codec -> how a sub-batch is compressed.
CODECS = {
    0: bytes,
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


def chunk_of(first: int, wires: Sequence[bytes], codec: int | None) -> bytes:
    """A chunk of simple messages, or of one simple one between two sub-batches, by a publisher."""
    simple = [struct.pack(">I", len(wire)) + wire for wire in wires]
    entries = simple
    if codec is not None:
        half = len(wires) // 2
        entries = [_packed(simple[:half], codec), simple[half], _packed(simple[half + 1 :], codec)]
    data = b"".join(entries)
    trailer = b"\x00\x06orders" + struct.pack(">Q", 2**64 - 1)
    head = struct.pack(
        ">BBHIqQQIIIB3x", 0x50, 0, len(entries), len(wires), 1_790_000_000_123, 3, first,
        zlib.crc32(data), len(data), len(trailer), 0,
    )  # fmt: skip
    return head + data + trailer


def _packed(simple: Sequence[bytes], codec: int) -> bytes:
    payload = b"".join(simple)
    packed = CODECS[codec](payload)
    head = struct.pack(">BHII", 0x80 | codec << 4, len(simple), len(payload), len(packed))
    return head + packed
