"""Where a writer's own log and the manifest part: what is evidence, and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from coldstream.errors import (
    CorruptDataError,
    DivergedError,
    LostRangeError,
    NotFoundError,
    UnavailableError,
)
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import LastChunk, Root
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.truncate import Cut
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.divergence import divergence, nobody_else
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.fragments import SyntheticFragment
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece

#: The manifest: [0, 100) of epoch 5 in two fragments of five chunks.
OLD = [piece(0, 50, epoch=5), piece(50, 100, epoch=5)]


def holding(*fragments: SyntheticFragment, epoch: int = 5, branching: int = 0) -> Remote:
    """A tier whose manifest has exactly these fragments."""
    remote = Remote()
    remote.anchor(fragments[0].key.first_offset)
    remote.claim(epoch)
    floor = fragments[0].key.first_offset
    remote.upload(*(each.lying(floor=floor) for each in fragments))
    commit_runs(remote.context, STREAM, pause=no_pause)
    if branching:
        rebalance(remote.context, STREAM, branching=branching, pause=no_pause)
    assert remote.root().next_offset == fragments[-1].key.next_offset
    return remote.forget()


def found(remote: Remote, log: KnownHistory, root: Root | None = None) -> Cut | None:
    return divergence(remote.new_context(), STREAM, root or remote.root(), log, alone=nobody_else)


def history(*chunks: LocalChunk) -> KnownHistory:
    return KnownHistory(chunks)


def diverged(at: int, *, epoch: int = 6, end: int = 0, step: int = 10) -> tuple[LocalChunk, ...]:
    """Chunks of a new epoch from `at` on."""
    return tuple(
        LocalChunk(first, first + step, epoch) for first in range(at, end or at + step, step)
    )


@pytest.mark.parametrize(
    "chunks",
    [
        (),
        log_of(*OLD).chunks,
        (*log_of(*OLD).chunks, *diverged(100)),
        log_of(*OLD).chunks[3:],
        log_of(*OLD).chunks[:7],  # merely shorter
        log_of(OLD[0]).chunks,
        log_of(OLD[0]).chunks[:1],
        diverged(100),
        diverged(300),
        (LocalChunk(100, 110, 5), LocalChunk(110, 120, 9)),
    ],
)
def test_a_log_that_agrees_or_is_merely_shorter_or_begins_later_is_no_evidence(
    chunks: Sequence[LocalChunk],
) -> None:
    assert found(holding(*OLD), history(*chunks)) is None


@pytest.mark.parametrize("keep", range(1, 10))
def test_the_last_common_chunk_is_found_wherever_it_is(keep: int) -> None:
    log = history(*log_of(*OLD).chunks[:keep], *diverged(10 * keep, end=150))

    cut = found(holding(*OLD), log)

    assert cut is not None
    assert not cut.anew
    assert (cut.offset, cut.last_chunk) == (10 * keep, LastChunk(10 * keep - 10, 5))


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (LocalChunk(90, 100, 4), "same id, older epoch"),
        (LocalChunk(90, 100, 6), "same id, newer epoch"),
        (LocalChunk(90, 99, 5), "same id, other end below"),
        (LocalChunk(90, 101, 5), "same id, other end above"),
    ],
)
def test_a_last_chunk_that_differs_in_anything_is_cut_off(evidence: LocalChunk, why: str) -> None:
    log = history(*log_of(*OLD).chunks[:9], evidence)

    cut = found(holding(*OLD), log)

    assert cut is not None, why
    assert (cut.offset, cut.evidence, cut.anew) == (90, evidence, False)


def test_a_chunk_that_straddles_the_end_is_cut_back_to_where_it_begins() -> None:
    log = history(*log_of(*OLD).chunks[:8], LocalChunk(80, 95, 5), LocalChunk(95, 105, 5))

    cut = found(holding(*OLD), log)

    assert cut is not None
    assert (cut.offset, cut.evidence) == (80, LocalChunk(95, 105, 5))


def test_a_shorter_log_that_ends_in_another_chunk_is_evidence_although_no_epoch_is_newer() -> None:
    # The manifest goes on under epoch 5; the log has epoch 4 where the manifest has 5.
    remote = holding(piece(0, 50, epoch=5, chunk_epochs=(3, 3, 5)), OLD[1])
    log = history(*diverged(0, epoch=3, end=20), LocalChunk(20, 30, 4))

    cut = found(remote, log)

    assert cut is not None
    assert (cut.offset, cut.last_chunk) == (20, LastChunk(10, 3))


def test_same_offsets_with_other_epochs_inside_one_fragment_are_told_apart() -> None:
    remote = holding(piece(0, 100, epoch=5, chunk_epochs=(1, 1, 2, 2, 2, 3, 3, 4, 5, 5)))
    epochs = (1, 1, 2, 2, 4, 4, 4, 4, 6, 6)
    log = history(*(LocalChunk(10 * n, 10 * n + 10, e) for n, e in enumerate(epochs)))

    cut = found(remote, log)

    assert cut is not None
    assert (cut.offset, cut.last_chunk) == (40, LastChunk(30, 2))


def test_a_local_log_that_begins_inside_a_fragment_is_enough() -> None:
    log = history(*log_of(*OLD).chunks[7:9], *diverged(90, end=120))

    cut = found(holding(*OLD), log)

    assert cut is not None
    assert (cut.offset, cut.anew) == (90, False)


@pytest.mark.parametrize("begin", [5, 50, 70, 95])
def test_a_log_in_which_no_chunk_is_common_begins_the_stream_anew(begin: int) -> None:
    cut = found(holding(*OLD), history(*diverged(begin, end=begin + 40)))

    assert cut is not None
    assert (cut.offset, cut.last_chunk, cut.anew) == (begin, None, True)


def test_history_11_a_log_that_ends_below_what_retention_left_begins_the_stream_anew() -> None:
    remote = holding(piece(1000, 1050, epoch=5), piece(1050, 1100, epoch=5))
    log = history(*(LocalChunk(at, at + 10, 5) for at in range(500, 890, 10)), *diverged(890))

    cut = found(remote, log)

    assert cut is not None
    assert (cut.offset, cut.anew) == (500, True)
    assert cut.floor(remote.root()) == 500


def test_a_start_anew_above_the_old_beginning_gives_up_no_right_to_what_lies_below() -> None:
    remote = holding(*OLD)
    cut = found(remote, history(*diverged(70, end=120)))

    assert cut is not None
    assert cut.floor(remote.root()) == 0


def test_an_older_epoch_above_the_end_proves_two_histories_but_not_where_they_part() -> None:
    with pytest.raises(DivergedError) as caught:
        found(holding(*OLD), history(LocalChunk(120, 130, 4), LocalChunk(130, 140, 6)))

    assert (caught.value.stream, caught.value.offset) == (STREAM, 120)


def test_a_manifest_that_begins_with_nothing_fits_a_log_that_has_a_border_there() -> None:
    remote = Remote()
    remote.anchor(100)

    assert found(remote, history(*diverged(80, end=100))) is None
    cut = found(remote, history(LocalChunk(80, 95, 1), LocalChunk(95, 105, 1)))
    assert cut is not None
    assert (cut.offset, cut.anew) == (80, True)


# Holes.


def with_hole_at_the_end(remote: Remote, end: int) -> Root:
    root = remote.root()
    hole = Entry(root.next_offset, end, 0, 0, EntryKind.HOLE, 0, 0, root.epoch, 77)
    return replace(root, next_offset=end, entries=root.entries.appended([hole]))


def test_a_hole_at_the_end_is_no_history_and_a_log_behind_it_agrees() -> None:
    remote = holding(*OLD)
    root = with_hole_at_the_end(remote, 150)

    assert found(remote, history(*diverged(150)), root) is None
    assert found(remote, log_of(*OLD), root) is None


def test_a_log_that_has_what_a_hole_at_the_end_says_is_lost_cuts_the_hole_off() -> None:
    remote = holding(*OLD)
    root = with_hole_at_the_end(remote, 150)

    cut = found(remote, history(*log_of(*OLD).chunks, *diverged(100, end=160)), root)

    assert cut is not None
    assert (cut.offset, cut.last_chunk, cut.anew) == (100, LastChunk(90, 5), False)


@pytest.mark.parametrize("begin", [100, 120, 145])
def test_a_log_that_begins_inside_a_hole_at_the_end_cuts_the_hole_there(begin: int) -> None:
    remote = holding(*OLD)
    root = with_hole_at_the_end(remote, 150)

    cut = found(remote, history(*diverged(begin, end=160)), root)

    assert cut is not None
    assert (cut.offset, cut.last_chunk, cut.anew) == (begin, LastChunk(90, 5), False)


def test_a_log_that_begins_inside_a_hole_at_the_end_leaves_the_claim_to_a_longer_one() -> None:
    """Found by the simulator: the last fragment below the hole was of a lost timeline, and stayed
    below the new one."""
    remote = holding(*OLD)
    asked: list[tuple[int, int]] = []

    def another(begin: int, end: int) -> None:
        asked.append((begin, end))
        raise LostRangeError("another member's log begins at 0", stream=STREAM, offset=begin)

    with pytest.raises(LostRangeError):
        divergence(
            remote.new_context(),
            STREAM,
            with_hole_at_the_end(remote, 150),
            history(*diverged(120, end=160)),
            alone=another,
        )

    assert asked == [(120, 100)]


def test_a_log_that_differs_below_a_hole_at_the_end_is_cut_back_to_what_is_common() -> None:
    remote = holding(*OLD)
    root = with_hole_at_the_end(remote, 150)

    cut = found(remote, history(*log_of(*OLD).chunks[:7], *diverged(70, end=160)), root)

    assert cut is not None
    assert (cut.offset, cut.last_chunk) == (70, LastChunk(60, 5))


def with_hole_inside(remote: Remote) -> Root:
    """[0, 50), a hole up to 100, and [100, 150)."""
    root = remote.root()
    first, last = root.entries[0], root.entries[-1]
    hole = Entry(50, 100, 0, 0, EntryKind.HOLE, 0, 0, 5, 77)
    return replace(root, entries=Entries.of([first, hole, last]))


@pytest.mark.parametrize(
    ("begin", "offset", "anew"), [(0, 50, False), (40, 50, False), (60, 60, True), (120, 120, True)]
)
def test_what_follows_a_hole_and_differs_goes_with_the_hole(
    begin: int, offset: int, anew: bool
) -> None:
    remote = holding(*OLD, piece(100, 150, epoch=5))
    common = tuple(c for c in log_of(OLD[0]).chunks if c.chunk_id >= begin)

    cut = found(
        remote, history(*common, *diverged(max(begin, 50), end=200)), with_hole_inside(remote)
    )

    assert cut is not None
    assert (cut.offset, cut.anew) == (offset, anew)


def test_a_log_that_begins_inside_a_hole_and_shares_what_follows_is_cut_there() -> None:
    remote = holding(*OLD, piece(100, 150, epoch=5))
    log = history(
        *(LocalChunk(at, at + 10, 5) for at in range(60, 120, 10)), *diverged(120, end=200)
    )

    cut = found(remote, log, with_hole_inside(remote))

    assert cut is not None
    assert (cut.offset, cut.anew) == (120, False)


# Work, and damage.


def test_a_divergence_at_the_tail_of_a_long_stream_costs_a_few_requests() -> None:
    fragments = chain(200, epoch=5)
    remote = holding(*fragments, branching=4)
    log = history(*log_of(*fragments[:199]).chunks, *diverged(1990, end=2100))
    root, context = remote.root(), remote.new_context()
    remote.forget()

    cut = divergence(context, STREAM, root, log, alone=nobody_else)

    assert cut is not None
    assert cut.offset == 1990
    assert sum(remote.store.calls.values()) <= 8


@pytest.mark.parametrize("keep", [1, 2, 3, 7, 63, 64, 65, 150, 198])
def test_a_divergence_anywhere_in_a_tree_is_found_with_bounded_work(keep: int) -> None:
    fragments = chain(200, epoch=5)
    remote = holding(*fragments, branching=4)
    log = history(*log_of(*fragments[:keep]).chunks, *diverged(10 * keep, end=2100))
    root, context = remote.root(), remote.new_context()
    remote.forget()

    cut = divergence(context, STREAM, root, log, alone=nobody_else)

    assert cut is not None
    assert (cut.offset, cut.anew) == (10 * keep, False)
    assert sum(remote.store.calls.values()) <= 60


def test_a_fragment_that_must_be_read_and_is_damaged_is_named() -> None:
    remote = holding(*OLD)
    path = OLD[1].path(PREFIX)
    data = remote.memory.objects[path]
    log = history(*log_of(*OLD).chunks[:7], *diverged(70, end=160))

    remote.memory.objects[path] = data[:-20] + b"x" + data[-19:]
    with pytest.raises(CorruptDataError) as caught:
        found(remote, log)
    assert (caught.value.stream, caught.value.offset, caught.value.key) == (STREAM, 50, path)

    del remote.memory.objects[path]
    with pytest.raises(NotFoundError) as gone:
        found(remote, log)
    assert (gone.value.stream, gone.value.offset, gone.value.key) == (STREAM, 50, path)


def test_a_log_that_is_retired_while_it_is_compared_cuts_nothing_off() -> None:
    """Found by the simulator: what it had shared was not found any more, so it shared nothing."""

    class Retiring(KnownHistory):
        def first_offset(self) -> int | None:
            begins.append(begins[-1] + 20)
            return begins[-1]

    begins = [0]
    remote = holding(*OLD)
    log = Retiring(diverged(90))

    with pytest.raises(UnavailableError, match="retention has moved on"):
        divergence(remote.new_context(), STREAM, remote.root(), log, alone=nobody_else)
