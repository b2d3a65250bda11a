"""What all suites for a `Catalog` start from: commits that hold, and streams to make them on."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import pytest

from coldstream.manifest.catalog import CatalogItem, Commit, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import root_path
from coldstream.ports import Catalog, Landed


def next_commit(item: CatalogItem, *, uid: int, **changes: Any) -> Commit:
    """A claim of the next epoch that holds on `item`, with `changes` to the commit."""
    epoch = item.epoch + 1
    root = Root(
        first_offset=item.first_offset,
        next_offset=item.next_offset,
        epoch=epoch,
        version=item.version + 1,
        ledger=item.ledger.claimed(epoch, item.next_offset),
    )
    return commit_of(item, root, uid=uid, claim=True, **changes)


def appending_commit(item: CatalogItem, *, uid: int, records: int = 10) -> Commit:
    """A commit that appends one fragment under the epoch of `item`, which has claimed."""
    entry = Entry(
        first_offset=item.next_offset,
        next_offset=item.next_offset + records,
        min_timestamp=1000,
        max_timestamp=2000,
        kind=EntryKind.FRAGMENT,
        size=1000,
        records=records,
        epoch=item.epoch,
        uid=uid,
    )
    root = Root(
        first_offset=item.next_offset,
        next_offset=entry.next_offset,
        epoch=item.epoch,
        version=item.version + 1,
        ledger=item.ledger,
        entries=Entries.of([entry]),
        last_chunk=LastChunk(item.next_offset, item.epoch),
    )
    return commit_of(item, root, uid=uid)


def commit_of(item: CatalogItem, root: Root, *, uid: int, **changes: Any) -> Commit:
    """The commit that moves `item` to `root`, with `changes` to the commit."""
    commit = Commit(
        stream=item.stream,
        table_id=item.table_id,
        read_version=item.version,
        read_uid=item.uid,
        root=root,
        root_key=root_path("rabbitmq/", item.stream, root.epoch, root.version, uid),
        uid=uid,
    )
    return replace(commit, **changes)


class CatalogFixtures:
    """What the suites need; the backend overrides `catalog` and `set_state`."""

    @pytest.fixture
    def catalog(self) -> Catalog:
        """The catalog under test."""
        raise NotImplementedError

    @pytest.fixture
    def stream(self) -> str:
        """A stream that no other test uses, because backends may be shared."""
        return f"__orders_{secrets.token_hex(6)}"

    @pytest.fixture
    def anchored(self, catalog: Catalog, stream: str) -> CatalogItem:
        """A stream with an item and no root."""
        return catalog.anchor(CatalogItem(stream=stream, table_id=catalog.table_id()))

    @pytest.fixture
    def claimed(self, catalog: Catalog, anchored: CatalogItem) -> CatalogItem:
        """A stream that epoch 1 has claimed."""
        outcome = catalog.commit(next_commit(anchored, uid=11))
        assert isinstance(outcome, Landed)
        return outcome.item

    def set_state(self, catalog: Catalog, stream: str, state: StreamState) -> None:
        """Change the item's state behind the port's back."""
        raise NotImplementedError
