"""The CRCs of many chunks at once, the one over all of their bytes, and whether entries fill them.

The kernel looks at every byte once, in one call without Python's lock: a reader's threads would
otherwise take turns with it twice a chunk. Where there is no kernel, or it cannot (it needs x86-64
of this decade), zlib does the same chunk by chunk.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from coldstream.crc import crc32
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE

#: The second CRC follows the first closely, while the bytes are still in the processor's cache.
_CACHED_BYTES = 128 * 2**10


def _able() -> ModuleType | None:
    try:
        import coldstream_kernel as found

        able = found.library().coldstream_check(found.Check())
    except (ImportError, AttributeError):  # none, or one of a release that did not have it
        return None
    return found if able else None


_kernel = _able()


@dataclass(frozen=True, slots=True)
class Crcs:
    """What the CRCs of chunks have come to.

    Attributes:
        good: chunks before the first whose CRC is wrong.
        crc: CRC32 over all bytes of these.
        simple: bool of shape (good,): whether exactly as many entries as the header says fill the
            chunk's data, none of them a sub-batch; None where nobody has looked.
    """

    good: int
    crc: int
    simple: NDArray[np.bool_] | None = None


def check_crcs(
    data: memoryview,
    headers: NDArray[np.void],
    positions: NDArray[np.int64],
    *,
    entries: bool = False,
) -> Crcs:
    """The CRCs of chunks against their headers.

    Args:
        data: holds the chunks, and perhaps more; a chunk that it ends in counts as wrong.
        headers: of the chunks, which agree with `positions`.
        positions: in `data` of each chunk, and of where the last one ends.
        entries: whether to look at the entries, too, while the bytes are in the processor's cache;
            only where there is a kernel.
    """
    whole = int(np.searchsorted(positions[1:], len(data), "right"))
    headers, positions = headers[:whole], np.ascontiguousarray(positions[: whole + 1])
    begins = positions[:-1] + headers["bloom_size"] + CHUNK_HEADER_SIZE
    ends = begins + headers["data_size"]
    expected = headers["crc"].astype(np.int64)
    if _kernel is None:
        bounds = positions.tolist()
        return Crcs(*_by_zlib(data, begins.tolist(), ends.tolist(), expected.tolist(), bounds))
    counts = headers["entries"].astype(np.int64) if entries else None
    simple = np.zeros(whole, np.bool_) if entries else None
    raw = np.frombuffer(data, np.uint8)
    check = _kernel.Check(
        raw.ctypes.data,
        positions.ctypes.data,
        begins.ctypes.data,
        ends.ctypes.data,
        expected.ctypes.data,
        whole,
        None if counts is None else counts.ctypes.data,
        None if simple is None else simple.ctypes.data,
    )
    _kernel.library().coldstream_check(ctypes.byref(check))
    return Crcs(check.good, check.crc, None if simple is None else simple[: check.good])


def _by_zlib(
    data: memoryview, begins: list[int], ends: list[int], expected: list[int], bounds: list[int]
) -> tuple[int, int]:
    of_all = done = 0
    number = -1
    for number, (bound, begin, end, crc) in enumerate(
        zip(bounds, begins, ends, expected, strict=False)
    ):
        if bound - done >= _CACHED_BYTES:
            of_all, done = crc32(data[done:bound], of_all), bound
        if crc32(data[begin:end]) != crc:
            return number, of_all
    return number + 1, crc32(data[done : bounds[number + 1]], of_all)
