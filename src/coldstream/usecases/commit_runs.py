"""Move a manifest forward over every fragment that continues it.

Cost of one commit, however many events asked for it: 1 read of the item, 1 LIST, 1 small GET a
fragment, 1 PUT, 1 conditional write; and 1 GET of the root where it is not cached. A hole has
nothing in it to GET.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import (
    RefusedFragmentError,
)
from coldstream.fragment import Trailer
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.plans.resolve import (
    Listed,
    Step,
    Verified,
    VerifiedHole,
    append_run,
    check_fragment,
    check_hole,
    highest_timestamp,
    last_chunk_of,
)
from coldstream.remote.context import World
from coldstream.remote.roots import Snapshot
from coldstream.remote.trailers import listed_trailers
from coldstream.usecases.amend import amend
from coldstream.usecases.continuing import Listing
from coldstream.usecases.overlap import Ends, reaching_over

_SUSPECTS_AT_ONCE = 64  # fragments that are looked at before their turn, at the same time
_MAX_SUSPECTS = 1024  # before the time is looked at again
#: After so many, what is settled is committed: else every invocation would meet all of them anew.
_REFUSALS = 64


@dataclass(frozen=True, slots=True)
class Extension:
    """What could be appended to a root, and what was refused on the way.

    Attributes:
        root: with the run at its end; the very root that was given if there is no run.
        run: the verified fragments, and the holes between them.
        refused: one error a fragment that was left out, each with stream, offset and key.
        more: whether the run was cut, at the limit or after many refusals, so more may follow.
        waiting: whether a hole behind the run waits for a fragment; see `Resolution`.
        over: fragments that begin below the end of the run and reach over it; nothing of them is
            behind the run yet.
        kept_out: whether the run ends before a hole because of them.
    """

    root: Root
    run: tuple[Step, ...]
    refused: tuple[RefusedFragmentError, ...]
    more: bool
    waiting: bool = False
    over: tuple[Listed, ...] = ()
    kept_out: bool = False

    @property
    def nodes(self) -> Sequence[Node]:
        """None: a run is appended to the root itself."""
        return ()

    @property
    def fragments(self) -> int:
        """How many fragments the run has."""
        return sum(isinstance(each, Verified) for each in self.run)

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Ranges [first, next) that the run declares lost."""
        keys = [each.listed.data_key for each in self.run if isinstance(each, VerifiedHole)]
        return tuple((key.first_offset, key.next_offset) for key in keys)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What one call of `commit_runs` did.

    Attributes:
        stream: which one.
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


def extend(
    world: World,
    stream: str,
    root: Root,
    *,
    limit: int,
    time_left: Callable[[], bool] = lambda: True,
    left: Collection[str] = (),
) -> Extension:
    """Resolve and verify the longest acceptable run of about `limit` objects behind `root`.

    A run never ends in a hole: what follows the last one is taken with it, or the hole is not. It
    has no hole that a fragment reaches into from below.

    After many refusals only the begin of the run is given that none of the others can change, or,
    if there is no such begin and no time, nothing; the next call goes on from there.

    Args:
        world: where.
        stream: directory name.
        root: what the run continues.
        limit: objects in the run, about.
        time_left: whether there is time for more refusals; asked only after many of them.
        left: paths of fragments of which no part can follow, although they reach over the end.

    Raises:
        UnavailableError: the store did not answer; nothing was changed.
    """
    refused: dict[str, RefusedFragmentError] = {}
    trailers: dict[str, Trailer | RefusedFragmentError] = {}  # each is fetched once, however often
    listing = Listing(world, stream, root, limit)  # the run is resolved again
    looked_over: set[str] = set()
    late, due = False, _REFUSALS
    while True:
        resolution = listing.resolved()
        resolved = resolution.run
        part = _part(resolved, limit)
        _fetch(world, [each for each in part if each.data_key.kind == "fragment"], trailers)
        run: list[Step] = []
        last_chunk = root.last_chunk
        bad: Listed | None = None
        for each in part:
            try:
                verified = (
                    check_hole(each, timestamp=_highest(root, run))
                    if each.data_key.kind == "hole"
                    else _verify(each, trailers[each.path], root.ledger, last_chunk)
                )
            except RefusedFragmentError as exc:
                bad = each
                refused[each.path] = exc
                listing.refuse(each)
                break
            run.append(verified)
            last_chunk = last_chunk_of([verified], last_chunk)
        if bad is None:
            whole = len(resolved) == len(part)
            waiting = resolution.waiting and whole
            found = Extension(
                append_run(root, run), tuple(run), tuple(refused.values()), not whole, waiting
            )
            return _data_first(world, stream, root, found, listing, left={*left, *refused})
        doubles = listing.candidates.beginning_at(bad.data_key.first_offset)[:_MAX_SUSPECTS]
        _refuse_bad(world, root.ledger, last_chunk, doubles, listing, trailers, refused)
        if len(refused) < due:
            continue
        # Somebody uploads much that does not hold. What is settled need not wait for the rest.
        settled = listing.settled(run)
        if settled < len(run):
            over = listing.candidates.over(bad.data_key.first_offset)
            over = [each for each in over if each.path not in looked_over][:_MAX_SUSPECTS]
            looked_over.update(each.path for each in over)
            _refuse_bad(
                world, root.ledger, None, over, listing, trailers, refused, all_of_them=True
            )
            settled = listing.settled(run)
        if settled or late:
            taken = tuple(run[:settled])
            found = Extension(append_run(root, taken), taken, tuple(refused.values()), more=True)
            return _data_first(world, stream, root, found, listing, left={*left, *refused})
        late = not time_left()  # one look more: what was refused now may have been the last
        due = len(refused) + (0 if late else _REFUSALS)


