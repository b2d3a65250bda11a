"""Somebody uploads bad fragments without end: what is good is committed, a part at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pytest

from coldstream.names import DataKey, data_prefix, parse_data_key
from coldstream.plans import resolve
from coldstream.plans.claim import NO_HISTORY
from coldstream.plans.resolve import Listed, VerifiedHole, resolve_run
from coldstream.remote.roots import load
from coldstream.usecases.ahead import ahead
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.continuing import Listing
from coldstream.usecases.extend import extend
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import build_fragment
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece

FAR = 10**9


def bait(first: int, next_offset: int, *, uid: int = 0) -> DataKey:
    return DataKey(STREAM, first, next_offset, 1, uid or FAR + first)


def besieged(good: int, ends: Callable[[int], int], *, every: int = 1) -> Remote:
    """One record a fragment, and beside each a bad one that claims to reach much further."""
    remote = Remote().claimed()
    remote.upload(*chain(good, size=1))
    for first in range(0, good, every):
        remote.memory.put(bait(first, ends(first)).path(PREFIX), b"bad", write_id="w")
    return remote.forget()


def nearest_first(first: int) -> int:
    """Where a bad fragment says that it ends, so that the nearest one is met first."""
    return 2 * FAR - first


def furthest_first(first: int) -> int:
    """So that the furthest one is met first, and all others reach over what is good."""
    return FAR + first


@pytest.mark.parametrize("ends", [nearest_first, furthest_first])
def test_an_invocation_without_time_for_all_bad_fragments_commits_the_good_ones_before_them(
    ends: Callable[[int], int],
) -> None:
    remote = besieged(300, ends)

    report = commit_runs(remote.context, STREAM, pause=no_pause, time_left=lambda: False)

    assert report.commits == 1
    assert report.more
    assert 0 < report.next_offset <= 300
    assert len(report.refused) < 1000


@pytest.mark.parametrize("ends", [nearest_first, furthest_first])
def test_invocation_after_invocation_all_good_fragments_come_in(ends: Callable[[int], int]) -> None:
    remote = besieged(300, ends)

    reached = [0]
    while reached[-1] < 300:
        report = commit_runs(remote.new_context(), STREAM, pause=no_pause, time_left=lambda: False)
        assert report.next_offset > reached[-1], "every invocation must keep something"
        reached.append(report.next_offset)

    assert not report.more
    assert len(reached) < 10
    assert [first for first, *_ in remote.ranges()] == list(range(300))
    assert remote.store.calls["get_suffix"] < 2000, "little is looked at twice"


def test_bad_fragments_that_reach_over_all_good_ones_are_looked_at_together() -> None:
    remote = besieged(300, furthest_first)
    pools = 0

    def pool(count: int) -> Executor:
        nonlocal pools
        pools += 1
        return ThreadPoolExecutor(count)

    commit_runs(replace(remote.context, pool=pool), STREAM, pause=no_pause)

    assert remote.ranges()[-1][1] == 300
    assert remote.store.calls["get_suffix"] < 800
    assert pools < 20, "64 in their turn, each alone; then all others in a few rounds"


def test_so_many_bad_uploads_of_one_range_do_not_hold_up_what_lies_before_it() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(5))
    for uid in range(1, 500):
        path = DataKey(STREAM, 50, 60, 1, uid).path(PREFIX)
        remote.memory.put(path, b"bad", write_id=path)

    report = commit_runs(remote.context, STREAM, pause=no_pause, time_left=lambda: False)

    assert (report.commits, report.next_offset, report.more) == (1, 50, True)
    last = commit_runs(remote.context, STREAM, pause=no_pause)
    assert (last.commits, last.more, len(last.refused)) == (0, False, 499)


def test_without_time_and_with_nothing_settled_nothing_is_committed_and_more_is_said() -> None:
    remote = Remote().claimed()
    # A good fragment over each join: no beginning of the run is sure before all bad ones are known.
    remote.upload(*chain(90, size=2), piece(1, 3), piece(0, 1), *chain(90, size=2, start=3))
    for first in range(2, 182):
        path = bait(first, 3 * FAR - first).path(PREFIX)
        remote.memory.put(path, b"bad", write_id=path)
    before = remote.items.items[STREAM]

    report = commit_runs(remote.context, STREAM, pause=no_pause, time_left=lambda: False)

    assert (report.commits, report.more) == (0, True)
    assert remote.items.items[STREAM] == before
    patient = commit_runs(remote.context, STREAM, pause=no_pause)
    assert (patient.next_offset, patient.more) == (183, False)


def test_a_claim_still_takes_all_that_is_good_before_it_sets_its_floor() -> None:
    remote = besieged(200, nearest_first)

    claimed = claim(remote.new_context(), STREAM, 2, log=NO_HISTORY, pause=no_pause)

    assert claimed.loaded.item.ledger.floor(2) == 200
    assert remote.root().next_offset == 200


def test_a_dry_run_foresees_what_is_committed_in_parts() -> None:
    remote = besieged(200, nearest_first)

    seen = ahead(remote.new_context(), STREAM)
    report = commit_runs(remote.new_context(), STREAM, pause=no_pause)

    assert (
        (seen.next_offset, seen.fragments) == (report.next_offset, report.fragments) == (200, 200)
    )


def _data(remote: Remote) -> list[str]:
    return [path for path in remote.tampered() if path.startswith(data_prefix(PREFIX, STREAM))]


def test_the_parts_are_the_run_that_a_committer_who_knows_all_bad_ones_takes() -> None:
    remote = besieged(150, nearest_first, every=2)
    detours = [piece(n, n + 3, uid=n + 1) for n in range(0, 150, 7)]
    remote.upload(*detours)
    root = load(remote.new_context(), STREAM).root
    whole = extend(remote.new_context(), STREAM, root, limit=5000)
    assert whole.more, "or there is nothing to compare"

    commit_runs(remote.context, STREAM, pause=no_pause)

    bad = {path for path, data in remote.tampered().items() if data == b"bad"}
    listed = [Listed(parse_data_key(path, PREFIX), path, 1) for path in _data(remote)]
    known = resolve_run(0, root.ledger, listed, without=bad)
    keys = [each.data_key for each in known]
    assert remote.ranges() == [(k.first_offset, k.next_offset, k.uid) for k in keys]


def test_thousands_of_candidates_are_not_sorted_again_for_every_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = Remote().claimed()
    good = build_fragment(0, 1, stream=STREAM, uid=1)
    remote.upload(good, *chain(100, size=1))
    for first in range(100, 12_000):  # never looked into within one commit
        remote.memory.put(bait(first, first + 1).path(PREFIX), b"bad", write_id="w")
    for first in range(60):
        remote.memory.put(bait(first, 2 * FAR - first, uid=7).path(PREFIX), b"bad", write_id="w")
    ranked = 0

    def counted(listed: Listed) -> tuple[int, int, int]:
        nonlocal ranked
        ranked += 1
        return rank(listed)

    rank = resolve._rank
    monkeypatch.setattr(resolve, "_rank", counted)

    report = extend(remote.new_context(), STREAM, load(remote.new_context(), STREAM).root, limit=90)

    assert (len(report.run), len(report.refused)) == (90, 60)
    assert ranked < 12 * 12_000, "once a page, or it would be 60 times more"


def test_what_a_page_that_was_not_listed_may_go_over_is_not_settled() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(30, size=10))
    # Sorts right behind the last fragment of the first page, begins with it and reaches further.
    remote.memory.put(bait(20, 40).path(PREFIX), b"bad", write_id="w")
    root = load(remote.context, STREAM).root
    listing = Listing(replace(remote.new_context(), page_size=3), STREAM, root, 2)

    run = listing.resolved().run

    assert [each.data_key.next_offset for each in run] == [10, 20, 30]
    assert listing.settled([VerifiedHole(each, 0) for each in run]) == 2
