"""Resolve and verify what may be appended to a root.

Cost of one run: 1 LIST and 1 small GET a fragment. A hole has nothing in it to GET.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import RefusedFragmentError
from coldstream.fragment import Trailer
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
from coldstream.remote.context import Context
from coldstream.remote.trailers import listed_trailers
from coldstream.usecases.continuing import Listing
from coldstream.usecases.overlap import reaching_over

_SUSPECTS_AT_ONCE = 64  # fragments that are looked at before their turn, at the same time
_MAX_SUSPECTS = 1024  # before the time is looked at again
#: After this many refusals what is settled is committed: else every call would meet them all anew.
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


def extend(
    context: Context,
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

    After 64 refusals, only the settled prefix is given: the part of the run that no later refusal
    can change. It is empty if there is none and time is up. The next call goes on from there.

    Args:
        context: where.
        stream: directory name.
        root: what the run continues.
        limit: objects in the run, about.
        time_left: whether there is time for more refusals; asked only after many of them.
        left: paths of fragments of which no part can follow, although they reach over the end.

    Raises:
        UnavailableError: the store did not answer; nothing was changed.
    """
    extending = _Extending(context, stream, root, limit, left)
    late, due = False, _REFUSALS
    while True:
        found = extending.attempt()
        if found.bad is None:
            return extending.extension(found.run, more=found.more, waiting=found.waiting)
        if len(extending.refused) < due:
            continue
        settled = extending.settled(found.run, found.bad)
        if settled or late:
            return extending.extension(found.run[:settled], more=True)
        late = not time_left()  # one look more: what was refused now may have been the last
        due = len(extending.refused) + (0 if late else _REFUSALS)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A verified run, and the object behind it that had to be refused; None if it is the whole."""

    run: Sequence[Step]
    bad: Listed | None
    more: bool
    waiting: bool


class _Extending:
    """A root, what LIST shows behind it, and what was refused so far.

    Attributes:
        refused: one error by path.
    """

    def __init__(
        self, context: Context, stream: str, root: Root, limit: int, left: Collection[str]
    ) -> None:
        self._context = context
        self._stream = stream
        self._root = root
        self._limit = limit
        self._left = left
        self._listing = Listing(context, stream, root, limit)
        #: By path: the run is resolved again and again, each trailer is fetched once.
        self._trailers: dict[str, Trailer | RefusedFragmentError] = {}
        self._looked_over: set[str] = set()
        self.refused: dict[str, RefusedFragmentError] = {}

    def attempt(self) -> _Attempt:
        """The run without what is refused so far, up to the first that has to be refused now.

        Where one has to be, all that begins where it does is looked at as well: a writer that
        uploads one range badly again and again would else cost a resolution for each of them.
        """
        resolution = self._listing.resolved()
        part = _part(resolution.run, self._limit)
        run, bad = self._verified(part)
        if bad is not None:
            last_chunk = last_chunk_of(run, self._root.last_chunk)
            doubles = self._listing.candidates.beginning_at(bad.data_key.first_offset)
            self._refuse_bad(doubles[:_MAX_SUSPECTS], last_chunk)
        whole = len(resolution.run) == len(part)
        return _Attempt(run, bad, not whole, resolution.waiting and whole)

    def extension(self, run: Sequence[Step], *, more: bool, waiting: bool = False) -> Extension:
        """What a verified run makes of the root."""
        taken, refused = tuple(run), tuple(self.refused.values())
        found = Extension(append_run(self._root, taken), taken, refused, more, waiting)
        return self._data_first(found)

    def settled(self, run: Sequence[Step], bad: Listed) -> int:
        """How many objects of a verified beginning of the run no later refusal can change.

        What reaches over the refused object is looked at before its turn.
        """
        settled = self._listing.settled(run)
        if settled == len(run):
            return settled
        over = self._listing.candidates.over(bad.data_key.first_offset)
        over = [each for each in over if each.path not in self._looked_over][:_MAX_SUSPECTS]
        self._looked_over.update(each.path for each in over)
        self._refuse_bad(over, None, all_of_them=True)
        return self._listing.settled(run)

    def _data_first(self, found: Extension) -> Extension:
        """`found` up to the first hole that a fragment reaches into from below; and what reaches
        over its end.

        Where there is a hole, all such fragments are looked for, however far below they begin.
        """
        left = {*self._left, *self.refused}
        below: list[Listed] | None = None
        for number, step in enumerate(found.run):
            if not isinstance(step, VerifiedHole):
                continue
            if below is None:
                below = reaching_over(self._context, self._stream, self._root, without=left)
            at = step.listed.data_key.first_offset
            over = _over(at, [*below, *self._listing.reaching_over(at)], left)
            if over:
                run = found.run[:number]
                return replace(
                    found,
                    root=append_run(self._root, run),
                    run=run,
                    more=False,
                    waiting=True,
                    over=over,
                    kept_out=True,
                )
        if found.more:
            return found
        end = found.root.next_offset
        return replace(found, over=_over(end, self._listing.reaching_over(end), left))

    def _verified(self, part: Sequence[Listed]) -> tuple[list[Step], Listed | None]:
        """The beginning of `part` that may be appended, and the object behind it that may not."""
        self._fetch([each for each in part if each.data_key.kind == "fragment"])
        run: list[Step] = []
        last_chunk = self._root.last_chunk
        for each in part:
            try:
                verified = (
                    check_hole(each, timestamp=_highest(self._root, run))
                    if each.data_key.kind == "hole"
                    else self._verify(each, last_chunk)
                )
            except RefusedFragmentError as exc:
                self._refuse(each, exc)
                return run, each
            run.append(verified)
            last_chunk = last_chunk_of([verified], last_chunk)
        return run, None

    def _refuse_bad(
        self,
        suspects: Sequence[Listed],
        last_chunk: LastChunk | None,
        *,
        all_of_them: bool = False,
    ) -> None:
        """Look at fragments before their turn, many at once: until one is good, or at all."""
        for begin in range(0, len(suspects), _SUSPECTS_AT_ONCE):
            batch = suspects[begin : begin + _SUSPECTS_AT_ONCE]
            self._fetch(batch)
            good = len(batch)
            for each in batch:
                try:
                    self._verify(each, last_chunk)
                except RefusedFragmentError as exc:
                    self._refuse(each, exc)
                    good -= 1
            if good and not all_of_them:
                return

    def _refuse(self, each: Listed, why: RefusedFragmentError) -> None:
        self.refused[each.path] = why
        self._listing.refuse(each)

    def _fetch(self, wanted: Sequence[Listed]) -> None:
        """Read the trailers that are not known yet."""
        new = [each for each in wanted if each.path not in self._trailers]
        # One of a later version only waits: whoever knows it takes it, and others are not held up.
        found = listed_trailers(self._context, new, pass_later=True)
        self._trailers.update(
            (each.path, trailer) for each, trailer in zip(new, found, strict=True)
        )

    def _verify(self, each: Listed, last_chunk: LastChunk | None) -> Verified:
        trailer = self._trailers[each.path]
        if isinstance(trailer, RefusedFragmentError):
            raise trailer
        return check_fragment(each, trailer, ledger=self._root.ledger, last_chunk=last_chunk)


def _over(offset: int, fragments: Iterable[Listed], left: Collection[str]) -> tuple[Listed, ...]:
    found = {each.path: each for each in fragments if each.data_key.next_offset > offset}
    return tuple(each for path, each in found.items() if path not in left)


def _part(resolved: Sequence[Listed], limit: int) -> Sequence[Listed]:
    """About `limit` objects from the beginning of a run; the last one is a fragment."""
    end = limit
    while end < len(resolved) and resolved[end - 1].data_key.kind == "hole":
        end += 1
    return resolved[:end]


def _highest(root: Root, run: Sequence[Step]) -> int:
    """Greatest timestamp of a manifest and of what is appended to it, ms; 0 if there is none."""
    entries = [each.entry() for each in run]
    known = [highest_timestamp(root)] if len(root.entries) else []
    return max([*known, *(entry.max_timestamp for entry in entries)], default=0)
