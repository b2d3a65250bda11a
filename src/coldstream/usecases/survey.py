"""Which streams a scheduled workflow should look at, from what the catalog says of them.

The items alone rule out most streams, so a sweep over ten thousand of them costs a few pages of the
table and not a GET for each.
"""

from __future__ import annotations

import hashlib
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

# Where a survey is: in the table; in one that may lack streams; in the bucket after that; and in
# the bucket when one was found that the table lacks.
_TABLE, _LOST_TABLE, _BUCKET, _MISSING = "table", "lost", "bucket", "missing"


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
        damaged: one error for each item that cannot be read, or that no rule can be asked about.
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
    mark: bool = False,
) -> Survey:
    """One page of the streams that `workflow` has something to do with.

    A table that was lost or restored may lack streams. So for `reconcile` a survey also goes
    through the bucket, until it has once found every stream of the bucket in this very table; then
    it says so with an object beside the streams, and no later survey does it again. An empty table
    is one that may lack streams, whatever the object says.

    Args:
        tier: where.
        workflow: which.
        policies: all rules.
        now_ms: ms since the Unix epoch.
        target_size: bytes of a full fragment.
        cursor: of the page before, None for the first.
        mark: whether to say in the bucket that the table lacks no stream; without it, only read.

    Raises:
        UnavailableError: S3 or DynamoDB did not answer.
    """
    where, _, begin = (cursor or f"{_TABLE}:").partition(":")
    if where in (_BUCKET, _MISSING):
        return _in_the_bucket(tier, begin, found_one=where == _MISSING, mark=mark)
    page = tier.catalog.page(begin or None, PAGE)
    table_id = tier.catalog.table_id()
    foreign = {item.stream for item in page.items if item.table_id != table_id}
    if workflow is Surveyed.RECONCILE and not begin:
        empty = not page.items and not page.damaged and page.cursor is None
        if empty or not _is_complete(tier, table_id):
            where = _LOST_TABLE
    wanted: list[str] = []
    damaged = [*page.damaged]
    for item in page.items:
        try:
            if (item.stream in foreign and workflow is Surveyed.RECONCILE) or _wanted(
                item, workflow, policies, now_ms=now_ms, target_size=target_size
            ):
                wanted.append(item.stream)
        except InvalidInputError as exc:  # one item must not stop the work on all the others
            damaged.append(
                CorruptDataError(
                    f"a catalog item that no rule can be asked about: {exc.reason}",
                    stream=item.stream,
                )
            )
    following = f"{where}:{page.cursor}" if page.cursor else None
    if following is None and where == _LOST_TABLE:
        following = f"{_BUCKET}:"
    return Survey(tuple(wanted), len(page.items), tuple(damaged), following)


def complete_path(prefix: str, table_id: str) -> str:
    """Key of the object that says: every stream of the bucket is in this table.

    No stream's directory has a dot in its name, so nobody takes it for one.
    """
    digest = hashlib.sha256(table_id.encode()).hexdigest()[:32]
    return f"{prefix}stream/.complete/metadata/{digest}.table"


def _is_complete(tier: RemoteTier, table_id: str) -> bool:
    path = complete_path(tier.prefix, table_id)
    return any(row.key == path for row in tier.store.list(path, limit=1))


def _set_complete(tier: RemoteTier) -> None:
    path = complete_path(tier.prefix, tier.catalog.table_id())
    tier.store.put(path, b"", write_id="complete")


def _in_the_bucket(tier: RemoteTier, after: str, *, found_one: bool, mark: bool) -> Survey:
    """Streams of the bucket that the table does not know; one LIST for each stream there is."""
    missing: list[str] = []
    under = f"{tier.prefix}stream/"
    for seen in range(_STREAMS_AT_ONCE):
        # "0" is the character behind "/": the first key behind all of the stream's.
        start = f"{under}{after}0" if after else under
        found = tier.store.list(under, start_after=start, limit=1)
        if not found:
            if mark and not missing and not found_one:
                _set_complete(tier)
            return Survey(tuple(missing), seen, (), None)
        after = found[0].key.removeprefix(under).split("/", 1)[0]
        try:
            check_stream(after)
        except InvalidInputError:
            continue
        if tier.catalog.get(after) is None:
            missing.append(after)
    where = _MISSING if missing or found_one else _BUCKET
    return Survey(tuple(missing), _STREAMS_AT_ONCE, (), f"{where}:{after}")


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
