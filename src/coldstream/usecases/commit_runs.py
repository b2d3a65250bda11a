"""Move a manifest forward over every fragment that continues it.

Cost of one commit, however many events asked for it: 1 read of the item, 1 LIST, 1 small GET a
fragment, 1 PUT, 1 conditional write; and 1 GET of the root where it is not cached. A hole has
nothing in it to GET.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.errors import RefusedFragmentError
from coldstream.manifest.root import Root
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.usecases.amend import Amended, amend
from coldstream.usecases.extend import Extension, extend
from coldstream.usecases.overlap import Ends


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What one call of `commit_runs` did.

    Attributes:
        stream: directory name.
        commits: how many roots landed.
        conflicts: how many attempts did not, or may not have.
        fragments: how many fragments were appended.
        bytes: their size.
        version: of the catalog item at the end.
        next_offset: of the manifest at the end.
        root: at the end.
        refused: one error a fragment that was left out.
        more: whether fragments are left that time did not allow for.
        holes: ranges [first, next) that were appended as lost.
        waiting: whether a hole at the end of the manifest waits for a fragment behind it.
    """

    stream: str
    commits: int
    conflicts: int
    fragments: int
    bytes: int
    version: int
    next_offset: int
    root: Root
    refused: tuple[RefusedFragmentError, ...]
    more: bool = False
    holes: tuple[tuple[int, int], ...] = ()
    waiting: bool = False


def commit_runs(
    context: Context,
    stream: str,
    *,
    pause: Callable[[int], None],
    attempts: int = 8,
    limit: int = 500,
    time_left: Callable[[], bool] = lambda: True,
    thorough: bool = False,
) -> CommitReport:
    """Append every acceptable run behind the stream's manifest, and say what was refused.

    Where nothing but a declared hole leads on, the hole is appended with what follows it. Where
    nothing leads on at all, or a hole would, the part of a fragment that reaches over the end is
    made a fragment of its own, and appended.

    After a conflict, or an answer that nobody can know, the item is read again and the run is
    resolved from the new root; a plan is never applied twice.

    Args:
        context: where.
        stream: directory name.
        pause: called with the number of the failed attempt before the next one; sleeps with jitter.
        attempts: how many conflicts in a row are taken.
        limit: fragments in one commit.
        time_left: whether there is time for another commit; asked after each, and now and then
            where very much is refused.
        thorough: whether to look for all that reaches over the end, however far below it begins,
            also where something was appended: before anything is said to be lost.

    Raises:
        NotFoundError: the catalog does not know the stream, or its root is gone.
        ConflictError: the stream takes no commits, or another writer won `attempts` times.
        CorruptDataError: the current root is damaged.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    ends = Ends(context, stream, thorough=thorough, time_left=time_left)
    tally = _Tally()

    def plan(loaded: Snapshot) -> Extension:
        extension = extend(
            context, stream, loaded.root, limit=limit, time_left=time_left, left=ends.left
        )
        tally.refused.update((each.key, each) for each in extension.refused)
        return extension

    while True:
        amended = amend(context, stream, plan, pause=pause, attempts=attempts)
        tally.add(amended)
        if amended.change.more:
            if time_left():
                continue
        elif ends.go_on(amended.change, stalled=not tally.commits):
            continue
        return tally.report(stream, amended, ends)


@dataclass(slots=True)
class _Tally:
    """What the commits of one call did; see `CommitReport`."""

    commits: int = 0
    conflicts: int = 0
    fragments: int = 0
    bytes: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    refused: dict[str | None, RefusedFragmentError] = field(default_factory=dict)

    def add(self, amended: Amended[Extension]) -> None:
        self.conflicts += amended.conflicts
        if amended.landed:
            self.commits += 1
            self.fragments += amended.change.fragments
            self.holes += amended.change.holes
            self.bytes += sum(each.listed.size for each in amended.change.run)

    def report(self, stream: str, amended: Amended[Extension], ends: Ends) -> CommitReport:
        next_offset = amended.item.next_offset
        return CommitReport(
            stream=stream,
            commits=self.commits,
            conflicts=self.conflicts,
            fragments=self.fragments,
            bytes=self.bytes,
            version=amended.item.version,
            next_offset=next_offset,
            root=amended.change.root,
            refused=(*self.refused.values(), *ends.told(next_offset, self.holes)),
            more=amended.change.more or ends.out_of_time,
            holes=tuple(self.holes),
            waiting=amended.change.waiting,
        )
