"""Manifests and trailers read again, by the page that draws the formats and by nothing else.

The oracle must not take the product's word for what a manifest says, so this shares no code with
`coldstream.manifest` and `coldstream.fragment` (docs/reference/formats.md is the source).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

_HEADER = Struct(">4sIQQqq16sQ")
_ROOT = Struct(">QQQIIII")
#: By version of the root: lengths of its names, and 0.
_NAMES = {2: Struct(">HHHH"), 3: Struct(">HHHHHH")}
_CLAIM = Struct(">QQ")
_GROUP = Struct(">IIQ")
_ENTRY = Struct(">QQqqB7sIIQ")
_TRAILER = Struct(">QQqqqqQQQQQQIIIIQQQIIII4s")
_NONE = 2**64 - 1
_MAGICS = {1: b"OSIG", 2: b"OSIK", 3: b"OSIM"}
_SUFFIXES = {1: "group", 2: "kgroup", 3: "mgroup"}
HOLE = 4


@dataclass(frozen=True, slots=True)
class Leaf:
    """A fragment or a hole, as an entry says it."""

    first: int
    next: int
    low_ms: int
    high_ms: int
    kind: int
    size: int
    records: int
    epoch: int
    uid: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a root and the groups below it say.

    Attributes:
        first: offset.
        next: offset.
        size: bytes of all live fragments.
        epoch: of the last claim.
        version: of the root.
        ledger: (epoch, floor), as they stand.
        last_chunk: id and epoch, None if there is none.
        quarantine: key of the record, "" if there is none.
        leaves: live fragments and holes, in order.
        nodes: keys of the groups that hold them.
        name: cluster, virtual host, queue, super stream and routing key; "" where the root does not
            say it.
    """

    first: int
    next: int
    size: int
    epoch: int
    version: int
    ledger: tuple[tuple[int, int], ...]
    last_chunk: tuple[int, int] | None
    quarantine: str
    leaves: tuple[Leaf, ...]
    nodes: tuple[str, ...]
    name: tuple[str, ...] = ("",) * 5


class MisreadError(Exception):
    """Bytes that contradict the format."""


def accepts(ledger: Sequence[tuple[int, int]], epoch: int, first: int, next_offset: int) -> bool:
    """Rule 3: in the ledger, floor at or below, and under all floors of higher epochs."""
    floors = dict(ledger)
    higher = [floor for other, floor in ledger if other > epoch]
    return epoch in floors and floors[epoch] <= first and all(next_offset <= f for f in higher)


def read_manifest(root: bytes, folder: str, get: Callable[[str], bytes]) -> Manifest:
    """A whole manifest.

    Args:
        root: bytes of the root.
        folder: of the metadata, ends in "/".
        get: gives the bytes under a key; may raise anything.

    Raises:
        MisreadError: it contradicts the format, or itself.
    """
    magic, first, next_offset, low, high, size, version = _header(root, newest=3)
    if magic != b"OSIR":
        raise MisreadError(f"a root with the magic {magic!r}")
    at = _HEADER.size
    epoch, last_id, last_epoch, claims, length, count, _ = _ROOT.unpack_from(root, at)
    at += _ROOT.size
    lengths: list[int] = []
    layout = _NAMES.get(int.from_bytes(root[4:8], "big"))
    if layout is not None:
        *lengths, reserved = layout.unpack_from(root, at)
        if reserved:
            raise MisreadError("bytes that are reserved are not 0")
        at += layout.size
    ledger = tuple(_CLAIM.iter_unpack(root[at : at + claims * _CLAIM.size]))
    at += claims * _CLAIM.size
    quarantine = root[at : at + length].decode()
    at += length
    names = _names(root, at, lengths)
    entries = _entries(root, at + sum(lengths), count)
    leaves: list[Leaf] = []
    nodes: list[str] = []
    position = entries[0].first if entries else first
    for entry in entries:
        if entry.first != position:
            raise MisreadError(f"an entry begins at {entry.first}, not at {position}")
        position = entry.next
        if entry.kind in (0, HOLE):
            leaves.append(entry)
        else:
            _descend(entry, folder, get, leaves, nodes, first)
    live = tuple(each for each in leaves if each.next > first)
    if position != next_offset or (live and live[0].first > first):
        raise MisreadError(f"[{first}, {next_offset}) is not what the entries cover")
    if sum(each.size for each in live) != size:
        raise MisreadError(f"{size} bytes, and live fragments have others")
    if (low, high) != ((live[0].low_ms, live[0].high_ms) if live else (0, 0)):
        raise MisreadError("timestamps of the first leaf that are not its own")
    last = None if last_id == _NONE else (last_id, last_epoch)
    return Manifest(
        first, next_offset, size, epoch, version, ledger, last, quarantine, live, tuple(nodes),
        tuple([*names, "", "", "", "", ""][:5]),
    )  # fmt: skip


def _names(root: bytes, at: int, lengths: Sequence[int]) -> list[str]:
    """Texts of these lengths, one after the other."""
    found = []
    for length in lengths:
        found.append(root[at : at + length].decode())
        at += length
    return found


