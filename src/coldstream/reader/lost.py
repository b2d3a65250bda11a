"""Read a manifest that is not the current one: what a claim has cut off."""

from __future__ import annotations

from typing import Any

from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.root import Root
from coldstream.ports import Catalog, ObjectStore
from coldstream.reader.stream import StreamReader
from coldstream.remote.roots import Snapshot


class RootReader(StreamReader):
    """Reads what one root says, whatever the stream has become since.

    Args:
        store: the bucket.
        catalog: the table; it is not asked.
        prefix: of all keys, ends in "/".
        stream: directory name.
        root: what is read.
        settings: as of `StreamReader`.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        prefix: str,
        stream: str,
        root: Root,
        **settings: Any,
    ) -> None:
        super().__init__(store, catalog, prefix, stream, **settings)
        item = CatalogItem(
            stream=stream,
            table_id="",
            epoch=root.epoch,
            version=root.version,
            first_offset=root.first_offset,
            next_offset=root.next_offset,
            ledger=root.ledger,
        )
        self._fixed = Snapshot(item, root)

    def snapshot(self) -> Snapshot:
        """The root that was given, always."""
        return self._fixed

    def glance(self) -> Snapshot:
        """The same."""
        return self._fixed
