"""Read a range of offsets through whatever manifests it takes, while others change them.

A read keeps the manifest that it began with as long as it can: objects are immutable, and nobody
deletes one before a grace time has passed since the manifest let go of it. The read looks at the
manifest again when an object is gone, or when its own manifest has grown old.

In between a claim may have cut off, under a higher epoch, what the read was about, and other
messages may stand at the same offsets by now. The ledger of the newer manifest tells
(`Followed.cut`), so nobody goes on in another history without being told:

    a live read       is told what it has handed on and what was cut off since, and goes on in the
                      new history
    a planned read    (a task of a query) gives what was planned or nothing: where data of a higher
                      epoch has taken its place, the rest of the range is lost
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing

from coldstream.columns.damage import CorruptRange
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaf_at
from coldstream.reader.fragments import FetchedChunks
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.objects import StreamObjects
from coldstream.reader.pieces import pieces
from coldstream.remote.roots import Glance, Snapshot, check_not_deleted

#: Objects in a row that may be gone before a read has come any further.
_MAX_MISSING = 16


class Followed:
    """A manifest, and the rules by which it is replaced by a newer one.

    Args:
        load: gives the stream as it is now.
        clock: seconds, from any start, never falling.
        refresh_seconds: how old a manifest may become.
        plan: what was planned: a manifest or part of one, under the manifest's epoch; and the key
            of its root. The stream as it is now unless given.

    Attributes:
        seen: the manifest, perhaps without its root.
        planned: whether only what was planned is to be read.
    """

    def __init__(
        self,
        load: Callable[[], Snapshot | Glance],
        clock: Callable[[], float] = time.monotonic,
        refresh_seconds: float = math.inf,
        *,
        plan: tuple[Root, str] | None = None,
    ) -> None:
        self._load = load
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._missing: set[str | None] = set()
        self._stuck_at: int | None = None
        self._loaded_at = 0.0  # of a plan nobody knows it
        self.planned = plan is not None
        self.seen = self._loaded() if plan is None else _planned(*plan)
        self._epoch = self.seen.extent.epoch

    @property
    def root(self) -> Root:
        """The manifest's root; one GET if nothing has needed it before.

        Raises:
            As `Glance.root`.
        """
        return self.seen.root

    def over(self, start: int, end: int) -> tuple[Root, int]:
        """A root for a read of [start, end), and how far it reaches.

        Raises:
            As `root`.
        """
        part = self.seen.old_part
        if part is not None and start < part.next_offset:
            return part, min(part.next_offset, end)
        return self.root, end

    def cut(self) -> int:
        """Where what this read is about was cut off by claims; `MAX_OFFSET` if it was not.

        That is what was planned, or else what was read before: since the last call, because it is
        told only once.

        What was read under an epoch stands as far as the right of that epoch reaches by now: to the
        lowest floor of all later claims. Retention takes old claims out of the ledger
        (`Ledger.above`), but never the last one that has cut off the first offset or something
        below it: what the stream still has, is always judged rightly.
        """
        ceiling = self.seen.extent.ledger.ceiling(self._epoch)
        if not self.planned:
            self._epoch = max(self._epoch, self.seen.extent.epoch)
        return ceiling

    def grown_old(self) -> bool:
        """Whether the manifest was too old and has been replaced by another one.

        Raises:
            As `Snapshots.load`.
        """
        if self._clock() - self._loaded_at < self._refresh_seconds:
            return False
        return self._replace()

    def renew(self) -> None:
        """Take the manifest as it is now, however young this one is.

        Raises:
            As `Snapshots.load`.
        """
        self._replace()

    def after_missing(self, error: NotFoundError, position: int | None = None) -> None:
        """Replace the manifest because an object that it refers to is gone.

        Args:
            error: names the object.
            position: offset that the read has come to; None before it has begun.

        Raises:
            NotFoundError: the stream was deleted; or `error` itself, because no newer manifest
                explains it: the manifest has not moved, or the newer one has led to the same
                object, or too many are gone.
        """
        if position != self._stuck_at:
            self._stuck_at = position
            self._missing.clear()
        again = error.key in self._missing or len(self._missing) >= _MAX_MISSING
        if again or not self._replace():
            check_not_deleted(self.seen.item, error)
            raise error
        # Not before: whoever got no answer asks again, and comes to the same object once more.
        self._missing.add(error.key)
        if position is None:
            self._epoch = self.seen.extent.epoch  # nothing was handed on yet

    def _replace(self) -> bool:
        """Take the manifest as it is now; whether it is another one."""
        before = self.seen.item.root_key
        self.seen = self._loaded()
        return self.seen.item.root_key != before

    def _loaded(self) -> Snapshot | Glance:
        # The age counts from before the request: what it brings may be as old as that.
        began_at = self._clock()
        found = self._load()
        self._loaded_at = began_at  # where no answer came, the manifest is as old as it was
        return found


def _planned(root: Root, key: str) -> Snapshot:
    return Snapshot(CatalogItem(stream="", table_id="", root_key=key), root)


class RangeRead:
    """One read of the offsets [position, end) of a stream.

    `found` may be used once, and once more after each `go_on`.

    Args:
        objects: of the stream.
        manifest: by which it is read.
        position: where to begin.
        end: where to end.
        asked: the lowest offset that a live read is about: nobody is told of what was cut off
            below.
        start: where it was to begin, if that lies below `position`: what lies between is not there,
            and is told first.

    Attributes:
        start: where it was to begin.
        position: of what was given last, the first offset that counts; the chunk that contains it
            may begin below it.
        end: where the read ends by now; it falls where the stream was cut off.
    """

    def __init__(
        self,
        objects: StreamObjects,
        manifest: Followed,
        position: int,
        end: int,
        *,
        asked: int = 0,
        start: int | None = None,
    ) -> None:
        self.start = position if start is None else start
        self.position = position
        self.end = end
        self._objects = objects
        self._manifest = manifest
        self._asked = asked
        self._place = objects.place()
        self._missing_to = min(position, end)  # what lies between `start` and here is told once
        self._lost_to = 0  # what lies between `end` and here was cut off, and is told in its turn

    @property
    def lowest(self) -> int:
        """The lowest offset that it may give now: none is given below where it was to begin."""
        return max(self.position, self._asked)

    @property
    def root(self) -> Root:
        """The manifest by which it reads now."""
        return self._manifest.root

    @property
    def ledger(self) -> Ledger:
        """Of that manifest; nothing is fetched for it."""
        return self._manifest.seen.extent.ledger

    def found(self) -> Generator[FetchedChunks | Gap | CorruptRange, None, None]:
        """What the range holds, in order; closing it ends the threads that fetch ahead.

        A fragment whose trailer or index is damaged is one `CorruptRange`, and the read goes on
        behind it. The error of a damaged chunk is in its piece.

        Raises:
            NotFoundError: an object is gone, and no newer manifest explains it.
            CorruptDataError: a group of the manifest is damaged.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        try:
            yield from self._found()
        finally:
            # Who has come to the end may go on there; what others fetch meanwhile is kept for him.
            if self.position < self.end:
                self._place.leave()

    def _found(self) -> Generator[FetchedChunks | Gap | CorruptRange, None, None]:
        manifest = self._manifest
        if self.start < (missing_to := self._missing_to):
            self._missing_to = self.start
            yield Gap(self.start, missing_to, GapReason.RETENTION)
        while self.position < self.end:
            self._place.join(self.position)
            try:
                root, end = manifest.over(self.position, self.end)
                ahead = pieces(root, self.position, end, self._objects, self._place)
                with closing(ahead) as found:
                    last: FetchedChunks | Gap | None = None
                    for piece in found:
                        # Never before the first piece: what is refreshed must come further, too.
                        if last and _begins(piece, last) and manifest.grown_old():
                            break
                        last = piece
                        yield piece
                        # A fragment may reach beyond the end, of which nothing was given.
                        self.position = min(piece.next_offset, self.end)
                        manifest.seen.confirm()
                    else:
                        if end == self.end:
                            break
                        continue
            except NotFoundError as error:
                manifest.after_missing(error, self.position)
            except CorruptDataError as error:
                damage = self._damaged_fragment(error)
                yield damage
                self.position = damage.next_offset
                continue
            yield from self._changed()
        if self._lost_to > max(self.position, self.end):
            yield Gap(max(self.position, self.end), self._lost_to, GapReason.TRUNCATION)

    def go_on(self) -> Generator[Gap, None, None]:
        """Move the end to that of the manifest as it is now; what that no longer has is told.

        Raises:
            NotFoundError: the stream was deleted, and all that it had was read.
            As `Snapshots.load`.
        """
        # It may be another one although it is the same as before: it was replaced on the way here.
        self._manifest.renew()
        self._lost_to = 0  # it was told when the read came to its end
        self.end = max(self.end, self._manifest.seen.extent.next_offset)
        yield from self._changed()
        item = self._manifest.seen.item
        if self.position >= self.end and item.state.is_tombstone:
            # A queue of the same name that is declared anew is another stream: who waits here would
            # wait for ever.
            raise NotFoundError("the stream was deleted: nothing more comes", stream=item.stream)

    def _changed(self) -> Generator[Gap, None, None]:
        """What the newer manifest no longer has; from now on the read ends where that does."""
        manifest, stream = self._manifest, self._manifest.seen.extent
        cut, end = manifest.cut(), stream.next_offset
        if manifest.planned:
            end = min(end, cut)
        elif max(cut, self._asked) < self.position:
            # It was read, and it is not what stands there now. One gap with what is cut off ahead,
            # if the stream has not grown back to here.
            # The end was below if another cut has told what lay behind it.
            grown = stream.next_offset > self.position
            next_offset = self.position if grown else max(self.end, self.position)
            yield Gap(max(cut, self._asked), next_offset, GapReason.TRUNCATION)
            self.position = next_offset
        if self.position < stream.first_offset:
            # What lies behind the end of this read is told when it goes on.
            first_offset = min(stream.first_offset, self.end)
            if self.lowest < first_offset:
                yield Gap(self.lowest, first_offset, GapReason.RETENTION)
            self.position = first_offset
        if end < self.end:
            self._lost_to = max(self._lost_to, self.end)
            self.end = end

    def _damaged_fragment(self, error: CorruptDataError) -> CorruptRange:
        """The fragment whose trailer or index is damaged.

        Raises:
            CorruptDataError: `error`, if it is about something else.
        """
        if error.offset is None:
            raise error
        entry = leaf_at(self._manifest.root, error.offset, self._objects.groups)
        if entry is None or self._objects.fragments.path(entry) != error.key:
            raise error
        return CorruptRange(entry.first_offset, entry.next_offset, entry.min_timestamp, error)


def _begins(piece: FetchedChunks | Gap, last: FetchedChunks | Gap) -> bool:
    """Whether `piece` lies in another fragment or hole than the one before it."""
    return (
        isinstance(piece, Gap) or isinstance(last, Gap) or piece.fragment.path != last.fragment.path
    )
