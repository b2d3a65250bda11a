"""After the table was lost or restored: which root of the bucket becomes the current one.

The item is the only thing that changes in place, so a restored one may be older than the tree that
the bucket holds, and nothing may be committed or deleted by it. The root with the highest version
wins, then the highest epoch, then the highest next offset, and it is written again above all
versions in the bucket: whoever still works with an old item can never land. A root that never
landed may win if all that it refers to is there: that is as good as landing it. If something is
missing it did not land, for what landed is complete; then the one before it is the one that did.

Of several roots of one version only one can have landed. Where their ledgers differ, uploads tell:
nobody uploads under a claim before it has landed. So a root comes last that does not know the floor
that an upload says: it would hide what was uploaded, and keep what that claim has cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from coldstream.manifest.catalog import CatalogItem, StreamState, with_root
from coldstream.manifest.root import Root
from coldstream.names import RootKey


@dataclass(frozen=True, slots=True)
class ListedRoot:
    """A root as LIST shows it: what its key says, and the key."""

    key: RootKey
    path: str


def ranked(roots: Iterable[ListedRoot]) -> list[list[ListedRoot]]:
    """Roots of one version together, the highest version first, then the highest epoch."""
    found = sorted(roots, key=lambda each: (each.key.version, each.key.epoch), reverse=True)
    return [list(same) for _, same in groupby(found, key=lambda each: each.key.version)]


def disputed(roots: Sequence[Root]) -> dict[int, set[int]]:
    """Epochs about whose claim roots disagree, with the floors that some of them have.

    Claims below the newest of each are not compared: retention takes them out of a ledger.

    Args:
        roots: of one version.
    """
    found: dict[int, set[int]] = {}
    lowest = min((root.ledger.epoch for root in roots), default=0)
    for epoch in {claim.epoch for root in roots for claim in root.ledger.claims}:
        if epoch < lowest:
            continue
        floors = {root.ledger.floor(epoch) for root in roots if root.ledger.epoch >= epoch}
        if len(floors) > 1:
            found[epoch] = {floor for floor in floors if floor is not None}
    return found


def contradicted(root: Root, uploaded: Mapping[int, int]) -> bool:
    """Whether an epoch up to that of a root has uploaded above a floor that the root lacks.

    Args:
        root: one of several of a version.
        uploaded: floors by epoch, of those that are `disputed`.
    """
    return any(
        epoch <= root.ledger.epoch and root.ledger.floor(epoch) != floor
        for epoch, floor in uploaded.items()
    )


def preferred(
    roots: Iterable[tuple[Root, ListedRoot]],
    item: CatalogItem | None,
    uploaded: Mapping[int, int],
) -> list[tuple[Root, ListedRoot]]:
    """Roots of one version, the one that most likely landed first.

    One that no upload contradicts, then the highest epoch, then the furthest, then the one that the
    item names, then the one of smallest uid.
    """
    own = item.root_key if item else ""
    return sorted(
        roots,
        key=lambda each: (
            contradicted(each[0], uploaded),
            -each[0].epoch,
            -each[0].next_offset,
            each[1].path != own,
            each[1].key.uid,
        ),
    )


def step_back(
    root: Root,
    passed: Sequence[Root],
    item: CatalogItem | None,
    uploaded: Mapping[int, int],
) -> str:
    """Why nobody may take `root` in the place of the better ones, in words; "" if one may.

    A root that never landed is of the version after the landed one, or of the same. So whoever
    finds the first complete root further down has passed one that had landed and was damaged since,
    and with it perhaps the claim of a writer.

    Args:
        root: complete.
        passed: better ones, each of which lacks something.
        item: what the table has, of another table; None if it has nothing.
        uploaded: what uploads say, as in `preferred`.
    """
    if passed and contradicted(root, uploaded):
        return "something was uploaded under a claim that it does not know"
    if item is not None and root.version < item.version:
        return f"the table knows version {item.version}"
    if any(root.version < each.version - 1 for each in passed):
        return "more than one version before it is not complete"
    if any(each.ledger.epoch > root.ledger.epoch for each in passed):
        return "a root that is not complete has the claim of a later writer"
    return ""


def adoption(
    root: Root,
    item: CatalogItem | None,
    *,
    stream: str,
    table_id: str,
    versions: Iterable[int],
    uid: int,
    root_key: str,
) -> tuple[Root, CatalogItem]:
    """The root as it is written again, and the item that names it.

    The stream is live again, whatever a restored item says: a tombstone of a restored table may
    have been called off after the backup.

    Args:
        root: that won.
        item: what the table has, of another table; None if it has nothing.
        stream: directory name.
        table_id: of the actual table.
        versions: of all roots in the bucket.
        uid: of the new root.
        root_key: key of the new root, for the version that `next_version` gives.
    """
    name = root.name
    if item is not None:
        # An item of this table has the last word; a restored one may be older than the root.
        first, other = (item.name, name) if item.table_id == table_id else (name, item.name)
        name = first.filled(other)
    root = replace(root, version=next_version(item, versions), name=name)
    adopted = CatalogItem(
        stream=stream,
        table_id=table_id,
        name=name,
        state=StreamState.LIVE,
        revision=(item.revision if item else 0) + 1,
        state_token=uid or 1,
    )
    return root, with_root(adopted, root, root_key, uid)


def next_version(item: CatalogItem | None, versions: Iterable[int]) -> int:
    """One above all versions that anybody has seen."""
    return max([*versions, item.version if item else 0]) + 1
