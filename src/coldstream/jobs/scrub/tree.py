"""Roots and groups of a manifest, read as far as they can be read, and what is wrong with them.

`parse_root` and `parse_node` refuse a node as a whole, which is right for everybody who builds on
it. Here a node whose checksum holds, and which a writer has therefore written, still leads to the
fragments below it, so that a wrong number above does not hide damage below. Where the checksum does
not hold nobody knows which of its bytes are wrong: what they say would blame sound fragments, so
nothing below is looked at, and none of it counts as scrubbed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError, NotFoundError, UnknownVersionError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import MAX_SIZE, Entries, Entry, EntryKind, entry_dtype
from coldstream.manifest.header import CRC_SIZE, HEADER_SIZE
from coldstream.manifest.invariants import agreement
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import NODE_SIZE, Node, parse_node
from coldstream.manifest.root import ROOT_MAGIC, Root, entries_begin, parse_root
from coldstream.names import MAX_OFFSET, group_path
from coldstream.ports import ObjectStore
from coldstream.remote.nodes import MAX_NODE_SIZE
from coldstream.remote.roots import MAX_ROOT_SIZE
from coldstream.soundness.findings import Finding, FindingKind

_OFFSETS = struct.Struct(">QQ")  # in a node's header, behind magic and version


@dataclass(frozen=True, slots=True)
class TreeTop:
    """The top of a stream's manifest, as far as it can be read.

    Attributes:
        item: the catalog item that named it.
        first_offset: of the manifest.
        next_offset: of the manifest.
        ledger: claims so far.
        entries: of the root, in its order.
        root: the root if it holds; None if something is wrong with it.
        quarantine_key: of the root if it holds.
    """

    item: CatalogItem
    first_offset: int
    next_offset: int
    ledger: Ledger
    entries: tuple[Entry, ...]
    root: Root | None = None
    quarantine_key: str = ""

    @property
    def stream(self) -> str:
        """Directory name."""
        return self.item.stream

    def live(self) -> tuple[Entry, ...]:
        """Entries that reach above the first offset."""
        return tuple(each for each in self.entries if each.next_offset > self.first_offset)


def read_tree(store: ObjectStore, item: CatalogItem) -> tuple[TreeTop, list[Finding]]:
    """The root that an item names, and what is wrong with the two.

    Raises:
        UnavailableError, PermissionDeniedError: the store; no answer is no finding.
        UnknownVersionError: a later release wrote it.
    """
    empty = TreeTop(item, item.first_offset, item.next_offset, item.ledger, ())
    if not item.root_key:
        return empty, []

    def finding(kind: FindingKind, words: str) -> Finding:
        return _finding(
            item.stream, kind, item.root_key, item.first_offset, item.next_offset, words
        )

    try:
        data = store.get_all(item.root_key, limit=MAX_ROOT_SIZE)
    except NotFoundError:
        return empty, [finding(FindingKind.ROOT, "the root of the manifest is gone")]
    except CorruptDataError as error:
        return empty, [finding(FindingKind.ROOT, error.reason)]
    try:
        root = parse_root(data)
    except UnknownVersionError as error:
        error.located(stream=item.stream, key=item.root_key)
        raise
    except CorruptDataError as error:
        tree, more = _salvaged_root(data, item)
        return tree, [*more, *([] if more else [finding(FindingKind.ROOT, error.reason)])]
    found = [
        _finding(item.stream, FindingKind.CATALOG_ITEM, item.root_key, item.first_offset,
                 item.next_offset, each.message)
        for each in agreement(item, root)
    ]  # fmt: skip
    tree = TreeTop(
        item,
        root.first_offset,
        root.next_offset,
        root.ledger,
        tuple(root.entries),
        root,
        root.quarantine_key,
    )
    return tree, found + fenced(tree, tree.live())


def read_group(
    store: ObjectStore, prefix: str, tree: TreeTop, entry: Entry
) -> tuple[tuple[Entry, ...], list[Finding]]:
    """The children of a group as far as they can be read, and what is wrong with it.

    Raises:
        UnavailableError, PermissionDeniedError: the store; no answer is no finding.
        UnknownVersionError: a later release wrote it.
    """
    path = group_path(prefix, tree.stream, entry.first_offset, entry.uid, entry.kind)
    first = max(entry.first_offset, tree.first_offset)

    def finding(kind: FindingKind, words: str, *, expected: str = "", found: str = "") -> Finding:
        return _finding(
            tree.stream, kind, path, first, entry.next_offset, words, expected=expected, found=found
        )

    try:
        data = store.get_all(path, limit=MAX_NODE_SIZE)
    except NotFoundError:
        words = "the manifest group is gone: nothing below it can be found"
        return (), [finding(FindingKind.OBJECT_MISSING, words)]
    except CorruptDataError as error:
        return (), [finding(FindingKind.GROUP, error.reason)]
    try:
        return tuple(parse_node(data, entry).entries), []
    except UnknownVersionError as error:
        error.located(stream=tree.stream, offset=entry.first_offset, key=path)
        raise
    except CorruptDataError as error:
        reason = error.reason
    if not _crc_holds(data):
        return (), [finding(FindingKind.GROUP, f"{reason}; nothing below it can be found")]
    children = _entries_of(data[HEADER_SIZE + NODE_SIZE : -CRC_SIZE])
    problems = list(_tiling(children, tree.stream, path, entry.first_offset, entry.next_offset))
    if not problems:
        problems = [finding(FindingKind.GROUP, reason, **_difference(children, entry))]
    return _credible(children, entry), problems


def _crc_holds(data: bytes) -> bool:
    """Whether a node's bytes are those that were written."""
    return len(data) > CRC_SIZE and crc32(data[:-CRC_SIZE]) == int.from_bytes(
        data[-CRC_SIZE:], "big"
    )


