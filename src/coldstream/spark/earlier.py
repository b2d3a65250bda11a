"""An earlier manifest of a stream, found again by its version. Roots have it in their keys."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.names import RootKey, metadata_prefix, parse_metadata_key
from coldstream.ports import ObjectStore
from coldstream.spark.options import AsOf


def root_key_of(store: ObjectStore, prefix: str, item: CatalogItem, as_of: AsOf) -> str:
    """The key of the root that was the stream's manifest at a version.

    A commit that lost against another leaves a root of the same version behind, and nothing in the
    bucket says which of the two it was; then the uid must be given, too.

    Args:
        store: the bucket.
        prefix: of all keys.
        item: the stream as it is now.
        as_of: the version.

    Raises:
        NotFoundError: there was no such version, or `collect` has deleted its root since.
        InvalidInputError: there are several roots of that version.
    """
    if as_of.version == item.version and as_of.uid in (None, item.uid):
        return item.root_key
    if as_of.version > item.version:
        raise NotFoundError(
            f"there is no version {as_of} yet, the latest is {item.version}", stream=item.stream
        )
    there = [
        (found, key)
        for found, key in roots_of(store, prefix, item.stream)
        if found.version < item.version
    ]
    matches = [
        (found, key)
        for found, key in there
        if found.version == as_of.version and as_of.uid in (None, found.uid)
    ]
    if len(matches) > 1:
        names = ", ".join(f"{found.version}.{found.uid:016x}" for found, _ in matches)
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
    return matches[0][1]


def roots_of(store: ObjectStore, prefix: str, stream: str) -> Iterator[tuple[RootKey, str]]:
    """Every root that is there, with its key, oldest epoch first.

    Everything is listed from where roots begin: the S3 library of readers takes only whole parts
    of a path for a prefix.
    """
    folder = metadata_prefix(prefix, stream)
    after = f"{folder}root."
    while rows := store.list(folder, start_after=after):
        for row in rows:
            found = parse_metadata_key(row.key, prefix)
            if not isinstance(found, RootKey):
                return
            yield found, row.key
        after = rows[-1].key
