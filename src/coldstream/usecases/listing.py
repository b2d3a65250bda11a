"""What LIST shows of a stream, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coldstream.errors import InvalidInputError
from coldstream.names import data_prefix, list_start, parse_data_key
from coldstream.plans.resolve import Listed
from coldstream.ports import ObjectInfo
from coldstream.usecases.load import World


def pages(world: World, under: str, *, after: str = "") -> Iterator[list[ObjectInfo]]:
    """All objects below `under` whose keys sort behind `after`; the last page may be empty.

    Each page is what was there when it was asked for. What is written meanwhile is seen if it sorts
    behind the last key so far.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    while True:
        page = world.store.list(under, start_after=after, limit=world.page_size)
        yield page
        if len(page) < world.page_size:
            return
        after = page[-1].key


def data_pages(world: World, stream: str, offset: int) -> Iterator[list[Listed]]:
    """Fragments and holes that begin at or above an offset, in the order of their keys.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    after = list_start(world.prefix, stream, offset)
    for page in pages(world, data_prefix(world.prefix, stream), after=after):
        yield data_objects(world, page)


def data_objects(world: World, page: Iterable[ObjectInfo]) -> list[Listed]:
    """The fragments and holes of a page; what has another name is not ours, and left out.

    Where an event names such a key, it is refused where the event is read.
    """
    found = []
    for row in page:
        try:
            found.append(Listed(parse_data_key(row.key, world.prefix), row.key, row.size))
        except InvalidInputError:
            continue
    return found