def _credible(children: Sequence[Entry], entry: Entry) -> tuple[Entry, ...]:
    """Children of a group with a wrong number that may well be right.

    They lie inside of it, and are joined to another.
    """
    starts = {each.next_offset for each in children} | {entry.first_offset}
    ends = {each.first_offset for each in children} | {entry.next_offset}
    level = entry.kind.level - 1
    return tuple(
        each
        for each in children
        if entry.first_offset <= each.first_offset < each.next_offset <= entry.next_offset
        and each.kind.level == level
        and (each.first_offset in starts or each.next_offset in ends)
    )


def fenced(tree: TreeTop, entries: Sequence[Entry]) -> list[Finding]:
    """Fragments among `entries` that the ledger refuses."""
    return [
        Finding(
            stream=tree.stream,
            kind=FindingKind.LEDGER,
            severity=FindingKind.LEDGER.severity,
            key=tree.item.root_key,
            first_offset=each.first_offset,
            next_offset=each.next_offset,
            position=None,
            expected="",
            found=str(each.epoch),
            words=f"the ledger refuses epoch {each.epoch} here",
        )
        for each in entries
        if each.kind is EntryKind.FRAGMENT
        and not tree.ledger.accepts(each.epoch, each.first_offset, each.next_offset)
    ]


def _salvaged_root(data: bytes, item: CatalogItem) -> tuple[TreeTop, list[Finding]]:
    """What a root that does not parse still says, and where its entries do not join.

    Nothing, if it is not as it was written.
    """
    empty = TreeTop(item, item.first_offset, item.next_offset, item.ledger, ())
    if len(data) < HEADER_SIZE or not data.startswith(ROOT_MAGIC) or not _crc_holds(data):
        return empty, []
    first, next_offset = _OFFSETS.unpack_from(data, 8)
    try:
        begin = entries_begin(data)
    except CorruptDataError:
        return empty, []
    entries = _entries_of(data[begin:-CRC_SIZE])
    end = entries[-1].next_offset if entries else next_offset
    problems = list(
        _tiling(entries, item.stream, item.root_key, min(first, item.first_offset), end)
    )
    if end != item.next_offset:
        low, high = sorted((end, item.next_offset))
        problems.append(
            _finding(item.stream, FindingKind.OFFSETS, item.root_key, low, high,
                     f"the entries end at {end}, the manifest at {item.next_offset}")
        )  # fmt: skip
    return TreeTop(item, item.first_offset, item.next_offset, item.ledger, entries), problems


def _entries_of(data: bytes) -> tuple[Entry, ...]:
    """Entries one by one, without asking whether they join; those of no known kind left out."""
    size = entry_dtype().itemsize
    found: list[Entry] = []
    for at in range(0, len(data) - size + 1, size):
        try:
            found.append(Entries(data[at : at + size])[0])
        except CorruptDataError:
            continue
    return tuple(found)


def _tiling(
    entries: Sequence[Entry], stream: str, path: str, first: int, next_offset: int
) -> Iterator[Finding]:
    """Where entries leave a gap or overlap within [first, next_offset)."""
    for one, other in pairwise(entries):
        if one.next_offset != other.first_offset:
            low, high = sorted((one.next_offset, other.first_offset))
            what = "leave a gap" if one.next_offset < other.first_offset else "overlap"
            yield _finding(
                stream, FindingKind.OFFSETS, path, low, high,
                f"manifest entries {what}: {one.next_offset} is followed by {other.first_offset}",
                expected=one.next_offset, found=other.first_offset,
            )  # fmt: skip
    if not entries:
        return
    if entries[0].first_offset > first:
        yield _finding(
            stream, FindingKind.OFFSETS, path, first, entries[0].first_offset,
            f"the entries begin at {entries[0].first_offset}, not at {first}",
            expected=first, found=entries[0].first_offset,
        )  # fmt: skip
    if entries[-1].next_offset < next_offset:
        yield _finding(
            stream, FindingKind.OFFSETS, path, entries[-1].next_offset, next_offset,
            f"the entries end at {entries[-1].next_offset}, not at {next_offset}",
            expected=next_offset, found=entries[-1].next_offset,
        )  # fmt: skip


def _difference(children: Sequence[Entry], entry: Entry) -> dict[str, str]:
    """What a group's own entries add up to against what its parent says, if they differ."""
    size = sum(each.size for each in children)
    if not children or size > MAX_SIZE:
        return {}
    try:
        said = Node(entry.kind, entry.uid, Entries.of(children)).entry()
    except CorruptDataError:
        return {}
    names = ("first_offset", "next_offset", "min_timestamp", "max_timestamp", "size", "records",
             "epoch")  # fmt: skip
    wrong = [name for name in names if getattr(said, name) != getattr(entry, name)]
    return {
        "expected": ", ".join(f"{name} {getattr(entry, name)}" for name in wrong),
        "found": ", ".join(f"{name} {getattr(said, name)}" for name in wrong),
    }


def _finding(
    stream: str,
    kind: FindingKind,
    path: str,
    first: int,
    next_offset: int,
    words: str,
    *,
    expected: object = "",
    found: object = "",
) -> Finding:
    return Finding(
        stream=stream,
        kind=kind,
        severity=kind.severity,
        key=path,
        first_offset=first,
        next_offset=min(max(next_offset, first + 1), MAX_OFFSET),
        position=None,
        expected=str(expected),
        found=str(found),
        words=words,
    )
