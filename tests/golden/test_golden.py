"""What a release wrote stays readable, and is written the same, for ever."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest

from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    IndexRecord,
    Trailer,
    check_against_key,
    parse_trailer,
)
from coldstream.manifest.erasure import parse_erasure
from coldstream.manifest.node import Node, parse_node
from coldstream.manifest.quarantine import parse_record
from coldstream.manifest.root import Root, parse_root
from coldstream.osiris.chunk import iter_chunks
from tests.golden import make

HERE = Path(__file__).parent
SHA256 = {
    "fragment-v1.bin": "a71fb95eaa3d019ce3e8a41a0bfdeb8c65ad4e7c6a2b763b74c9285f7e8d1564",
    "root-v1.bin": "f25168af83cc549d17505093e7b205f05717fe8d38f5b542c3800892cf1f397e",
    "root-v1-empty.bin": "4f389f9d71135f5c5b0f5f3903bbdda5f4a3828a4b682e22dbcf57977cd4fa67",
    "root-v2.bin": "185b513b8edd61bd2b59a3b18d70ad46ab988de8541a832fa391d9e0c9478745",
    "root-v2-empty.bin": "48ac7573ad6b89b1c5995a731a98bcb3e31e24a6a4b51b0c85413f82dfe796cb",
    "root-v3.bin": "c5dcbf70c5a564f3edc710492cd020ce079c6c2533426eafeb135fb82e9d46b9",
    "root-v3-empty.bin": "94cebf22ff5c418cb586313bed457b760ea465554bdd1fb2dac8d8d9e8960b47",
    "group-v1.bin": "7247ca9ce29b76d692025665f85332f2e32c0ecf5e90981796be19395fd08f52",
    "kgroup-v1.bin": "a262c923deb372f4173fd10b20622e3874bda76a06f39673e96d7b9c8f9a1fd0",
    "quarantine-v1.record": "3fa37bad08aaad75eb02c862e6e55cd7750f507260e2e301a12eff1d9e794e8c",
    "erasure-v1.record": "4be79cb632305f7a861cdd4c1c87d613250bcb931a259263afbd6a55c8cf8748",
    "mgroup-v1.bin": "cbd49a9a61310c01c3b6c7fc2bf9e6f97f5a0efbea8514596fd35f063f5715ac",
}


@pytest.mark.parametrize("name", SHA256)
def test_a_golden_file_was_never_changed(name: str) -> None:
    assert hashlib.sha256((HERE / name).read_bytes()).hexdigest() == SHA256[name]


def test_a_fragment_of_version_1_is_read() -> None:
    data = (HERE / "fragment-v1.bin").read_bytes()

    trailer = parse_trailer(data[-TRAILER_SIZE:])

    assert trailer == Trailer(
        first_offset=1000,
        next_offset=1035,
        first_timestamp=1_700_000_000_000,
        last_timestamp=1_700_000_001_000,
        min_timestamp=1_699_999_999_000,
        max_timestamp=1_700_000_001_000,
        epoch=7,
        floor=990,
        first_chunk_epoch=5,
        last_chunk_epoch=6,
        last_chunk_id=1030,
        segment_offset=1000,
        sequence=0,
        segment_position=8,
        chunks=4,
        records=35,
        data_size=787,
        index_position=795,
        index_size=88,
        data_crc=0xF8A2E386,
        index_crc=0xF6624F74,
    )
    check_against_key(trailer, make.fragment_v1().key, len(data))
    index = FragmentIndex(data[trailer.index_position :][: trailer.index_size], trailer)
    assert index[2] == IndexRecord(1020, 1_699_999_999_000, index[2].position)
    chunks = data[len(HEADER) : trailer.index_position]
    assert zlib.crc32(chunks) == trailer.data_crc
    assert [each.header.chunk_id for each in iter_chunks(chunks)] == [1000, 1010, 1020, 1030]


def test_a_fragment_of_version_1_is_still_written_byte_for_byte() -> None:
    assert make.fragment_v1().data == (HERE / "fragment-v1.bin").read_bytes()


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("root-v1.bin", make.root_v1()),
        ("root-v1-empty.bin", Root(1592, 1592)),
        ("root-v2.bin", make.root_v2()),
        ("root-v2-empty.bin", Root(1592, 1592)),
    ],
)
def test_a_root_of_an_older_version_is_read(name: str, root: Root) -> None:
    assert parse_root((HERE / name).read_bytes()) == root


@pytest.mark.parametrize(
    ("name", "root"),
    [("root-v3.bin", make.root_v3()), ("root-v3-empty.bin", Root(1592, 1592))],
)
def test_a_root_of_version_3_is_read_and_still_written_byte_for_byte(name: str, root: Root) -> None:
    data = (HERE / name).read_bytes()

    assert parse_root(data) == root
    assert root.encode() == data


@pytest.mark.parametrize("node", make.nodes_v1(), ids=lambda node: node.kind.name)
def test_a_group_of_version_1_is_read_and_still_written_byte_for_byte(node: Node) -> None:
    data = (HERE / make.NODE_FILES[node.kind]).read_bytes()

    assert parse_node(data, node.entry()) == node
    assert node.encode(catalog_version=12) == data


def test_a_quarantine_record_of_version_1_is_read_and_still_written_byte_for_byte() -> None:
    data = (HERE / make.RECORD_FILE).read_bytes()

    assert parse_record(data) == make.record_v1()
    assert make.record_v1().encode() == data


def test_an_erasure_record_of_version_1_is_read_and_still_written_byte_for_byte() -> None:
    data = (HERE / make.ERASURE_FILE).read_bytes()

    assert parse_erasure(data) == make.erasure_v1()
    assert make.erasure_v1().encode() == data


@pytest.mark.parametrize("name", SHA256)
def test_the_script_never_overwrites_a_golden_file(name: str) -> None:
    with pytest.raises(FileExistsError):
        make.main(name)
