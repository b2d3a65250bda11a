"""Dry runs over one stream or over all that a workflow would look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from coldstream.cli.output import note
from coldstream.clock import now_ms
from coldstream.errors import ColdstreamError, PermissionDeniedError, UnavailableError
from coldstream.manifest.catalog import CatalogItem
from coldstream.ports import Catalog

if TYPE_CHECKING:
    from coldstream.plans.policy import PolicySet
    from coldstream.usecases.lost import RemoteTier
    from coldstream.usecases.scan import ScanFor

Row = dict[str, Any]
_PAGE = 1000


class Plans:
    """What a dry run says of each stream, and what it could not say.

    Attributes:
        rows: one document a stream.
        failed: one error for each stream that has none.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.failed: list[ColdstreamError] = []

    def fail(self, error: ColdstreamError) -> None:
        """Tell an error on stderr, and remember it for the exit code."""
        note(f"coldstream: {error}")
        self.failed.append(error)

    def finish(self) -> None:
        """Raise the first error, after everything else has been printed."""
        if self.failed:
            raise self.failed[0]


def plan_each(streams: Iterator[str], act: Callable[[str], Row | None], plans: Plans) -> None:
    """Plan stream by stream; what is wrong with one of them does not stop the others.

    Args:
        streams: directory names.
        act: plans one; None where there is nothing to say.
        plans: what was said so far.

    Raises:
        UnavailableError, PermissionDeniedError: not one stream's own trouble.
    """
    for stream in streams:
        try:
            row = act(stream)
        except (UnavailableError, PermissionDeniedError):
            raise
        except ColdstreamError as error:
            plans.fail(error.located(stream=stream))
        else:
            if row is not None:
                plans.rows.append(row)


def scanned(
    tier: RemoteTier,
    workflow: ScanFor,
    policies: PolicySet,
    plans: Plans,
    *,
    target_size: int = 1,
) -> Iterator[str]:
    """The streams that the machine's own scan would find; items that are damaged are told."""
    from coldstream.usecases.scan import scan

    cursor = None
    while True:
        page = scan(
            tier,
            workflow,
            policies,
            now_ms=now_ms(),
            target_size=target_size,
            cursor=cursor,
            look=True,
        )
        for error in page.damaged:
            plans.fail(error)
        for key in page.foreign_keys:
            note(f"passed over, no stream's directory: {key!a}")
        yield from page.streams
        if page.cursor is None:
            return
        cursor = page.cursor


def items(catalog: Catalog, plans: Plans) -> Iterator[CatalogItem]:
    """Every item of the catalog; those that are damaged are told."""
    cursor = None
    while True:
        page = catalog.page(cursor, _PAGE)
        for error in page.damaged:
            plans.fail(error)
        yield from page.items
        if page.cursor is None:
            return
        cursor = page.cursor


def no_pause(_: int) -> None:
    """A dry run commits nothing, so nothing is in its way."""
