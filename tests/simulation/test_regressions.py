"""Histories that the simulator found, made small: they hold now, and break without their rule.

Choices mean something only to the simulator that drew them. When it changes so that one of these
does not break any more without its rule, look for another seed of the same bug:

    python -m coldstream.testing.simulation.run --mutant NAME --seeds 5000

prints failing seeds shrunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from coldstream.testing.simulation.choices import Choices
from coldstream.testing.simulation.mutants import without
from coldstream.testing.simulation.run import play


@dataclass(frozen=True)
class Regression:
    """A history that broke.

    Attributes:
        mutant: the rule that came out of it, or that it needs.
        choices: of the simulator.
        words: in what it says without the rule.
    """

    mutant: str
    choices: tuple[int, ...]
    words: str


def z(count: int) -> tuple[int, ...]:
    """Plain choices."""
    return (0,) * count


REGRESSIONS = {
    "a node loses power in the middle of its agent's claim, and its log differs from nothing": (
        Regression(
            "claim-proof",
            (
                *(0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 2, *z(28), 71, 2, 3, 2, 0, 3, *z(7), 2, 0, 8),
                *(76, 0, 1, 4),
            ),
            "keeps chunk",
        )
    ),
    "local retention has taken what would show where two histories part": Regression(
        "alone",
        (0, 0, 0, 2, *z(4), 2, 0, 1, *z(24), 10, 69, 3, 2, 0, 1, 2, 0, 0, 2, 1, *z(4), 1),
        "keeps chunk",
    ),
    "the same with a log that begins at the very end of the manifest": Regression(
        "alone",
        (0, 1, 0, 2, 0, 0, 0, 1, 1, 1, *z(25), 9, 70, 3, 5, 0, 1, 2, 0, 2, 2),
        "keeps chunk",
    ),
    "the only member that has a lost range does not answer, and a majority does": Regression(
        "all-members",
        (
            *(0, 0, 0, 2, *z(4), 2, 2, 0, 0, 2, 0, 2, *z(16), 1, 0, 3, *z(5), 9, *z(14), 8),
            *(71, 0, 0, 0, 3, *z(14), 1, 0, 0, 65, 0, 1, 70, 0, 4, 1, 1, 2, 0, 0, 0, 2, 1),
            *(*z(8), 2, 9, 69, *z(6), 2, 2, *z(9), 2, 0, 0, 8, 78, 1),
        ),
        "the manifest stands at 54",
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_history_that_broke_once_holds_now(name: str) -> None:
    assert play(Choices(0, REGRESSIONS[name].choices))[1] is None


@pytest.mark.parametrize("name", REGRESSIONS)
def test_without_its_rule_it_breaks_again(name: str) -> None:
    with without(REGRESSIONS[name].mutant):
        failure = play(Choices(0, REGRESSIONS[name].choices))[1]

    assert failure is not None
    assert REGRESSIONS[name].words in failure.message
