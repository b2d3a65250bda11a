"""Every small listing behind a manifest, and every small ledger, against the rules word by word.

Scope of runs: offsets 0..4. All 1,024 sets of fragments with no hole or one, all sets of fragments
over 0..3 with all sets of holes (14,912 listings), all sets of two uploads of each range over 0..3
(4,096), and under each of 125 ledgers of three epochs all objects that these offsets allow. A run
is made of joins, and joins of two things: what leads to an offset, and whether something better
does. Two ways of three steps, a hole on each side of each, and a double of each fit in here.

Scope of ledgers: the 625 with epochs 1..4 and floors 0..3; every rule compares two or three claims.

Scope of trailers: key, size, ledger and neighbour of one fragment, each right or wrong in each way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise, product
from typing import Literal

import pytest

from coldstream.errors import CorruptDataError, FencedError, InvalidInputError, RefusedFragmentError
from coldstream.fragment import Trailer
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.ledger import MAX_CLAIMS, Claim, Ledger, Right
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import MAX_EPOCH, MAX_OFFSET, DataKey
from coldstream.plans.resolve import (
    Candidates,
    Listed,
    Verified,
    VerifiedHole,
    append_run,
    check_fragment,
    check_hole,
    highest_timestamp,
    last_chunk_of,
    resolve,
    resolve_run,
)
from coldstream_devkit.fragments import build_fragment
from tests.support.naive_run import best_run, ceiling, end_of, may_write, waits

STREAM, PREFIX = "__orders_1", "rabbitmq/"
ONE = [(1, 0)]


def listed(
    first: int, next_offset: int, uid: int = 0, epoch: int = 1, *, hole: bool = False
) -> Listed:
    kind: Literal["fragment", "hole"] = "hole" if hole else "fragment"
    key = DataKey(STREAM, first, next_offset, epoch, uid, kind)
    return Listed(key, key.path(PREFIX), 0 if hole else 100)


def spans(end: int) -> list[tuple[int, int]]:
    return list(combinations(range(end + 1), 2))


def subsets(things: Sequence[Listed], most: int | None = None) -> Iterator[tuple[Listed, ...]]:
    most = len(things) if most is None else most
    return chain.from_iterable(combinations(things, size) for size in range(most + 1))


def listings() -> Iterator[tuple[Listed, ...]]:
    """Every one of the scope with one epoch."""
    fragments = [listed(*span) for span in spans(4)]
    for data in subsets(fragments):
        for hole in subsets([listed(*span, hole=True) for span in spans(4)], 1):
            yield (*data, *hole)
    fragments = [listed(*span) for span in spans(3)]
    holes = [listed(*span, hole=True) for span in spans(3)]
    for data, lost in product(list(subsets(fragments)), list(subsets(holes))):
        if len(lost) > 1:
            yield (*data, *lost)


def in_order(things: Sequence[Listed]) -> list[Listed]:
    """As LIST shows them."""
    return sorted(things, key=lambda each: each.path)


def resolved(start: int, claims: Sequence[tuple[int, int]], things: Sequence[Listed]) -> Candidates:
    candidates = Candidates(start, Ledger.of(claims))
    candidates.add(things)
    return candidates


# Runs.


def test_the_run_and_whether_it_waits_are_those_of_the_rules() -> None:
    ledger = Ledger.of(ONE)
    for things in listings():
        found = resolve(0, ledger, reversed(things))
        assert found.run == best_run(0, ONE, things, set()), things
        assert found.waiting == waits(0, ONE, things), things


def test_of_two_uploads_of_every_range_the_rules_choose_one_in_any_order() -> None:
    ledger = Ledger.of(ONE)
    doubles = [listed(*span, uid) for span in spans(3) for uid in (1, 2)]
    for things in subsets(doubles):
        expected = best_run(0, ONE, things, set())
        assert resolve_run(0, ledger, things) == expected
        assert resolve_run(0, ledger, reversed(things)) == expected


def test_nothing_below_the_start_takes_part_and_what_is_refused_is_as_if_it_were_not_there() -> (
    None
):
    ledger = Ledger.of(ONE)
    everything = [listed(*span, hole=hole) for span in spans(3) for hole in (False, True)]
    for start in range(5):
        for things in subsets(everything, 4):
            assert resolve_run(start, ledger, things) == best_run(start, ONE, things, set())
    doubles = [*everything[::2], *(listed(*span, 9) for span in spans(3))]
    for whole, refused in product([everything, doubles], subsets(everything, 3)):
        paths = {each.path for each in refused}
        run = resolve_run(0, ledger, whole, without=paths)
        assert run == best_run(0, ONE, whole, paths)
        candidates = resolved(0, ONE, whole)
        for each in refused:
            if each in whole:
                candidates.drop(each)
        assert candidates.resolved().run == run


def test_only_what_the_ledger_accepts_takes_part() -> None:
    everything = [
        listed(*span, epoch=epoch, hole=hole)
        for span in spans(3)
        for epoch in (1, 2, 3)
        for hole in (False, True)
    ]
    for claims in ledgers(epochs=3, floors=4):
        ledger = Ledger.of(claims)
        for start in range(4):
            run = resolve_run(start, ledger, everything)
            assert run == best_run(start, claims, everything, set()), claims
        for one in everything:
            alone = resolve_run(one.data_key.first_offset, ledger, [one])
            assert alone == best_run(one.data_key.first_offset, claims, [one], set())


def test_a_run_is_final_exactly_when_all_that_begins_at_or_below_its_bound_was_seen() -> None:
    ledger = Ledger.of(ONE)
    for things in listings():
        ordered = in_order(things)
        whole = resolve_run(0, ledger, ordered)
        for seen_to in range(4):
            seen = [each for each in ordered if each.data_key.first_offset <= seen_to]
            found = resolve(0, ledger, seen)
            if found.listed_to <= seen_to:
                assert found.run == whole, (things, seen_to)
            elif seen_to == 3:
                more = listed(found.listed_to, found.listed_to + 1, 7)
                assert more in resolve_run(0, ledger, [*ordered, more]), things


def test_what_is_settled_stays_whatever_is_refused_or_comes_later() -> None:
    fragments = [listed(*span) for span in spans(4)]
    holes = [listed(1, 2, hole=True), listed(2, 3, hole=True), listed(1, 3, hole=True)]
    for data, lost in product(list(subsets(fragments, 5)), list(subsets(holes, 1))):
        things = (*data, *lost)
        candidates = resolved(0, ONE, things)
        run = candidates.resolved().run
        assert candidates.settled(run, seen_to=MAX_OFFSET) == naive_settled(run, things), things
        for number in range(len(run) + 1):
            for seen_to in range(6):
                settled = candidates.settled(run[:number], seen_to=seen_to)
                said = [
                    n
                    for n in range(1, number + 1)
                    if naive_settled(run[:n], things) == n and end_of(run[:n], 0) <= seen_to
                ]
                assert settled == max(said, default=0), (things, number, seen_to)
        settled = candidates.settled(run, seen_to=MAX_OFFSET)
        if settled and not lost:
            for refused in subsets([each for each in things if each not in run[:settled]], 2):
                kept = [each for each in things if each not in refused]
                assert best_run(0, ONE, kept, set())[:settled] == run[:settled], things


def naive_settled(run: Sequence[Listed], things: Sequence[Listed]) -> int:
    """The last fragment of a run over whose end no fragment goes that can be reached."""
    holes = {each.data_key.next_offset for each in run if each.data_key.kind == "hole"}
    data = [each.data_key for each in things if each.data_key.kind == "fragment"]
    best = 0
    for number, step in enumerate(run, 1):
        join = step.data_key.next_offset
        reached = {0} | {end for end in holes if end <= join}
        for _ in data:
            reached |= {key.next_offset for key in data if key.first_offset in reached}
        over = [k for k in data if k.first_offset < join < k.next_offset]
        if step.data_key.kind == "fragment" and not any(k.first_offset in reached for k in over):
            best = number
    return best


def test_what_begins_at_an_offset_and_what_reaches_over_it_is_told() -> None:
    fragments = [listed(*span, uid) for span in spans(3) for uid in (1, 2)]
    for things in subsets(fragments, 4):
        candidates = resolved(0, ONE, things)
        reached = {0}
        for _ in things:
            ends = {e.data_key.next_offset for e in things if e.data_key.first_offset in reached}
            reached |= ends
        for at in range(5):
            begin = [each for each in things if each.data_key.first_offset == at]
            over = [e for e in things if e.data_key.first_offset < at < e.data_key.next_offset]
            can = [each for each in over if each.data_key.first_offset in reached]
            assert sorted(candidates.beginning_at(at), key=repr) == sorted(begin, key=repr)
            assert sorted(candidates.reaching_over(at), key=repr) == sorted(over, key=repr)
            assert sorted(candidates.over(at), key=repr) == sorted(can, key=repr)


# Trailers.


def trailers() -> Iterator[Trailer]:
    """Of [4, 6), and with each number that a key or a ledger also tells one off, or two."""
    good = build_fragment(4, 6, epoch=2, floor=3, records_per_chunk=1).trailer
    yield good
    for name in ("first_offset", "next_offset", "epoch", "floor", "first_chunk_epoch"):
        for by in (-2, -1, 1, 2):
            yield replace(good, **{name: getattr(good, name) + by})
    for name in ("data_size", "index_position", "index_size"):
        for by in (-1, 1):
            yield replace(good, **{name: getattr(good, name) + by})


def test_a_fragment_enters_if_trailer_key_size_ledger_and_neighbour_agree_and_else_never() -> None:
    good = build_fragment(4, 6, epoch=2, floor=3, records_per_chunk=1).trailer
    true_size = good.index_position + good.index_size + 156
    neighbours = [None, *(LastChunk(3, epoch) for epoch in range(4))]
    entered = 0
    for trailer, first, next_offset, epoch, size, claims, last in product(
        trailers(),
        (3, 4, 5),
        (5, 6, 7),
        (1, 2, 3),
        (true_size - 1, true_size, true_size + 1),
        ([], [(1, 3)], [(2, 3)], [(1, 2), (2, 3)], [(2, 4)], [(1, 3), (2, 2), (3, 3)]),
        neighbours,
    ):
        if first >= next_offset:
            continue
        key = DataKey(STREAM, first, next_offset, epoch, 1)
        one = Listed(key, "the key", size)
        agree = (
            trailer.first_offset == first
            and trailer.next_offset == next_offset
            and trailer.epoch == epoch
            and trailer.index_position + trailer.index_size + 156 == size
            and [trailer.floor] == [floor for each, floor in claims if each == epoch]
            and not (last is not None and last.epoch > trailer.first_chunk_epoch)
        )
        said: list[object] = []
        try:
            verified = check_fragment(one, trailer, ledger=Ledger.of(claims), last_chunk=last)
        except RefusedFragmentError as exc:
            said.append((exc.stream, exc.offset, exc.key))
        else:
            assert verified == Verified(one, trailer)
            entered += 1
        assert said == ([] if agree else [(STREAM, first, "the key")]), (one, trailer, claims, last)
    assert entered


def test_a_hole_enters_only_empty() -> None:
    for size, timestamp in product(range(3), range(3)):
        one = replace(listed(2, 4, 5, 3, hole=True), size=size)
        if size:
            with pytest.raises(RefusedFragmentError) as caught:
                check_hole(one, timestamp=timestamp)
            assert (caught.value.offset, caught.value.key) == (2, one.path)
        else:
            entry = check_hole(one, timestamp=timestamp).entry()
            assert entry == Entry(2, 4, timestamp, timestamp, EntryKind.HOLE, 0, 0, 3, 5)


def test_an_appended_run_ends_in_its_last_fragments_last_chunk() -> None:
    for bits, before in product(product((False, True), repeat=3), (None, LastChunk(0, 1))):
        steps: list[Verified | VerifiedHole] = []
        expected, latest = before, 9
        for number, hole in enumerate(bits):
            at = 1 + 2 * number
            if hole:
                steps.append(VerifiedHole(listed(at, at + 2, hole=True), latest))
                continue
            times = (20 - at, 30 - at)
            made = build_fragment(
                at, at + 2, chunk_epochs=(1, 2), epoch=2, timestamps=times, records_per_chunk=1
            )
            one = replace(listed(at, at + 2, number, 2), size=len(made.data))
            steps.append(Verified(one, made.trailer))
            expected, latest = LastChunk(at + 1, 2), max(latest, *times)
            entry = Entry(at, at + 2, *times, EntryKind.FRAGMENT, one.size, 2, 2, number)
            assert steps[-1].entry() == entry
        for taken in range(4):
            run = steps[:taken]
            root = Root(0, 1, last_chunk=before)
            last = last_chunk_of(run, before)
            assert last == (expected if taken == 3 else last_chunk_of(run, before))
            if not taken or last is None:
                assert append_run(root, run) is root
                continue
            root = replace(root, first_offset=1)
            after = append_run(root, run)
            assert list(after.entries) == [each.entry() for each in run]
            assert (after.next_offset, after.last_chunk) == (1 + 2 * taken, last)
            assert highest_timestamp(after) == max(e.max_timestamp for e in after.entries)


# Ledgers.


def ledgers(epochs: int = 4, floors: int = 4) -> Iterator[list[tuple[int, int]]]:
    for chosen in product([None, *range(floors)], repeat=epochs):
        yield [(number, floor) for number, floor in enumerate(chosen, 1) if floor is not None]


def test_a_ledger_has_rising_epochs_from_1_and_numbers_that_fit() -> None:
    epochs = (-1, 0, 1, 2, MAX_EPOCH - 1, MAX_EPOCH, MAX_EPOCH + 1)
    floors = (-1, 0, 1, MAX_OFFSET, MAX_OFFSET + 1)
    pairs = list(product(epochs, floors))
    for claims in [
        [],
        *([one] for one in pairs),
        *([one, two] for one, two in product(pairs, pairs)),
    ]:
        rise = all(one[0] < two[0] for one, two in pairwise(claims))
        fit = all(1 <= e <= MAX_EPOCH and 0 <= f <= MAX_OFFSET for e, f in claims)
        if rise and fit:
            ledger = Ledger.of(claims)
            assert ledger.claims == tuple(Claim(*pair) for pair in claims)
            assert ledger.epoch == max([0, *(epoch for epoch, _ in claims)])
        else:
            with pytest.raises(CorruptDataError):
                Ledger.of(claims)


def test_a_ledger_accepts_floors_ceilings_and_rights_as_the_rule_says() -> None:
    for claims in ledgers():
        ledger = Ledger.of(claims)
        for epoch in range(6):
            assert ledger.floor(epoch) == dict(claims).get(epoch)
            assert ledger.ceiling(epoch) == ceiling(claims, epoch)
            for span in spans(4):
                assert ledger.accepts(epoch, *span) == may_write(claims, epoch, *span)
        for at in range(5):
            able = [epoch for epoch, _ in claims if may_write(claims, epoch, at, at + 1)]
            right = None
            if able:
                right = Right(max(able), dict(claims)[max(able)], ceiling(claims, max(able)))
            assert ledger.right_at(at) == right


def test_above_an_offset_exactly_the_claims_that_end_there_or_below_are_dropped() -> None:
    for claims in ledgers():
        for first in range(5):
            kept = [pair for pair in claims if ceiling(claims, pair[0]) > first]
            assert Ledger.of(claims).above(first) == Ledger.of(kept)


def test_a_compacted_ledger_lets_in_and_has_cut_off_the_same() -> None:
    for claims in ledgers():
        for recorded in product((False, True), repeat=4):
            names = {epoch for epoch, said in enumerate(recorded, 1) if said}
            kept = list(claims)
            while goes := [
                (one, two)
                for one, two in pairwise(kept)
                if two[1] <= one[1] and not names & {one[0], two[0]}
            ]:
                kept.remove(goes[0][0])
            after = Ledger.of(claims).compacted(names)
            assert after == Ledger.of(kept)
            for epoch, span in product(range(6), spans(4)):
                assert after.accepts(epoch, *span) == may_write(claims, epoch, *span)


def test_an_epoch_claims_once_and_only_above_all_others() -> None:
    for claims, epoch, floor in product(ledgers(epochs=3), range(6), range(4)):
        ledger = Ledger.of(claims)
        if any(epoch <= each for each, _ in claims) or epoch < 1:
            with pytest.raises(FencedError):
                ledger.claimed(epoch, floor)
        else:
            assert ledger.claimed(epoch, floor) == Ledger.of([*claims, (epoch, floor)])


def test_a_full_ledger_takes_no_claim_and_one_with_room_does() -> None:
    almost = Ledger.of((epoch, 0) for epoch in range(1, MAX_CLAIMS))
    full = almost.claimed(MAX_CLAIMS, 0)
    assert len(full.claims) == MAX_CLAIMS
    with pytest.raises(InvalidInputError):
        full.claimed(MAX_CLAIMS + 1, 0)
