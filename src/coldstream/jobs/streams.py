"""Which streams a job is about: all items of the catalog, those whose names match, and the lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from coldstream import deployment
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.jobs.report import JobReport
from coldstream.manifest.catalog import CatalogItem
from coldstream.plans import name_pattern
from coldstream.ports import Catalog
from coldstream.usecases.lost import RemoteTier, lost_streams
from coldstream.wording import listed

_PAGE = 1000
#: Streams that a line of a report, or an error, names.
_NAMED = 100
_SHOWN = 3


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


def check_named(pattern: str, matching: Collection[object], items: Collection[CatalogItem]) -> None:
    """Refuse a pattern that no stream matches, unless it stands for all, or there is none.

    Args:
        pattern: as it was given.
        matching: whatever it matches.
        items: of all streams.

    Raises:
        NotFoundError: nothing matches.
    """
    if matching or not items or pattern in ("", ".*"):
        return
    names = sorted(item.name.queue or item.stream for item in items)
    unnamed = sum(not item.name.queue for item in items)
    hint = (
        f"; of {unnamed} nobody has recorded the queue yet, so give their directories, such as"
        f" __{pattern[:100]}_.*"
        if unnamed
        else ""
    )
    raise NotFoundError(
        f"--streams {pattern[:200]!r} matches none of {len(items)} streams: it is a regular"
        " expression that the whole name of the queue or the directory must match; there are"
        f" {listed(names, _SHOWN)}{hint}"
    )


def lost(
    tier: RemoteTier,
    items: Iterable[CatalogItem],
    damaged: Iterable[CorruptDataError],
    report: JobReport,
    pattern: str = "",
) -> list[str]:
    """Streams of the bucket that the table lacks; told in the report and its metrics.

    Args:
        tier: where.
        items: that the table has.
        damaged: one for each item that it has and that cannot be read.
        report: gets facts and metrics.
        pattern: regular expression that the directory must match as a whole; "" for no condition.

    Raises:
        UnavailableError, PermissionDeniedError: from the store or the table.
    """
    known = {item.stream for item in items} | {each.stream for each in damaged if each.stream}
    matches = name_pattern.compiled(pattern or ".*").fullmatch
    found = [stream for stream in lost_streams(tier, known) if matches(stream)]
    report.facts["streams_without_item"] = found[:_NAMED]
    report.count(deployment.METRIC_STREAMS_WITHOUT_ITEM, len(found))
    return found
