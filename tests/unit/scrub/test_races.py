"""What others do while a scrub runs is no finding."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.jobs.scrub.run import ScrubOutcome, run
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.work import ScrubTask, scrub
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import Entries
from coldstream.soundness.findings import FindingKind
from tests.support.scrub_site import STREAM, a_tier, leaf, path_of, root_of, scrub_all, settings_of
from tests.support.tier import PREFIX, Tier


def with_change(tier: Tier, change: Any) -> ScrubOutcome:
    """A run during which something happens between the driver's plan and the first task."""
    settings = settings_of()
    task = partial(scrub, tier.store, PREFIX, effort=settings.effort, ages=settings.ages)

    def perform(tasks: Any) -> Any:
        change()
        return [task(each) for each in tasks]

    items = [tier.catalog.items[STREAM]]
    return run(tier.store, tier.catalog, PREFIX, items, ScrubState(), settings, perform)


def test_what_retention_takes_meanwhile_is_not_missing() -> None:
    tier = a_tier()

    def retire() -> None:
        root = root_of(tier)
        gone = root.entries[0]
        tier.commit(
            STREAM, replace(root, first_offset=gone.next_offset, entries=root.entries.part(1))
        )
        del tier.store.objects[path_of(gone)]

    assert with_change(tier, retire).findings == []


@pytest.mark.parametrize("number", [0, 3, 13], ids=["the oldest", "between", "the newest"])
def test_what_is_gone_and_still_referred_to_is_missing_whatever_was_committed_meanwhile(
    number: int,
) -> None:
    tier = a_tier()
    entry = leaf(tier, number)

    def lose() -> None:
        root = root_of(tier)
        tier.commit(STREAM, root)
        del tier.store.objects[path_of(entry)]

    outcome = with_change(tier, lose)
    assert [(each.kind, each.key) for each in outcome.findings] == [
        (FindingKind.OBJECT_MISSING, path_of(entry))
    ]


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.DELETED])
def test_what_goes_with_a_stream_that_is_deleted_meanwhile_is_not_missing(
    state: StreamState,
) -> None:
    tier = a_tier(tree=True)

    def delete() -> None:
        tier.catalog.items[STREAM] = replace(tier.catalog.items[STREAM], state=state)
        tier.store.objects.clear()

    outcome = with_change(tier, delete)
    assert outcome.findings == []
    # A deletion may be called off.
    assert {when for *_, when in outcome.state.of(STREAM, 0, 2**63)} == {0}


def test_a_replacement_that_lands_meanwhile_is_no_garbage() -> None:
    tier = a_tier()
    old = leaf(tier, 3)
    new = replace(old, uid=old.uid + 2**40)

    def replaced() -> None:
        tier.store.put(path_of(new), tier.store.objects[path_of(old)], write_id="new")
        entries = [new if each == old else each for each in root_of(tier).entries]
        tier.commit(STREAM, replace(root_of(tier), entries=Entries.of(entries)))

    assert with_change(tier, replaced).findings == []


def test_a_store_that_does_not_answer_is_an_error_and_no_finding() -> None:
    tier = a_tier()

    class Deaf:
        def __getattr__(self, name: str) -> Any:
            return getattr(tier.store, name)

        def get(self, *_: Any) -> bytes:
            raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        scrub_all(tier, store=Deaf())


def test_a_task_says_which_ranges_it_has_checked() -> None:
    tier = a_tier(tree=True)
    seen: list[ScrubTask] = []
    settings = settings_of(task_bytes=2000)
    task = partial(scrub, tier.store, PREFIX, effort=settings.effort, ages=settings.ages)

    def perform(tasks: Any) -> Any:
        seen.extend(tasks)
        return [task(each) for each in tasks]

    items = [tier.catalog.items[STREAM]]
    outcome = run(tier.store, tier.catalog, PREFIX, items, ScrubState(), settings, perform)

    assert len(seen) > 5
    assert outcome.fragments == 14
    assert outcome.findings == []
