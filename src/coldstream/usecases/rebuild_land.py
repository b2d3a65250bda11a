"""Put a rebuilt manifest into the bucket and let the item name it, if everything is still there."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType

from coldstream.errors import ConflictError, InternalError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.names import root_path
from coldstream.plans.reconcile import adoption, next_version
from coldstream.ports import Landed
from coldstream.remote.context import Context
from coldstream.remote.publish import encoded, put_group, put_root
from coldstream.usecases.rebuild_state import fresh
from coldstream.usecases.references import missing_of_tree

#: Bytes of groups that are held in memory; the rest goes to a temporary file.
_IN_MEMORY = 64 * 2**20
_HEAD = struct.Struct(">QQBI")  # first offset, uid, level, length


class Spool:
    """Encoded groups, kept until the pass is through: nothing is written for one that is refused.

    A petabyte has a gigabyte of groups, so they are kept in a file where they are many.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - is one
        #: How many there are.
        self.count = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, node: Node) -> None:
        """Keep a group."""
        body = node.encode()
        first = node.entries[0].first_offset
        self._file.write(_HEAD.pack(first, node.uid, int(node.kind), len(body)) + body)
        self.count += 1

    def put(self, context: Context, stream: str) -> None:
        """PUT all of them, in the order in which they came: children first.

        Raises:
            UnavailableError, UnknownOutcomeError: from the store.
        """
        for first, uid, level, body in self._all():
            put_group(context, stream, first, uid, level=level, body=body)

    def _all(self) -> Iterator[tuple[int, int, int, bytes]]:
        self._file.seek(0)
        for _ in range(self.count):
            first, uid, level, length = _HEAD.unpack(self._file.read(_HEAD.size))
            yield first, uid, level, self._file.read(length)


def put_holes(context: Context, stream: str, holes: Iterable[Entry]) -> None:
    """PUT the objects of holes that have none.

    Raises:
        UnavailableError, UnknownOutcomeError: from the store.
    """
    for each in holes:
        assert each.kind is EntryKind.HOLE
        path = each.data_key(stream).path(context.prefix)
        context.store.put(path, b"", write_id=f"{each.uid:016x}")


def land(
    context: Context,
    stream: str,
    root: Root,
    item: CatalogItem | None,
    versions: Sequence[int],
) -> None:
    """PUT the root, look once more whether all that it names is there, and let the item name it.

    Raises:
        ConflictError: something was deleted meanwhile, or another writer changed the item; nothing
            was committed.
        InvalidInputError: the root would be too large.
        UnavailableError, UnknownOutcomeError: from store or table.
    """
    current = context.catalog.get(stream)
    if item is not None and current is not None:
        # Its name may have been corrected since, and rules go by names.
        item = replace(item, name=current.name)
    uid = context.new_uid()
    version = next_version(item, versions)
    path = root_path(context.prefix, stream, root.epoch, version, uid)
    root, adopted = adoption(
        root,
        item,
        stream=stream,
        table_id=context.catalog.table_id(),
        versions=versions,
        uid=uid,
        root_key=path,
    )
    try:
        data = encoded(root, stream)
    except InternalError as exc:
        message = "the branching factor is too small for this stream"
        raise InvalidInputError(message, stream=stream) from exc
    put_root(context.store, path, data, uid)
    # A delete that was sent before the stream was stopped may have come meanwhile.
    gone = missing_of_tree(fresh(context), stream, root, root.first_offset)
    if gone is not None:
        raise ConflictError(
            "an object that the new manifest names has gone meanwhile; nothing was committed:"
            " rebuild again",
            stream=stream,
            key=gone,
        )
    outcome = context.catalog.adopt(adopted, replacing=item)
    if not isinstance(outcome, Landed):
        raise ConflictError("another writer changed the item; rebuild again", stream=stream)
