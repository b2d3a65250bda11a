"""The inner nodes of a manifest: groups, kilo-groups and mega-groups. Immutable, named by uid.

    ┌───────────────┬─────────┬───────────┬────────┬──────────────┬─────────┐
    │ node header   │ entries │ fragments │ uid    │ entries      │ CRC32   │
    │ 64 bytes      │ u32     │ u32       │ u64    │ 56 B each    │ u32     │
    └───────────────┴─────────┴───────────┴────────┴──────────────┴─────────┘

All entries of a node are of the level below its own: fragments and holes in a group, groups in a
kilo-group, kilo-groups in a mega-group. Who refers to a node holds its `entry()`; a node that says
anything else than the entry that led to it is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, InternalError
from coldstream.manifest.entries import ENTRY_SIZE, MAX_RECORDS, Entries, Entry, EntryKind
from coldstream.manifest.header import CRC_SIZE, HEADER_SIZE, NodeHeader, opened, sealed

_NODE = struct.Struct(
    ">"
    "I"  # entries
    "I"  # fragments and holes below, at all levels
    "Q"  # uid
)
NODE_SIZE = _NODE.size
MAGIC = {
    EntryKind.GROUP: b"OSIG",
    EntryKind.KILO_GROUP: b"OSIK",
    EntryKind.MEGA_GROUP: b"OSIM",
}
_NAME = {
    EntryKind.GROUP: "manifest group",
    EntryKind.KILO_GROUP: "manifest kilo-group",
    EntryKind.MEGA_GROUP: "manifest mega-group",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A group of some level.

    Attributes:
        kind: its level.
        uid: as in its key.
        entries: its children, one or more, all of the level below.
    """

    kind: EntryKind
    uid: int
    entries: Entries

    def entry(self) -> Entry:
        """The entry by which a parent refers to it.

        Raises:
            CorruptDataError: no entries, or entries of another level.
        """
        if not len(self.entries):
            raise CorruptDataError("a manifest group without entries")
        summary = self.entries.summary()
        if summary.levels != {self.kind.level - 1}:
            raise CorruptDataError(
                f"a {_NAME[self.kind]} with entries of another level",
                offset=self.entries[0].first_offset,
            )
        return Entry(
            first_offset=self.entries[0].first_offset,
            next_offset=self.entries[-1].next_offset,
            min_timestamp=summary.min_timestamp,
            max_timestamp=summary.max_timestamp,
            kind=self.kind,
            size=summary.size,
            records=summary.fragments,
            epoch=summary.epoch,
            uid=self.uid,
        )

    def encode(self, *, catalog_version: int = 0) -> bytes:
        """The object's bytes.

        Args:
            catalog_version: that the commit hopes to reach; for people who look at the object.

        Raises:
            InternalError: more fragments or bytes than an entry could say.
        """
        entry = self.entry()
        if entry.records > MAX_RECORDS:
            raise InternalError("a group of too many fragments", offset=entry.first_offset)
        header = NodeHeader(
            first_offset=entry.first_offset,
            next_offset=entry.next_offset,
            first_timestamp=self.entries[0].min_timestamp,
            oldest_timestamp=self.entries[0].max_timestamp,
            total_size=entry.size,
            catalog_version=catalog_version,
        )
        numbers = _NODE.pack(len(self.entries), entry.records, self.uid)
        return sealed(MAGIC[self.kind], header, numbers + bytes(self.entries))


def parse_node(data: bytes, entry: Entry) -> Node:
    """Read the group that `entry` refers to, and check that it is that one.

    Raises:
        CorruptDataError: cut, flipped, in contradiction with itself, or not what the entry says.
    """
    header = opened(MAGIC[entry.kind], data, fixed=NODE_SIZE, what=_NAME[entry.kind])
    count, fragments, uid = _NODE.unpack_from(data, HEADER_SIZE)
    begin = HEADER_SIZE + NODE_SIZE
    if begin + count * ENTRY_SIZE + CRC_SIZE != len(data):
        raise CorruptDataError(
            f"the lengths of the {_NAME[entry.kind]} do not add up", offset=entry.first_offset
        )
    node = Node(entry.kind, uid, Entries(data[begin:-CRC_SIZE]))
    said = node.entry()
    described = (
        said == entry
        and said.records == fragments
        and (header.first_offset, header.next_offset) == (said.first_offset, said.next_offset)
        and header.total_size == said.size
    )
    if not described:
        raise CorruptDataError(
            f"the {_NAME[entry.kind]} is not the one that its parent describes",
            offset=entry.first_offset,
        )
    return node
