"""Anchor a new stream, and claim it for the epoch of a new writer (DESIGN section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coldstream.errors import ConflictError, FencedError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.root import Root
from coldstream.names import stream_prefix
from coldstream.plans.claim import LocalChunk, check_common_history
from coldstream.plans.claim import claim as plan_claim
from coldstream.ports import Landed
from coldstream.usecases.commit_runs import extend
from coldstream.usecases.load import Loaded, World, load, publish


def anchor(world: World, stream: str, first_offset: int, name: QueueName) -> CatalogItem:
    """Write the stream's first item, before its first object; return the item that is there.

    Raises:
        ConflictError: objects of the stream exist without an item (a lost or restored table);
            nothing is written until they have been reconciled.
    """
    item = world.catalog.get(stream)
    if item is not None:
        return item
    if world.store.list(stream_prefix(world.prefix, stream), limit=1):
        raise ConflictError(
            "the bucket holds objects of this stream but the catalog has no item for it;"
            " it must be reconciled before anything is written",
            stream=stream,
        )
    return world.catalog.anchor(
        CatalogItem(
            stream=stream,
            table_id=world.catalog.table_id(),
            first_offset=first_offset,
            next_offset=first_offset,
            name=name,
        )
    )


def claim(
    world: World,
    stream: str,
    epoch: int,
    *,
    chunks_near: Callable[[int], Sequence[LocalChunk]],
    pause: Callable[[int], None],
    attempts: int = 8,
    limit: int = 500,
) -> Loaded:
    """Claim the stream for `epoch`, once; a second call finds the claim and returns.

    What is already uploaded and good is appended in the same commit, so the floor of the new epoch
    lies above all of it and nothing below the floor can be missing for want of a writer.

    Args:
        world: where.
        stream: directory name.
        epoch: of a committed chunk that the local log holds.
        chunks_near: gives, for an offset, the committed local chunks around it and the last one.
        pause: called with the number of the failed attempt before the next one.
        attempts: how many commits in a row may fail.
        limit: fragments in one commit.

    Returns:
        The stream as it is after the claim.

    Raises:
        FencedError: a higher epoch has claimed, or this epoch was passed over.
        DivergedError: the local log proves that the remote tail is another history.
        ConflictError: the stream takes no commits, or somebody else won `attempts` times.
        CorruptDataError: the current root is damaged.
    """
    failed = 0
    while True:
        loaded = load(world, stream)
        if loaded.item.epoch >= epoch:
            if loaded.item.ledger.floor(epoch) is None or loaded.item.epoch > epoch:
                raise FencedError(
                    f"epoch {loaded.item.epoch} has claimed the stream, this writer has {epoch}",
                    stream=stream,
                    offset=loaded.root.next_offset,
                )
            _check_history(loaded.root, chunks_near, stream)
            return loaded
        extension = extend(world, stream, loaded.root, limit=limit)
        _check_history(extension.root, chunks_near, stream)
        if extension.more:
            outcome = publish(world, loaded, extension.root)
        else:
            outcome = publish(world, loaded, plan_claim(extension.root, epoch), claim=True)
        if isinstance(outcome, Landed):
            failed = 0
            continue
        failed += 1
        if failed >= attempts:
            raise ConflictError(f"{attempts} claims in a row did not land", stream=stream)
        pause(failed)


def _check_history(
    root: Root, chunks_near: Callable[[int], Sequence[LocalChunk]], stream: str
) -> None:
    check_common_history(
        root.last_chunk, root.next_offset, chunks_near(root.next_offset), stream=stream
    )
