"""Delete the files that no version of a table has any more: only then does retention free space.

What may go was written before a time that lies further back than any run is long, and is named by
nothing: not by the table as it is, not by any version that was the table since that time. That is
data, states, and Iceberg's own manifests and metadata, of which each commit leaves some. Objects
are listed before the table is asked, so what is written meanwhile is not among them. If anything
cannot be read, nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from coldstream.errors import (
    ColdstreamError,
    InternalError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.jobs.materialise.table import Table
from coldstream.ports import MAX_DELETES, Deleter, ObjectInfo
from coldstream.remote.listing import Lists, pages

#: A run's files have no name in the table until it commits; Glue ends ours long before this.
MIN_AGE_SECONDS = 2 * 86_400


class Swept(StrEnum):
    """What a sweep takes: all that it may, or state objects only, and then it forgets nothing."""

    ALL = "all"
    STATES = "states"


#: Folder, begin and end of the names that this job and Iceberg's writers give.
_NAMES = {
    Swept.ALL: (
        ("data", "", ".parquet"),
        ("coldstream", "state-", ".json"),
        ("metadata", "", ".metadata.json"),
        ("metadata", "", ".avro"),
    ),
    Swept.STATES: (("coldstream", "state-", ".json"),),
}

#: Opens a bucket by its name, for reading and for deleting.
OpenBucket = Callable[[str], tuple[Lists, Deleter]]


@dataclass(frozen=True, slots=True)
class SweptTable:
    """What a sweep did to a table.

    Attributes:
        versions: of the table that are forgotten.
        files: that were deleted.
        bytes: in them.
    """

    versions: int = 0
    files: int = 0
    bytes: int = 0


def key_of(url: str) -> str:
    """The key in a URL, however the writer calls S3 and the bucket.

    A bucket has other names (access points), and a table may have been copied to another one.
    """
    return url.partition("://")[2].partition("/")[2]


def plan_sweep(
    objects: Iterable[ObjectInfo], needed: Collection[str], *, before_ms: int
) -> list[ObjectInfo]:
    """Which objects go.

    Args:
        objects: below a table's location.
        needed: keys (`key_of`) of what the table and its versions refer to.
        before_ms: only what was written before goes, ms since the Unix epoch.
    """
    return [each for each in objects if each.modified_ms < before_ms and each.key not in needed]


def sweep(
    table: Table,
    first_schema: pa.Schema,
    open_bucket: OpenBucket,
    *,
    before_ms: int,
    what: Swept = Swept.ALL,
    dry_run: bool = False,
) -> SweptTable | None:
    """Forget the versions of a table that were replaced before a time, and delete their files.

    Args:
        table: to sweep.
        first_schema: see `Table.load`.
        open_bucket: opens the bucket of its files.
        before_ms: ms since the Unix epoch.
        what: it takes.
        dry_run: only say what would be done.

    Returns:
        What was done; None if it has to wait (`Table.forget`), or there is no table for a dry run:
        nothing was deleted.

    Raises:
        PermissionDeniedError, UnavailableError: from the store; what is left goes next time.
        CorruptDataError, InvalidInputError: from the table; nothing was deleted.
    """
    loaded = table.peek() if dry_run else table.load(first_schema)
    if loaded is None:
        return None
    under = key_of(loaded.location)
    if not under.strip("/"):
        raise InternalError(f"{loaded.location} is no place that can be swept")
    store, deleter = open_bucket(loaded.location.partition("://")[2].partition("/")[0])
    objects = list(_ours(store, under, what))
    # Nothing was replaced before time began.
    forget_ms = before_ms if what is Swept.ALL else 0
    versions = table.forget(loaded, forget_ms, dry_run=dry_run)
    if versions is None:
        return None
    needed = frozenset(map(key_of, versions.needed))
    doomed = plan_sweep(objects, needed, before_ms=before_ms)
    if not dry_run:
        _delete(deleter, [each.key for each in doomed])
    return SweptTable(versions.forgotten, len(doomed), sum(each.size for each in doomed))


def _ours(store: Lists, under: str, what: Swept) -> Iterator[ObjectInfo]:
    for folder, begin, end in _NAMES[what]:
        for page in pages(store, f"{under}/{folder}/{begin}"):
            yield from (each for each in page if each.key.endswith(end))


def _delete(deleter: Deleter, keys: Sequence[str]) -> None:
    trouble: ColdstreamError | None = None
    for at in range(0, len(keys), MAX_DELETES):
        left = list(keys[at : at + MAX_DELETES])
        # One call may leave some of them; one after which all are left ends with an error. What
        # cannot be deleted keeps nothing else.
        while left:
            try:
                gone = set(deleter.delete(left))
            except (PermissionDeniedError, UnavailableError) as error:
                trouble = error
                break
            left = [key for key in left if key not in gone]
    if trouble is not None:
        raise trouble
