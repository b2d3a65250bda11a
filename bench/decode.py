"""Decode chunks to Arrow on one core, beside memcpy and CRC-32 of the same bytes.

    make bench-decode

Five data sets of 64 MiB: messages with one data section of 100 B, 1 KiB and 10 KiB (s100, s1k,
s10k), and with ten properties and four application properties besides (p100, p1k). Every side works
on the same bytes in the same run, in turn; the best of five rounds counts. `body` decodes offset,
timestamp and body, as most jobs do; `all` five properties and the map of application properties,
too. memcpy copies into memory that was touched before, as the decoder does.
"""

from __future__ import annotations

import os
import struct
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.report import quick
from coldstream.columns.decode import Decoder
from coldstream.columns.schema import select
from coldstream.crc import crc32
from coldstream.osiris.chunk import ChunkHeader, ChunkType
from coldstream.osiris.entry import encode_simple
from coldstream_devkit.messages import headers_and_bounds

SIZE = 64 * 2**20
ROUNDS = 5
BODY = ("offset", "timestamp", "body")
ALL = (
    *BODY, "properties.message_id", "properties.correlation_id", "properties.content_type",
    "properties.subject", "properties.reply_to", "application_properties",
)  # fmt: skip
#: Of memcpy; what a decoder without any cost but touching the bytes would come near.
GOALS = {"s100": 0.3, "s1k": 0.5, "s10k": 0.4, "p100": 0.08, "p1k": 0.2}


@dataclass(frozen=True)
class DataSet:
    """Chunks back to back."""

    name: str
    data: bytes
    headers: NDArray[np.void]
    bounds: list[int]
    messages: int


def _text(value: bytes, code: int = 0xA1) -> bytes:
    return bytes((code, len(value))) + value


def message(number: int, size: int, *, properties: bool) -> bytes:
    """A message as clients send it."""
    body = b"\x00\x53\x75\xb0" + struct.pack(">I", size) + number.to_bytes(8) * (size // 8)
    body += bytes(size % 8)
    if not properties:
        return body
    listed = b"".join(
        (
            _text(b"message-%012d" % number), _text(b"user", 0xA0), _text(b"orders"),
            _text(b"order.created"), _text(b"replies"), _text(b"corr-%012d" % number),
            _text(b"application/json", 0xA3), _text(b"utf-8", 0xA3), b"\x40",
            b"\x83" + struct.pack(">q", 1_795_227_161_842 + number),
        )
    )  # fmt: skip
    mapped = b"".join(
        (
            _text(b"region"), _text(b"emea"), _text(b"count"), b"\x71" + struct.pack(">i", number),
            _text(b"size"), b"\x54\x05", _text(b"tenant"), _text(b"tenant-%03d" % (number % 500)),
        )
    )  # fmt: skip
    return b"".join(
        (
            b"\x00\x53\x73\xc0", bytes((len(listed) + 1, 10)), listed,
            b"\x00\x53\x74\xc1", bytes((len(mapped) + 1, 8)), mapped, body,
        )
    )  # fmt: skip


def data_set(name: str, least: int) -> DataSet:
    """The same bytes every time, `least` of them or a chunk more."""
    size = {"100": 100, "1k": 1024, "10k": 10_240}[name[1:]]
    per_chunk = max(16, 2**18 // size)
    chunks, offset, total = [], 0, 0
    while total < least:
        entries = b"".join(
            encode_simple(message(offset + n, size, properties=name[0] == "p"))
            for n in range(per_chunk)
        )
        header = ChunkHeader(
            ChunkType.USER, per_chunk, per_chunk, 1_795_227_161_842 + offset, 1, offset,
            zlib.crc32(entries), len(entries), 0, 0,
        )  # fmt: skip
        chunks.append(header.encode() + entries)
        offset += per_chunk
        total += len(chunks[-1])
    data = b"".join(chunks)
    headers, bounds = headers_and_bounds(data)
    return DataSet(name, data, headers, bounds, offset)


def decoding(data: DataSet, columns: tuple[str, ...]) -> Callable[[], None]:
    """One pass of the decoder."""
    decoder = Decoder(select(columns))

    def run() -> None:
        rows = sum(b.num_rows for b in decoder.decode(data.data, data.headers, data.bounds))
        rows += sum(b.num_rows for b in decoder.flush())
        assert rows == data.messages

    return run


def crc_of_chunks(data: DataSet, function: Callable[[memoryview], int]) -> Callable[[], None]:
    """One pass of a CRC over every chunk's entries, checked."""
    view, expected = memoryview(data.data), data.headers["crc"].tolist()

    def run() -> None:
        for begin, end, crc in zip(data.bounds, data.bounds[1:], expected, strict=False):
            assert function(view[begin + 48 : end]) == crc

    return run


def main() -> None:
    """Measure and print."""
    least, rounds = (SIZE // 16, 1) if quick(__doc__) else (SIZE, ROUNDS)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    copy = np.zeros(least + 2**20, np.uint8)
    ratios = []
    for name, goal in GOALS.items():
        data = data_set(name, least)
        source = np.frombuffer(data.data, np.uint8)
        sides: dict[str, Callable[[], object]] = {
            "memcpy": partial(np.copyto, copy[: len(source)], source),
            "crc zlib": crc_of_chunks(data, zlib.crc32),
            "crc zlib-ng": crc_of_chunks(data, crc32),
            "decode body": decoding(data, BODY),
        }
        if name[0] == "p":
            sides["decode all"] = decoding(data, ALL)
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(rounds):
            for side, run in sides.items():
                begin = time.perf_counter()
                run()
                best[side] = min(best[side], time.perf_counter() - begin)
        for side, seconds in best.items():
            speed = len(data.data) / seconds / 1e6
            rate = data.messages / seconds / 1e6
            sys.stdout.write(f"{name:5s} {side:12s} {speed:8.0f} MB/s {rate:8.2f} M messages/s\n")
        which = "decode all" if name[0] == "p" else "decode body"
        ratios.append((f"decode-{name}-memcpy", best["memcpy"] / best[which], goal))
        ratios.append((f"decode-{name}-crc-zlib", best["crc zlib"] / best[which], goal / 2))
    for label, value, goal in ratios:
        sys.stdout.write(f"ratio {label} {value:.3f} goal >= {goal:g}\n")


if __name__ == "__main__":
    main()
