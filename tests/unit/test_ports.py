"""What a failed condition means, from the item that the table gives back (histories 1 and 3)."""

from __future__ import annotations

from dataclasses import replace

from coldstream.manifest.catalog import CatalogItem, StreamState, changed
from coldstream.ports import (
    Landed,
    NotLanded,
    Unknown,
    outcome_of_failed_change,
    outcome_of_failed_condition,
)
from coldstream_devkit.suites.catalog_fixtures import next_commit
from coldstream_devkit.suites.state import change_of

ITEM = CatalogItem("__s_1", "table", uid=10, version=5)
COMMIT = next_commit(ITEM, uid=11)


def test_history_1_our_own_uid_in_the_item_means_that_it_landed() -> None:
    ours = replace(ITEM, uid=11, version=6)

    assert outcome_of_failed_condition(ours, COMMIT) == Landed(ours)


def test_the_version_that_was_read_means_that_it_did_not_land() -> None:
    for item in (ITEM, replace(ITEM, state="deleting"), replace(ITEM, uid=99)):
        assert outcome_of_failed_condition(item, COMMIT) == NotLanded(item)


def test_history_1_any_other_version_is_unknown_because_ours_may_have_been_built_upon() -> None:
    for version in (6, 7, 100):
        item = replace(ITEM, uid=99, version=version)
        assert outcome_of_failed_condition(item, COMMIT) == Unknown(item)


def test_history_3_a_version_that_fell_is_unknown_too() -> None:
    item = replace(ITEM, uid=99, version=4)

    assert outcome_of_failed_condition(item, COMMIT) == Unknown(item)


def test_no_item_at_all_means_that_it_did_not_land() -> None:
    assert outcome_of_failed_condition(None, COMMIT) == NotLanded(None)


CHANGE = change_of(ITEM, uid=7)


def test_a_change_of_state_is_told_by_its_own_uid_and_by_the_revision_that_was_read() -> None:
    ours = changed(ITEM, CHANGE)
    later = replace(ours, revision=2, state_token=8)
    untouched = replace(ITEM, state=StreamState.REBUILDING)

    assert outcome_of_failed_change(ours, CHANGE) == Landed(ours)
    assert outcome_of_failed_change(later, CHANGE) == Unknown(later)
    assert outcome_of_failed_change(untouched, CHANGE) == NotLanded(untouched)
    assert outcome_of_failed_change(None, CHANGE) == NotLanded(None)
