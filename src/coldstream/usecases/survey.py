"""Which streams a scheduled workflow should look at, from what the catalog says of them.

The items alone rule out most streams, so a sweep over ten thousand of them costs a few pages of the
table and not a GET for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import check_stream
from coldstream.plans.consolidate import may_be_worth_it
from coldstream.plans.policy import PolicySet, effective
from coldstream.plans.retention import Rule, may_be_due
from coldstream.ports import Catalog, ObjectStore

#: Names have up to 255 characters, and a step of a state machine passes at most 256 KiB on.
PAGE = 400
_STREAMS_AT_ONCE = 200

# Where a survey is: in the table, in one that was lost or restored, or in the bucket after that.
_TABLE, _LOST_TABLE, _BUCKET = "table", "lost", "bucket"


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


class RemoteTier(Protocol):
    """What a survey needs of the tier."""

    @property
    def store(self) -> ObjectStore:
        """The bucket."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The table."""
        ...

    @property
    def prefix(self) -> str:
        """Of all keys."""
        ...


def survey(
    tier: RemoteTier,
    workflow: Surveyed,
    policies: PolicySet,
    *,
    now_ms: int,
    target_size: int,
    cursor: str | None = None,
) -> Survey:
    """One page of the streams that `workflow` has something to do with.

    Where `reconcile` finds an empty table, or an item that was written to another one, the table
    was lost or restored, and streams may be missing from it; then it also goes through the bucket.

    Args:
        tier: where.
        workflow: which.
        policies: all rules.
        now_ms: ms since the Unix epoch.
        target_size: bytes of a full fragment.
        cursor: of the page before, None for the first.

    Raises:
        UnavailableError: S3 or DynamoDB did not answer.
    """
    where, _, begin = (cursor or f"{_TABLE}:").partition(":")
    if where == _BUCKET:
        return _in_the_bucket(tier, begin)
    page = tier.catalog.page(begin or None, PAGE)
    table_id = tier.catalog.table_id()
    foreign = {item.stream for item in page.items if item.table_id != table_id}
    if workflow is Surveyed.RECONCILE and (foreign or (not begin and not page.items)):
        where = _LOST_TABLE
    wanted = tuple(
        item.stream
        for item in page.items
        if (item.stream in foreign and workflow is Surveyed.RECONCILE)
        or _wanted(item, workflow, policies, now_ms=now_ms, target_size=target_size)
    )
    following = f"{where}:{page.cursor}" if page.cursor else None
    if following is None and where == _LOST_TABLE:
        following = f"{_BUCKET}:"
    return Survey(wanted, len(page.items), page.damaged, following)


def _in_the_bucket(tier: RemoteTier, after: str) -> Survey:
    """Streams of the bucket that the table does not know; one LIST for each stream there is."""
    missing: list[str] = []
    under = f"{tier.prefix}stream/"
    for seen in range(_STREAMS_AT_ONCE):
        # "0" is the character behind "/": the first key behind all of the stream's.
        start = f"{under}{after}0" if after else under
        found = tier.store.list(under, start_after=start, limit=1)
        if not found:
            return Survey(tuple(missing), seen, (), None)
        after = found[0].key.removeprefix(under).split("/", 1)[0]
        try:
            check_stream(after)
        except InvalidInputError:
            continue
        if tier.catalog.get(after) is None:
            missing.append(after)
    return Survey(tuple(missing), _STREAMS_AT_ONCE, (), f"{_BUCKET}:{after}")


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
