"""What a task does when an object of its plan is gone: look at the manifest as it is now.

The plan of a query may be hours old when its last task begins. Objects are deleted only a grace
time after the manifest has let go of them, but then they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import NotFoundError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.reader.fragments import Fragments
from coldstream.reader.locate import leaves_between
from coldstream.remote.roots import Snapshots
from coldstream.spark.query import PlannedStream

#: So many objects in a row may be gone before a read has come any further.
_MAX_MISSING = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """How the chunks of a fragment lie.

    Attributes:
        chunk_ids: of each chunk, and the offset after the last.
        positions: of each chunk, bytes from the first.
        timestamps: of each chunk, ms.
    """

    chunk_ids: list[int]
    positions: list[int]
    timestamps: list[int]


class Newer:
    """The manifest of one stream beyond the one that was planned with.

    Args:
        planned: the stream.
        snapshots: give the manifest as it is now.
        fragments: of the stream.
        groups: of the stream.
    """

    def __init__(
        self, planned: PlannedStream, snapshots: Snapshots, fragments: Fragments, groups: Fetch
    ) -> None:
        self._planned = planned
        self._snapshots = snapshots
        self._fragments = fragments
        self._groups = groups

    def after_missing(self, error: NotFoundError, missed: set[str | None]) -> Root:
        """The manifest as it is now, because an object that another one refers to is gone.

        Args:
            error: names the object.
            missed: keys of the objects that were gone since the read last came further; this one
                is added.

        Raises:
            NotFoundError: `error` itself: the manifest has not moved, or it led to the same object
                again, or too many are gone.
        """
        if error.key in missed or len(missed) >= _MAX_MISSING:
            raise error
        missed.add(error.key)
        snapshot = self._snapshots.load(self._planned.stream)
        if snapshot.item.root_key == self._planned.root_key:
            raise error
        return snapshot.root

    def replaced_from(self, root: Root, first: int, following: int) -> int:
        """Where other data than the planned begins in a newer manifest: cut off and written anew.

        What takes the place of a fragment has its epoch (consolidation, repair); only after a cut
        under a higher epoch may there be fragments of a higher one.
        """
        first, following = max(first, root.first_offset), min(following, root.next_offset)
        for entry in leaves_between(root, first, following, self._groups):
            if entry.epoch > self._planned.epoch:
                return max(first, entry.first_offset)
        return following

    def layout(self, entry: Entry) -> Layout | None:
        """How the chunks of a planned fragment lie; None if they are nowhere any more.

        Raises:
            NotFoundError: it is gone, and no newer manifest explains it.
            CorruptDataError: its index is damaged.
        """
        try:
            return _layout(self._fragments, [entry], entry.first_offset, entry.next_offset)
        except NotFoundError as error:
            missing = error
        missed: set[str | None] = set()
        while True:
            root = self.after_missing(missing, missed)
            first, following = entry.first_offset, entry.next_offset
            if root.first_offset > first or self.replaced_from(root, first, following) < following:
                return None
            covering = list(leaves_between(root, first, following, self._groups))
            if any(each.kind is EntryKind.HOLE for each in covering):
                return None
            try:
                return _layout(self._fragments, covering, first, following)
            except NotFoundError as error:
                missing = error


def _layout(fragments: Fragments, entries: list[Entry], first: int, following: int) -> Layout:
    ids: list[int] = []
    positions: list[int] = []
    timestamps: list[int] = []
    position = 0
    for entry in entries:
        records = fragments.open(entry).records
        numbers = (
            records.chunk_ids.tolist(),
            records.positions.tolist(),
            records.timestamps.tolist(),
        )
        for number, timestamp in enumerate(numbers[2]):
            if first <= numbers[0][number] < following:
                ids.append(numbers[0][number])
                positions.append(position)
                timestamps.append(timestamp)
                position += numbers[1][number + 1] - numbers[1][number]
    return Layout([*ids, following], positions, timestamps)
