"""Which streams a scheduled workflow should look at, from what the catalog says of them.

The items alone rule out most streams, so a sweep over ten thousand of them costs a few pages of the
table and not a GET for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.plans.consolidate import may_be_worth_it
from coldstream.plans.policy import PolicySet, effective
from coldstream.plans.retention import Rule, may_be_due
from coldstream.ports import Catalog

#: Names have up to 255 characters, and a step of a state machine passes at most 256 KiB on.
PAGE = 400


class Surveyed(StrEnum):
    """Workflows that go over all streams."""

    RETENTION = "retention"
    CONSOLIDATE = "consolidate"
    COLLECT = "collect"
    RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class Survey:
    """One page of a survey.

    Attributes:
        streams: directory names that the workflow should look at.
        seen: items on the page.
        damaged: one error for each item that cannot be read.
        cursor: where the next page begins, None after the last.
    """

    streams: tuple[str, ...]
    seen: int
    damaged: tuple[CorruptDataError, ...]
    cursor: str | None


def survey(
    catalog: Catalog,
    workflow: Surveyed,
    policies: PolicySet,
    *,
    now_ms: int,
    target_size: int,
    cursor: str | None = None,
) -> Survey:
    """One page of the streams that `workflow` has something to do with.

    Args:
        catalog: the table.
        workflow: which.
        policies: all rules.
        now_ms: ms since the Unix epoch.
        target_size: bytes of a full fragment.
        cursor: of the page before, None for the first.

    Raises:
        UnavailableError: DynamoDB did not answer.
    """
    page = catalog.page(cursor, PAGE)
    wanted = tuple(
        item.stream
        for item in page.items
        if _wanted(item, workflow, policies, now_ms=now_ms, target_size=target_size)
    )
    return Survey(wanted, len(page.items), page.damaged, page.cursor)


def _wanted(
    item: CatalogItem, workflow: Surveyed, policies: PolicySet, *, now_ms: int, target_size: int
) -> bool:
    if workflow is Surveyed.COLLECT:
        return item.state in (StreamState.LIVE, StreamState.DELETED)
    if item.state is not StreamState.LIVE:
        return False
    if workflow is Surveyed.RECONCILE:
        return True
    rules = effective(policies, item.stream, item.name)
    if workflow is Surveyed.CONSOLIDATE:
        return rules.consolidate and may_be_worth_it(
            total_size=item.total_size, fragments=item.fragments, target_size=target_size
        )
    return not rules.hold and may_be_due(
        Rule(rules.max_age_ms, rules.max_bytes),
        first_timestamp=item.first_timestamp,
        total_size=item.total_size,
        fragments=item.fragments,
        now_ms=now_ms,
    )
