"""The fast decoder gives the plain decoder's rows, whatever the bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.columns.decode import Decoder
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import COLUMNS, PROPERTIES, select
from coldstream.osiris.body import BodyFormat
from coldstream.osiris.chunk import iter_chunks
from coldstream_devkit.fuzz_columns import ORIGIN, check_alone
from coldstream_devkit.messages import any_chunks, cut_values, headers_and_bounds
from tests.support.examples import examples

EVERYTHING = tuple(COLUMNS)
SOME = [
    EVERYTHING,
    ("offset",),
    ("publishers", "offset"),
    ("raw",),
    ("raw", "error"),
    ("error",),
    ("body", "offset"),
    ("body_kind",),
    ("properties",),
    ("properties.subject", "properties.message_id_type", "offset"),
    ("properties.group_sequence", "properties.creation_time"),
    ("application_properties", "timestamp"),
    ("message_annotations", "error", "chunk_id", "epoch"),
]


def fast(
    data: bytes,
    names: tuple[str, ...],
    *,
    cuts: int = 1,
    start: int = 0,
    end: int = 2**63,
    body_format: BodyFormat = BodyFormat.AUTO,
    **how: int,
) -> pa.Table:
    """The rows of the fast decoder, the chunks given in `cuts` pieces."""
    selection = select(names, body_format)
    decoder = Decoder(selection, origin=ORIGIN, reuse=bool(how.pop("reuse", 0)), **how)
    batches: list[pa.RecordBatch] = []
    for batch in given_by(decoder, data, cuts, start, end):
        batch.validate(full=True)
        # A batch whose memory is used again has to be read before the next one.
        copied = pa.BufferOutputStream()
        with pa.ipc.new_stream(copied, batch.schema) as stream:
            stream.write_batch(batch)
        batches.extend(pa.ipc.open_stream(copied.getvalue()))
    return pa.Table.from_batches(batches, selection.schema)


def given_by(
    decoder: Decoder, data: bytes, cuts: int = 1, start: int = 0, end: int = 2**63
) -> Iterator[pa.RecordBatch]:
    """All batches of a decoder, the chunks given in `cuts` pieces."""
    headers, bounds = headers_and_bounds(data)
    step = max(1, len(headers) // cuts)
    for at in range(0, len(headers), step):
        some = bounds[at : at + step + 1]
        part = bytes(data[some[0] : some[-1]])
        moved = [bound - some[0] for bound in some]
        yield from decoder.decode(part, headers[at : at + step], moved, start=start, end=end)
    yield from decoder.flush()


def plain(
    data: bytes,
    names: tuple[str, ...],
    start: int = 0,
    end: int = 2**63,
    body_format: BodyFormat = BodyFormat.AUTO,
) -> pa.Table:
    """The rows of the plain decoder."""
    selection = select(names, body_format)
    batch = decode_reference(selection, iter_chunks(data), origin=ORIGIN, start=start, end=end)
    return pa.Table.from_batches([batch])


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.num_rows == expected.num_rows
    for name in expected.schema.names:
        ours, theirs = (each.column(name).combine_chunks() for each in (found, expected))
        if not ours.equals(theirs):
            row = next(n for n in range(len(ours)) if not ours[n].equals(theirs[n]))
            pytest.fail(f"{name} of row {row}: {ours.slice(row, 1)} is not {theirs.slice(row, 1)}")


@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from(BodyFormat))
@examples(3)
def test_every_column_of_every_message_is_that_of_the_plain_decoder(
    seed: int, count: int, body_format: BodyFormat
) -> None:
    data = any_chunks(random.Random(seed), count, first=seed % 1000)
    found = fast(data, EVERYTHING, body_format=body_format)
    assert_same(found, plain(data, EVERYTHING, body_format=body_format))


@given(
    st.integers(0, 2**32),
    st.sampled_from(SOME),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([1, 50, 1000, 2**20]),
    st.booleans(),
)
@examples(3)
def test_neither_columns_nor_pieces_nor_the_size_of_batches_change_a_row(
    seed: int, names: tuple[str, ...], cuts: int, rows: int, size: int, reuse: bool
) -> None:
    data = any_chunks(random.Random(seed), 6)
    found = fast(data, names, cuts=cuts, batch_rows=rows, batch_bytes=size, reuse=reuse)
    assert_same(found, plain(data, names))


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([1, 50, 1000, 2**20]),
    st.booleans(),
)
@examples(3)
def test_the_bytes_that_single_messages_are_asked_for_are_those_of_the_column(
    seed: int, cuts: int, rows: int, size: int, reuse: bool
) -> None:
    data = any_chunks(random.Random(seed), 6, first=seed % 1000)
    selection = select(("offset", "body", "error"))
    decoder = Decoder(selection, batch_rows=rows, batch_bytes=size, reuse=reuse)
    found: list[bytes | None] = []
    for batch in given_by(decoder, data, cuts):
        found += decoder.raw(batch.column("offset")).to_pylist()
        assert decoder.raw(pa.array([-1, 2**62])).to_pylist() == [None, None]

    expected = plain(data, ("raw",)).column("raw").to_pylist()
    assert found == expected
    assert decoder.bytes == sum(len(each or b"") for each in expected)
    assert decoder.raw(pa.array([seed % 1000])).to_pylist() == [None]


@given(st.integers(0, 2**32), st.integers(0, 150), st.integers(0, 150), st.sampled_from(SOME))
@examples(2)
def test_a_range_of_offsets_gives_exactly_its_rows(
    seed: int, start: int, end: int, names: tuple[str, ...]
) -> None:
    data = any_chunks(random.Random(seed), 5)
    found = fast(data, names, start=start, end=end, batch_rows=9)
    assert_same(found, plain(data, names, start, end))


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_field_of_properties_alone_is_what_it_is_among_the_others(name: str) -> None:
    data = any_chunks(random.Random(7), 40)
    whole = plain(data, ("properties",)).column(0).combine_chunks()
    single = fast(data, (f"properties.{name}",)).column(0).combine_chunks()
    assert single.is_valid().equals(whole.is_valid())
    assert pc.struct_field(single, name).equals(pc.struct_field(whole, name))


@given(st.integers(0, 2**32))
@examples(0.3)
def test_messages_that_lie_alone_in_memory_are_decoded_whatever_room_texts_have(seed: int) -> None:
    assert check_alone(seed) == 20


def test_a_value_that_is_cut_anywhere_is_told_by_its_own_length() -> None:
    assert check_alone(0, list(cut_values(random.Random(0)))) > 1000


def test_a_tracking_chunk_gives_no_row_and_a_damaged_chunk_a_row_for_each_record() -> None:
    data = any_chunks(random.Random(11), 200)
    records = sum(c.header.records for c in iter_chunks(data) if c.header.chunk_type == 0)
    table = fast(data, ("offset", "error"))
    assert table.num_rows == records
    assert table.column("error").null_count < records
