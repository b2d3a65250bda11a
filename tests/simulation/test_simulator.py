"""The simulator itself: it repeats, it finds, it shrinks, and trouble really happens in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from copy import copy as made_anew
from dataclasses import replace
from typing import Any

import pytest

from coldstream.manifest.invariants import Invariant, Violation
from coldstream.usecases.undo import plan_undo
from coldstream_devkit.simulation import theft
from coldstream_devkit.simulation.choices import Choices
from coldstream_devkit.simulation.cluster import Cluster
from coldstream_devkit.simulation.coverage import ENOUGH_SEEDS, REQUIRED, covered, missed
from coldstream_devkit.simulation.history import prehistory
from coldstream_devkit.simulation.mutants import MUTANTS, without
from coldstream_devkit.simulation.oracle import BrokenError
from coldstream_devkit.simulation.run import caught, play, play_seeds, shrunk
from coldstream_devkit.simulation.shrink import shrink


def trace_of(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "coldstream_devkit.simulation.run", "--trace", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", [5, 12])
def test_the_same_seed_gives_the_same_run_byte_for_byte_in_another_process(seed: int) -> None:
    one, other = trace_of(seed, "1"), trace_of(seed, "2")

    assert one == other
    assert one.splitlines()[-1].startswith(f"seed {seed} steps ")
    assert len(one.splitlines()) > 10


def test_other_seeds_give_other_runs() -> None:
    traces = set()
    for seed in range(5):
        lines: list[str] = []
        play(Choices(seed), lines=lines)
        traces.add("\n".join(lines))

    assert len(traces) == 5


def test_an_undo_that_puts_nothing_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle of a theft: what was durable before can be read after."""

    def forgetful(*given: Any, **named: Any) -> Any:
        return replace(plan_undo(*given, **named), sources=())

    monkeypatch.setattr(theft, "plan_undo", forgetful)

    kinds = {each.kind for each in play_seeds(range(1, 60)).failures}

    assert kinds == {"durability"}


@pytest.mark.slow  # of the tool, not of the product
def test_a_seed_that_has_caught_a_mutant_once_is_played_first_and_not_believed() -> None:
    seeds, failure = caught("commit-gate", 0, 500, processes=1)
    assert failure is not None

    for known in (failure.seed, failure.seed - 1):
        again, same = caught("commit-gate", 0, 500, processes=1, known=known)
        assert (again, same) == (seeds, failure)


@pytest.fixture(scope="module")
def events() -> Counter[str]:
    tally = play_seeds(range(7400, 7800))
    assert not tally.failures
    return tally.events


#: Too seldom for some hundred histories; a run of thousands fails without them.
_SELDOM = {
    "consolidations that lost a conflict",
    "dead letters",
    "deletions called off",
    "files rewritten after an answer",
    "files rewritten before an upload",
    "quarantined timelines given up",
    "repairs that lost a conflict",
    "requests to claim that were done late",
    "requests to claim that were done twice",
    "requests to claim that were done without an answer",
    "requests to claim that were lost",
    "streams begun anew",
    "sweeps",
}


@pytest.mark.parametrize("name", sorted(REQUIRED.keys() - _SELDOM))
def test_trouble_of_every_kind_happens(events: Counter[str], name: str) -> None:
    assert covered(events)[name] > 0, events


def test_a_run_of_many_histories_fails_if_it_has_not_met_all_that_it_must() -> None:
    met = Counter(some[0] for some in REQUIRED.values())

    assert missed(met, ENOUGH_SEEDS) == []
    del met["hole"]
    assert missed(met, ENOUGH_SEEDS) == ["holes"]
    assert missed(Counter(), ENOUGH_SEEDS - 1) == []


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_every_guard_is_still_where_it_can_be_taken_out(name: str) -> None:
    """Of one that other tests catch nobody would hear that the product reads otherwise by now."""
    with without(name):
        pass


def test_a_replayed_run_makes_the_same_choices_and_zeros_after_them() -> None:
    first = Choices(7)
    play(first)
    again = Choices(0, first.taken)
    _, failure = play(again)

    assert failure is None
    assert again.taken == first.taken
    assert [Choices(0, [5, 1]).below(3), Choices(0, []).below(9)] == [2, 0]


