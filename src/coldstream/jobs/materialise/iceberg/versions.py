"""Which snapshots of an Iceberg table may be forgotten, and what the others refer to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice, pairwise
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    ValidatableTableRequirement,
)

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.state_object import ancestry, state_of

_SHARED = "gc.enabled"
_KEEP = "history.expire.min-snapshots-to-keep"


class Unchanged(ValidatableTableRequirement):
    """All of a table's metadata must be as it was loaded, also what nobody has thought of.

    pyiceberg checks it against the metadata that the catalog's conditional write is based on.
    Without it a tag that is set right now would go with its snapshot, and so would the
    branch of a person who goes back right now.
    """

    type: str = "coldstream-unchanged"
    loaded: Any

    def validate(  # type: ignore[override]  # pydantic has another method of this name
        self, base_metadata: TableMetadata | None
    ) -> None:
        """Raise CommitFailedException if it is not."""
        if base_metadata != self.loaded:
            raise CommitFailedException("the table was changed meanwhile")


def unchanged(catalog: Catalog, metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """What a commit asks for, that is to happen only if the table is as it was loaded.

    A REST catalog checks by itself, and knows no more than that: it is the same table, and each
    branch and tag is where it was. One that is made at this very moment it does not see.

    Args:
        catalog: that is to check it.
        metadata: as loaded.
    """
    if not isinstance(catalog, RestCatalog):
        # Its type lists the requirements that a REST catalog knows.
        return (Unchanged(loaded=metadata),)  # type: ignore[return-value]
    named = [
        AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
        for name, ref in metadata.refs.items()
    ]
    return (AssertTableUUID(uuid=metadata.table_uuid), *named)


def forgettable(metadata: TableMetadata, before_ms: int) -> frozenset[int]:
    """Ids of the snapshots that nobody has seen as the table, or as a branch, since a time.

    Not those that a branch or a tag names, nor those that the table's own settings keep, nor the
    one that alone says which offsets a snapshot that stays has (`iceberg_state`). What counts is
    when a snapshot was replaced, not when it was made: a table that stood still for a month may
    have been read by a query until just now. A rollback counts as well.

    Args:
        metadata: of the table.
        before_ms: the time, ms since the Unix epoch.

    Raises:
        InvalidInputError: other tables may share its files (`gc.enabled`), or a setting makes no
            sense.
    """
    if metadata.properties.get(_SHARED, "true").lower() == "false":
        raise InvalidInputError(
            f"the table's property {_SHARED} is false: other tables may have its files, so none is"
            " deleted; leave --expire out, or set it to true"
        )
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    kept = _named(metadata, by_id)
    log = metadata.snapshot_log
    for entry, following in pairwise(log):
        if following.timestamp_ms >= before_ms:
            kept.add(entry.snapshot_id)
    logged = {entry.snapshot_id for entry in log}
    for each in metadata.snapshots:
        if each.timestamp_ms >= before_ms:
            kept.add(each.snapshot_id)
            if each.parent_snapshot_id is not None:
                kept.add(each.parent_snapshot_id)  # what a branch was until then
        elif each.snapshot_id not in logged and (not log or log[0].timestamp_ms >= before_ms):
            kept.add(each.snapshot_id)  # others have cut the log: nobody knows what it was
    for snapshot_id in list(kept):
        kept.update(_up_to_a_state(by_id, snapshot_id))
    return frozenset(by_id.keys() - kept)


def _named(metadata: TableMetadata, by_id: dict[int, Snapshot]) -> set[int]:
    """The current snapshot, those of branches and tags, and as many before as settings say."""
    try:
        least = int(metadata.properties.get(_KEEP, "1"))
    except ValueError as exc:
        raise InvalidInputError(f"the table's property {_KEEP} is no number") from exc
    heads = [(metadata.current_snapshot_id, least)]
    for ref in metadata.refs.values():
        branch = ref.snapshot_ref_type is SnapshotRefType.BRANCH
        heads.append((ref.snapshot_id, (ref.min_snapshots_to_keep or least) if branch else 1))
    if metadata.snapshot_log:
        heads.append((metadata.snapshot_log[-1].snapshot_id, 1))
    return {
        each.snapshot_id
        for head, count in heads
        for each in islice(ancestry(by_id, head), max(1, count))
    }


def _up_to_a_state(by_id: dict[int, Snapshot], head: int) -> Iterator[int]:
    """Ids from a snapshot up to the first that says which offsets it has."""
    for snapshot in ancestry(by_id, head):
        yield snapshot.snapshot_id
        if state_of(snapshot):
            return


def referenced(metadata: TableMetadata, io: FileIO, skipped: Collection[int]) -> Iterator[str]:
    """URLs of all files of all snapshots but those, and of the metadata; some of them twice.

    Also the metadata that was the table before, as far back as it says itself: a reader, or a
    person who goes back, may have it by its name.

    Raises:
        FileNotFoundError: a manifest is gone; then nobody knows. And whatever else pyiceberg raises
            for one that cannot be read.
    """
    for value in metadata.properties.values():
        yield value
        yield value.partition(" ")[2]  # a state object, behind a snapshot's id
    yield from (each.metadata_file for each in metadata.metadata_log)
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        yield statistics.statistics_path
    snapshots = [each for each in metadata.snapshots if each.snapshot_id not in skipped]
    yield from map(state_of, snapshots)
    yield from (each.manifest_list for each in snapshots)
    for manifest in _manifests(snapshots, io):
        yield manifest.manifest_path
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
