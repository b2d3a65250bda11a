"""Which streams a scheduled workflow should look at, from what the catalog says of them.

The items alone rule out most streams, so a sweep over ten thousand of them costs a few pages of the
table and not a GET for each. The pages need not be fresh: each step reads its item again, and what
one run does not see, the next one does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.plans.collect_order import draw
from coldstream.plans.consolidate import may_be_worth_it
from coldstream.plans.delete import is_overdue
from coldstream.plans.policy import PolicySet, effective
from coldstream.plans.probe import is_probe
from coldstream.plans.retention import RetentionLimits, may_be_due
from coldstream.ports import Catalog, CatalogPage
from coldstream.remote.directories import behind, stream_of, walk
from coldstream.usecases.lost import RemoteTier, is_lost

#: Names have up to 255 characters, and a step of a state machine passes at most 256 KiB on: twice
#: as many still fit.
PAGE = 400
#: Pages of the table, or looks through the bucket, in one answer.
_MAX_PAGES = 25
#: By the broker's clock. A stream with younger data may well have more on the way.
RECENT_MS = 3_600_000
#: The manifest of a stream with data as young as this follows: its events arrive, and each that
#: does makes good for those before it.
FLOWING_MS = 600_000
#: Directories of the bucket that one page looks at, and how many times as much of what is none.
_STREAMS_AT_ONCE = 1000
_PASSED_AT_ONCE = 20
_COMPLETE = ".complete"
_TOLD = 10  # keys that a page names

# Where a scan is: in the table; in one that may lack streams; in the bucket after that; in the
# table, with the bucket to follow all the same; and in the bucket without a word at its end, since
# it is not needed, or since a stream was found that the table lacks.
_TABLE, _LOST_TABLE, _BUCKET, _LOOK, _MISSING = "table", "lost", "bucket", "look", "missing"
_THEN = {_LOST_TABLE: _BUCKET, _LOOK: _MISSING}  # what follows the table
# Where one for `collect` is: between its begin and the end of the table, and before its begin.
_SPUN, _WRAPPED = "spun", "wrapped"


class ScanFor(StrEnum):
    """Workflows that go over all streams."""

    RETENTION = "retention"
    CONSOLIDATE = "consolidate"
    COLLECT = "collect"
    RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class ScanPage:
    """One page of a scan.

    Attributes:
        streams: directory names that the workflow should look at.
        seen: items on the page.
        damaged: one error for each item that cannot be read, or that no rule can be asked about.
        cursor: where the next page begins, None after the last.
        foreign: things found where a stream's directory should be; not all that there are.
        foreign_keys: the first ten.
        lost: of `streams`, how many the bucket has and the table does not.
    """

    streams: tuple[str, ...]
    seen: int
    damaged: tuple[CorruptDataError, ...]
    cursor: str | None
    foreign: int = 0
    foreign_keys: tuple[str, ...] = ()
    lost: int = 0

    def with_page(self, more: ScanPage) -> ScanPage:
        """This page and the one behind it as one."""
        return ScanPage(
            tuple(dict.fromkeys((*self.streams, *more.streams))),
            self.seen + more.seen,
            (*self.damaged, *more.damaged),
            more.cursor,
            self.foreign + more.foreign,
            (*self.foreign_keys, *more.foreign_keys)[:_TOLD],
            self.lost + more.lost,
        )


def scan(
    tier: RemoteTier,
    workflow: ScanFor,
    policies: PolicySet,
    *,
    now_ms: int,
    target_size: int,
    grace_ms: int = 0,
    cursor: str | None = None,
    mark: bool = False,
    look: bool = False,
    in_turn: Callable[[str], bool] = lambda _: True,
    time_left: Callable[[], bool] = lambda: True,
) -> ScanPage:
    """One page of the streams that `workflow` has something to do with.

    `reconcile` LISTs a stream, which costs money: one whose data has stopped within the hour, since
    its last event may be lost, and of all others those that `in_turn` takes; but never the probe of
    a doctor, who waits for that event and asks for a commit himself. It also goes through
    the bucket for streams that the table lacks, since nothing removes an item (a tombstone stays):
    always until all streams there were once found in this very table, which an object says then,
    and afterwards where it is to `look`.

    Args:
        tier: where.
        workflow: which.
        policies: all rules.
        now_ms: ms since the Unix epoch.
        target_size: bytes of a full fragment.
        grace_ms: how long the machine of a deletion may wait behind the undelete time.
        cursor: of the page before, None for the first.
        mark: whether to say in the bucket that the table lacks no stream; without it, only read.
        look: whether `reconcile` goes through the bucket in any case; of the first page.
        in_turn: whether `reconcile` looks at a stream without recent data now.
        time_left: whether there is time for another stream of the bucket; one is always looked at.

    Raises:
        UnavailableError: S3 or DynamoDB did not answer.
    """
    where, _, begin = (cursor or f"{_TABLE}:").partition(":")
    if where in (_BUCKET, _MISSING):
        found_one = where == _MISSING
        return _in_the_bucket(tier, begin, found_one=found_one, mark=mark, time_left=time_left)
    if workflow is ScanFor.COLLECT:
        page, following = _turned(tier.catalog, cursor, now_ms)
    else:
        page = tier.catalog.page(begin or None, PAGE, fresh=False)
        following = f"{where}:{page.cursor}" if page.cursor else None
    table_id = tier.catalog.table_id()
    empty = not page.items and not page.damaged and page.cursor is None
    first = workflow is ScanFor.RECONCILE and not begin
    if first and (empty or not _is_complete(tier, table_id)):
        where = _LOST_TABLE
    elif first and look:
        where = _LOOK
    if where in _THEN:
        following = f"{where}:{page.cursor}" if page.cursor else f"{_THEN[where]}:"
    wanted: list[str] = []
    damaged = [*page.damaged]
    foreign = table_id if workflow is ScanFor.RECONCILE else None
    for item in page.items:
        try:
            if (foreign is not None and item.table_id != foreign) or _wanted(
                item,
                workflow,
                policies,
                now_ms=now_ms,
                target_size=target_size,
                grace_ms=grace_ms,
                in_turn=in_turn,
            ):
                wanted.append(item.stream)
        except InvalidInputError as exc:  # one item must not stop the work on all the others
            words = f"a catalog item that no rule can be asked about: {exc.reason}"
            damaged.append(CorruptDataError(words, stream=item.stream))
    return ScanPage(tuple(wanted), len(page.items), tuple(damaged), following)


def several(
    scan_page: Callable[[str | None], ScanPage],
    cursor: str | None,
    *,
    time_left: Callable[[], bool] = lambda: True,
) -> ScanPage:
    """Pages from `cursor` on as one, until there is a page of streams; fewer than two pages.

    A page costs a machine some transitions, whether it names streams or not.

    Args:
        scan_page: `scan`, with the cursor as its only argument.
        cursor: of the page before, None for the first.
        time_left: whether there is time for another page.

    Raises:
        As `scan`.
    """
    found = scan_page(cursor)
    for _ in range(_MAX_PAGES - 1):
        if found.cursor is None or len(found.streams) >= PAGE or not time_left():
            break
        found = found.with_page(scan_page(found.cursor))
    return found


def complete_path(prefix: str, table_id: str) -> str:
    """Key of the object that says: every stream of the bucket is in this table.

    No stream's directory has a dot in its name, so nobody takes it for one.
    """
    digest = hashlib.sha256(table_id.encode()).hexdigest()[:32]
    return f"{prefix}stream/{_COMPLETE}/metadata/{digest}.table"


def _is_complete(tier: RemoteTier, table_id: str) -> bool:
    path = complete_path(tier.prefix, table_id)
    return any(row.key == path for row in tier.store.list(path, limit=1))


def _set_complete(tier: RemoteTier) -> None:
    path = complete_path(tier.prefix, tier.catalog.table_id())
    tier.store.put(path, b"", write_id="complete")


def _turned(catalog: Catalog, cursor: str | None, now_ms: int) -> tuple[CatalogPage, str | None]:
    """A page of a scan that begins anywhere in the table, goes to its end, and then from its
    begin to where it had begun; and the cursor of the next one.

    A run that does not get through all streams in its time would else always leave out the same.
    """
    where, _, rest = (cursor or "").partition(":")
    first, _, begin = rest.partition(":")
    if where not in (_SPUN, _WRAPPED):
        where, first, begin = _SPUN, "", catalog.cursor_at(draw("", now_ms)) or ""
    page = catalog.page(begin or None, PAGE, fresh=False)
    if where == _WRAPPED:
        names = [item.stream for item in page.items]
        if first in names:
            return replace(page, items=page.items[: names.index(first)], cursor=None), None
        return page, f"{_WRAPPED}:{first}:{page.cursor}" if page.cursor else None
    first = first or next((item.stream for item in page.items), "")
    if page.cursor:
        return page, f"{_SPUN}:{first}:{page.cursor}"
    return page, f"{_WRAPPED}:{first}:" if begin else None


def _in_the_bucket(
    tier: RemoteTier,
    after: str,
    *,
    found_one: bool,
    mark: bool,
    time_left: Callable[[], bool],
) -> ScanPage:
    """Streams of the bucket that the table does not know; one LIST for 1,000 directories.

    The next page begins behind all that this one has dealt with, whatever its keys were, so that
    the scan comes to an end: `after` is what a key had behind the prefix, and only grows.
    """
    missing: list[str] = []
    passed = _Passed()
    looked = 0
    for rest in walk(tier.store, tier.prefix, after):
        full = looked >= _STREAMS_AT_ONCE or passed.count >= _PASSED_AT_ONCE * _STREAMS_AT_ONCE
        late = (looked or passed.count) and not time_left()
        if full or late or len(missing) >= PAGE:
            break
        after = behind(rest)
        name = stream_of(rest)
        if name is not None:
            looked += 1
            if is_lost(tier, name):
                missing.append(name)
        elif rest != f"{_COMPLETE}/":
            passed.add(f"{tier.prefix}stream/{rest}")
    else:
        if mark and not missing and not found_one:
            _set_complete(tier)
        after = ""
    where = _MISSING if missing or found_one else _BUCKET
    cursor = f"{where}:{after}" if after else None
    keys = tuple(passed.keys)
    return ScanPage(tuple(missing), looked, (), cursor, passed.count, keys, lost=len(missing))


class _Passed:
    """Keys that are no stream's: how many, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.keys: list[str] = []

    def add(self, key: str) -> None:
        self.count += 1
        if len(self.keys) < _TOLD:
            self.keys.append(key)


