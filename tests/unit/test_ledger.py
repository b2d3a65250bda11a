from __future__ import annotations

import pytest

from coldstream.errors import CorruptDataError, FencedError
from coldstream.manifest.ledger import Ledger


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
