"""An earlier manifest of a stream, found again by its version. Roots have it in their keys.

A commit that lost leaves a root of the same version behind, and nothing in the bucket says which of
two roots has landed; so where there is one root of a version it may be the loser, and the landed
one was collected. By the version alone only what is sure is taken:

* Versions have no gaps, so one root of each has landed, as long as nobody adopted a root of the
  bucket (that goes above all versions in it) or rebuilt the stream. Both change its `revision`.
* `collect` deletes a root a grace time after the next version has landed, never before, and that
  was PUT before it landed. So if the next version's landed root is there, and no root of that
  version is older than a grace time, then the landed root of this one is there, too.

From the current root, which has certainly landed, that goes back version by version.
"""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.names import RootKey
from coldstream.ports import ObjectInfo, ObjectStore
from coldstream.remote.listing import roots
from coldstream.spark.options import AsOf

#: Less than the least grace time of a stack (12 hours) by more than clocks differ.
SURE_MS = 11 * 3_600_000

_Listed = tuple[RootKey, ObjectInfo]


def root_key_of(
    store: ObjectStore, prefix: str, item: CatalogItem, as_of: AsOf, *, now_ms: int
) -> str:
    """The key of the root that was the stream's manifest at a version.

    Whoever gives the uid, too, is believed: `coldstream describe` tells both of the current root.

    Args:
        store: the bucket.
        prefix: of all keys.
        item: the stream as it is now.
        as_of: the version.
        now_ms: now, ms since the Unix epoch.

    Raises:
        NotFoundError: there was no such version, or `collect` has deleted its root since.
        InvalidInputError: nobody can say which root of that version landed, or whether this one
            did, and no uid is given.
    """
    if as_of.version == item.version and as_of.uid in (None, item.uid):
        return item.root_key
    if as_of.version > item.version:
        raise NotFoundError(
            f"there is no version {as_of} yet, the latest is {item.version}", stream=item.stream
        )
    listed = list(roots(store, prefix, item.stream))
    there = [each for each in listed if each[0].version < item.version]
    matches = [
        (found, row.key)
        for found, row in there
        if found.version == as_of.version and as_of.uid in (None, found.uid)
    ]
    names = ", ".join(f"{found.version}.{found.uid:016x}" for found, _ in matches)
    if len(matches) > 1:
        raise InvalidInputError(
            f"there are {len(matches)} roots of version {as_of}, because a commit lost against "
            f"another; give one of {names}",
            stream=item.stream,
        )
    if not matches:
        versions = sorted({found.version for found, _ in there} | {item.version})
        raise NotFoundError(
            f"the root of version {as_of} is no longer there: `collect` deletes roots after the "
            f"grace time. There are some from version {versions[0]} to {versions[-1]}",
            stream=item.stream,
        )
    if as_of.uid is None and not _sure(listed, item, as_of.version, now_ms - SURE_MS):
        raise InvalidInputError(
            f"nobody can say whether the root of version {as_of} that is there was ever the "
            "stream's manifest: it may be of a commit that lost, and the other one was collected. "
            f"If `coldstream describe` once told it, give {names}",
            stream=item.stream,
        )
    return matches[0][1]


def _sure(listed: Iterable[_Listed], item: CatalogItem, version: int, since_ms: int) -> bool:
    """Whether the landed root of a version is certainly there; see the top of this module."""
    if item.revision:
        return False
    oldest: dict[int, int] = {}
    for found, row in listed:
        if found.version < item.version or row.key == item.root_key:
            known = oldest.get(found.version, row.modified_ms)
            oldest[found.version] = min(known, row.modified_ms)
    later = range(version + 1, item.version + 1)
    return all(oldest.get(number, since_ms) > since_ms for number in later)
