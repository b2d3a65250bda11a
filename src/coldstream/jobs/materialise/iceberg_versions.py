"""Which snapshots of an Iceberg table may be forgotten, and what the others refer to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from coldstream.jobs.materialise.iceberg_state import STATE_PROPERTY


def forgettable(metadata: TableMetadata, before_ms: int) -> frozenset[int]:
    """Ids of the snapshots that nobody has seen as the table since a time.

    Not those that a branch or a tag names. What counts is when a snapshot was replaced, not when it
    was made: a table that stood still for a month may have been read by a query until just now. A
    rollback counts as well. A snapshot that never was the table goes by when it was made.

    Args:
        metadata: of the table.
        before_ms: the time, ms since the Unix epoch.
    """
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    if metadata.current_snapshot_id is not None:
        kept.add(metadata.current_snapshot_id)
    log = metadata.snapshot_log
    for entry, following in pairwise(log):
        if following.timestamp_ms >= before_ms:
            kept.add(entry.snapshot_id)
    if log:
        kept.add(log[-1].snapshot_id)
    logged = {entry.snapshot_id for entry in log}
    return frozenset(
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in kept
        and (each.snapshot_id in logged or each.timestamp_ms < before_ms)
    )


def referenced(metadata: TableMetadata, io: FileIO, forgotten: frozenset[int]) -> Iterator[str]:
    """URLs of the data, delete and state files of all snapshots but those, some of them twice.

    Raises:
        Exception: whatever pyiceberg raises for a manifest that cannot be read; then nobody knows.
    """
    for value in metadata.properties.values():
        yield from value.split(" ")  # a state object, alone or behind a snapshot's id
    snapshots = [each for each in metadata.snapshots if each.snapshot_id not in forgotten]
    for snapshot in snapshots:
        if snapshot.summary is not None:
            yield snapshot.summary.additional_properties.get(STATE_PROPERTY) or ""
    for manifest in _manifests(snapshots, io):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            yield entry.data_file.file_path


def _manifests(snapshots: Iterable[Snapshot], io: FileIO) -> Iterator[ManifestFile]:
    """Each manifest of the snapshots once: they share most of them."""
    seen: set[str] = set()
    for snapshot in snapshots:
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest
