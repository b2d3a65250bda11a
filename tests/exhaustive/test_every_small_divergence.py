"""Every small pair of a manifest and a writer's log: where they part, if they do.

See `small_claims` for what a pair is. The scopes, 134,000 pairs together:

  * shapes: chains of up to 4 chunks in fragments of one or two, with a retired begin and with a
    group, against logs that share any number of them and go on with up to 3 chunks of 1..3 records;
  * epochs: chains of up to 4 chunks of epochs 1..3, against logs of epochs 1..4 with up to 2 more;
  * holes: chains of up to 4 chunks with any range of them lost, in the middle or at an end, with
    and without a root that remembers its last chunk, against logs with up to 2 chunks of 1..3;
  * manifests without data: none, or one hole, with all that a root may remember.

A comparison looks at the last local chunk below the end, at the chunk where the manifest has that
offset, and at the last common one: four chunks have room for each of them in a place of its own, in
another fragment, in a group, and at a border; no rule speaks of a fifth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from coldstream.errors import DivergedError, UnavailableError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.usecases.divergence import divergence, nobody_else
from tests.exhaustive.small_claims import (
    OWNER,
    Expected,
    Item,
    Log,
    Small,
    chain,
    expected,
    fragments_of,
    logs,
    remembering,
    rising,
    root_of,
    with_hole,
)
from tests.support.remote import STREAM, Remote

Pair = tuple[Small, list[Log]]


def shapes(most: int, more: int) -> Iterator[Pair]:
    """All epochs are 1, of what only the manifest has 2, of what only the log has 4."""
    for count in range(1, most + 1):
        for shared in range(count + 1):
            past = chain([2] * count, [1] * shared + [2] * (count - shared))
            found = list(logs(past, shared, (1, 2, 3), (4,), more))
            for items in fragments_of(past):
                for retired in range(len(items)):
                    yield remembering(items, retired), found
                    for grouped in range(max(2, retired + 1), len(items)):
                        yield remembering(items, retired, grouped), found


def epochs(most: int, more: int) -> Iterator[Pair]:
    for count in range(1, most + 1):
        for of in rising(count, (1, 2, 3)):
            past = chain([2] * count, of)
            for shared in range(count + 1):
                found = list(logs(past, shared, (2,), (1, 2, 3, 4), more))
                for items in fragments_of(past):
                    yield remembering(items), found


def holes(most: int, more: int, sizes: tuple[int, ...], others: tuple[int, ...]) -> Iterator[Pair]:
    """Some fragment is left; the root may remember a chunk, none, or one that was lost since."""
    for count in range(2, most + 1):
        for shared in range(count + 1):
            past = chain([2] * count, [1] * shared + [3] * (count - shared))
            found = list(logs(past, shared, sizes, others, more))
            for begin in range(count):
                for end in range(begin + 1, count + 1):
                    if end - begin == count:
                        continue
                    for items in with_hole(past, begin, end):
                        for small in remembered(items):
                            yield small, found


def remembered(items: tuple[Item, ...]) -> Iterator[Small]:
    for retired in range(len(items)):
        if all(item.hole for item in items[retired:]):
            continue
        small = remembering(items, retired)
        yield small
        yield replace(small, remembered=None)
        if items[-1].hole:
            lost = items[-1].chunks[-1]
            yield replace(small, remembered=LastChunk(lost.chunk_id, lost.epoch))


# Where they part.


def check(pairs: Iterator[Pair]) -> int:
    """Compare each pair; give how many there were."""
    remote, count = Remote(), 0
    for small, found in pairs:
        root = root_of(remote, small)
        for log in found:
            check_pair(remote, root, small, log)
            count += 1
    return count


def check_pair(remote: Remote, root: Root, small: Small, log: Log) -> None:
    asked: list[tuple[int, int]] = []
    wanted = expected(small, log)
    try:
        cut = divergence(
            remote.context,
            STREAM,
            root,
            KnownHistory(log),
            alone=lambda begin, end: asked.append((begin, end)),
        )
    except DivergedError:
        assert wanted.what == "diverged", (small, log)
        return
    if cut is None:
        assert wanted.what == "agree", (small, log, wanted)
    else:
        assert wanted == Expected("cut", cut.offset, cut.last_chunk, cut.anew, wanted.asked), (
            small,
            log,
            cut,
        )
        assert cut.evidence in log
        assert cut.evidence not in small.chunks
        assert cut.evidence.chunk_id < small.next_offset
        assert cut.floor(root) == (min(small.first, cut.offset) if cut.anew else cut.offset)
    in_hole = wanted.what == "cut" and not wanted.anew
    end = small.end_of_data if in_hole else small.next_offset
    assert asked == ([(log[0].chunk_id, end)] if wanted.asked else []), (small, log)


def test_shapes_part_where_the_last_common_chunk_ends() -> None:
    assert check(shapes(4, 3)) > 0


def test_epochs_part_where_the_last_common_chunk_ends() -> None:
    assert check(epochs(4, 2)) > 0


def test_manifests_with_holes_part_where_the_last_common_chunk_ends() -> None:
    assert check(holes(4, 2, (2, 3), (4,))) > 0


def test_manifests_with_holes_part_from_older_and_newer_logs_where_the_last_common_chunk_ends() -> (
    None
):
    assert check(holes(3, 2, (1, 2, 3), (2, 4))) > 0


class Retiring(KnownHistory):
    """A log that loses its first chunks after so many looks at it."""

    looks = 0
    kept: Log = ()
    after = 0

    def _seen(self) -> KnownHistory:
        seen = self.looks
        object.__setattr__(self, "looks", seen + 1)
        return KnownHistory(self.chunks if seen < self.after else self.kept)

    def chunks_near(self, offset: int) -> list[LocalChunk]:
        return self._seen().chunks_near(offset)

    def chunks_between(self, first: int, next_offset: int) -> list[LocalChunk]:
        return self._seen().chunks_between(first, next_offset)

    def first_offset(self) -> int | None:
        return self._seen().first_offset()


def test_a_log_that_is_retired_while_it_is_compared_never_cuts_anything_off() -> None:
    for small, found in shapes(3, 1):
        remote = Remote()
        root = root_of(remote, small)
        for log in found:
            for lost, after in product(range(1, len(log)), range(1, 6)):
                retiring = Retiring(log)
                object.__setattr__(retiring, "kept", log[lost:])
                object.__setattr__(retiring, "after", after)
                try:
                    cut = divergence(remote.context, STREAM, root, retiring, alone=nobody_else)
                except (DivergedError, UnavailableError):
                    continue
                if cut is not None:
                    assert retiring.looks <= after, (small, log)
                    assert cut.offset == expected(small, log).offset


# Manifests without data.


def bare_roots() -> Iterator[Root]:
    """[4, 4) or [4, 8), a hole, with what may have been before, or in the hole."""
    known = [None, *(LastChunk(at, epoch) for at in range(2, 8) for epoch in (1, 2))]
    for end, last in product((4, 8), known):
        if last is not None and last.chunk_id >= end:
            continue
        hole = Entry(4, 8, 0, 0, EntryKind.HOLE, 0, 0, OWNER, 77)
        entries = Entries.of([hole] if end == 8 else [])
        ledger = Ledger.of([(OWNER, 0)])
        yield Root(4, end, OWNER, ledger=ledger, entries=entries, last_chunk=last)


def bare_logs() -> Iterator[Log]:
    for begin, count in product(range(1, 11), range(4)):
        for sizes, of in product(product((1, 2, 3), repeat=count), list(rising(count, (1, 2, 4)))):
            yield chain(sizes, of, begin)


def expected_of_bare(root: Root, log: Log) -> tuple[Expected, bool]:
    """What a manifest without data says to a log; whether it is alone is asked where that matters.

    A chunk that the root remembers from below its begin is the end of what was there. One from
    inside the hole shows, where the log has it, that both are one history.
    """
    first, end, known = root.first_offset, root.next_offset, root.last_chunk
    if not log:
        return Expected("agree"), False
    begin = log[0].chunk_id
    before = known is not None and known.chunk_id < first
    older = known is not None and log[0].epoch < known.epoch
    if begin >= end:
        if older:
            return Expected("diverged"), False
        return Expected("agree"), before or begin > end
    below = [chunk for chunk in log if chunk.chunk_id < end]
    has = known is not None and any(
        (chunk.chunk_id, chunk.epoch) == (known.chunk_id, known.epoch)
        and (not before or chunk.next_offset == first)
        for chunk in log
    )
    in_hole = [chunk for chunk in below if chunk.next_offset > first and end > first]
    anew = Expected("cut", begin, None, anew=True)
    if known is not None and not before and has:
        return Expected("cut", max(begin, first)), False
    if known is None or not before:
        border = below[-1].next_offset == end
        if first == end:
            return (Expected("agree") if border else anew), False
        return (anew if begin <= first else Expected("cut", begin)), False
    if has:
        return (Expected("cut", first, known) if in_hole else Expected("agree")), False
    if in_hole and begin >= first:
        return (Expected("diverged"), False) if older else (Expected("cut", begin, known), True)
    shorter = below[-1].epoch <= known.epoch and below[-1].next_offset <= known.chunk_id
    if shorter:
        return Expected("agree"), False
    return anew, begin > first


def test_manifests_without_data_part_from_what_does_not_fit_their_border() -> None:
    remote = Remote()
    for root in bare_roots():
        for log in bare_logs():
            asked: list[int] = []
            wanted, ask = expected_of_bare(root, log)
            try:
                cut = divergence(
                    remote.context,
                    STREAM,
                    root,
                    KnownHistory(log),
                    alone=lambda begin, end, asked=asked: asked.append(begin),  # type: ignore[misc]
                )
            except DivergedError:
                found = Expected("diverged")
            else:
                found = Expected("agree")
                if cut is not None:
                    assert cut.evidence in log
                    found = Expected("cut", cut.offset, cut.last_chunk, cut.anew)
            assert found == wanted, (root, log)
            assert bool(asked) == ask, (root, log)
