"""Streams as record batches: the rows of `messages`, and rows for what cannot be read."""

from __future__ import annotations

import pytest

from coldstream.columns.schema import COLUMNS
from coldstream.errors import CorruptDataError, InvalidInputError, LostRangeError
from coldstream.fragment import HEADER, TRAILER_SIZE
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE
from coldstream.reader import CorruptRange, First, Gap, Offset, ReaderSettings, Timestamp
from tests.support.tier import FIXTURES, SMALL, Tier, chunk
from tests.unit.reader.test_damage import BY_RANGES, WHOLE, a_stream

EVERYTHING = tuple(COLUMNS)


@pytest.mark.parametrize("name", FIXTURES)
def test_every_message_of_a_real_brokers_stream_is_a_row_with_its_very_bytes(name: str) -> None:
    tier = Tier()
    stream = tier.add_fixture(name)
    reader = tier.reader(stream, SMALL)
    expected = [(m.offset, m.timestamp, bytes(m.body)) for m in reader.messages(First())]
    rows = [
        (row["offset"], row["timestamp"], row["raw"])
        for batch in reader.batches(First(), columns=("offset", "timestamp", "raw"))
        for row in batch.to_pylist()
    ]
    assert [(o, int(t.timestamp() * 1000 + 0.5), raw) for o, t, raw in rows] == expected
    assert len(rows) == FIXTURES[name]["messages"]


@pytest.mark.parametrize("spec", [Offset(0), Offset(7), Offset(500), Timestamp(0)])
@pytest.mark.parametrize("to", [None, Offset(8), Offset(641)])
def test_rows_begin_and_end_where_messages_do(spec: Offset | Timestamp, to: Offset | None) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("dedup-4.3.6"), SMALL)
    expected = [m.offset for m in reader.messages(spec, to)]
    found = [o for b in reader.batches(spec, to, columns=["offset"]) for o in _offsets(b)]
    assert found == expected


def test_the_columns_of_chunks_are_those_of_their_headers() -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("dedup-4.3.6"), SMALL)
    rows = [r for b in reader.batches(First(), columns=EVERYTHING) for r in b.to_pylist()]
    by_offset = {row["offset"]: row for row in rows}
    for each in reader.chunks(First()):
        if each.header.chunk_type == 0:
            row = by_offset[each.header.chunk_id]
            assert (row["chunk_id"], row["epoch"]) == (each.header.chunk_id, each.header.epoch)
            assert dict(row["publishers"]).keys() <= {"prod-A", "prod-B"}
    assert dict(rows[-1]["publishers"])["prod-A"] == 610
    assert {row["error"] for row in rows} == {None}


def _offsets(batch: object) -> list[int]:
    return batch.column("offset").to_pylist()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
@pytest.mark.parametrize("start", [0, 13, 16, 20])
def test_a_damaged_chunk_is_rows_with_an_error_and_hides_no_other(
    settings: ReaderSettings, start: int
) -> None:
    tier = Tier()
    root = a_stream(tier)
    reader = tier.reader("s", settings)
    good = {m.offset: bytes(m.body) for m in reader.messages(Offset(start))}
    key = tier.key(root, "s", 1)
    at = len(HEADER) + len(chunk(12, b"a12", b"b12", b"c" * 40, trailer=b"trailer"))
    tier.flip(key, at + CHUNK_HEADER_SIZE + 6)  # in a body of the chunk at offset 15

    told: list[CorruptRange] = []
    batches = tier.reader("s", settings).batches(
        Offset(start), columns=("offset", "raw", "error", "timestamp"), on_corrupt=told.append
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(start, 36))
    for row in rows:
        if 15 <= row["offset"] < 18:
            assert "CRC" in row["error"]
            assert row["raw"] is None
            assert row["timestamp"].microsecond == 15_000
        else:
            assert row["raw"] == good[row["offset"]]
            assert "CRC" not in (row["error"] or "")
    if start < 18:
        assert [(each.first_offset, each.next_offset) for each in told] == [(15, 18)]
        assert (told[0].error.stream, told[0].error.key) == ("s", key)

    seen = []
    with pytest.raises(CorruptDataError):  # noqa: PT012 - the rows before it count, too
        for batch in tier.reader("s", settings).batches(Offset(0), columns=["offset"]):
            seen += _offsets(batch)
    assert seen == list(range(15))


@pytest.mark.parametrize("settings", [WHOLE, BY_RANGES], ids=["whole", "by ranges"])
def test_a_fragment_that_says_nothing_true_is_rows_with_an_error(settings: ReaderSettings) -> None:
    tier = Tier()
    root = a_stream(tier)
    key = tier.key(root, "s", 1)
    tier.flip(key, len(tier.store.objects[key]) - TRAILER_SIZE)
    told: list[CorruptRange] = []
    batches = tier.reader("s", settings).batches(
        Offset(5), Offset(30), columns=("offset", "error"), on_corrupt=told.append
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(5, 30))
    assert [row["offset"] for row in rows if "trailer" in (row["error"] or "")] == list(
        range(12, 24)
    )
    assert [(each.first_offset, each.next_offset) for each in told] == [(12, 24)]


def test_a_hole_is_told_and_gives_no_rows() -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"a", b"b")], tier.hole(2, 9), [chunk(9, b"c")]])
    with pytest.raises(LostRangeError):
        list(tier.reader("s").batches(First()))
    gaps: list[Gap] = []
    batches = tier.reader("s").batches(First(), columns=["offset"], on_gap=gaps.append)
    assert [o for b in batches for o in _offsets(b)] == [0, 1, 9]
    assert [(gap.first_offset, gap.next_offset) for gap in gaps] == [(2, 9)]


def test_a_column_that_does_not_exist_is_named() -> None:
    tier = Tier()
    a_stream(tier)
    with pytest.raises(InvalidInputError, match="'bodi'"):
        list(tier.reader("s").batches(First(), columns=["bodi"]))
