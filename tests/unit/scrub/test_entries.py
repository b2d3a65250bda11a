"""The quick walk over entries agrees with the plain one, chunk by chunk, whatever is in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import chunk_at
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch, iter_messages
from coldstream.soundness import entries
from coldstream.soundness.entries import count_records
from coldstream_devkit.generator import join_chunk

bodies = st.binary(max_size=12)
sub_batches = st.builds(
    encode_sub_batch, st.lists(bodies, min_size=1, max_size=5), st.sampled_from(Codec)
)
plain = st.lists(bodies.map(encode_simple), min_size=1, max_size=60)
mixed = st.lists(bodies.map(encode_simple) | sub_batches, min_size=1, max_size=8)
uniform = st.tuples(st.integers(1, 400), st.integers(0, 9)).map(
    lambda each: [encode_simple(b"x" * each[1])] * each[0]
)


def expected(data: bytes, count: int) -> int | None:
    """Records by the plain decoder; None where it refuses."""
    records = 2**32 - 1
    header = join_chunk(0, 1, 1, [data] if count == 1 else [data, *[b""] * (count - 1)], records)
    chunk = chunk_at(memoryview(header), 0, len(header))
    seen = 0
    try:
        for _ in iter_messages(chunk):
            seen += 1
    except CorruptDataError as error:
        # Everything held but the number of records, which was not asked for.
        return seen if error.reason.endswith(f"its header says {records}") else None
    raise AssertionError("as many records as fit")


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "numpy"])
@given(st.data())
def test_the_same_number_of_records_or_a_refusal(kernel: bool, data: st.DataObject) -> None:
    chunks: list[tuple[bytes, int]] = []
    for made in data.draw(st.lists(plain | mixed | uniform, min_size=1, max_size=40)):
        joined, count = b"".join(made), len(made)
        damage = data.draw(st.sampled_from(["none", "none", "flip", "cut", "more", "count"]))
        if damage == "flip" and joined:
            at = data.draw(st.integers(0, len(joined) - 1))
            joined = (
                joined[:at]
                + bytes([joined[at] ^ 1 << data.draw(st.integers(0, 7))])
                + (joined[at + 1 :])
            )
        elif damage == "cut":
            joined = joined[: data.draw(st.integers(0, len(joined)))]
        elif damage == "more":
            joined += data.draw(st.binary(min_size=1, max_size=5))
        elif damage == "count":
            count = max(1, count + data.draw(st.integers(-2, 2)))
        chunks.append((joined, count))
    whole = b"".join(joined for joined, _ in chunks)
    sizes = np.array([len(joined) for joined, _ in chunks], np.int64)
    ends = np.cumsum(sizes)
    counts = np.array([count for _, count in chunks], np.int64)
    before = entries._kernel
    if not kernel:
        entries._kernel = None
    try:
        found = count_records(whole, ends - sizes, ends, counts)
    finally:
        entries._kernel = before

    for (joined, count), records in zip(chunks, found, strict=True):
        wanted = expected(joined, count)
        assert (None if isinstance(records, CorruptDataError) else records) == wanted


def test_the_kernel_is_here() -> None:
    assert entries._kernel is not None


@pytest.mark.parametrize("length", range(4, 12))
def test_a_sub_batch_whose_header_is_cut_is_damage_and_no_failure(length: int) -> None:
    """A failure would end the look at the whole fragment, or at all of them."""
    whole = encode_sub_batch([b"a", b"b"], Codec.NONE)
    cut = encode_simple(b"x") + whole[:length]
    ends = np.array([len(cut)], np.int64)

    (count,) = count_records(cut, ends * 0, ends, np.array([2], np.int64))

    assert isinstance(count, CorruptDataError)
