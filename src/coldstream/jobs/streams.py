"""Which streams a job is about: all items of the catalog, and those whose names match."""

from __future__ import annotations

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem
from coldstream.plans import name_pattern
from coldstream.ports import Catalog

_PAGE = 1000


def all_items(catalog: Catalog) -> tuple[list[CatalogItem], list[CorruptDataError]]:
    """Every item, in no order, and an error for each that cannot be read.

    One damaged item must not hide the others from a job, nor be passed over by it.

    Raises:
        UnavailableError, PermissionDeniedError: the catalog.
    """
    items: list[CatalogItem] = []
    damaged: list[CorruptDataError] = []
    cursor = None
    while True:
        page = catalog.page(cursor, _PAGE)
        items += page.items
        damaged += page.damaged
        cursor = page.cursor
        if cursor is None:
            return items, damaged


def named(item: CatalogItem, pattern: str) -> bool:
    """Whether the directory or the queue matches as a whole; an empty pattern is no condition."""
    matches = name_pattern.compiled(pattern or ".*").fullmatch
    return bool(matches(item.stream) or matches(item.name.queue))
