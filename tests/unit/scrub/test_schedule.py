"""A budget a run, the longest unchecked first, and a state that stays small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore, MemoryPolicies
from coldstream.adapters.place import Place, Remote
from coldstream.errors import CorruptDataError
from coldstream.jobs.report import JobReport
from coldstream.jobs.scrub.job import Target, run_job, state_store
from coldstream.jobs.scrub.run import ScrubSettings
from coldstream.jobs.scrub.schedule import chosen, fragments_of, packed, units_of
from coldstream.jobs.scrub.state import ScrubState, load_state, parse_state, save_state
from coldstream.jobs.scrub.tree import TreeTop, read_tree
from coldstream.jobs.snapshots import TableSnapshot
from coldstream.manifest.catalog import CatalogItem, StreamState
from tests.support.scrub_site import NOW_MS, STREAM, a_tier, root_of, scrub_all

DAY = 86_400_000


def tree_of(tier: object) -> TreeTop:
    found, findings = read_tree(tier.store, tier.catalog.items[STREAM])  # type: ignore[attr-defined]
    assert findings == []
    return found


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
def test_a_run_reads_no_more_than_its_budget_and_the_next_goes_on_there(tree: bool) -> None:
    tier = a_tier(tree=tree, fragments=40)
    total = root_of(tier).total_size
    state, seen, runs = ScrubState(), 0, 0
    while seen < total:
        outcome = scrub_all(
            tier,
            state=state,
            max_bytes=total // 5,
            now_ms=NOW_MS + runs * DAY,
            every_ms=30 * DAY,
        )
        assert 0 < outcome.bytes <= total // 5
        state, seen, runs = outcome.state, seen + outcome.bytes, runs + 1
        if seen < total:
            assert outcome.oldest_ms == 0
    assert seen == total
    assert runs in (5, 6)
    again = scrub_all(tier, state=state, max_bytes=total // 5, now_ms=NOW_MS + runs * DAY)
    # The first run's range is the oldest now.
    assert again.oldest_ms == NOW_MS
    assert state.streams[STREAM][0][2] == NOW_MS
    assert again.state.streams[STREAM][0][2] == NOW_MS + runs * DAY
    assert len(state.streams[STREAM]) <= runs


def test_a_fragment_larger_than_the_budget_is_read_all_the_same() -> None:
    tier = a_tier(tree=True)

    outcome = scrub_all(tier, max_bytes=1)

    assert outcome.fragments == 1


def test_what_was_scrubbed_lately_is_left_alone() -> None:
    tier = a_tier()
    state = scrub_all(tier).state

    outcome = scrub_all(tier, state=state, now_ms=NOW_MS + DAY, every_ms=7 * DAY)
    later = scrub_all(tier, state=state, now_ms=NOW_MS + 8 * DAY, every_ms=7 * DAY)

    assert (outcome.fragments, outcome.bytes) == (0, 0)
    assert later.fragments == 14


def test_every_fragment_is_in_exactly_one_task_however_small_the_tasks() -> None:
    tier = a_tier(tree=True, fragments=60)
    tree, leaves = tree_of(tier), tier.leaves(STREAM, root_of(tier))

    def children(_: TreeTop, entry: object) -> list[object]:
        return list(tier.fetch(STREAM)(entry).entries)  # type: ignore[arg-type]

    for size in (1, 500, 3000, 10**9):
        units = list(units_of(tree, ScrubState(), children))  # type: ignore[arg-type]
        found = []
        for task in packed(units, task_bytes=size):
            for unit in task:
                parts = (
                    fragments_of(unit, children(tree, unit.entry), 0)  # type: ignore[arg-type]
                    if unit.entry.kind.level
                    else [unit]
                )
                found += [part.entry for part in parts]
        assert found == leaves


def test_where_retention_ended_inside_a_group_only_what_is_alive_is_scrubbed() -> None:
    tier = a_tier(tree=True)
    root = root_of(tier)
    first = tier.leaves(STREAM, root)[2].first_offset
    from coldstream.manifest.tree import head_of

    head = head_of(root.entries, first, tier.fetch(STREAM))
    tier.commit(STREAM, replace(root, first_offset=first, head=head))

    outcome = scrub_all(tier)

    assert outcome.bad == []
    assert outcome.fragments == 12
    assert [each.kind for each in outcome.findings] == ["unreferenced"] * 2
    assert outcome.state.streams[STREAM] == ((first, root.next_offset, NOW_MS),)


def test_unscrubbed_streams_come_before_those_that_were_scrubbed() -> None:
    tier = a_tier()
    units = list(units_of(tree_of(tier), ScrubState(), lambda *_: ()))
    old = [replace(each, scrubbed_ms=5) for each in units[:3]]
    new = [replace(each, stream="z") for each in units[3:6]]

    taken = chosen([*old, *new], max_bytes=10**9, before_ms=100, parts=lambda _: ())

    assert [each.stream for each in taken] == ["z"] * 3 + [STREAM] * 3


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 9)).map(
        lambda each: (each[0], each[0] + each[1], each[2])
    ),
    max_size=8,
)


@given(spans, spans)
def test_for_every_offset_the_latest_time_counts(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    def times(*lists: list[tuple[int, int, int]]) -> list[int]:
        return [
            max((when for spans in lists for a, b, when in spans if a <= at < b), default=0)
            for at in range(80)
        ]

    def state(spans: list[tuple[int, int, int]]) -> ScrubState:
        made = ScrubState()
        for low, high, when in spans:
            made = made | ScrubState({"s": ((low, high, when),)})
        return made

    both = state(one) | state(other)
    assert [when for a, b, when in both.of("s", 0, 80) for _ in range(a, b)] == times(one, other)
    assert parse_state(both.encode()) == both


def test_two_runs_at_once_lose_nothing_of_each_other() -> None:
    store = MemoryObjectStore()
    one = ScrubState().scrubbed("a", [(0, 10)], 5, first=0)
    other = ScrubState().scrubbed("b", [(3, 7)], 6, first=0)
    save_state(store, "scrub/state/", one, now_ms=5, uid=1)
    save_state(store, "scrub/state/", other, now_ms=6, uid=2)

    assert load_state(store, "scrub/state/") == one | other


def test_a_damaged_state_counts_as_none() -> None:
    store = MemoryObjectStore()
    key = save_state(store, "scrub/state/", ScrubState({"a": ((0, 1, 1),)}), now_ms=5, uid=1)
    store.objects[key] = b"garbage"

    assert load_state(store, "scrub/state/") == ScrubState()
    with pytest.raises(CorruptDataError):
        parse_state(b"garbage")


def test_a_state_of_very_many_ranges_is_made_shorter_by_forgetting_times() -> None:
    many = ScrubState({"a": tuple((n, n + 1, n % 7 + 1) for n in range(5000))})

    merged = ScrubState() | many

    assert len(merged.streams["a"]) <= 1000
    exact = many.of("a", 0, 5000)
    for low, high, when in merged.streams["a"]:
        assert when <= min(each[2] for each in exact if each[0] < high and low < each[1])


def test_a_state_says_nothing_of_streams_that_are_gone(tmp_path: Path) -> None:
    """Or it would become too large one day, and be none: then all is scrubbed anew, for ever."""
    catalog = MemoryCatalog()
    catalog.items["__gone_1"] = CatalogItem("__gone_1", "memory", state=StreamState.DELETED)
    remote = Remote(MemoryObjectStore(), catalog, MemoryPolicies(), Place("b", "t"))
    target = Target(TableSnapshot(f"file://{tmp_path}/", NOW_MS))
    store, under = state_store(target.snapshot)
    known = ScrubState(dict.fromkeys(("__gone_1", "__who_knows_1"), ((0, 5, 7),)))
    save_state(store, under, known, now_ms=NOW_MS - 1, uid=1)
    report = JobReport("scrub")

    nobody = cast(Any, None)  # there is nothing to do for a worker
    assert run_job(nobody, remote, target, ScrubSettings(NOW_MS), None, report) is None

    left = parse_state(store.get_all(report.facts["state"], limit=10_000))
    assert left.streams.keys() == {"__who_knows_1"}