def test_shrinking_keeps_the_kind_of_failure_and_drops_what_it_does_not_need() -> None:
    def fails(choices: object) -> str | None:
        assert isinstance(choices, list)
        return "kind" if 7 in choices and choices.count(3) >= 2 else None

    small = shrink([1, 3, 0, 9, 7, 4, 3, 3, 8, 0, 0], "kind", fails)

    assert sorted(small) == [3, 3, 7]


@pytest.mark.slow  # of the tool, not of the product
def test_a_failure_is_found_shrunk_and_still_the_same_failure() -> None:
    mutant = "ledger-ceiling"
    with without(mutant):
        # One that breaks before anybody has chosen much has nothing to shrink.
        seed, failed, choices = next(
            (seed, failure, choices)
            for seed in range(900, 900 + (MUTANTS[mutant].seeds or 0))
            if (failure := play(choices := Choices(seed))[1]) is not None
            and len(choices.taken) > 100
        )
    small, lines = shrunk(seed, mutant)

    assert sum(map(bool, small)) < sum(map(bool, choices.taken)) / 2  # zeros say nothing
    assert lines
    with without(mutant):
        found = play(Choices(0, small))[1]
    assert found is not None
    assert found.kind == failed.kind
    assert play(Choices(0, small))[1] is None


# --- the brokers ---


def cluster() -> Cluster:
    made = Cluster(["a", "b", "c"], segment_chunks=2)
    made.elect(made.reachable)
    return made


def copy(made: Cluster) -> None:
    for _ in range(9):
        for replica in made.replicas:
            made.replicate(replica, chunks=1)


def test_a_chunk_is_committed_when_a_majority_has_it_and_replicas_hear_of_it_later() -> None:
    made = cluster()
    a, b, c = made.replicas
    chunk = made.write(a, 0, records=2)
    assert not made.committed

    made.replicate(b, chunks=1)
    made.replicate(b, chunks=1)

    assert made.committed == {chunk.identity}
    assert (a.committed, b.committed, c.committed) == (2, 0, 0)
    made.replicate(b, chunks=1)
    assert b.committed == 2


def test_an_uncommitted_tail_is_cut_in_place_and_its_ids_are_written_again() -> None:
    made = cluster()
    a, b, c = made.replicas
    for _ in range(3):
        made.write(a, 0, records=1)
    copy(made)
    lost = made.write(a, 0, records=1)
    names = [segment.first for segment in a.segments]
    made.elect([b, c])
    new = made.write(b, 5, records=1)

    copy(made)

    assert (lost.chunk_id, new.chunk_id) == (3, 3)
    assert [segment.first for segment in a.segments] == names
    assert a.last_chunk == new.identity
    assert lost.identity not in made.committed


def test_what_a_majority_forgets_is_gone_although_it_was_committed() -> None:
    made = cluster()
    made.write(made.replicas[0], 0, records=1)
    copy(made)
    forgotten = made.write(made.replicas[0], 0, records=1)
    copy(made)
    assert forgotten.identity in made.committed

    for replica in made.replicas:
        made.stop(replica, keep=1)
        made.start(replica, 0)
    made.elect(made.reachable)

    assert all(replica.tail == 1 for replica in made.replicas)


def test_a_chunk_that_a_majority_had_can_be_overwritten_by_a_log_of_a_higher_epoch() -> None:
    """As Osiris counts: a writer commits chunks of earlier epochs (Raft's figure 8)."""
    made = cluster()
    a, b, c = made.replicas
    old = made.write(a, 0, records=1)  # epoch 1, only on a
    made.elect([b, c])
    best = made.writer
    assert best is b
    other = made.write(b, 0, records=1)  # epoch 2, only on b
    made.stop(b, keep=None)
    assert made.elect([a, c]) is a
    copy(made)
    assert old.identity in made.committed

    made.start(b, 0)
    made.stop(a, keep=None)
    assert made.elect([b, c]) is b
    copy(made)

    assert c.last_chunk == other.identity
    assert other.identity in made.committed


def test_a_past_that_breaks_something_is_a_failure_of_the_seed_like_any_other() -> None:
    with without("groups-first"):
        prehistory.cache_clear()
        failures = [play(Choices(seed))[1] for seed in range(40)]
        prehistory.cache_clear()

    assert any(each is not None and each.kind == "publish_before_delete" for each in failures)


def test_what_an_oracle_says_can_be_told_to_another_process() -> None:
    error = BrokenError([Violation(Invariant.COVERAGE, "a gap", 5, key="a/b")])

    assert str(made_anew(error)) == "coverage: a gap at 5 (b)"  # as by a pool of processes
