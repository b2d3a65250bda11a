from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError, FencedError, InvalidInputError
from coldstream.manifest.ledger import COMPACT_FROM, MAX_CLAIMS, Ledger
from coldstream.manifest.quarantine import Dropped, QuarantineRecord
from coldstream.names import DataKey


def test_history_2_truncated_data_is_not_admitted_again() -> None:
    # (4, 0), (5, 100); epoch 6 truncated to 60. [60, 100) of epoch 4 passes a test against the
    # next epoch's floor only.
    ledger = Ledger.of([(4, 0), (5, 100), (6, 60)])

    assert not ledger.accepts(4, 60, 100)
    assert not ledger.accepts(4, 0, 61)
    assert ledger.accepts(4, 0, 60)
    assert not ledger.accepts(5, 100, 110)
    assert ledger.accepts(6, 60, 100)


def test_an_event_of_an_older_epoch_may_still_describe_good_data() -> None:
    ledger = Ledger.of([(5, 0), (6, 100)])

    assert ledger.accepts(5, 90, 100)


def test_a_deposed_writer_cannot_reach_past_the_floor_of_its_successor() -> None:
    ledger = Ledger.of([(5, 0), (6, 100)])

    assert not ledger.accepts(5, 90, 101)
    assert not ledger.accepts(5, 100, 110)


def test_a_writer_cannot_reach_below_its_own_floor() -> None:
    ledger = Ledger.of([(5, 0), (6, 100)])

    assert not ledger.accepts(6, 99, 110)
    assert ledger.accepts(6, 100, 110)


@pytest.mark.parametrize("epoch", [0, 1, 4, 7, 2**32 - 1])
def test_an_epoch_that_never_claimed_brings_nothing_in(epoch: int) -> None:
    assert not Ledger.of([(5, 0), (6, 100)]).accepts(epoch, 0, 10)
    assert not Ledger().accepts(epoch, 0, 10)


def test_an_epoch_claims_once_and_never_after_a_higher_one() -> None:
    ledger = Ledger().claimed(5, 0)

    assert ledger.claimed(7, 10) == Ledger.of([(5, 0), (7, 10)])
    for epoch in (4, 5, 0, -1):
        with pytest.raises(FencedError):
            ledger.claimed(epoch, 10)


@pytest.mark.parametrize(
    "pairs",
    [[(0, 0)], [(2, 0), (2, 5)], [(3, 0), (2, 5)], [(1, -1)], [(1, 2**64)], [(2**32, 0)]],
)
def test_a_ledger_whose_epochs_do_not_rise_or_are_out_of_range_is_refused(
    pairs: list[tuple[int, int]],
) -> None:
    with pytest.raises(CorruptDataError):
        Ledger.of(pairs)


def test_an_empty_ledger_has_epoch_0_and_no_floor() -> None:
    assert Ledger().epoch == 0
    assert Ledger().floor(0) is None
    assert Ledger.of([(5, 3)]).epoch == 5
    assert Ledger.of([(5, 3)]).floor(5) == 3


def test_claims_that_no_data_can_use_any_more_are_dropped_and_nothing_else() -> None:
    ledger = Ledger.of([(4, 0), (5, 100), (6, 60), (9, 200)])

    assert ledger.above(0) is ledger
    assert ledger.above(59) is ledger
    assert ledger.above(60) == Ledger.of([(6, 60), (9, 200)])
    assert ledger.above(199) == Ledger.of([(6, 60), (9, 200)])
    assert ledger.above(200) == Ledger.of([(9, 200)])
    assert ledger.above(10**6) == Ledger.of([(9, 200)])
    assert Ledger().above(5) == Ledger()


LEDGERS = [
    Ledger.of(enumerate(floors, 2))
    for size in range(1, 5)
    for floors in product(range(4), repeat=size)
]


@pytest.mark.parametrize("recorded", [set(), {2}, {3}, {4}, {2, 4}, {3, 4, 5}])
def test_a_compacted_ledger_lets_in_exactly_what_it_let_in_before(recorded: set[int]) -> None:
    for ledger in LEDGERS:
        compacted = ledger.compacted(recorded)

        assert set(compacted.claims) <= set(ledger.claims)
        assert compacted.epoch == ledger.epoch
        assert recorded & {c.epoch for c in ledger.claims} <= {c.epoch for c in compacted.claims}
        for epoch, first, size in product(range(7), range(5), range(1, 4)):
            assert compacted.accepts(epoch, first, first + size) == ledger.accepts(
                epoch, first, first + size
            ), (ledger, epoch, first, size)


@pytest.mark.parametrize("later", [None, 0, 2])
@pytest.mark.parametrize("recorded", [set(), {2}, {3}, {4}, {2, 4}, {3, 4, 5}])
def test_what_was_cut_off_stays_cut_off_by_the_same_kind_of_claim(
    recorded: set[int], later: int | None
) -> None:
    # `later` is the floor of a claim that comes after the compaction, cuts, and is given up.
    for before in LEDGERS:
        floors = {claim.epoch: claim.floor for claim in before.claims}
        gone = [Dropped(e, floors[e], 100) for e in recorded if e in floors]
        after = before.compacted(recorded)
        if later is not None:
            before_later, after_later = before.claimed(9, later), after.claimed(9, later)
            gone.append(Dropped(9, later, 100))
        else:
            before_later, after_later = before, after
        record = QuarantineRecord(dropped=tuple(gone))
        for epoch, first, size in product(range(7), range(5), range(1, 4)):
            key = DataKey("s", first, first + size, epoch, 1)
            then = [(c.epoch, c.floor) for c in before_later.claims]
            now = [(c.epoch, c.floor) for c in after_later.claims]
            assert record.gives_up(key, 50, iter(now)) == record.gives_up(key, 50, iter(then))
            assert (record.first_cut(key, iter(now)) is None) == (
                record.first_cut(key, iter(then)) is None
            )


def test_restarts_without_a_message_leave_one_claim() -> None:
    ledger = Ledger.of([(1, 0), *((epoch, 100) for epoch in range(2, 5000)), (5000, 200)])

    assert ledger.compacted(()) == Ledger.of([(1, 0), (4999, 100), (5000, 200)])


def test_a_full_ledger_takes_no_claim_and_says_what_makes_room() -> None:
    ledger = Ledger.of((epoch, epoch) for epoch in range(1, MAX_CLAIMS + 1))

    with pytest.raises(InvalidInputError, match="retention"):
        ledger.claimed(MAX_CLAIMS + 1, MAX_CLAIMS + 1)
    assert ledger.above(MAX_CLAIMS).claimed(MAX_CLAIMS + 1, MAX_CLAIMS + 1)
    assert COMPACT_FROM < MAX_CLAIMS


@given(floors=st.lists(st.integers(0, 12), min_size=1, max_size=6), offset=st.integers(0, 14))
def test_the_right_at_an_offset_is_that_of_the_highest_epoch_that_is_let_in_there(
    floors: list[int], offset: int
) -> None:
    ledger = Ledger.of(enumerate(floors, 1))

    right = ledger.right_at(offset)

    may = [each for each in range(1, len(floors) + 1) if ledger.accepts(each, offset, offset + 1)]
    if right is None:
        assert not may
        return
    assert right.epoch == max(may)
    assert right.floor == ledger.floor(right.epoch)
    assert ledger.accepts(right.epoch, offset, right.until)
    assert not ledger.accepts(right.epoch, offset, right.until + 1)
