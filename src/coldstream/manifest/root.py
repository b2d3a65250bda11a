"""The root of a stream's manifest: header, ledger and entries in one immutable object.

    ┌───────────────┬────────────────┬─────────────┬────────────────┬──────────────┬─────────┐
    │ node header   │ root fields    │ ledger      │ quarantine key │ entries      │ CRC32   │
    │ 64 bytes      │ 40 bytes       │ 16 B a claim│ UTF-8          │ 56 B each    │ u32     │
    └───────────────┴────────────────┴─────────────┴────────────────┴──────────────┴─────────┘

Groups (docs/reference/formats.md) will share the 64-byte node header and the entries. The CRC
covers everything before it, so a flip of any bit and a cut at any byte are found.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import ENTRY_SIZE, Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.names import MAX_EPOCH, MAX_OFFSET

VERSION = 1
ROOT_MAGIC = b"OSIR"

_HEADER = struct.Struct(
    ">"
    "4s"  # magic
    "I"  # version
    "Q"  # first offset
    "Q"  # next offset
    "q"  # first timestamp, ms
    "q"  # last timestamp of the oldest fragment, ms
    "QQ"  # total size, bytes: high and low half of a u128
    "Q"  # catalog version
)
_ROOT = struct.Struct(
    ">"
    "Q"  # epoch
    "Q"  # id of the last chunk before next offset
    "Q"  # epoch of that chunk
    "I"  # claims in the ledger
    "I"  # length of the quarantine record's key
    "I"  # entries
    "I"  # reserved, 0
)
_CLAIM = struct.Struct(">QQ")
_CRC = struct.Struct(">I")
HEADER_SIZE = _HEADER.size
ROOT_SIZE = _ROOT.size
MAX_KEY = 1024  # the longest key that S3 takes


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
        entries: fragments and holes that tile [first_offset, next_offset).
        last_chunk: identity of the last chunk below next_offset, kept even when entries are gone.
        quarantine_key: key of the quarantine record, "" if there is none.
    """

    first_offset: int
    next_offset: int
    epoch: int = 0
    version: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    entries: Entries = field(default_factory=Entries)
    last_chunk: LastChunk | None = None
    quarantine_key: str = ""

    @property
    def total_size(self) -> int:
        """Bytes of all fragments."""
        return sum(entry.size for entry in self.entries)

    @property
    def first_timestamp(self) -> int:
        """Smallest timestamp of the oldest entry in ms, 0 if there is none."""
        return self.entries[0].min_timestamp if len(self.entries) else 0

    @property
    def last_timestamp(self) -> int:
        """Greatest timestamp of the newest entry in ms, 0 if there is none."""
        return self.entries[-1].max_timestamp if len(self.entries) else 0

    def appended(self, run: Iterable[Entry], last_chunk: LastChunk) -> Root:
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
        oldest = self.entries[0].max_timestamp if len(self.entries) else 0
        total = self.total_size
        body = b"".join(
            (
                _HEADER.pack(
                    ROOT_MAGIC,
                    VERSION,
                    self.first_offset,
                    self.next_offset,
                    self.first_timestamp,
                    oldest,
                    total >> 64,
                    total & (2**64 - 1),
                    self.version,
                ),
                _ROOT.pack(
                    self.epoch,
                    self.last_chunk.chunk_id if self.last_chunk else MAX_OFFSET,
                    self.last_chunk.epoch if self.last_chunk else 0,
                    len(self.ledger.claims),
                    len(quarantine),
                    len(self.entries),
                    0,
                ),
                claims,
                quarantine,
                bytes(self.entries),
            )
        )
        return body + _CRC.pack(zlib.crc32(body))


def parse_root(data: bytes) -> Root:
    """Read and check a root.

    Raises:
        CorruptDataError: cut, flipped, of an unknown version, or in contradiction with itself.
    """
    fixed = HEADER_SIZE + ROOT_SIZE
    if len(data) < fixed + _CRC.size:
        raise CorruptDataError(f"{len(data)} bytes are too few for a manifest root")
    magic, version, first, following, first_ts, oldest, high, low, catalog_version = (
        _HEADER.unpack_from(data)
    )
    if magic != ROOT_MAGIC:
        raise CorruptDataError(f"a manifest root begins with {ROOT_MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        raise CorruptDataError(f"manifest version {version} is not known to this release")
    if zlib.crc32(data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise CorruptDataError("the manifest root's checksum does not match")
    epoch, chunk_id, chunk_epoch, claims, key_length, count, reserved = _ROOT.unpack_from(
        data, HEADER_SIZE
    )
    claims_end = fixed + claims * _CLAIM.size
    key_end = claims_end + key_length
    entries_end = key_end + count * ENTRY_SIZE
    if entries_end + _CRC.size != len(data) or key_length > MAX_KEY or reserved:
        raise CorruptDataError("the manifest root's lengths do not add up")
    try:
        quarantine = data[claims_end:key_end].decode()
    except UnicodeDecodeError as exc:
        raise CorruptDataError("the quarantine record's key is not UTF-8") from exc
    root = Root(
        first_offset=first,
        next_offset=following,
        epoch=epoch,
        version=catalog_version,
        ledger=Ledger.of(_CLAIM.iter_unpack(data[fixed:claims_end])),
        entries=Entries(data[key_end:entries_end]),
        last_chunk=None if chunk_id == MAX_OFFSET else LastChunk(chunk_id, chunk_epoch),
        quarantine_key=quarantine,
    )
    if root.last_chunk is None and chunk_epoch:
        raise CorruptDataError("the manifest root has the epoch of a last chunk and no last chunk")
    _check(root, first_ts, oldest, high << 64 | low)
    return root


def _check(root: Root, first_timestamp: int, oldest_timestamp: int, total_size: int) -> None:
    entries = root.entries
    tiled = (
        (entries[0].first_offset, entries[-1].next_offset)
        if len(entries)
        else (root.next_offset, root.next_offset)
    )
    rules = (
        (root.first_offset <= root.next_offset, "the offsets are no range"),
        (tiled[0] <= root.first_offset, "the entries begin above the first offset"),
        (
            not len(entries) or root.first_offset < entries[0].next_offset,
            "the first entry lies below the first offset",
        ),
        (tiled[1] == root.next_offset, "the entries do not end at the next offset"),
        (
            root.last_chunk is None or root.last_chunk.chunk_id < root.next_offset,
            "the last chunk lies above the next offset",
        ),
        (root.epoch <= MAX_EPOCH, "the epoch is out of range"),
        (root.ledger.epoch == root.epoch, "the ledger ends in another epoch"),
        (first_timestamp == root.first_timestamp, "the first timestamp is wrong"),
        (
            oldest_timestamp == (entries[0].max_timestamp if len(entries) else 0),
            "the oldest fragment's last timestamp is wrong",
        ),
        (total_size == root.total_size, "the total size is wrong"),
        (
            all(e.epoch <= root.epoch for e in entries if e.kind is EntryKind.FRAGMENT),
            "a fragment is newer than its root",
        ),
    )
    problem = next((words for holds, words in rules if not holds), None)
    if problem:
        raise CorruptDataError(
            f"the manifest root contradicts itself: {problem}", offset=root.first_offset
        )
