"""Whether the exhaustive search sees everything, and finds what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.manifest.catalog import Commit, moved
from coldstream.manifest.root import Root
from coldstream.names import group_path
from coldstream.ports import CommitOutcome, Landed
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import Snapshot
from coldstream_devkit.simulation.explore import (
    FoundError,
    Scenario,
    explore,
    replay,
)
from tests.simulation.scenarios import (
    a_claim_among_commits,
    a_collection_among_others,
    a_rebalance_among_others,
)
from tests.support.stage import (
    PREFIX,
    STREAM,
)


@pytest.mark.parametrize(
    "scenario",
    [
        a_claim_among_commits(committers=1, late=[(30, 40)]),
        a_claim_among_commits(committers=1, lost_answers=1),
        a_rebalance_among_others(),
        a_collection_among_others(tasks="collect commit"),
    ],
    ids=["claim", "lost answer", "rebalance", "collect"],
)
def test_a_search_that_takes_quiet_calls_at_once_finds_the_same_ends_and_changes(
    scenario: Scenario,
) -> None:
    quiet = explore(scenario)
    loud = explore(scenario, everything_is_loud=True)

    assert quiet.ends == loud.ends
    assert quiet.changes == loud.changes
    assert quiet.outcomes == loud.outcomes
    assert quiet.states < loud.states


def test_a_search_that_continues_a_state_once_finds_what_all_orders_find() -> None:
    scenario = a_claim_among_commits(committers=1, late=[(30, 40)])

    pruned = explore(scenario)
    every_order = explore(scenario, prune=False)

    assert pruned.ends == every_order.ends
    assert pruned.changes == every_order.changes
    assert pruned.histories == every_order.histories == sum(every_order.outcomes.values())


def test_the_same_scenario_gives_the_same_figures() -> None:
    one, other = (explore(a_claim_among_commits(late=[(30, 40)])) for _ in range(2))

    assert one == other


def test_a_committer_that_deletes_what_it_put_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the known histories, with its rule removed."""

    def cleans_up(context: Context, loaded: Snapshot, root: Root, **more: Any) -> CommitOutcome:
        outcome = publish(context, loaded, root, **more)
        if not isinstance(outcome, Landed):
            paths = [
                group_path(PREFIX, STREAM, node.entry().first_offset, node.uid, node.kind)
                for node in more.get("nodes", ())
            ]
            if paths:
                context.store.delete(paths)  # type: ignore[attr-defined]
        return outcome

    monkeypatch.setattr("coldstream.usecases.amend.publish", cleans_up)
    scenario = a_rebalance_among_others(lost_answers=1)

    with pytest.raises(FoundError) as found:
        explore(scenario)

    assert "the answer is lost" in str(found.value)
    with pytest.raises(FoundError):
        replay(scenario, found.value.choices)


def test_a_commit_without_its_condition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits_blindly(self: MemoryCatalog, commit: Commit) -> CommitOutcome:
        item = self.items[commit.stream]
        self.items[commit.stream] = moved(item, commit)
        return Landed(self.items[commit.stream])

    monkeypatch.setattr(MemoryCatalog, "commit", commits_blindly)

    with pytest.raises(FoundError):
        explore(a_claim_among_commits(late=[(30, 40)]))