def _wanted(
    item: CatalogItem,
    workflow: ScanFor,
    policies: PolicySet,
    *,
    now_ms: int,
    target_size: int,
    grace_ms: int,
    in_turn: Callable[[str], bool],
) -> bool:
    if workflow is ScanFor.COLLECT:
        return item.state in (StreamState.LIVE, StreamState.DELETED)
    if workflow is ScanFor.RECONCILE and is_overdue(item, now_ms=now_ms, grace_ms=grace_ms):
        return not effective(policies, item.stream, item.name).may_be_held
    if workflow is ScanFor.RECONCILE and item.state is StreamState.REBUILDING:
        return True  # it cannot be done: that is told, run after run, where a rebuild has died
    if item.state is not StreamState.LIVE:
        return False
    if workflow is ScanFor.RECONCILE:
        if is_probe(item.stream):
            return False  # committed here, it would pass for one whose event has come
        age_ms = now_ms - item.last_timestamp
        return FLOWING_MS <= age_ms <= RECENT_MS or in_turn(item.stream)
    rules = effective(policies, item.stream, item.name)
    if workflow is ScanFor.CONSOLIDATE:
        return rules.consolidate and may_be_worth_it(
            total_size=item.total_size, fragments=item.fragments, target_size=target_size
        )
    return not rules.hold and may_be_due(
        RetentionLimits(rules.max_age_ms, rules.max_bytes),
        first_timestamp=item.first_timestamp,
        total_size=item.total_size,
        fragments=item.fragments,
        now_ms=now_ms,
    )
