"""What the held files of all streams share: how many may be open, and how much disk they take.

Each stream has a lock of its own (`OfStream`), and whoever has it may read files, which may take
long. Under the lock that all share nothing waits, neither for a file nor for a stream: where one
stream is to let go for another, those that are being read keep what they have.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from heapq import nlargest
from itertools import islice
from threading import Lock

from coldstream.agent.disk.removed import Handle, OfStream, first_of, pair

#: So many streams at the most are tried for one that can let go; the next look tries again.
_ASKED = 8

_TOO_FEW_FILES = (
    "too few files may be open (LimitNOFILE, `ulimit -n`), or more than 256 segments of one stream"
    " wait: some that are not uploaded are not held, and local retention or a deletion may take"
    " them from under an upload"
)
_OVER_BUDGET = (
    "files that the broker has removed and that are not uploaded took more than held_bytes, so the"
    " oldest were let go; uploads are behind retention: raise held_bytes if the disk has room"
)


class HeldFiles:
    """The held files of all streams.

    Args:
        budget: bytes that removed files may take, all streams together.
        most: files that may be held.

    Attributes:
        lacking: how many files should be held and are not, because too many are.
        dropped: how many removed segments were let go, because all took more than the budget.
        unlinked: bytes of held files that the broker has removed: so much of the disk is not free.
    """

    def __init__(self, *, budget: int, most: int) -> None:
        self._budget, self._most = budget, most
        self._streams: dict[str, OfStream] = {}
        self._lock = Lock()
        self._idle: dict[str, None] = {}  # streams of which only the newest segment is held
        self._count = 0
        self.lacking = self.dropped = self.unlinked = 0

    def words(self) -> list[str]:
        """What a person should know of files that are not held."""
        words = [_TOO_FEW_FILES] if self.lacking else []
        return [*words, _OVER_BUDGET] if self.dropped else words

    def stream(self, name: str, *, new: bool = False) -> OfStream:
        """What is held of a stream; with `new` it is remembered even if nothing was so far."""
        with self._lock:
            held = self._streams.get(name)
            if held is None:
                held = OfStream()
                if new:
                    self._streams[name] = held
            return held

    @contextmanager
    def of(self, name: str, *, new: bool = False) -> Generator[OfStream, None, None]:
        """As `stream`, for one thread at a time; others have other streams."""
        held = self.stream(name, new=new)
        with held.lock:
            yield held

    def names(self) -> list[str]:
        """Streams that are known."""
        with self._lock:
            return list(self._streams)

    def use(self, handles: Collection[Handle]) -> None:
        """Keep files open that others may let go of meanwhile; called with their stream's lock."""
        with self._lock:
            for handle in handles:
                handle.users += 1

    def unuse(self, handles: Collection[Handle]) -> None:
        """Need them no more."""
        with self._lock:
            for handle in handles:
                handle.leave()

    @contextmanager
    def counted(self, held: OfStream, name: str) -> Generator[None, None, None]:
        """What is held of a stream changes: it does not rest, and what it lacks is counted."""
        before = held.lacking
        self.busy(name)
        try:
            yield
        finally:
            with self._lock:
                self.lacking += held.lacking - before

    def rests(self, name: str) -> None:
        """Only the newest segment of a stream is held, and is there: it may be let go first."""
        with self._lock:
            self._idle[name] = None

    def busy(self, name: str) -> None:
        """A stream rests no more."""
        with self._lock:
            self._idle.pop(name, None)

    def room_for(self, needed: int, *, others: bool) -> bool:
        """Whether so many files more may be held.

        Args:
            needed: files.
            others: whether streams that rest let go for them.
        """
        while needed and self._count + needed > self._most:
            if not (others and self._make_room()):
                return False
        return True

    def add(self, held: OfStream, name: str, handle: Handle) -> None:
        """Hold a file."""
        held.files[name] = handle
        with self._lock:
            self._count += 1

    def drop(self, held: OfStream, names: Collection[str]) -> None:
        """Let go of files of a stream."""
        with self._lock:
            for name in names:
                held.files.pop(name).leave()
                self.unlinked -= held.removed.pop(name, 0)
                self._count -= 1

    def replace(self, held: OfStream, sizes: Mapping[str, int]) -> None:
        """Keep files aside whose places others have taken; let go of them where that is too much.

        The first of a name stays: it is of the epoch that has the claim, later ones may have none.

        Args:
            held: of the stream.
            sizes: bytes of each of them.
        """
        known = held.replaced.keys() & sizes.keys()
        with self._lock:
            more = sum(sizes.values()) - sum(held.removed.get(name, 0) for name in sizes)
            fits = not known and self.unlinked + more <= self._budget
            if fits:
                self.unlinked += more
                for name, size in sizes.items():
                    held.removed.pop(name, None)
                    held.replaced[name] = held.files.pop(name), size
            elif not known:
                self.dropped += 1
        if not fits:
            self.drop(held, sizes.keys())

    def drop_replaced(self, held: OfStream, names: Collection[str]) -> None:
        """Let go of files that were kept aside."""
        with self._lock:
            for name in names:
                handle, size = held.replaced.pop(name)
                handle.leave()
                self.unlinked -= size
                self._count -= 1

    def bound(self, held: OfStream, removed: dict[str, int]) -> None:
        """Note what the broker has removed of a stream; let files go while all are too much.

        Args:
            held: of the stream.
            removed: bytes of each of its held files that are removed, oldest first.
        """
        with self._lock:
            self.unlinked += sum(removed.values()) - held.unlinked
            held.removed = removed
        while self.unlinked > self._budget and self._let_go():
            pass

    def forget(self, name: str) -> None:
        """Hold nothing of a stream any more; nobody looks at it."""
        with self._lock:
            held = self._streams.pop(name, None)
            self._idle.pop(name, None)
            self.lacking -= 0 if held is None else held.lacking
        if held is not None:
            with held.lock:
                self.drop(held, set(held.files))
                self.drop_replaced(held, set(held.replaced))

    def _make_room(self) -> bool:
        """Let go of a stream that rests; whether there was one."""
        with self._lock:
            resting = [(name, self._streams[name]) for name in islice(self._idle, _ASKED)]
        for name, idle in resting:
            if not idle.lock.acquire(blocking=False):
                continue  # it does not rest any more
            try:
                with self._lock:
                    if name not in self._idle:
                        continue
                    del self._idle[name]
                    self.lacking += len(idle.files)
                idle.lacking += len(idle.files)
                self.drop(idle, set(idle.files))
                return True
            finally:
                idle.lock.release()
        return False

    def _let_go(self) -> bool:
        """Let the oldest removed segment go of the stream that has most; whether there was one."""
        with self._lock:
            streams = nlargest(_ASKED, self._streams.values(), key=lambda each: each.unlinked)
        for most in streams:
            if not most.lock.acquire(blocking=False):
                continue
            try:
                if most.removed:
                    oldest = pair(first_of(next(iter(most.removed))))
                    self.drop(most, most.removed.keys() & oldest)
                    with self._lock:
                        self.dropped += 1
                    return True
            finally:
                most.lock.release()
        return False
