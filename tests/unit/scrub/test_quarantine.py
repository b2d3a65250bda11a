"""What a claim has cut off is kept on purpose: no finding, unless it is damaged."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coldstream.jobs.scrub.run import run
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.work import ScrubTask, scrub
from coldstream.soundness.findings import Finding, FindingKind
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.quarantine import current_record, drop
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece
from tests.support.scrub_site import NOW_MS, settings_of
from tests.unit.usecases.test_truncate import diverging

OLD = chain(40, records_per_chunk=5)


def cut_off(keep: int = 215) -> Remote:
    """A tree in groups, the end of which a claim has cut off; one fragment was listed only."""
    remote = Remote().claimed(1)
    remote.upload(*OLD)
    commit_runs(remote.context, STREAM, pause=no_pause)
    rebalance(remote.context, STREAM, branching=4, pause=no_pause)
    truncate(remote, keep)
    return remote


def truncate(remote: Remote, keep: int = 215) -> None:
    context, log = remote.new_context(), diverging(keep, *OLD, end=keep + 20)
    claim(context, STREAM, 2, log=log, pause=no_pause, now_ms=5)
    remote.upload(piece(keep, keep + 20, epoch=2, floor=keep))
    commit_runs(context, STREAM, pause=no_pause)


def findings(remote: Remote, perform: Any = None, **changes: Any) -> list[Finding]:
    """Of a run so late that `collect` should have deleted all garbage long ago."""
    settings = settings_of(now_ms=2 * NOW_MS, **changes)

    def task(each: ScrubTask) -> Any:
        return scrub(remote.memory, PREFIX, each, settings.effort, settings.ages)

    items = [remote.items.items[STREAM]]
    return run(
        remote.memory, remote.items, PREFIX, items, ScrubState(), settings,
        perform or partial(map, task),
    ).findings  # fmt: skip


def test_fragments_groups_roots_and_the_record_of_a_lost_timeline_are_no_findings() -> None:
    remote = cut_off()
    (timeline,) = current_record(remote.new_context(), STREAM)[1].timelines
    lost = {each.path(PREFIX) for each in OLD if each.key.next_offset > 215}

    found = {each.key for each in findings(remote)}

    assert len(lost) == 19
    assert not found & {*lost, timeline.root_key, remote.root().quarantine_key}
    old = [each for each in findings(remote) if each.found != "old_root"]
    assert old == [], "nor the groups of the old tree"


def test_what_is_listed_only_is_no_finding() -> None:
    remote = Remote().claimed(1)
    remote.upload(*OLD[:30])
    commit_runs(remote.context, STREAM, pause=no_pause)
    remote.upload(*OLD[30:])
    truncate(remote)
    (timeline,) = current_record(remote.new_context(), STREAM)[1].timelines

    assert len(timeline.listed) == 10
    assert [each.found for each in findings(remote) if each.found != "old_root"] == []


def test_what_a_person_has_given_up_is_garbage_again() -> None:
    remote = cut_off()
    drop(remote.new_context(), STREAM, 2, pause=no_pause)

    found = [each.found for each in findings(remote)]

    assert found.count("dropped") == 19
    # The record before, and the copy that was written to know the time by S3.
    assert found.count("old_quarantine") == 2


@pytest.mark.parametrize("which", ["record", "root"])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_record_that_cannot_be_read_is_a_finding_and_nothing_is_called_garbage(
    which: str, how: str
) -> None:
    remote = cut_off()
    (timeline,) = current_record(remote.new_context(), STREAM)[1].timelines
    key = remote.root().quarantine_key if which == "record" else timeline.root_key
    if how == "gone":
        del remote.memory.objects[key]
    else:
        remote.memory.objects[key] = b"?"

    (found,) = findings(remote)

    expected = FindingKind.OBJECT_MISSING if how == "gone" else FindingKind.QUARANTINE
    assert (found.kind, found.key) == (expected, key)
    assert found.severity is not FindingKind.UNREFERENCED.severity


def test_a_claim_that_cuts_off_during_a_run_makes_no_findings() -> None:
    remote = Remote().claimed(1)
    remote.upload(*OLD)
    commit_runs(remote.context, STREAM, pause=no_pause)
    settings = settings_of()

    def perform(tasks: Any) -> Any:
        truncate(remote)
        return [scrub(remote.memory, PREFIX, t, settings.effort, settings.ages) for t in tasks]

    assert [each.found for each in findings(remote, perform) if each.found != "old_root"] == []
