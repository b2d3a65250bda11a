"""Whether the manifest holds the chunk in which a refused fragment ends."""

from __future__ import annotations

from coldstream.errors import CorruptDataError
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    Trailer,
    chunk_epoch,
    parse_trailer,
)
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaf_at
from coldstream.usecases.load import World


def holds_last_chunk(world: World, stream: str, root: Root, path: str) -> bool:
    """Whether the last chunk of the fragment under `path` is in the tree, the very same.

    Same chunk id and epoch in both mean the same history below, so the fragment is a copy. A
    fragment that cannot be read is damaged, not unique; but a damaged object proves nothing either,
    so it counts as not held and stays.
    """
    try:
        last = parse_trailer(world.store.get_suffix(path, TRAILER_SIZE))
        leaf = leaf_at(root, last.last_chunk_id, world.fetch(stream))
        if leaf is None or leaf.kind is not EntryKind.FRAGMENT:
            return False
        held = leaf.data_key(stream).path(world.prefix)
        trailer = parse_trailer(world.store.get_suffix(held, TRAILER_SIZE))
        return _epoch_of(world, last.last_chunk_id, trailer, held) == last.last_chunk_epoch
    except CorruptDataError:
        return False


def _epoch_of(world: World, chunk_id: int, trailer: Trailer, path: str) -> int | None:
    """Epoch of the chunk with this id in a fragment; None if no chunk has this id."""
    begin = trailer.index_position
    section = world.store.get(path, begin, begin + trailer.index_size)
    index = FragmentIndex(section, trailer)
    record = index[index.chunk_of_offset(chunk_id)]
    if record.chunk_id != chunk_id:
        return None
    start = len(HEADER) + record.position
    return chunk_epoch(world.store.get(path, start, start + 24))
