"""The root of a stream's manifest: header, ledger and entries in one immutable object.

    ┌─────────────┬─────────────┬──────────────┬────────────────┬───────┬───────────┬───────┐
    │ node header │ root fields │ ledger       │ quarantine key │ names │ entries   │ CRC32 │
    │ 64 bytes    │ 52 bytes    │ 16 B a claim │ UTF-8          │ UTF-8 │ 56 B each │ u32   │
    └─────────────┴─────────────┴──────────────┴────────────────┴───────┴───────────┴───────┘

Version 1 has no names, and no lengths of them in its fields; version 2 has those of cluster,
virtual host and queue only.

Its entries are, from the oldest on: mega-groups, kilo-groups, groups, and then the youngest
fragments and holes themselves, so that a commit never touches a group. Where retention has ended
inside a group, the group's entry stays and `Head` says what of it is still alive.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from itertools import pairwise

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import ENTRY_SIZE, Entries, Entry
from coldstream.manifest.header import (
    CRC_SIZE,
    HEADER_SIZE,
    NodeHeader,
    opened,
    sealed,
    version_of,
)
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.queue_name import QueueName
from coldstream.names import MAX_NAME, MAX_OFFSET

ROOT_MAGIC = b"OSIR"
VERSION = 3

_ROOT = struct.Struct(
    ">"
    "I"  # shift
    "I"  # epoch
    "Q"  # id of the last chunk before next offset
    "Q"  # epoch of that chunk
    "I"  # claims in the ledger
    "I"  # length of the quarantine record's key
    "I"  # entries
    "I"  # fragments and holes of the first entry, a group, that lie below the first offset
)
_NAMES = struct.Struct(
    ">"
    "H"  # length of the cluster's name
    "H"  # length of the virtual host's
    "H"  # length of the queue's
    "H"  # length of the super stream's
    "H"  # length of the routing key
    "H"  # reserved, 0
)
_NAMES_V2 = struct.Struct(">HHHH")
_CLAIM = struct.Struct(">QQ")
#: Of version 1, whose fields every version begins with.
_FIXED = _ROOT.size
ROOT_SIZE = _FIXED + _NAMES.size
MAX_KEY = 1024  # the longest key that S3 takes


@dataclass(frozen=True, slots=True)
class Head:
    """The oldest live fragment, and what lies dead before it, where the first entry is a group.

    Groups are never rewritten by retention, so they still count what it has taken from them.

    Attributes:
        min_timestamp: smallest chunk timestamp of the oldest live fragment or hole, ms.
        max_timestamp: its greatest, ms.
        dead_size: bytes of the fragments below the first offset that the first entry still counts.
        dead_fragments: how many fragments and holes these are.
    """

    min_timestamp: int
    max_timestamp: int
    dead_size: int = 0
    dead_fragments: int = 0


@dataclass(frozen=True, slots=True)
class LastChunk:
    """Identity of the last chunk before `next_offset`: same id and epoch mean same history."""

    chunk_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Root:
    """What the remote tier of one stream holds. Values never change; edits give a new root.

    Attributes:
        first_offset: first offset that can be read.
        next_offset: the offset that the next run must start at.
        epoch: epoch under which this root was committed.
        version: version of the catalog item that names this root.
        ledger: every claim so far.
        entries: groups, fragments and holes; what they stand for tiles [first_offset, next_offset).
        head: of the first entry if that is a group, None otherwise.
        last_chunk: identity of the last chunk below next_offset, kept even when entries are gone.
        quarantine_key: key of the quarantine record, "" if there is none.
        shift: what agents add to the epochs of their brokers, since false claims were undone that
            have used up numbers (usecases/undo.py); else 0.
        name: of the stream's queue, as its item said it when this root was made.
    """

    first_offset: int
    next_offset: int
    epoch: int = 0
    version: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    entries: Entries = field(default_factory=Entries)
    head: Head | None = None
    last_chunk: LastChunk | None = None
    quarantine_key: str = ""
    shift: int = 0
    name: QueueName = field(default_factory=QueueName)

    @property
    def total_size(self) -> int:
        """Bytes of all live fragments."""
        dead = self.head.dead_size if self.head else 0
        return self.entries.summary().size - dead

    @property
    def fragments(self) -> int:
        """Number of live fragments and holes."""
        dead = self.head.dead_fragments if self.head else 0
        return self.entries.summary().fragments - dead

    @property
    def first_timestamp(self) -> int:
        """Smallest timestamp of the oldest live fragment in ms, 0 if there is none."""
        oldest = self._oldest
        return oldest.min_timestamp if oldest else 0

    @property
    def oldest_timestamp(self) -> int:
        """Greatest timestamp of the oldest live fragment in ms, 0 if there is none."""
        oldest = self._oldest
        return oldest.max_timestamp if oldest else 0

    @property
    def _oldest(self) -> Head | Entry | None:
        return self.head or (self.entries[0] if len(self.entries) else None)

    @property
    def last_timestamp(self) -> int:
        """Greatest timestamp of the newest entry in ms, 0 if there is none."""
        return self.entries[-1].max_timestamp if len(self.entries) else 0

    def appended(self, run: Iterable[Entry], last_chunk: LastChunk | None) -> Root:
        """This root with a verified run at its end; this very root if the run is empty.

        Raises:
            CorruptDataError: the run does not start at next_offset or has a gap.
        """
        run = tuple(run)
        if not run:
            return self
        if run[0].first_offset != self.next_offset:
            raise CorruptDataError(
                f"a run from {run[0].first_offset} cannot follow", offset=self.next_offset
            )
        return replace(
            self,
            next_offset=run[-1].next_offset,
            entries=self.entries.appended(run),
            last_chunk=last_chunk,
        )

    def encode(self) -> bytes:
        """The object's bytes."""
        claims = b"".join(_CLAIM.pack(c.epoch, c.floor) for c in self.ledger.claims)
        quarantine = self.quarantine_key.encode()
        header = NodeHeader(
            first_offset=self.first_offset,
            next_offset=self.next_offset,
            first_timestamp=self.first_timestamp,
            oldest_timestamp=self.oldest_timestamp,
            total_size=self.total_size,
            catalog_version=self.version,
        )
        numbers = _ROOT.pack(
            self.shift,
            self.epoch,
            self.last_chunk.chunk_id if self.last_chunk else MAX_OFFSET,
            self.last_chunk.epoch if self.last_chunk else 0,
            len(self.ledger.claims),
            len(quarantine),
            len(self.entries),
            self.head.dead_fragments if self.head else 0,
        )
        names = [part.encode() for part in astuple(self.name)]
        lengths = _NAMES.pack(*map(len, names), 0)
        body = (numbers, lengths, claims, quarantine, *names, bytes(self.entries))
        return sealed(ROOT_MAGIC, header, b"".join(body), version=VERSION)


