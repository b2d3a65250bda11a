"""Give a stream its catalog item back after the table was lost or restored (DESIGN section 5)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.root import parse_root
from coldstream.names import (
    RootKey,
    metadata_prefix,
    parse_metadata_key,
    root_path,
    stream_prefix,
)
from coldstream.plans.reconcile import ListedRoot, adoption, furthest, newest, next_version
from coldstream.ports import Landed
from coldstream.usecases.load import MAX_ROOT_SIZE, World

_PAGE = 1000


def adopt(world: World, stream: str) -> CatalogItem | None:
    """Write the newest root of the bucket again, and the item that names it.

    Fragments behind that root are not looked at: the next commit resolves them as ever.

    Returns:
        The new item; None if the table's own item is good, so that there is nothing to adopt.

    Raises:
        NotFoundError: neither the table nor the bucket knows the stream.
        CorruptDataError: the newest root is damaged, or objects are there and no root: a person has
            to look; nothing was written.
        ConflictError: somebody else was faster; look again.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    table_id = world.catalog.table_id()
    item = world.catalog.get(stream)
    if item is not None and item.table_id == table_id:
        return None
    roots = list(list_roots(world, stream))
    if not roots:
        return _without_root(world, stream, item, table_id)
    best = []
    for each in newest(roots):
        try:
            best.append((parse_root(world.store.get_all(each.path, limit=MAX_ROOT_SIZE)), each))
        except (CorruptDataError, NotFoundError) as exc:
            raise exc.located(stream=stream, key=each.path) from None
    winner = furthest(best)
    uid = world.new_uid()
    versions = [each.key.version for each in roots]
    version = next_version(item, versions)
    path = root_path(world.prefix, stream, winner.epoch, version, uid)
    root, adopted = adoption(
        winner,
        item,
        stream=stream,
        table_id=table_id,
        versions=versions,
        uid=uid,
        root_key=path,
    )
    data = root.encode()
    world.store.put(path, data, write_id=f"{uid:016x}-{zlib.crc32(data):08x}")
    return _commit(world, adopted, item)


def list_roots(world: World, stream: str) -> Iterator[ListedRoot]:
    """All roots of a stream in the bucket, in the order of their keys."""
    under = f"{metadata_prefix(world.prefix, stream)}root."
    after = ""
    while True:
        page = world.store.list(under, start_after=after, limit=_PAGE)
        for row in page:
            try:
                key = parse_metadata_key(row.key, world.prefix)
            except InvalidInputError:
                continue
            if isinstance(key, RootKey):
                yield ListedRoot(key, row.key)
        if len(page) < _PAGE:
            return
        after = page[-1].key


def _without_root(
    world: World, stream: str, item: CatalogItem | None, table_id: str
) -> CatalogItem:
    """A stream that never had a root, or has none any more."""
    objects = world.store.list(stream_prefix(world.prefix, stream), limit=1)
    if objects:
        raise CorruptDataError(
            "the bucket holds objects of this stream but no root: rebuild its manifest",
            stream=stream,
            key=objects[0].key,
        )
    if item is None:
        raise NotFoundError("neither the table nor the bucket knows this stream", stream=stream)
    # An anchor, or a tombstone whose objects are gone: it says all there is to say.
    fresh = replace(item, table_id=table_id, revision=item.revision + 1)
    return _commit(world, fresh, item)


def _commit(world: World, adopted: CatalogItem, item: CatalogItem | None) -> CatalogItem:
    outcome = world.catalog.adopt(adopted, replacing=item)
    if isinstance(outcome, Landed):
        return outcome.item
    raise ConflictError("somebody else has written the item", stream=adopted.stream)
