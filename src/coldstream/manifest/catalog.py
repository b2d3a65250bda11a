"""The catalog item: one a stream, the only thing that ever changes in place.

It holds the key of the current root and the summary that people list. Every new root raises
`version` by one, under the condition that the item still is what the committer read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.outline import Outline
from coldstream.manifest.queue_name import QueueName as QueueName
from coldstream.manifest.root import Root


class StreamState(StrEnum):
    """Whether a stream takes commits."""

    LIVE = "live"
    DELETING = "deleting"  # a tombstone whose undelete time may still run
    DELETED = "deleted"  # a tombstone for ever: its undelete time is over
    REBUILDING = "rebuilding"

    @property
    def is_tombstone(self) -> bool:
        """Whether the stream was deleted, even if that may still be called off."""
        return self in (StreamState.DELETING, StreamState.DELETED)


@dataclass(frozen=True, slots=True)
class CatalogItem:
    """The catalog's word on one stream. Offsets are half-open, times ms, sizes bytes.

    Attributes:
        stream: directory name.
        table_id: id of the table that the item was written to; another one after a restore.
        uid: uid of the current root, 0 before the first.
        root_key: full key of the current root, "" before the first.
        epoch: epoch of the current root, 0 before the first claim.
        version: number of roots so far.
        first_offset: of the current root, or where the stream begins, before the first.
        next_offset: of the current root.
        first_timestamp: of the current root, 0 when it has no entries.
        last_timestamp: of the current root, 0 when it has no entries.
        total_size: bytes of all fragments.
        fragments: number of live fragments and holes.
        ledger: claims so far.
        name: queue that the directory belongs to.
        state: whether it takes commits.
        revision: number of changes of `state` so far; commits do not touch it.
        undelete_until: until when a tombstone may be called off, ms since the Unix epoch; else 0.
        state_token: uid of the last change of `state`, 0 before the first.
        outline: what it repeats of its root; of another root where a release that did not know of
            outlines has moved the item.
    """

    stream: str
    table_id: str
    uid: int = 0
    root_key: str = ""
    epoch: int = 0
    version: int = 0
    first_offset: int = 0
    next_offset: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    total_size: int = 0
    fragments: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    name: QueueName = field(default_factory=QueueName)
    state: StreamState = StreamState.LIVE
    revision: int = 0
    undelete_until: int = 0
    state_token: int = 0
    outline: Outline = field(default_factory=Outline)

    @property
    def never_held(self) -> bool:
        """Whether the manifest has never had a fragment or hole: only claims have changed it."""
        return (
            self.first_offset == self.next_offset
            and self.fragments == 0
            and self.version <= len(self.ledger.claims)
        )

    @property
    def told(self) -> Entries:
        """The oldest entries of the current root, as far as the item itself tells them."""
        return self.outline.entries if self.uid == self.outline.uid else Entries()

    def old_part(self) -> Root | None:
        """The manifest below the end of what the item tells of it, as if the stream ended there.

        None if the item tells nothing.

        Raises:
            CorruptDataError: what it tells is not within its offsets.
        """
        entries = self.told
        if not len(entries):
            return None
        first, end = entries[0], entries[-1].next_offset
        begins = first.first_offset <= self.first_offset < first.next_offset
        if not begins or end > self.next_offset:
            raise CorruptDataError(
                "the catalog item repeats other entries than its root can have",
                stream=self.stream,
                offset=self.first_offset,
            )
        return Root(
            first_offset=self.first_offset,
            next_offset=end,
            epoch=self.epoch,
            version=self.version,
            ledger=self.ledger,
            entries=entries,
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """A change of a catalog item as a value: the update and the condition under which it holds.

    The condition, clause by clause:
      * `version` and `uid` still are what was read: nobody has committed since.
      * `table_id` is the actual table's: this is no restored or foreign item.
      * `state` is live: no deletion or rebuild has begun.
      * for a claim `epoch < root.epoch`, else `epoch <= root.epoch`: a claim must be the first of
        its epoch, and no other commit may lower the epoch.

    Attributes:
        stream: whose item.
        table_id: id of the actual table.
        read_version: version of the item that the plan was made from.
        read_uid: uid of the item that the plan was made from.
        root: the new root, already PUT under `root_key`.
        root_key: full key of the new root.
        uid: uid of the new root.
        claim: whether the commit claims `root.epoch`.
    """

    stream: str
    table_id: str
    read_version: int
    read_uid: int
    root: Root
    root_key: str
    uid: int
    claim: bool = False


def moved(item: CatalogItem, commit: Commit) -> CatalogItem:
    """The item as it is once `commit` has landed on it."""
    return with_root(item, commit.root, commit.root_key, commit.uid)


def with_root(item: CatalogItem, root: Root, root_key: str, uid: int) -> CatalogItem:
    """The item with another root, and all that it repeats of it."""
    return replace(
        item,
        uid=uid,
        root_key=root_key,
        epoch=root.epoch,
        version=root.version,
        first_offset=root.first_offset,
        next_offset=root.next_offset,
        first_timestamp=root.first_timestamp,
        last_timestamp=root.last_timestamp,
        total_size=root.total_size,
        fragments=root.fragments,
        ledger=root.ledger,
        outline=Outline.of(uid, root),
    )


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a stream's state as a value: the update and the condition under which it holds.

    The condition, clause by clause:
      * `revision` still is what was read: nobody has changed the state since.
      * `state` still is what was read: the step from it to the new one was meant.
      * `table_id` is the actual table's: this is no restored or foreign item.
      * the operator's rules still have `rules_revision`, if one is given: so a legal hold that was
        set after the rules were read stops the change, and one that is set later finds the new
        state.

    Commits go on meanwhile: they look at `state`, and a change looks at no version.

    Attributes:
        stream: whose item.
        table_id: id of the actual table.
        read_revision: revision of the item that was read.
        read_state: state of the item that was read.
        state: the new state.
        uid: of this change, never 0; tells it from all others when an answer is lost.
        undelete_until: until when a tombstone may be called off, ms since the Unix epoch; else 0.
        rules_revision: revision of the rules that the change was decided by; None for whatever.
    """

    stream: str
    table_id: str
    read_revision: int
    read_state: StreamState
    state: StreamState
    uid: int
    undelete_until: int = 0
    rules_revision: int | None = None

    @classmethod
    def of(
        cls, item: CatalogItem, state: StreamState, uid: int, undelete_until: int = 0
    ) -> StateChange:
        """The change of an item, as it was read, to another state."""
        return cls(
            stream=item.stream,
            table_id=item.table_id,
            read_revision=item.revision,
            read_state=item.state,
            state=state,
            uid=uid,
            undelete_until=undelete_until,
        )


def changed(item: CatalogItem, change: StateChange) -> CatalogItem:
    """The item as it is once `change` has landed on it."""
    return replace(
        item,
        state=change.state,
        revision=change.read_revision + 1,
        undelete_until=change.undelete_until,
        state_token=change.uid,
    )