def entries_begin(data: bytes) -> int:
    """Where the entries of a root begin, as its own numbers say, whatever its checksum.

    Args:
        data: a whole root.

    Raises:
        CorruptDataError: it is too short, or they would not fill it to its end.
    """
    names_layout = _names_layout(data)
    fixed = _FIXED + (0 if names_layout is None else names_layout.size)
    if len(data) < HEADER_SIZE + fixed + CRC_SIZE:
        raise CorruptDataError(f"{len(data)} bytes are too few for a manifest root")
    claims, key_length, count = struct.unpack_from(">III", data, HEADER_SIZE + 24)
    names = 0
    if names_layout is not None:
        names = sum(names_layout.unpack_from(data, HEADER_SIZE + _FIXED)[:-1])
    begin = HEADER_SIZE + fixed + claims * _CLAIM.size + key_length + names
    if begin + count * ENTRY_SIZE + CRC_SIZE != len(data) or key_length > MAX_KEY:
        raise CorruptDataError("the manifest root's lengths do not add up")
    return int(begin)


def parse_root(data: bytes) -> Root:
    """Read and check a root.

    Raises:
        CorruptDataError: cut, flipped, or in contradiction with itself.
        UnknownVersionError: of a later version.
    """
    header = opened(ROOT_MAGIC, data, fixed=_FIXED, what="manifest root", newest=VERSION)
    begin = entries_begin(data)
    shift, epoch, chunk_id, chunk_epoch, claims, key_length, _, dead = _ROOT.unpack_from(
        data, HEADER_SIZE
    )
    names_layout = _names_layout(data)
    claims_begin = HEADER_SIZE + _FIXED + (0 if names_layout is None else names_layout.size)
    claims_end = claims_begin + claims * _CLAIM.size
    key_end = claims_end + key_length
    try:
        quarantine = data[claims_end:key_end].decode()
    except UnicodeDecodeError as exc:
        raise CorruptDataError("the quarantine record's key is not UTF-8") from exc
    entries = Entries(data[begin:-CRC_SIZE])
    root = Root(
        first_offset=header.first_offset,
        next_offset=header.next_offset,
        epoch=epoch,
        version=header.catalog_version,
        ledger=Ledger.of(_CLAIM.iter_unpack(data[claims_begin:claims_end])),
        entries=entries,
        head=_head(header, entries, dead),
        last_chunk=None if chunk_id == MAX_OFFSET else LastChunk(chunk_id, chunk_epoch),
        quarantine_key=quarantine,
        shift=shift,
        name=_name(data, key_end),
    )
    if root.last_chunk is None and chunk_epoch:
        raise CorruptDataError("the manifest root has the epoch of a last chunk and no last chunk")
    _check(root, header, dead)
    return root


