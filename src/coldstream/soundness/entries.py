"""How many messages the entries of chunks really hold: walked for many chunks at once, by numpy.

Each entry says how long it is, so a chunk can only be walked one entry after the other. Chunks of
many entries are walked by the kernel where it is installed. Others are walked side by side by
numpy: one step looks at the next entry of each. What is left when few chunks have many entries more
is walked in runs of entries of one length, and entry by entry where there are no such runs.
Sub-batches are inflated, and the messages in them are walked alike.
"""

from __future__ import annotations

import ctypes
import struct
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import Buffer
from coldstream.osiris.entry import MAX_SUB_BATCH_BYTES, inflate

try:
    import coldstream_kernel as _found

    _found.library()
    _kernel: ModuleType | None = _found
except ImportError:  # pragma: no cover - a machine without a wheel for it
    _kernel = None

_LENGTH = struct.Struct(">I")
_SUB_BATCH = struct.Struct(">BHII")
_TOP = 1 << 31
#: Side by side is slower than one by one with fewer chunks than this.
_FEWEST = 32
#: The kernel is called once a chunk; with fewer entries than this numpy is faster.
_KERNEL_ENTRIES = 16
_RUN = 32
#: Bytes up to which inflated sub-batches are joined, to be walked together.
_INFLATED_AT_ONCE = 16 * 2**20


def count_records(
    data: Buffer,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    entries: NDArray[np.int64],
    *,
    simple: NDArray[np.bool_] | None = None,
) -> list[int | CorruptDataError]:
    """For each chunk, how many records its entries hold, or why that cannot be said.

    Args:
        data: holds the chunks.
        begins: byte positions in `data` of the chunks' data sections.
        ends: where these end.
        entries: how many entries each should have.
        simple: bool of shape (chunks,): which consist of exactly so many simple entries; None where
            nobody has looked.
    """
    plain = _walk(data, begins, ends, entries) if simple is None else simple
    view = memoryview(data)
    return [
        int(entries[n]) if good else _counted(view[int(begins[n]) : int(ends[n])], int(entries[n]))
        for n, good in enumerate(plain.tolist())
    ]