def _descend(
    entry: Leaf,
    folder: str,
    get: Callable[[str], bytes],
    leaves: list[Leaf],
    nodes: list[str],
    first: int,
) -> None:
    """Add what lies below a group, and check its sums."""
    if entry.next <= first:
        raise MisreadError("a group wholly below the first offset")
    key = f"{folder}{entry.first:020d}.{entry.uid:016x}.{_SUFFIXES[entry.kind]}"
    data = get(key)
    magic, begin, next_offset, _, _, size, _ = _header(data)
    count, fragments, uid = _GROUP.unpack_from(data, _HEADER.size)
    if (magic, begin, next_offset, size, fragments, uid) != (
        _MAGICS[entry.kind], entry.first, entry.next, entry.size, entry.records, entry.uid,
    ):  # fmt: skip
        raise MisreadError(f"{key} is not what its entry says")
    nodes.append(key)
    before = len(leaves)
    position = begin
    for each in _entries(data, _HEADER.size + _GROUP.size, count):
        if each.first != position:
            raise MisreadError(f"{key}: an entry begins at {each.first}, not at {position}")
        position = each.next
        if each.kind in (0, HOLE):
            leaves.append(each)
        elif each.next > first:
            _descend(each, folder, get, leaves, nodes, first)
    below = leaves[before:]
    if position != next_offset:
        raise MisreadError(f"{key} ends at {position}")
    if begin >= first and (
        sum(each.size for each in below) != size
        or len(below) != fragments
        or min(each.low_ms for each in below) != entry.low_ms
        or max(each.high_ms for each in below) != entry.high_ms
    ):
        raise MisreadError(f"{key}: sums that are not those of what lies below")


def _header(data: bytes, newest: int = 1) -> tuple[bytes, int, int, int, int, int, int]:
    if len(data) < _HEADER.size + 4 or crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise MisreadError("a node whose CRC is wrong")
    magic, number, first, next_offset, low, high, size, version = _HEADER.unpack_from(data)
    if not 1 <= number <= newest:
        raise MisreadError(f"a node of version {number}")
    return magic, first, next_offset, low, high, int.from_bytes(size, "big"), version


def _entries(data: bytes, at: int, count: int) -> list[Leaf]:
    end = at + count * _ENTRY.size
    if end + 4 != len(data):
        raise MisreadError("a node of another length")
    return [
        Leaf(first, next_offset, low, high, kind, int.from_bytes(size, "big"), records, epoch, uid)
        for first, next_offset, low, high, kind, size, records, epoch, uid in _ENTRY.iter_unpack(
            data[at:end]
        )
    ]


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk as the trailer and index must describe it."""

    chunk_id: int
    next_offset: int
    epoch: int
    timestamp: int
    data: bytes


def data_of(fragment: bytes) -> bytes:
    """The chunks of a fragment, as its trailer says where they end.

    Raises:
        MisreadError: the trailer cannot be one.
    """
    tail = fragment[-_TRAILER.size :]
    if len(tail) < _TRAILER.size or tail[-4:] != b"OSIT":
        raise MisreadError("no trailer")
    size = _TRAILER.unpack(tail)[16]
    return fragment[8 : 8 + size]


def trailer_lies(fragment: bytes, pieces: Sequence[Piece], epoch: int) -> list[str]:
    """Fields of trailer and index that say something else than the chunks do.

    Args:
        fragment: the whole object.
        pieces: the chunks in it, as their writers made them.
        epoch: that its key says.
    """
    found = _TRAILER.unpack(fragment[-_TRAILER.size :])
    data = b"".join(each.data for each in pieces)
    times = [each.timestamp for each in pieces]
    index, position = b"", 0
    for each in pieces:
        index += Struct(">QqI").pack(each.chunk_id, each.timestamp, position)
        position += len(each.data)
    first, last = pieces[0], pieces[-1]
    expected: dict[str, tuple[object, object]] = {
        "first offset": (found[0], first.chunk_id),
        "next offset": (found[1], last.next_offset),
        "first timestamp": (found[2], times[0]),
        "last timestamp": (found[3], times[-1]),
        "min timestamp": (found[4], min(times)),
        "max timestamp": (found[5], max(times)),
        "epoch": (found[6], epoch),
        "first chunk epoch": (found[8], first.epoch),
        "last chunk epoch": (found[9], last.epoch),
        "last chunk id": (found[10], last.chunk_id),
        "chunks": (found[14], len(pieces)),
        "records": (found[15], last.next_offset - first.chunk_id),
        "data size": (found[16], len(data)),
        "data crc": (found[19], crc32(data)),
        "index crc": (found[20], crc32(index)),
        "crc": (found[22], crc32(fragment[-_TRAILER.size : -8])),
        "header": (fragment[:4], b"OSIF"),
        "data": (fragment[8 : 8 + len(data)], data),
        "index": (fragment[8 + len(data) + 8 : -_TRAILER.size], index),
    }
    return [name for name, (is_there, should_be) in expected.items() if is_there != should_be]
