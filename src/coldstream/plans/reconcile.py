"""After the table was lost or restored: which root of the bucket becomes the current one.

The item is the only thing that changes in place, so a restored one may be older than the tree that
the bucket holds, and nothing may be committed or deleted by it. The root with the highest version
wins, then the highest epoch, then the highest next offset, and it is written again above all
versions in the bucket: whoever still works with an old item can never land. A root that never
landed may win; its references were all there before it was PUT, so that is as good as landing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.root import Root
from coldstream.names import RootKey


@dataclass(frozen=True, slots=True)
class ListedRoot:
    """A root as LIST shows it: what its key says, and the key."""

    key: RootKey
    path: str


def newest(roots: Iterable[ListedRoot]) -> list[ListedRoot]:
    """Those of the highest version, and of these those of the highest epoch; one as a rule."""
    found = list(roots)
    best = max(((each.key.version, each.key.epoch) for each in found), default=None)
    return [each for each in found if (each.key.version, each.key.epoch) == best]


def furthest(roots: Sequence[tuple[Root, ListedRoot]]) -> Root:
    """The one with the highest next offset; of equals the one with the smallest uid."""
    return min(roots, key=lambda each: (-each[0].next_offset, each[1].key.uid))[0]


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
    root = replace(root, version=next_version(item, versions))
    return root, CatalogItem(
        stream=stream,
        table_id=table_id,
        uid=uid,
        root_key=root_key,
        epoch=root.epoch,
        version=root.version,
        first_offset=root.first_offset,
        next_offset=root.next_offset,
        first_timestamp=root.first_timestamp,
        last_timestamp=root.last_timestamp,
        total_size=root.total_size,
        fragments=root.fragments,
        ledger=root.ledger,
        name=item.name if item else QueueName(),
        state=StreamState.LIVE,
        revision=(item.revision if item else 0) + 1,
        state_token=uid or 1,
    )


def next_version(item: CatalogItem | None, versions: Iterable[int]) -> int:
    """One above all versions that anybody has seen."""
    return max([*versions, item.version if item else 0]) + 1
