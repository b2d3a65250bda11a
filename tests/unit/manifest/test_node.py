"""Groups of a manifest: one that says anything else than the entry that led to it is refused."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.header import HEADER_SIZE
from coldstream.manifest.node import Node, parse_node

CHILDREN = (
    Entry(0, 10, 1_000, 2_000, EntryKind.FRAGMENT, 500, 10, 1, 11),
    Entry(10, 30, 1_500, 2_500, EntryKind.FRAGMENT, 700, 20, 2, 12),
)
NODE = Node(EntryKind.GROUP, 99, Entries.of(CHILDREN))


def poked(position: int, letters: str, value: int) -> bytes:
    """The node's bytes with another number in them, and a checksum that holds."""
    data = bytearray(NODE.encode())
    struct.pack_into(">" + letters, data, position, value)
    data[-4:] = struct.pack(">I", zlib.crc32(data[:-4]))
    return bytes(data)


def test_a_group_comes_back_as_it_was() -> None:
    assert parse_node(NODE.encode(), NODE.entry()) == NODE


@pytest.mark.parametrize("fragments", [0, 1, 3, 2**32 - 1])
def test_a_group_that_counts_other_fragments_than_it_has_is_refused_although_its_checksum_holds(
    fragments: int,
) -> None:
    with pytest.raises(CorruptDataError, match="parent describes"):
        parse_node(poked(HEADER_SIZE + 4, "I", fragments), NODE.entry())


def test_a_group_whose_parent_counts_other_fragments_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="parent describes"):
        parse_node(NODE.encode(), replace(NODE.entry(), records=3))
