"""By which epoch a table has read what: few epochs, and nothing that was cut off is passed over."""

from __future__ import annotations

import random

from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.state import TableState
from coldstream.manifest.ledger import Ledger

STREAM = "__orders_1745252105682952932"


def test_a_state_with_few_epochs_finds_the_same_cut_off_as_one_that_keeps_all() -> None:
    """Runs plan at one moment and commit at a later one, in any order, also over each other."""
    found = 0
    for seed in range(1500):
        rng = random.Random(seed)
        ledger, few, all_of_them = Ledger.of([(1, 0)]), TableState(), TableState()
        plans: list[tuple[Ledger, TableState]] = []
        for _ in range(rng.randrange(4, 25)):
            if rng.random() < 0.3:
                ledger = ledger.claimed(ledger.epoch + rng.randrange(1, 3), rng.randrange(100))
            if rng.random() < 0.6:
                plans.append((ledger, few))
            if plans and rng.random() < 0.6:
                then, planned = plans.pop(rng.randrange(len(plans)))
                first = rng.randrange(100)
                new = {STREAM: Ranges.of([(first, first + rng.randrange(1, 40))])}
                epochs = {STREAM: then.epoch}
                stands = {STREAM: planned.standing(STREAM, then)}
                few = few.with_more(new, {}, epochs, stands=stands)
                all_of_them = all_of_them.with_more(new, {}, epochs)
            expected = all_of_them.cut_off(STREAM, ledger)
            assert few.cut_off(STREAM, ledger) == expected, f"seed {seed}"
            found += bool(expected)
    assert found > 1000


def test_epochs_of_writers_that_cut_off_nothing_become_one() -> None:
    state, ledger = TableState(), Ledger.of([(1, 0)])
    for number in range(50):
        new = {STREAM: Ranges.of([(10 * number, 10 * number + 10)])}
        stands = {STREAM: state.standing(STREAM, ledger)}
        state = state.with_more(new, {}, {STREAM: ledger.epoch}, stands=stands)
        ledger = ledger.claimed(ledger.epoch + 1, 10 * number + 10)
    assert state.under == {STREAM: {50: Ranges.of([(0, 500)])}}


def test_what_was_read_before_there_were_epochs_does_not_become_younger() -> None:
    old = TableState({STREAM: Ranges.of([(0, 50)])})
    state = old.with_more({STREAM: Ranges.of([(50, 60)])}, {}, {STREAM: 1})
    ledger = Ledger.of([(1, 0), (2, 55)])
    more = {STREAM: Ranges.of([(10, 20)])}
    state = state.with_more(more, {}, {STREAM: 2}, stands={STREAM: state.under[STREAM]})
    assert state.cut_off(STREAM, ledger) == Ranges.of([(55, 60)])
