"""Give a stream its catalog item back after the table was lost or restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.root import Root
from coldstream.names import root_path, stream_prefix
from coldstream.plans.reconcile import (
    ListedRoot,
    adoption,
    next_version,
    preferred,
    ranked,
    step_back,
)
from coldstream.ports import Landed
from coldstream.remote.context import Context
from coldstream.remote.publish import encoded, put_root
from coldstream.remote.roots import root_at
from coldstream.usecases.evidence import uploaded_floors
from coldstream.usecases.ours import first_of_ours
from coldstream.usecases.references import first_missing, list_roots


def adopt(context: Context, stream: str) -> CatalogItem | None:
    """Write the newest complete root of the bucket again, and the item that names it.

    Fragments behind that root are not looked at: the next commit resolves them as usual. A
    tombstone whose undelete time is over stays one: nothing leaves that state.

    Returns:
        The new item; None if the table's own item is good, so that there is nothing to adopt.

    Raises:
        NotFoundError: neither the table nor the bucket knows the stream.
        CorruptDataError: the newest root is damaged, objects are there and no root, or no root has
            all that it refers to: a person has to look; nothing was written.
        ConflictError: another writer was faster; look again.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    table_id = context.catalog.table_id()
    item = context.catalog.get(stream)
    if item is not None and item.table_id == table_id:
        return None
    if item is not None and item.state is StreamState.DELETED:
        return _commit(context, _moved_over(context, item, table_id), item)
    roots = list(list_roots(context, stream))
    if not roots:
        return _without_root(context, stream, item, table_id)
    winner = _choose(context, stream, item, roots)
    uid = context.new_uid()
    versions = [each.key.version for each in roots]
    version = next_version(item, versions)
    path = root_path(context.prefix, stream, winner.epoch, version, uid)
    root, adopted = adoption(
        winner,
        item,
        stream=stream,
        table_id=table_id,
        versions=versions,
        uid=uid,
        root_key=path,
    )
    put_root(context.store, path, encoded(root, stream), uid)
    return _commit(context, adopted, item)


def _choose(
    context: Context, stream: str, item: CatalogItem | None, roots: Sequence[ListedRoot]
) -> Root:
    """The best root of which nothing is missing, if it can be the one that landed."""
    passed: list[Root] = []
    gone = ""
    for same in ranked(roots):
        read = [(_read(context, stream, each), each) for each in same]
        uploaded = uploaded_floors(context, stream, [root for root, _ in read])
        for root, _ in preferred(read, item, uploaded):
            why = step_back(root, passed, item, uploaded)
            missing = None if why else first_missing(context, stream, root)
            if not why and missing is None:
                return root
            gone = gone or missing or ""
            if why:
                raise CorruptDataError(
                    f"no adoption of version {root.version}: {why}; rebuild the manifest",
                    stream=stream,
                    key=gone,
                )
            passed.append(root)
    raise CorruptDataError(
        "no root of this stream has all that it refers to: rebuild its manifest",
        stream=stream,
        key=gone,
    )


def _read(context: Context, stream: str, each: ListedRoot) -> Root:
    return root_at(context.store, each.path, stream)


def _without_root(
    context: Context, stream: str, item: CatalogItem | None, table_id: str
) -> CatalogItem:
    """A stream that never had a root, or has none any more."""
    first = first_of_ours(context, stream)
    if first is not None:
        raise CorruptDataError(
            "the bucket holds objects of this stream but no root: rebuild its manifest",
            stream=stream,
            key=first,
        )
    if item is None:
        # Nothing is anchored beside them, either: a person has to look, and to remove them.
        others = context.store.list(stream_prefix(context.prefix, stream), limit=1)
        raise NotFoundError(
            "the table does not know this stream, and of what the bucket holds below its name"
            " nothing is ours: remove it"
            if others
            else "neither the table nor the bucket knows this stream",
            stream=stream,
            key=ascii(others[0].key)[1:-1] if others else None,
        )
    # An anchor, or a tombstone whose objects are gone: it says all there is to say.
    return _commit(context, _moved_over(context, item, table_id), item)


def _moved_over(context: Context, item: CatalogItem, table_id: str) -> CatalogItem:
    """The same item in another table; what was seen under the old one proves nothing."""
    token = context.new_uid() or 1  # 0 means "never changed"
    return replace(item, table_id=table_id, revision=item.revision + 1, state_token=token)


def _commit(context: Context, adopted: CatalogItem, item: CatalogItem | None) -> CatalogItem:
    outcome = context.catalog.adopt(adopted, replacing=item)
    if isinstance(outcome, Landed):
        return outcome.item
    raise ConflictError("another writer has written the item", stream=adopted.stream)