def _data_first(
    world: World,
    stream: str,
    root: Root,
    found: Extension,
    listing: Listing,
    *,
    left: Collection[str],
) -> Extension:
    """`found` up to the first hole that a fragment reaches into from below; and what reaches over
    its end.

    Where there is a hole, all such fragments are looked for, however far below they begin.
    """
    below: list[Listed] | None = None
    for number, step in enumerate(found.run):
        if not isinstance(step, VerifiedHole):
            continue
        if below is None:
            below = reaching_over(world, stream, root, without=left)
        at = step.listed.data_key.first_offset
        over = _over(at, [*below, *listing.reaching_over(at)], left)
        if over:
            run = found.run[:number]
            return replace(
                found,
                root=append_run(root, run),
                run=run,
                more=False,
                waiting=True,
                over=over,
                kept_out=True,
            )
    if found.more:
        return found
    end = found.root.next_offset
    return replace(found, over=_over(end, listing.reaching_over(end), left))


def _over(offset: int, fragments: Iterable[Listed], left: Collection[str]) -> tuple[Listed, ...]:
    found = {each.path: each for each in fragments if each.data_key.next_offset > offset}
    return tuple(each for path, each in found.items() if path not in left)


def _part(resolved: Sequence[Listed], limit: int) -> Sequence[Listed]:
    """About `limit` objects from the begin of a run; the last one is a fragment."""
    end = limit
    while end < len(resolved) and resolved[end - 1].data_key.kind == "hole":
        end += 1
    return resolved[:end]


def _highest(root: Root, run: Sequence[Step]) -> int:
    """Greatest timestamp of a manifest and of what is appended to it, ms; 0 if there is none."""
    entries = [each.entry() for each in run]
    known = [highest_timestamp(root)] if len(root.entries) else []
    return max([*known, *(entry.max_timestamp for entry in entries)], default=0)


def _refuse_bad(
    world: World,
    ledger: Ledger,
    last_chunk: LastChunk | None,
    suspects: Sequence[Listed],
    listing: Listing,
    trailers: dict[str, Trailer | RefusedFragmentError],
    refused: dict[str, RefusedFragmentError],
    *,
    all_of_them: bool = False,
) -> None:
    """Look at fragments before their turn, many at once: until one is good, or at all of them.

    A writer that uploads one range badly again and again would else cost a request and a new
    resolution for each of them, one after the other.
    """
    for begin in range(0, len(suspects), _SUSPECTS_AT_ONCE):
        batch = suspects[begin : begin + _SUSPECTS_AT_ONCE]
        _fetch(world, batch, trailers)
        good = len(batch)
        for each in batch:
            try:
                _verify(each, trailers[each.path], ledger, last_chunk)
            except RefusedFragmentError as exc:
                refused[each.path] = exc
                listing.refuse(each)
                good -= 1
        if good and not all_of_them:
            return


def _fetch(
    world: World, wanted: Sequence[Listed], trailers: dict[str, Trailer | RefusedFragmentError]
) -> None:
    """Add the trailers that are not there yet."""
    new = [each for each in wanted if each.path not in trailers]
    found = listed_trailers(world, new)
    trailers.update((each.path, trailer) for each, trailer in zip(new, found, strict=True))


def _verify(
    each: Listed,
    trailer: Trailer | RefusedFragmentError,
    ledger: Ledger,
    last_chunk: LastChunk | None,
) -> Verified:
    if isinstance(trailer, RefusedFragmentError):
        raise trailer
    return check_fragment(each, trailer, ledger=ledger, last_chunk=last_chunk)


def commit_runs(
    world: World,
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
        world: where.
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
        ConflictError: the stream takes no commits, or somebody else won `attempts` times.
        CorruptDataError: the current root is damaged.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    commits = conflicts = fragments = size = 0
    holes: list[tuple[int, int]] = []
    refused: dict[str | None, RefusedFragmentError] = {}
    ends = Ends(world, stream, thorough=thorough, time_left=time_left)

    def plan(loaded: Snapshot) -> Extension:
        extension = extend(
            world, stream, loaded.root, limit=limit, time_left=time_left, left=ends.left
        )
        refused.update((each.key, each) for each in extension.refused)
        return extension

    while True:
        amended = amend(world, stream, plan, pause=pause, attempts=attempts)
        extension, item = amended.change, amended.item
        conflicts += amended.conflicts
        if amended.landed:
            commits += 1
            fragments += extension.fragments
            holes += extension.holes
            size += sum(each.listed.size for each in extension.run)
        if extension.more:
            if time_left():
                continue
        elif ends.go_on(extension, stalled=not commits):
            continue
        return CommitReport(
            stream=stream,
            commits=commits,
            conflicts=conflicts,
            fragments=fragments,
            bytes=size,
            version=item.version,
            next_offset=item.next_offset,
            root=extension.root,
            refused=(*refused.values(), *ends.told(item.next_offset, holes)),
            more=extension.more or ends.out_of_time,
            holes=tuple(holes),
            waiting=extension.waiting,
        )
