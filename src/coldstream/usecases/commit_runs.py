"""Move a manifest forward over every fragment that continues it.

Cost of one commit, however many events asked for it: 1 read of the item, 1 LIST, 1 small GET a
fragment, 1 PUT, 1 conditional write; and 1 GET of the root where it is not cached. A hole has
nothing in it to GET.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    RefusedFragmentError,
)
from coldstream.fragment import TRAILER_SIZE, parse_trailer
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import data_prefix, list_start, parse_data_key
from coldstream.plans.resolve import (
    Listed,
    Resolution,
    Step,
    Verified,
    VerifiedHole,
    append_run,
    check_fragment,
    check_hole,
    highest_timestamp,
    last_chunk_of,
    resolve,
)
from coldstream.ports import Landed
from coldstream.usecases.load import World, load, publish

_TRAILERS_AT_ONCE = 16
_DOUBLES_AT_ONCE = 64  # uploads of one range that are looked at before the run is resolved again


@dataclass(frozen=True, slots=True)
class Extension:
    """What could be appended to a root, and what was refused on the way.

    Attributes:
        root: with the run at its end; the very root that was given if there is no run.
        run: the verified fragments, and the holes between them.
        refused: one error a fragment that was left out, each with stream, offset and key.
        more: whether the run was cut at the limit, so that more may follow.
        waiting: whether a hole behind the run waits for a fragment; see `Resolution`.
    """

    root: Root
    run: tuple[Step, ...]
    refused: tuple[RefusedFragmentError, ...]
    more: bool
    waiting: bool = False

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


def extend(world: World, stream: str, root: Root, *, limit: int) -> Extension:
    """Resolve and verify the longest acceptable run of about `limit` objects behind `root`.

    A run never ends in a hole: what follows the last one is taken with it, or the hole is not.

    Raises:
        UnavailableError: the store did not answer; nothing was changed.
    """
    refused: dict[str, RefusedFragmentError] = {}
    tails: dict[str, bytes | RefusedFragmentError] = {}  # each is fetched once, however often
    listing = _Listing(world, stream, root, limit)  # the run is resolved again
    while True:
        resolution = listing.resolved(refused.keys())
        resolved = resolution.run
        part = _part(resolved, limit)
        tails |= _fetch_tails(
            world,
            [e for e in part if e.data_key.kind == "fragment" and e.path not in tails],
        )
        run: list[Step] = []
        last_chunk = root.last_chunk
        bad: RefusedFragmentError | None = None
        for each in part:
            try:
                verified = (
                    check_hole(each, timestamp=_highest(root, run))
                    if each.data_key.kind == "hole"
                    else _verify(each, tails[each.path], root.ledger, last_chunk)
                )
            except RefusedFragmentError as exc:
                bad = exc
                refused[each.path] = exc
                break
            run.append(verified)
            last_chunk = last_chunk_of([verified], last_chunk)
        if bad is None:
            return Extension(
                root=append_run(root, run),
                run=tuple(run),
                refused=tuple(refused.values()),
                more=len(resolved) > len(part),
                waiting=resolution.waiting and len(resolved) == len(part),
            )
        listed = listing.rows
        doubles = [each for each in _doubles(root, listed, bad) if each.path not in refused]
        _refuse_doubles(world, root.ledger, last_chunk, doubles, tails, refused)


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


def _doubles(root: Root, listed: Sequence[Listed], bad: RefusedFragmentError) -> list[Listed]:
    """All that could continue the run where a refused fragment begins."""
    return [
        each
        for each in listed
        if each.data_key.first_offset == bad.offset
        and each.data_key.kind == "fragment"
        and root.ledger.accepts(
            each.data_key.epoch, each.data_key.first_offset, each.data_key.next_offset
        )
    ]


def _refuse_doubles(
    world: World,
    ledger: Ledger,
    last_chunk: LastChunk | None,
    doubles: Sequence[Listed],
    tails: dict[str, bytes | RefusedFragmentError],
    refused: dict[str, RefusedFragmentError],
) -> None:
    """Look at other uploads of a refused range, many at once, until one is good.

    A writer that uploads one range badly again and again would else cost a request and a new
    resolution for each of them, one after the other.
    """
    for begin in range(0, len(doubles), _DOUBLES_AT_ONCE):
        batch = doubles[begin : begin + _DOUBLES_AT_ONCE]
        tails |= _fetch_tails(world, [each for each in batch if each.path not in tails])
        good = len(batch)
        for each in batch:
            try:
                _verify(each, tails[each.path], ledger, last_chunk)
            except RefusedFragmentError as exc:
                refused[each.path] = exc
                good -= 1
        if good:
            return


def _verify(
    each: Listed,
    tail: bytes | RefusedFragmentError,
    ledger: Ledger,
    last_chunk: LastChunk | None,
) -> Verified:
    if isinstance(tail, RefusedFragmentError):
        raise tail
    try:
        trailer = parse_trailer(tail)
    except CorruptDataError as exc:
        raise _refusal(each, exc.reason) from exc
    return check_fragment(each, trailer, ledger=ledger, last_chunk=last_chunk)


def _refusal(each: Listed, why: str) -> RefusedFragmentError:
    return RefusedFragmentError(
        f"fragment refused: {why}",
        stream=each.data_key.stream,
        offset=each.data_key.first_offset,
        key=each.path,
    )


def _fetch_tail(world: World, each: Listed) -> bytes | RefusedFragmentError:
    try:
        return world.store.get_suffix(each.path, TRAILER_SIZE)
    except NotFoundError:
        return _refusal(each, "it vanished after it was listed")


def _fetch_tails(world: World, wanted: Sequence[Listed]) -> dict[str, bytes | RefusedFragmentError]:
    if len(wanted) < 2:
        return {each.path: _fetch_tail(world, each) for each in wanted}
    with world.pool(min(_TRAILERS_AT_ONCE, len(wanted))) as pool:
        tails = pool.map(lambda each: _fetch_tail(world, each), wanted)
        return {each.path: tail for each, tail in zip(wanted, tails, strict=True)}


class _Listing:
    """What may continue a root, in one LIST unless a page ends inside the run.

    Keys sort by first offset. So once the page's last key begins above the end of the best run, and
    above what holes behind it could lead to, every object that could continue that run has been
    seen. And once the run has more than `limit` fragments, one commit takes no more: what a
    manifest that is far behind lacks beyond them is for the next one.
    """

    def __init__(self, world: World, stream: str, root: Root, limit: int) -> None:
        self.rows: list[Listed] = []
        self._world = world
        self._stream = stream
        self._root = root
        self._limit = limit
        self._start = list_start(world.prefix, stream, root.next_offset)
        self._ended = False

    def resolved(self, without: Collection[str]) -> Resolution:
        """The run without refused objects; lists on where that makes it look further ahead."""
        if not self.rows:
            self._next_page()
        while True:
            found = resolve(self._root.next_offset, self._root.ledger, self.rows, without=without)
            if self._ended or len(found.run) > self._limit:
                return found
            if self.rows and self.rows[-1].data_key.first_offset > found.listed_to:
                return found
            self._next_page()

    def _next_page(self) -> None:
        if self._ended:
            return
        page = self._world.store.list(
            data_prefix(self._world.prefix, self._stream),
            start_after=self._start,
            limit=self._world.page_size,
        )
        for row in page:
            try:
                key = parse_data_key(row.key, self._world.prefix)
            except InvalidInputError:
                continue  # not ours; its own event, if any, is refused where it is read
            self.rows.append(Listed(key, row.key, row.size))
        self._ended = len(page) < self._world.page_size
        if page:
            self._start = page[-1].key


def commit_runs(
    world: World,
    stream: str,
    *,
    pause: Callable[[int], None],
    attempts: int = 8,
    limit: int = 500,
    time_left: Callable[[], bool] = lambda: True,
) -> CommitReport:
    """Append every acceptable run behind the stream's manifest, and say what was refused.

    Where nothing but a declared hole leads on, the hole is appended with what follows it.

    After a conflict, or an answer that nobody can know, the item is read again and the run is
    resolved from the new root; a plan is never applied twice.

    Args:
        world: where.
        stream: directory name.
        pause: called with the number of the failed attempt before the next one; sleeps with jitter.
        attempts: how many conflicts in a row are taken.
        limit: fragments in one commit.
        time_left: whether there is time for another commit; asked after each.

    Raises:
        NotFoundError: the catalog does not know the stream, or its root is gone.
        ConflictError: the stream takes no commits, or somebody else won `attempts` times.
        CorruptDataError: the current root is damaged.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    commits = conflicts = fragments = size = lost_in_a_row = 0
    holes: list[tuple[int, int]] = []
    refused: dict[str | None, RefusedFragmentError] = {}
    while True:
        loaded = load(world, stream)
        extension = extend(world, stream, loaded.root, limit=limit)
        refused.update((each.key, each) for each in extension.refused)
        item, root = loaded.item, loaded.root
        more = False
        if extension.run:
            outcome = publish(world, loaded, extension.root)
            if isinstance(outcome, Landed):
                commits += 1
                lost_in_a_row = 0
                fragments += extension.fragments
                holes += extension.holes
                size += sum(each.listed.size for each in extension.run)
                item, root = outcome.item, extension.root
                more = extension.more
            else:
                conflicts += 1
                lost_in_a_row += 1
                if lost_in_a_row >= attempts:
                    raise ConflictError(f"{attempts} commits in a row did not land", stream=stream)
                pause(lost_in_a_row)
                continue
        if not more or not time_left():
            return CommitReport(
                stream=stream,
                commits=commits,
                conflicts=conflicts,
                fragments=fragments,
                bytes=size,
                version=item.version,
                next_offset=item.next_offset,
                root=root,
                refused=tuple(refused.values()),
                more=more,
                holes=tuple(holes),
                waiting=extension.waiting,
            )
