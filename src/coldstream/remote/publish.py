"""PUT groups and a root, and move the catalog item to it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import ConflictError, InternalError
from coldstream.manifest.catalog import Commit
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.names import group_path, root_path
from coldstream.ports import CommitOutcome, ObjectStore
from coldstream.remote.context import Context
from coldstream.remote.roots import MAX_ROOT_SIZE, Snapshot


def publish(
    context: Context,
    loaded: Snapshot,
    root: Root,
    *,
    nodes: Sequence[Node] = (),
    claim: bool = False,
    first_written: str = "",
) -> CommitOutcome:
    """PUT new groups and `root`, then move the item to it if the item is still what was read.

    The groups come first: a root whose references are not all there must never exist, because a
    root that never landed may be adopted after the table was lost.

    Before the root exists, nothing protects what was written for it from `collect`. So a process
    that was stopped in between for longer than `hold_ms` gives up: what it wrote may be gone. Once
    the root exists, it protects what it refers to, however late the rest comes.

    Nothing is cleaned up here, whatever the outcome: only `collect` deletes.

    Args:
        context: where.
        loaded: what the new root was planned from.
        root: planned; its version is set here to one above the item's, and its name to the item's.
        nodes: new groups that it refers to.
        claim: whether this commit claims `root.epoch`.
        first_written: key of the first object that was written for the root, groups apart.

    Raises:
        ConflictError: it took too long; the item was not touched.
        InternalError: the root is too large to be read again; nothing was written.
        UnavailableError, UnknownOutcomeError: the store; the item was not touched.
    """
    item = loaded.item
    root = replace(root, version=item.version + 1, name=item.name)
    uid = context.new_uid()
    key = root_path(context.prefix, item.stream, root.epoch, root.version, uid)
    data = encoded(root, item.stream)
    for node in nodes:
        path = _put_node(context, item.stream, node, version=root.version)
        first_written = first_written or path
    put_root(context.store, key, data, uid)
    if first_written:
        _check_hold(context, item.stream, first_written, key)
    outcome = context.catalog.commit(
        Commit(
            stream=item.stream,
            table_id=item.table_id,
            read_version=item.version,
            read_uid=item.uid,
            root=root,
            root_key=key,
            uid=uid,
            claim=claim,
        )
    )
    context.roots.put(key, root)
    return outcome


def _put_node(context: Context, stream: str, node: Node, *, version: int) -> str:
    entry = node.entry()
    body = node.encode(catalog_version=version)
    path = put_group(context, stream, entry.first_offset, node.uid, level=node.kind, body=body)
    context.nodes.put(entry, node)
    return path


def encoded(root: Root, stream: str) -> bytes:
    """The bytes of a root.

    Raises:
        InternalError: they are more than any reader accepts.
    """
    data = root.encode()
    if len(data) > MAX_ROOT_SIZE:
        raise InternalError(f"a root of {len(data)} bytes; readers refuse it", stream=stream)
    return data


def put_root(store: ObjectStore, key: str, data: bytes, uid: int) -> None:
    """PUT an encoded root under a key of its own.

    Raises:
        UnavailableError, UnknownOutcomeError: from the store.
    """
    store.put(key, data, write_id=f"{uid:016x}-{zlib.crc32(data):08x}")


def put_group(
    context: Context, stream: str, first_offset: int, uid: int, *, level: int, body: bytes
) -> str:
    """PUT an encoded group; its key.

    Raises:
        UnavailableError, UnknownOutcomeError: from the store.
    """
    path = group_path(context.prefix, stream, first_offset, uid, level)
    context.store.put(path, body, write_id=f"{uid:016x}-{zlib.crc32(body):08x}")
    return path


def _check_hold(context: Context, stream: str, first_written: str, root_key: str) -> None:
    """At most `hold_ms` lie between two PUTs, by S3's clock, which `collect` judges by too.

    Raises:
        ConflictError: more, or one of the objects is gone.
    """
    written, rooted = (modified_ms(context, key) for key in (first_written, root_key))
    if written is None or rooted is None or rooted - written > context.hold_ms:
        raise ConflictError(
            f"more than {context.hold_ms} ms have passed since the first object of a new root was"
            " written; it may be gone, so nothing was committed: try again",
            stream=stream,
            key=first_written,
        )


def modified_ms(context: Context, key: str) -> int | None:
    """When S3 took an object, ms since the Unix epoch; None if there is none."""
    folder = key[: key.rindex("/") + 1]
    # Keys that are not ours may lie between; nobody can have put many beside a uid that is so new.
    rows = context.store.list(folder, start_after=key[:-1], limit=100)
    return next((row.modified_ms for row in rows if row.key == key), None)