def _names_layout(data: bytes) -> struct.Struct | None:
    """Where the lengths of a root's names are; None in version 1, which has none."""
    return {1: None, 2: _NAMES_V2}.get(version_of(data), _NAMES)


def _name(data: bytes, begin: int) -> QueueName:
    """The names of a root, which begin there."""
    layout = _names_layout(data)
    if layout is None:
        return QueueName()
    *lengths, reserved = layout.unpack_from(data, HEADER_SIZE + _FIXED)
    parts = []
    for length in lengths:
        try:
            parts.append(data[begin : begin + length].decode())
        except UnicodeDecodeError as exc:
            raise CorruptDataError("a name in the manifest root is not UTF-8") from exc
        begin += length
    if reserved or any(len(part) > MAX_NAME for part in parts):
        raise CorruptDataError("a name in the manifest root is too long, or none")
    return QueueName(*parts)


def _head(header: NodeHeader, entries: Entries, dead_fragments: int) -> Head | None:
    """What the header says of the oldest live fragment; None where the first entry is one."""
    if not len(entries) or not entries[0].kind.level:
        return None
    return Head(
        min_timestamp=header.first_timestamp,
        max_timestamp=header.oldest_timestamp,
        dead_size=entries.summary().size - header.total_size,
        dead_fragments=dead_fragments,
    )


def _check(root: Root, header: NodeHeader, dead_fragments: int) -> None:
    entries = root.entries
    first = entries[0] if len(entries) else None
    head = root.head
    oldest = head or first
    tiled = (
        (first.first_offset, entries[-1].next_offset)
        if first
        else (root.next_offset, root.next_offset)
    )
    rules = (
        (root.first_offset <= root.next_offset, "the offsets are no range"),
        (tiled[0] <= root.first_offset, "the entries begin above the first offset"),
        (
            first is None or root.first_offset < first.next_offset,
            "the first entry lies below the first offset",
        ),
        (tiled[1] == root.next_offset, "the entries do not end at the next offset"),
        (
            root.last_chunk is None or root.last_chunk.chunk_id < root.next_offset,
            "the last chunk lies above the next offset",
        ),
        (root.shift <= root.epoch + 1, "agents add more to an epoch than any has"),
        (root.ledger.epoch == root.epoch, "the ledger ends in another epoch"),
        (
            all(one >= other for one, other in pairwise(entries.levels())),
            "a group lies behind an entry of a lower level",
        ),
        (
            header.first_timestamp == (oldest.min_timestamp if oldest else 0),
            "the first timestamp is wrong",
        ),
        (
            header.oldest_timestamp == (oldest.max_timestamp if oldest else 0),
            "the oldest fragment's last timestamp is wrong",
        ),
        (header.total_size == root.total_size, "the total size is wrong"),
        (
            dead_fragments == (head.dead_fragments if head else 0),
            "dead fragments without a group that could hold them",
        ),
        (
            head is None
            or first is None
            or (
                0 <= head.dead_size <= first.size
                and 0 <= head.dead_fragments < first.records
                and first.min_timestamp <= head.min_timestamp
                and head.max_timestamp <= first.max_timestamp
            ),
            "the oldest fragment is not in the first group",
        ),
        (entries.summary().epoch <= root.epoch, "a fragment is newer than its root"),
    )
    problem = next((words for holds, words in rules if not holds), None)
    if problem:
        raise CorruptDataError(
            f"the manifest root contradicts itself: {problem}", offset=root.first_offset
        )
