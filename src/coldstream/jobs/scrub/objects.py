"""The objects of a stream against its manifest: missing, superfluous, in the place of a hole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.jobs.cut_off import CutOff
from coldstream.jobs.scrub.tree import TreeTop
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.names import (
    MAX_OFFSET,
    DataKey,
    ErasureKey,
    GroupKey,
    MarkKey,
    QuarantineKey,
    RootKey,
    data_prefix,
    list_start,
    metadata_prefix,
    parse_data_key,
    parse_metadata_key,
)
from coldstream.plans.collect import ObjectKind, classify_data, classify_group, classify_root
from coldstream.plans.repair import chunks_in, known_of
from coldstream.plans.undo_epoch import may_undo
from coldstream.ports import ObjectInfo, ObjectStore
from coldstream.remote.listing import pages
from coldstream.soundness.findings import Finding, FindingKind, Severity


@dataclass(frozen=True, slots=True)
class Ages:
    """How old garbage may be before it is worth a word.

    Attributes:
        now_ms: when the run began, ms since the Unix epoch.
        grace_ms: how long `collect` must wait.
    """

    now_ms: int
    grace_ms: int

    def overdue(self, row: ObjectInfo) -> bool:
        """Whether `collect` should have deleted such an object long ago."""
        return row.modified_ms < self.now_ms - 4 * self.grace_ms


def listed(store: ObjectStore, prefix: str, stream: str, first: int, next_offset: int
           ) -> Iterator[ObjectInfo]:  # fmt: skip
    """Data objects whose first offset is in [first, next_offset), a page of LIST at a time."""
    after = list_start(prefix, stream, first)
    until = "" if next_offset >= MAX_OFFSET else list_start(prefix, stream, next_offset)
    for page in pages(store, data_prefix(prefix, stream), after=after, until=until):
        yield from page


def classify_listed(
    store: ObjectStore,
    tree: TreeTop,
    prefix: str,
    rows: Sequence[ObjectInfo],
    leaves: Sequence[Entry],
    cut_off: CutOff,
    ages: Ages,
) -> Iterator[Finding]:
    """What is wrong with data objects that were listed: those that no leaf refers to, and why.

    Args:
        store: the bucket, to see whether an object over a hole has good chunks for it.
        tree: of the stream.
        prefix: of all keys.
        rows: from LIST, whose first offset lies in `leaves`, or outside of the manifest.
        leaves: fragments and holes of the tree, in order.
        cut_off: what is kept though no leaf refers to it.
        ages: how old garbage may be.
    """
    root = Root(tree.first_offset, tree.next_offset, ledger=tree.ledger)
    known = {each.data_key(tree.stream).path(prefix) for each in leaves}
    holes = [each for each in leaves if each.kind is EntryKind.HOLE]
    for row in rows:
        if row.key in known:
            continue
        try:
            key = parse_data_key(row.key, prefix)
        except InvalidInputError:
            words = f"{ObjectKind.FOREIGN.meaning} ({row.size} bytes)"
            yield _superfluous(tree, row, 0, 1, ObjectKind.FOREIGN, words, Severity.NOTE)
            continue
        if cut_off.keeps(row.key):
            continue
        accepted = tree.ledger.accepts(key.epoch, key.first_offset, key.next_offset)
        for hole in holes:
            low = max(hole.first_offset, key.first_offset)
            high = min(hole.next_offset, key.next_offset)
            if (
                key.kind == "fragment"
                and accepted
                and low < high
                and _has_chunks(store, row, key, low, high)
            ):
                yield Finding(
                    stream=tree.stream,
                    kind=FindingKind.HOLE_OVER_DATA,
                    severity=FindingKind.HOLE_OVER_DATA.severity,
                    key=row.key,
                    first_offset=low,
                    next_offset=high,
                    position=None,
                    expected=row.key,
                    found=hole.data_key(tree.stream).path(prefix),
                    words=f"the manifest has offsets {hole.first_offset} to"
                    f" {hole.next_offset - 1} as lost, but this fragment holds some of them",
                )
        yield from _data_finding(tree, root, row, key, cut_off, ages)


def _has_chunks(store: ObjectStore, row: ObjectInfo, key: DataKey, low: int, high: int) -> bool:
    """Whether an object holds a good chunk in [low, high): what `repair` has replaced does not."""
    try:
        data = memoryview(store.get(row.key, 0, row.size)) if row.size else memoryview(b"")
    except (NotFoundError, CorruptDataError):
        return False
    entry = Entry(
        key.first_offset, key.next_offset, 0, 0, EntryKind.FRAGMENT, row.size, 0, key.epoch, key.uid
    )
    found = chunks_in(data, known_of(data, entry, key))
    return any(low <= each.header.chunk_id < high for each in found)


def _data_finding(
    tree: TreeTop, root: Root, row: ObjectInfo, key: DataKey, cut_off: CutOff, ages: Ages
) -> Iterator[Finding]:
    # Whether a fragment that the ledger refuses is the only copy of something takes requests, and
    # `collect` says it; here it counts as such.
    record = cut_off.record
    kind = classify_data(
        key, root, None, lambda _: False, record=record, modified_ms=row.modified_ms
    )
    unclaimed = may_undo(key.epoch, root.ledger.epoch)
    if kind is ObjectKind.PENDING and not (unclaimed or ages.overdue(row)):
        return
    severity = Severity.NOTE
    words = kind.meaning
    if kind is ObjectKind.UNIQUE:
        words = "the ledger refuses it; `coldstream collect --dry-run` says whether it is a copy"
        severity = Severity.WRONG if ages.overdue(row) else Severity.NOTE
    elif kind is ObjectKind.PENDING:
        words = "reaches above the manifest and was never appended"
        if unclaimed:
            words = "its epoch has not claimed: of an undo under way, or of one that died"
        severity = Severity.WRONG if ages.overdue(row) else Severity.NOTE
    elif not ages.overdue(row):
        words += "; too young for `collect`, or not proved yet"
    yield _superfluous(tree, row, key.first_offset, key.next_offset, kind, words, severity)


def classify_quarantine(tree: TreeTop, cut_off: CutOff) -> Iterator[Finding]:
    """What is wrong with the quarantine record, and with the manifests that it names."""
    for each in cut_off.problems:
        gone = isinstance(each.error, NotFoundError)
        kind = FindingKind.OBJECT_MISSING if gone else FindingKind.QUARANTINE
        lost = each.timeline
        yield Finding(
            stream=tree.stream,
            kind=kind,
            severity=kind.severity,
            key=each.key,
            first_offset=tree.first_offset if lost is None else lost.floor,
            next_offset=tree.next_offset if lost is None else lost.next_offset,
            position=None,
            expected="",
            found="",
            words=f"{each.what} is gone" if gone else f"{each.what}: {each.error.reason}",
        )


def classify_metadata(
    tree: TreeTop, prefix: str, store: ObjectStore, fetch: Fetch, cut_off: CutOff, ages: Ages
) -> Iterator[Finding]:
    """Groups and foreign objects beside the roots that nothing refers to.

    Earlier roots and the records of `collect` and of erasures are how things are and are not told;
    nor is what the quarantine record names.
    """
    under = metadata_prefix(prefix, tree.stream)
    for page in pages(store, under):
        for row in page:
            yield from _metadata_finding(tree, prefix, row, fetch, cut_off, ages)


def _metadata_finding(
    tree: TreeTop, prefix: str, row: ObjectInfo, fetch: Fetch, cut_off: CutOff, ages: Ages
) -> Iterator[Finding]:
    try:
        key = parse_metadata_key(row.key, prefix)
    except InvalidInputError:
        words = f"{ObjectKind.FOREIGN.meaning} ({row.size} bytes)"
        yield _superfluous(tree, row, 0, 1, ObjectKind.FOREIGN, words, Severity.NOTE)
        return
    first, next_offset = tree.first_offset, tree.next_offset
    match key:
        case MarkKey() | ErasureKey():
            return
        case RootKey():
            current = row.key == tree.item.root_key
            kind = classify_root(key, version=tree.item.version, current=current)
            if kind is ObjectKind.OLD_ROOT and ages.overdue(row) and not cut_off.keeps(row.key):
                yield _superfluous(tree, row, first, next_offset, kind, kind.meaning, Severity.NOTE)
        case QuarantineKey():
            kind = ObjectKind.OLD_QUARANTINE
            if ages.overdue(row) and not cut_off.keeps(row.key):
                yield _superfluous(tree, row, first, next_offset, kind, kind.meaning, Severity.NOTE)
        case GroupKey():
            if tree.root is None:
                return
            try:
                kind = classify_group(key, tree.root, fetch)
            except (CorruptDataError, NotFoundError):
                return  # a group above it is damaged, and that is a finding of its own
            if kind is ObjectKind.OLD_GROUP and not cut_off.keeps(row.key):
                next_offset = key.first_offset + 1
                yield _superfluous(
                    tree, row, key.first_offset, next_offset, kind, kind.meaning, Severity.NOTE
                )


def _superfluous(
    tree: TreeTop,
    row: ObjectInfo,
    first: int,
    next_offset: int,
    kind: ObjectKind,
    words: str,
    severity: Severity,
) -> Finding:
    return Finding(
        stream=tree.stream,
        kind=FindingKind.UNREFERENCED,
        severity=severity,
        key=row.key,
        first_offset=first,
        next_offset=next_offset,
        position=None,
        expected="",
        found=str(kind),
        words=words,
    )


#: Tells whether a manifest refers to an object.
Refers = Callable[[Finding], bool]


def still_true(finding: Finding, refers: Refers) -> bool:
    """Whether a finding still holds for a manifest that was committed since.

    What it does not refer to any more was retired or replaced and concerns nobody; what it refers
    to now is no garbage.
    """
    if finding.kind is FindingKind.UNREFERENCED:
        return not refers(finding)
    if finding.kind is FindingKind.HOLE_OVER_DATA:
        return not refers(finding)
    return refers(finding)
