"""The manifest as one read follows it while others change it.

A read keeps the manifest that it began with as long as it can: objects are immutable, and nobody
deletes one before a grace time has passed since the manifest let go of it. The read looks at the
manifest again when an object is gone, or when its own manifest has grown old.

In between a claim may have cut off, under a higher epoch, what the read has already handed on, and
other messages may stand at the same offsets by now. The ledger of the newer manifest tells
(`Followed.cut`), so nobody goes on in another history without being told.
"""

from __future__ import annotations

from collections.abc import Callable

from coldstream.errors import NotFoundError
from coldstream.remote.roots import Snapshot

#: So many objects in a row may be gone before a read has come any further.
_MAX_MISSING = 16


class Followed:
    """A snapshot, and the rules by which it is replaced by a newer one.

    Args:
        load: gives the stream as it is now.
        clock: seconds, from any start, never falling.
        refresh_seconds: how old a snapshot may become.
    """

    def __init__(
        self, load: Callable[[], Snapshot], clock: Callable[[], float], refresh_seconds: float
    ) -> None:
        self._load = load
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._missing: set[str | None] = set()
        self._stuck_at: int | None = None
        self.snapshot = self._loaded()
        self._epoch = self.snapshot.root.epoch

    def cut(self) -> int:
        """Where what was read before was cut off by claims since the last call; else `MAX_OFFSET`.

        What was read under an epoch stands as far as the right of that epoch reaches by now: to the
        lowest floor of all later claims. Retention takes old claims out of the ledger
        (`Ledger.above`), but never the last one that has cut off the first offset or something
        below it: what the stream still has, is always judged rightly.
        """
        epoch, self._epoch = self._epoch, max(self._epoch, self.snapshot.root.epoch)
        return self.snapshot.root.ledger.ceiling(epoch)

    def grown_old(self) -> bool:
        """Whether the snapshot was too old and has been replaced by one with another root.

        Raises:
            As `Snapshots.load`.
        """
        if self._clock() - self._loaded_at < self._refresh_seconds:
            return False
        old, self.snapshot = self.snapshot, self._loaded()
        return self.snapshot.item.root_key != old.item.root_key

    def after_missing(self, error: NotFoundError, position: int | None = None) -> None:
        """Replace the snapshot because an object that it refers to is gone.

        Args:
            error: names the object.
            position: offset that the read has come to; None before it has begun.

        Raises:
            NotFoundError: `error` itself, because no newer manifest explains it: the manifest has
                not moved, or the newer one has led to the same object, or too many are gone.
        """
        if position != self._stuck_at:
            self._stuck_at = position
            self._missing.clear()
        if error.key in self._missing or len(self._missing) >= _MAX_MISSING:
            raise error
        self._missing.add(error.key)
        old, self.snapshot = self.snapshot, self._loaded()
        if self.snapshot.item.root_key == old.item.root_key:
            raise error
        if position is None:
            self._epoch = self.snapshot.root.epoch  # nothing was handed on yet

    def _loaded(self) -> Snapshot:
        # The age counts from before the request: what it brings may be as old as that.
        self._loaded_at = self._clock()
        return self._load()
