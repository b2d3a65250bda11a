"""A committer that commits after every refusal ends with the manifest of the most patient one.

`extend` gives the beginning of a run that no later refusal can change (`Candidates.settled`). Were
it ever another run than the one that is found when all bad fragments are known, two committers
could take two ways through the same objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.manifest.ledger import Ledger
from coldstream.names import DataKey
from coldstream.plans.resolve import Candidates, Listed, resolve_run
from coldstream.usecases import extend as module
from coldstream.usecases.commit_runs import commit_runs
from tests.support.examples import examples
from tests.support.remote import PREFIX, STREAM, Remote, no_pause, piece


@dataclass(frozen=True)
class Upload:
    first: int
    length: int
    uid: int
    kind: str  # "good", "bad" or "hole"


uploads = st.lists(
    st.builds(
        Upload,
        st.integers(0, 12),
        st.integers(1, 5),
        st.integers(1, 3),
        st.sampled_from(["good", "good", "bad", "bad", "hole", "full hole"]),
    ),
    max_size=24,
    unique_by=lambda each: (each.first, each.length, each.uid, "hole" in each.kind),
)


def filled(given: list[Upload], page_size: int) -> Remote:
    remote = Remote().claimed()
    remote.context = remote.context.__class__(
        remote.context.store,
        remote.context.catalog,
        PREFIX,
        remote.context.new_uid,
        page_size=page_size,
    )
    for each in given:
        next_offset = each.first + each.length
        if "hole" in each.kind:
            key = DataKey(STREAM, each.first, next_offset, 1, each.uid, "hole").path(PREFIX)
            remote.memory.put(key, b"x" if each.kind == "full hole" else b"", write_id=key)
            continue
        fragment = piece(each.first, next_offset, uid=each.uid)
        data = b"bad" if each.kind == "bad" else fragment.data
        remote.memory.put(fragment.path(PREFIX), data, write_id=fragment.path(PREFIX))
    return remote


@examples(4)
@given(uploads, st.integers(1, 30))
def test_haste_and_patience_end_with_the_same_manifest(given: list[Upload], page_size: int) -> None:
    found = []
    for refusals in (10**9, 1, 2, 5):
        remote = filled(given, page_size)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_REFUSALS", refusals)
            report = commit_runs(remote.context, STREAM, pause=no_pause)
        found.append((remote.ranges(), report.holes, report.waiting, report.more))

    assert found == found[:1] * 4


keys = st.builds(
    lambda first, length, uid, hole: DataKey(
        STREAM, first, first + length, 1, uid, "hole" if hole else "fragment"
    ),
    st.integers(0, 10),
    st.integers(1, 5),
    st.integers(0, 2),
    st.integers(0, 3).map(lambda number: number == 0),
)


@examples(6)
@given(st.data(), st.lists(keys, max_size=16, unique=True))
def test_what_is_settled_begins_every_run_whatever_is_refused_after_it(
    data: st.DataObject, found: list[DataKey]
) -> None:
    ledger = Ledger.of([(1, 0)])
    listed = [Listed(key, key.path(PREFIX), 100) for key in found]
    candidates = Candidates(0, ledger)
    candidates.add(listed)
    run = candidates.resolved().run
    verified = run[: data.draw(st.integers(0, len(run)))]

    count = candidates.settled(verified, seen_to=100)

    settled = verified[:count]
    end = settled[-1].data_key.next_offset if settled else 0
    later = [each for each in listed if each.data_key.first_offset >= end]
    refused = set(
        data.draw(st.lists(st.sampled_from(later), unique=True) if later else st.just([]))
    )
    without = {each.path for each in refused} - {each.path for each in verified}
    assert resolve_run(0, ledger, listed, without=without)[:count] == settled


@examples(3)
@given(st.data(), st.lists(keys, max_size=16, unique=True))
def test_candidates_that_are_dropped_one_by_one_are_as_if_they_had_never_come(
    data: st.DataObject, found: list[DataKey]
) -> None:
    ledger = Ledger.of([(1, 0)])
    listed = [Listed(key, key.path(PREFIX), 100) for key in found]
    candidates = Candidates(2, ledger)
    at = data.draw(st.integers(0, len(listed)))
    candidates.add(listed[:at])
    candidates.add(listed[at:])
    there = [each for each in listed if each.data_key.first_offset >= 2]
    dropped = data.draw(st.lists(st.sampled_from(there), unique=True) if there else st.just([]))
    for each in dropped:
        candidates.drop(each)

    left = resolve_run(2, ledger, listed, without={each.path for each in dropped})

    assert candidates.resolved().run == left
