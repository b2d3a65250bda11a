"""What one writes without the source: binaryFile, and Python that decodes what Spark gives it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = Callable[["DataFrame"], "DataFrame"]

_SCHEMA = "offset long, timestamp long, body binary"
_CHUNK = struct.Struct(
    ">xxH4xq8xQ4xIIB"
)  # entries, timestamp, offset, sizes of data, trailer, filter
_HEADER = 48


def by_row(files: DataFrame) -> DataFrame:
    """Messages by a function of a row, as one writes it first."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    decode = F.udf(_decode_rows, "array<struct<offset: long, timestamp: long, body: binary>>")
    return files.select(F.explode(decode("content")).alias("m")).select("m.*")


def by_frame(files: DataFrame) -> DataFrame:
    """Messages by numpy, a data frame for each fragment."""
    return files.select("content").mapInPandas(_decode_frames, _SCHEMA)


#: What a way is called, what it does, and how many times faster the source is to be.
WAYS: dict[str, tuple[Rows, int]] = {
    "binaryfile by row": (by_row, 10),
    "binaryfile with numpy": (by_frame, 5),
}


def _chunks(content: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Where the entries of each chunk begin and end, how many there are; timestamp and offset."""
    position = 8
    while position + _HEADER <= len(content) and content[position] == 0x50:
        entries, timestamp, first, size, trailer, bloom = _CHUNK.unpack_from(content, position)
        begin = position + _HEADER + bloom
        yield begin, begin + size, entries, timestamp, first
        position = begin + size + trailer


def _decode_rows(content: bytes) -> list[tuple[int, int, bytes]]:
    """Messages of one data section each."""
    return [
        (first + number, timestamp, body)
        for at, _, entries, timestamp, first in _chunks(content)
        for number, body in enumerate(_bodies(content, at, entries))
    ]


def _bodies(content: bytes, at: int, entries: int) -> Iterator[bytes]:
    for _ in range(entries):
        (length,) = struct.unpack_from(">I", content, at)
        body = content[at + 4 : at + 4 + length]
        yield body[8 if body[3] == 0xB0 else 5 :]
        at += 4 + length


def _decode_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The same, a data frame for each fragment."""
    for content in (each for frame in frames for each in frame["content"]):
        offsets, timestamps = [], []
        bodies: list[bytes] = []
        for begin, end, entries, timestamp, first in _chunks(content):
            offsets.append(np.arange(first, first + entries))
            timestamps.append(np.full(entries, timestamp))
            bodies += _equal_bodies(content, begin, end, entries) or _bodies(
                content, begin, entries
            )
        yield pd.DataFrame(
            {
                "offset": np.concatenate(offsets),
                "timestamp": np.concatenate(timestamps),
                "body": bodies,
            }
        )


def _equal_bodies(content: bytes, begin: int, end: int, entries: int) -> list[bytes]:
    """The bodies of a chunk whose entries all have one size, as rows of a table; else none."""
    (length,) = struct.unpack_from(">I", content, begin)
    if (4 + length) * entries != end - begin:
        return []
    table = np.frombuffer(content, np.uint8, end - begin, begin).reshape(entries, -1)
    if not (table[:, :4] == table[0, :4]).all():
        return []
    skipped = 4 + (8 if table[0, 7] == 0xB0 else 5)
    return [row.tobytes() for row in table[:, skipped:]]
