"""Every column against a decoder that shares no line with ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.support.independent
import tests.support.odd_messages
from coldstream.columns.schema import ALL
from tests.support.independent import assert_same, rows_of
from tests.support.odd_messages import CODECS, chunk_of, messages
from tests.support.tier import DATA, FIXTURES, Tier
from tests.unit.spark.context import query

COLUMNS = (*ALL, "application_properties_json", "message_annotations_json", "body_json")


def test_neither_the_decoder_nor_its_messages_use_the_product() -> None:
    for module in (tests.support.independent, tests.support.odd_messages):
        assert module.__file__ is not None
        assert "import coldstream" not in Path(module.__file__).read_text()
        assert "from coldstream" not in Path(module.__file__).read_text()


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_what_real_brokers_wrote_is_what_the_other_decoder_reads(name: str) -> None:
    tier = Tier()
    stream = tier.add_fixture(name)
    paths = sorted((DATA / name).glob("*.segment"))
    expected = [row for path in paths for row in rows_of(path.read_bytes(), stream)]

    assert_same(query(tier, stream=stream, columns=",".join(COLUMNS)).rows(), expected)


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_every_type_in_every_place_and_codec_is_what_the_other_decoder_reads(
    codec: int | None,
) -> None:
    wires = list(messages())
    chunks = [chunk_of(0, wires[:100], codec), chunk_of(100, wires[100:], codec)]
    tier = Tier()
    tier.add("s", [chunks])
    segment = b"OSIL\x00\x00\x00\x01" + b"".join(chunks)

    found = query(tier, stream="s", columns=",".join(COLUMNS)).rows()

    assert len(wires) > 250
    assert_same(found, list(rows_of(segment, "s")))
