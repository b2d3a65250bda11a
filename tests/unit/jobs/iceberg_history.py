"""What others do to the history of an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog


def current(catalog: Catalog, name: str) -> int:
    """Id of the current snapshot."""
    snapshot = catalog.load_table(name).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def set_back(catalog: Catalog, name: str, snapshot_id: int) -> None:
    """What `rollback_to_snapshot` does."""
    with catalog.load_table(name).manage_snapshots() as change:
        change.set_current_snapshot(snapshot_id)


def compact(catalog: Catalog, name: str, **summary: str) -> int:
    """A snapshot of somebody else with the same rows; gives its id."""
    with catalog.load_table(name).transaction() as change:
        update = change.update_snapshot(snapshot_properties=summary)
        with update.fast_append():
            pass
    return current(catalog, name)


def expire(catalog: Catalog, name: str, *snapshot_ids: int) -> None:
    """Forget snapshots; pyiceberg forgets whose parents they were, too, which Java does not."""
    catalog.load_table(name).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()


def set_properties(catalog: Catalog, name: str, values: Mapping[str, str]) -> None:
    """What `ALTER TABLE … SET TBLPROPERTIES` does."""
    with catalog.load_table(name).transaction() as change:
        change.set_properties(dict(values))
