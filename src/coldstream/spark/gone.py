"""Streams that a query has begun to read and that are no longer there: what is said of the rest."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.root import Root
from coldstream.reader.gap import Gap


@dataclass(frozen=True, slots=True)
class Gone(Gap):
    """Offsets that went with their stream; an empty range where nobody knows how far it reached.

    Its `reason` says nothing.

    Attributes:
        stream: directory name.
    """

    stream: str = ""

    def __str__(self) -> str:
        first, last = self.first_offset, self.next_offset - 1
        if first > last:
            return f"from offset {first} on nobody knows the stream {self.stream} any more"
        return (
            f"offsets {first} to {last} are gone: the stream {self.stream} was deleted before they"
            " were read"
        )


def is_gone(item: CatalogItem | None) -> bool:
    """Whether nothing of a stream can be read any more; before, a tombstone may be called off."""
    return item is None or item.state is StreamState.DELETED


def rest_of(item: CatalogItem) -> Root:
    """What its tombstone says of a stream, as a manifest without anything to read."""
    return Root(item.next_offset, item.next_offset, epoch=item.epoch, ledger=item.ledger)