def _walk(
    data: Buffer, begins: NDArray[np.int64], ends: NDArray[np.int64], entries: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which chunks consist of exactly this many simple entries."""
    if len(data) < _LENGTH.size:
        return np.zeros(len(begins), bool)
    if _kernel is not None and int(entries.sum()) >= _KERNEL_ENTRIES * len(entries):
        return _walk_by_kernel(_kernel, data, begins, ends, entries)
    return _walk_by_numpy(data, begins, ends, entries)


def _walk_by_kernel(
    kernel: ModuleType,
    data: Buffer,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    entries: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """The same by the compiled loop, which lets other threads go on."""
    # Arrays as the kernel wants them; they and `data` must live as long as their addresses.
    start, stop, count = (np.ascontiguousarray(each, np.int64) for each in (begins, ends, entries))
    nothing = np.zeros(len(start), np.int64)  # no message is wanted, only where it all ends
    walk = kernel.Walk(
        data=np.frombuffer(data, np.uint8).ctypes.data,
        begin=start.ctypes.data,
        end=stop.ctypes.data,
        entries=count.ctypes.data,
        records=count.ctypes.data,
        first=nothing.ctypes.data,
        last=nothing.ctypes.data,
        rows=nothing.ctypes.data,
    )
    step, reference = kernel.library().coldstream_walk, ctypes.byref(walk)
    good = np.zeros(len(start), bool)
    for number, end in enumerate(stop.tolist()):
        walk.chunk, walk.chunks, walk.position = number, number + 1, -1
        good[number] = step(reference) == kernel.END and walk.stopped == end
    return good


def _walk_by_numpy(
    data: Buffer, begins: NDArray[np.int64], ends: NDArray[np.int64], entries: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The same without it."""
    good = np.zeros(len(begins), bool)
    # A big-endian u32 at every byte position, without a copy.
    lengths = np.ndarray((len(data) - 3,), ">u4", buffer=data, strides=(1,))
    order = np.argsort(-entries, kind="stable")
    counts = entries[order]
    at, stop = begins[order], ends[order]
    highest = len(lengths) - 1
    step = 0
    active = int(np.count_nonzero(counts > 0))
    while active >= _FEWEST:
        here = at[:active]
        next_offset = here + 4 + lengths[np.minimum(here, highest)]
        # Also a sub-batch ends here: its top bit makes it longer than anything.
        np.copyto(next_offset, _TOP << 2, where=next_offset > stop[:active])
        at[:active] = next_offset
        step += 1
        active = int(np.searchsorted(-counts, -step, side="left"))
    for n in range(active):
        at[n] = _walk_one(data, lengths, int(at[n]), int(stop[n]), int(counts[n]) - step)
    good[order] = at == stop
    return good


def _walk_one(data: Buffer, lengths: NDArray[np.void], at: int, stop: int, left: int) -> int:
    """Where `left` simple entries from `at` on end; beyond `stop` if they do not."""
    unpack = _LENGTH.unpack_from
    while left:
        if stop - at < 4:
            return _TOP << 2
        (length,) = unpack(data, at)
        stride = length + 4
        if length >= _TOP or stride > stop - at:
            return _TOP << 2
        most = min(left, (stop - at) // stride)
        if most > _RUN:
            run = lengths[at : at + most * stride : stride] == length
            same = most if run.all() else int(run.argmin())
            at += same * stride
            left -= same
            if same >= _RUN:
                continue
        for _ in range(min(left, _RUN)):
            if stop - at < 4:
                return _TOP << 2
            (length,) = unpack(data, at)
            if length >= _TOP or length + 4 > stop - at:
                return _TOP << 2
            at += length + 4
            left -= 1
    return at


def _counted(data: memoryview, entries: int) -> int | CorruptDataError:
    """Records of one chunk with sub-batches, or with damage, entry by entry."""
    position, end, records = 0, len(data), 0
    payloads: list[memoryview] = []
    expected: list[int] = []
    try:
        for _ in range(entries):
            if end - position < 4:
                raise CorruptDataError(f"an entry is cut after {records} records")
            (length,) = _LENGTH.unpack_from(data, position)
            if length < _TOP:
                position += 4
                if length > end - position:
                    raise CorruptDataError(
                        f"an entry of {length} bytes is cut after {records} records"
                    )
                position += length
                records += 1
                continue
            if end - position < _SUB_BATCH.size:
                raise CorruptDataError("a sub-batch header is cut")
            kind, count, size, packed = _SUB_BATCH.unpack_from(data, position)
            position += _SUB_BATCH.size
            if kind & 0x0F:
                raise CorruptDataError(f"an entry of the unknown kind {kind:#x}")
            if packed > end - position:
                raise CorruptDataError(f"a sub-batch of {packed} bytes is cut")
            if not 1 <= count <= size // 4:
                raise CorruptDataError(f"a sub-batch of {count} records in {size} bytes")
            payload = data[position : position + packed]
            payloads.append(inflate(payload, kind >> 4 & 7, size, limit=MAX_SUB_BATCH_BYTES))
            expected.append(count)
            position += packed
            records += count
            if sum(map(len, payloads)) >= _INFLATED_AT_ONCE:
                _check_bodies(payloads, expected)
        if position != end:
            raise CorruptDataError(f"{end - position} bytes follow the last entry")
        _check_bodies(payloads, expected)
    except CorruptDataError as error:
        return error
    return records


def _check_bodies(payloads: list[memoryview], expected: list[int]) -> None:
    """Inflated sub-batches hold exactly the records that they say; empties both lists."""
    if not payloads:
        return
    joined = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    ends = np.cumsum(sizes)
    good = _walk(joined, ends - sizes, ends, np.array(expected, np.int64))
    if not good.all():
        at = int(good.argmin())
        raise CorruptDataError(
            f"sub-batch {at} of its chunk does not hold the {expected[at]} records that it says"
        )
    payloads.clear()
    expected.clear()
