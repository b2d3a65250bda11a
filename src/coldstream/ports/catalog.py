"""One item a stream, changed by conditional writes that end in one of three ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StateChange


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit holds; `item` is what the catalog says now (or said right after it)."""

    item: CatalogItem


@dataclass(frozen=True, slots=True)
class NotLanded:
    """The commit is known not to have happened, and never will."""

    item: CatalogItem | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say: the answer was lost, or the item has moved on since."""

    item: CatalogItem | None


CommitOutcome = Landed | NotLanded | Unknown


def outcome_of_failed_condition(item: CatalogItem | None, commit: Commit) -> CommitOutcome:
    """What a failed condition means, from the item that the table gave back.

    An SDK may repeat a write that had landed and whose answer was lost; the repetition then fails.
    So: our own uid in the item, it landed. The version that we read, it did not land and never
    will. Anything else: ours may have landed and been built upon, nobody can know.
    """
    if item is not None and item.uid == commit.uid:
        return Landed(item)
    if item is None or item.version == commit.read_version:
        return NotLanded(item)
    return Unknown(item)


def outcome_of_failed_change(item: CatalogItem | None, change: StateChange) -> CommitOutcome:
    """The same for a change of state: our own uid, the revision that we read, anything else."""
    if item is not None and item.state_token == change.uid:
        return Landed(item)
    if item is None or item.revision == change.read_revision:
        return NotLanded(item)
    return Unknown(item)


def outcome_of_moved_rules(item: CatalogItem | None, change: StateChange) -> CommitOutcome:
    """The same where the rules have another revision: unless ours had landed before, it never will.

    Rules never go back to a revision.
    """
    if item is not None and item.state_token == change.uid:
        return Landed(item)
    return NotLanded(item)


def outcome_of_failed_adoption(found: CatalogItem | None, item: CatalogItem) -> CommitOutcome:
    """What a failed condition of an adoption means: ours landed earlier, or it never will.

    An adoption that landed may have been built upon since, so an item of this table whose version
    is ours or higher leaves it unknown.
    """
    if found is not None and found.table_id == item.table_id:
        same = (found.uid, found.state_token) == (item.uid, item.state_token)
        return Landed(found) if same else Unknown(found)
    return NotLanded(found)


@dataclass(frozen=True, slots=True)
class CatalogPage:
    """Some of the catalog's items.

    Attributes:
        items: in no order; may be empty although more follow.
        cursor: where to go on, opaque; None at the end.
        damaged: one error for each item that cannot be read.
    """

    items: tuple[CatalogItem, ...]
    cursor: str | None
    damaged: tuple[CorruptDataError, ...] = ()


class Catalog(Protocol):
    """One item a stream, changed only by conditional writes; reads are strongly consistent.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def table_id(self) -> str:
        """Id of the actual table; new after a restore."""
        ...

    def get(self, stream: str) -> CatalogItem | None:
        """The stream's item, or None."""
        ...

    def streams(self) -> Iterator[CatalogItem]:
        """Every stream's item below this catalog's prefix, in no order.

        Raises:
            CorruptDataError: an item cannot be read; raised after all others were given.
        """
        ...

    def page(self, cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        """At most `limit` (at least 1) of `streams()`, from `cursor` on; one request.

        An item that is there all the while is on exactly one page.

        Args:
            cursor: of the page before; None for the first.
            limit: items.
            fresh: whether all is as it is now; else what was written within the last seconds may
                be missing or as it was before, for half the price. That is for whoever only looks
                where something may be to do, and comes again.

        Raises:
            InvalidInputError: `cursor` is none that this catalog gave.
        """
        ...

    def cursor_at(self, token: int) -> str | None:
        """A cursor at a place that the token decides, None for the begin; no request.

        From it to the end, and then from the begin to the first item that was seen so, every item
        is on a page. For a scan that must not always begin with the same streams.
        """
        ...

    def anchor(self, item: CatalogItem) -> CatalogItem:
        """Create the stream's first item unless there is one; return the one that is there."""
        ...

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        """Put `item` in the place of one that was written to another table, or of none.

        Holds only if there is no item (`replacing` is None), or the one that is there still has the
        table id, version, uid and revision of `replacing`, and its cluster, virtual host and queue:
        what was renamed meanwhile stays so, since rules go by names. Landed is told by
        `item.state_token` and `item.uid`. Never raises for an unknown outcome, as `commit`.

        Raises:
            InternalError: the table refuses the request as such; nothing was written.
        """
        ...

    def commit(self, commit: Commit) -> CommitOutcome:
        """Perform a conditional write; see `Commit` for its condition.

        Never raises for an unknown outcome: that is one of the three answers.

        Raises:
            InternalError: the table refuses the request as such; nothing was written.
        """
        ...

    def change_state(self, change: StateChange) -> CommitOutcome:
        """Perform a conditional change of state; see `StateChange` for its condition.

        Never raises for an unknown outcome, as `commit`.

        Raises:
            InternalError: the table refuses the request as such; nothing was written.
        """
        ...

    def set_name(self, stream: str, name: QueueName) -> None:
        """Record which queue a directory belongs to; touches nothing that a commit looks at.

        Raises:
            NotFoundError: the stream has no item.
        """
        ...
