"""Streams that the bucket has and the table does not: their items were lost.

Nothing removes an item: a stream that was deleted keeps its tombstone, and an item comes before the
first object. So such a stream was never deleted; until `reconcile` adopts its newest root, nobody
can read it, and nothing watches over it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from coldstream.errors import CorruptDataError
from coldstream.ports import Catalog, ObjectStore
from coldstream.remote.directories import directories
from coldstream.usecases.ours import holds_ours


class RemoteTier(Protocol):
    """What a look at the bucket and the table needs of the tier."""

    @property
    def store(self) -> ObjectStore:
        """The bucket."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The table."""
        ...

    @property
    def prefix(self) -> str:
        """Of all keys."""
        ...


def lost_streams(tier: RemoteTier, known: Collection[str]) -> list[str]:
    """Every stream that has something of ours in the bucket and no item, sorted.

    One LIST for 1,000 directories; the table is asked about those that are not `known`.

    Args:
        tier: where.
        known: directory names that have an item.

    Raises:
        UnavailableError, PermissionDeniedError: from the store or the table.
    """
    return [
        stream
        for stream in directories(tier.store, tier.prefix)
        if stream not in known and is_lost(tier, stream)
    ]


def is_lost(tier: RemoteTier, stream: str) -> bool:
    """Whether the table lacks a stream of which the bucket has something.

    Raises:
        UnavailableError, PermissionDeniedError: from the store or the table.
    """
    try:
        return tier.catalog.get(stream) is None and holds_ours(tier, stream)
    except CorruptDataError:
        return False  # an item that cannot be read is there
