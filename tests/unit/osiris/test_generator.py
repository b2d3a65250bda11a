from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest

from coldstream.errors import InvalidInputError
from coldstream.osiris import (
    Chunk,
    check_index,
    check_segment_header,
    decode_message,
    encode_simple,
    index_records,
    iter_chunks,
    iter_messages,
    parse_segment_name,
)
from coldstream_devkit.generator import append_chunks, build_chunk, join_chunk, write_stream


def chunks_in(directory: Path) -> list[Chunk]:
    """All chunks, after every file was checked."""
    found: list[Chunk] = []
    for path in sorted(directory.glob("*.segment")):
        content = path.read_bytes()
        check_segment_header(content)
        chunks = list(iter_chunks(content, 8))
        records = index_records(path.with_suffix(".index").read_bytes())
        check_index(records, first_offset=parse_segment_name(path.name))
        position, expected = 8, []
        for chunk in chunks:
            h = chunk.header
            chunk.check_crc()
            expected.append((h.chunk_id, h.timestamp, h.epoch, position, h.chunk_type))
            position += h.size
        assert records.tolist() == expected
        found += chunks
    assert all(a.header.next_offset == b.header.chunk_id for a, b in pairwise(found))
    return found


@pytest.mark.parametrize("message_size", [0, 1, 255, 256, 1000])
def test_a_written_stream_is_what_its_summary_says(tmp_path: Path, message_size: int) -> None:
    written = write_stream(
        tmp_path / "__s_1", messages=333, message_size=message_size, chunk_messages=10,
        segment_bytes=20_000, start_offset=77, start_timestamp=5_000, timestamp_step=3,
    )  # fmt: skip
    chunks = chunks_in(tmp_path / "__s_1")
    bodies = [bytes(body) for chunk in chunks for body in iter_messages(chunk)]

    assert written.stream == "__s_1"
    assert (written.first_offset, written.next_offset) == (77, 77 + 333)
    assert chunks[0].header.chunk_id == 77
    assert chunks[-1].header.next_offset == written.next_offset
    assert written.messages == len(bodies) == 333
    assert written.body_bytes == sum(map(len, bodies))
    assert written.sha256 == hashlib.sha256(b"".join(bodies)).hexdigest()
    assert {len(decode_message(body).data) for body in bodies} == {message_size}
    assert [c.header.timestamp for c in chunks] == [5_000 + 3 * n for n in range(34)]
    assert written.next_timestamp == 5_000 + 3 * 34
    assert list(written.segments) == [
        parse_segment_name(path.name) for path in sorted((tmp_path / "__s_1").glob("*.segment"))
    ]


def test_segments_roll_after_the_chunk_that_reaches_the_size(tmp_path: Path) -> None:
    write_stream(tmp_path, messages=100, message_size=100, chunk_messages=10, segment_bytes=3_000)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.segment"))]

    assert len(sizes) > 2
    assert all(3_000 <= size < 3_000 + 48 + 10 * 112 for size in sizes[:-1])


def test_a_chunk_has_one_epoch_and_epochs_begin_where_they_should(tmp_path: Path) -> None:
    write_stream(tmp_path, messages=100, chunk_messages=30, epochs=((1, 0), (4, 50), (5, 51)))

    headers = [chunk.header for chunk in chunks_in(tmp_path)]

    assert [(h.chunk_id, h.epoch) for h in headers] == [
        (0, 1), (30, 1), (50, 4), (51, 5), (81, 5)
    ]  # fmt: skip


def test_the_same_arguments_give_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_stream(tmp_path / name, messages=50, seed=seed)
    content = [
        b"".join(path.read_bytes() for path in sorted((tmp_path / name).iterdir()))
        for name in "abc"
    ]

    assert content[0] == content[1]
    assert content[0] != content[2]


def test_no_two_messages_of_a_chunk_are_alike(tmp_path: Path) -> None:
    write_stream(tmp_path, messages=1000, message_size=16, chunk_messages=1000)
    (chunk,) = chunks_in(tmp_path)

    assert len({bytes(body) for body in iter_messages(chunk)}) == 1000


def test_a_stream_without_messages_has_one_empty_segment(tmp_path: Path) -> None:
    written = write_stream(tmp_path, messages=0, start_offset=5)

    assert (written.first_offset, written.next_offset, written.segments) == (5, 5, (5,))
    assert chunks_in(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 2


def test_offsets_near_the_limit_can_be_written(tmp_path: Path) -> None:
    start = 2**64 - 1 - 100
    write_stream(tmp_path, messages=100, start_offset=start, epochs=((2**64 - 1, start),))

    assert chunks_in(tmp_path)[-1].header.next_offset == 2**64 - 1


def test_appended_chunks_follow_in_the_last_segment_or_in_a_new_one(tmp_path: Path) -> None:
    written = write_stream(tmp_path, messages=20, chunk_messages=10)
    append_chunks(tmp_path, [build_chunk(20, 1, written.next_timestamp, [b"a", b"b"])])
    append_chunks(
        tmp_path, [build_chunk(22, 2, 1, [b"c"]), build_chunk(23, 2, 2, [b"d"])], roll=True
    )

    assert [c.header.chunk_id for c in chunks_in(tmp_path)] == [0, 10, 20, 22, 23]
    assert [path.name for path in sorted(tmp_path.glob("*.segment"))] == [
        "00000000000000000000.segment",
        "00000000000000000022.segment",
    ]


def test_a_stream_can_begin_with_appended_chunks(tmp_path: Path) -> None:
    append_chunks(tmp_path / "new", [build_chunk(7, 1, 1, [b"a"])])

    assert [c.header.chunk_id for c in chunks_in(tmp_path / "new")] == [7]


def test_what_is_no_valid_stream_is_not_written(tmp_path: Path) -> None:
    for bad in (
        {"chunk_messages": 0},
        {"chunk_messages": 65_536},
        {"epochs": ()},
        {"epochs": ((1, 5),)},
        {"epochs": ((2, 0), (1, 5))},
    ):
        with pytest.raises(InvalidInputError):
            write_stream(tmp_path / "x", messages=10, **bad)  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


def test_what_is_no_valid_chunk_is_not_built() -> None:
    with pytest.raises(InvalidInputError):
        build_chunk(0, 1, 1, [])
    with pytest.raises(InvalidInputError):
        build_chunk(0, 1, 1, [b""] * 65_536)
    with pytest.raises(InvalidInputError):
        join_chunk(0, 1, 1, [encode_simple(b"")] * 2, 1)
