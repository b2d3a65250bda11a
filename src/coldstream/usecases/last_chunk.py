"""Whether the manifest holds the chunk in which a refused fragment ends."""

from __future__ import annotations

from coldstream.errors import CorruptDataError, UnknownVersionError
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaf_at
from coldstream.remote.context import Context
from coldstream.remote.trailers import epoch_at, read_index, read_trailer


def holds_last_chunk(context: Context, stream: str, root: Root, path: str) -> bool:
    """Whether the last chunk of the fragment under `path` is in the tree, the very same.

    Same chunk id and epoch in both mean the same history below, so the fragment is a copy. A
    fragment that cannot be read is damaged, not unique; but a damaged object proves nothing either,
    so it counts as not held and stays. So does one of a later version.
    """
    try:
        last = read_trailer(context.store, path)
        leaf = leaf_at(root, last.last_chunk_id, context.fetch(stream))
        if leaf is None or leaf.kind is not EntryKind.FRAGMENT:
            return False
        held = leaf.data_key(stream).path(context.prefix)
        index = read_index(context.store, held, read_trailer(context.store, held))
        number = index.chunk_of_offset(last.last_chunk_id)
        if index[number].chunk_id != last.last_chunk_id:
            return False
        return epoch_at(context.store, held, index, number) == last.last_chunk_epoch
    except (CorruptDataError, UnknownVersionError):
        return False
