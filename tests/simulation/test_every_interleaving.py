"""All orders of calls of commits, claims, rebalance, retention, collection: each ends well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from coldstream_devkit.simulation.explore import (
    explore,
)
from tests.simulation.scenarios import (
    DIVERGED,
    a_claim_among_commits,
    a_collection_among_others,
    a_rebalance_among_others,
)
from tests.support.slow import long, slow

#: What has so many orders that `make test-slow` goes through them.
SLOW = ("an answer is lost, and an upload comes late",)
#: What has so many that it takes minutes by itself: `make test-slow ALL=1`.
LONG = (
    "and one that joins elsewhere",
    "two committers",
    "two committers, and an answer is lost",
)


def _long_ones_last(cases: Collection[str]) -> list[Any]:
    return [
        *(each for each in cases if each not in SLOW + LONG),
        *slow(each for each in cases if each in SLOW),
        *long(each for each in cases if each in LONG),
    ]


#: A writer's claim, while commits run and uploads of the old writer come in.
CLAIMS: dict[str, dict[str, Any]] = {
    "two committers and a claim": {},
    "an upload of the old writer comes late": {"late": [(30, 40)]},
    "and one that joins elsewhere": {"late": [(30, 40), (20, 40)]},
    "ranges were uploaded twice with other cuts": {
        "late": [(30, 40)],
        "again": [(10, 20), (10, 30), (20, 25), (25, 30)],
    },
    "an answer is lost": {"lost_answers": 1},
    "an answer is lost, and an upload comes late": {"late": [(30, 40)], "lost_answers": 1},
    "two answers are lost": {"committers": 1, "late": [(30, 40)], "lost_answers": 2},
    "two writers claim": {"committers": 1, "epochs": (2, 3), "late": [(30, 40)]},
}


@pytest.mark.parametrize("name", _long_ones_last(CLAIMS))
def test_a_claim_among_commits_ends_well_in_every_order(name: str) -> None:
    explored = explore(a_claim_among_commits(**CLAIMS[name]))

    print(explored)
    both = {"next 30 floor 30", "next 40 floor 40"}
    assert set(explored.outcomes) == (both if "late" in CLAIMS[name] else {"next 30 floor 30"})


@pytest.mark.parametrize("lost_answers", [0, 1])
def test_a_claim_that_cuts_another_history_off_ends_well_in_every_order(lost_answers: int) -> None:
    """Whether the old writer's last upload came before the claim or after it."""
    explored = explore(
        a_claim_among_commits(
            committers=2 - lost_answers,
            late=[(30, 40)],
            log=DIVERGED,
            lost_answers=lost_answers,
        )
    )

    print(explored)
    assert set(explored.outcomes) == {"next 30 floor 30"}


REBALANCES: dict[str, dict[str, Any]] = {
    "nobody else": {},
    "retention ends in a group": {"fragments_kept": 6},
    "two committers": {"committers": 2},
    "an answer is lost": {"fragments_kept": 6, "lost_answers": 1},
    "two committers, and an answer is lost": {"committers": 2, "lost_answers": 1},
}


@pytest.mark.parametrize("name", _long_ones_last(REBALANCES))
def test_rebalance_commit_and_retain_end_well_in_every_order(name: str) -> None:
    explored = explore(a_rebalance_among_others(**REBALANCES[name]))

    print(explored)
    assert len(explored.outcomes) > 1


COLLECTIONS: dict[str, dict[str, Any]] = {
    "collect, consolidate, commit": {},
    "collect, retain, commit": {"tasks": "collect retain commit"},
    "an answer is lost": {"tasks": "collect consolidate", "lost_answers": 1},
}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_collection_deletes_nothing_that_others_need_in_any_order(name: str) -> None:
    explored = explore(a_collection_among_others(**COLLECTIONS[name]))

    print(explored)
    assert len(explored.ends) > 1
