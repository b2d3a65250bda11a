"""What every `Catalog` must do about states and pages, beside `catalog_suite`.

`LostChangeAnswerSuite` is for backends that talk over a network; its fixtures that lose requests
and answers are those of `LostCommitAnswerSuite`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import CatalogItem, StateChange, StreamState, changed, moved
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import Catalog, Landed, NotLanded, Policies, Unknown
from coldstream_devkit.suites.catalog_fixtures import CatalogFixtures, appending_commit

UNTIL = 1_790_000_000_123


def change_of(
    item: CatalogItem, *, uid: int, state: StreamState = StreamState.DELETING, **changes: Any
) -> StateChange:
    """A change that holds on `item`, with `changes` to it."""
    change = StateChange(
        stream=item.stream,
        table_id=item.table_id,
        read_revision=item.revision,
        read_state=item.state,
        state=state,
        uid=uid,
        undelete_until=UNTIL if state is StreamState.DELETING else 0,
    )
    return replace(change, **changes)


class StateSuite(CatalogFixtures):
    """The rules of `change_state`, one test a rule."""

    def test_a_change_that_holds_sets_the_state_and_nothing_else(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        outcome = catalog.change_state(change_of(claimed, uid=2**64 - 1))

        expected = replace(
            claimed,
            state=StreamState.DELETING,
            revision=1,
            undelete_until=UNTIL,
            state_token=2**64 - 1,
        )
        assert outcome == Landed(expected)
        assert catalog.get(claimed.stream) == expected

    def test_a_stream_can_be_called_off_deleted_and_swept(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        item = claimed
        for uid, state in enumerate(
            (StreamState.DELETING, StreamState.LIVE, StreamState.DELETING, StreamState.DELETED), 1
        ):
            change = change_of(item, uid=uid, state=state)
            assert catalog.change_state(change) == Landed(changed(item, change))
            item = changed(item, change)

        assert item.revision == 4
        assert catalog.get(claimed.stream) == item

    @pytest.mark.parametrize("state", [s for s in StreamState if s is not StreamState.LIVE])
    def test_no_commit_lands_on_a_stream_that_a_change_has_stopped(
        self, catalog: Catalog, claimed: CatalogItem, state: StreamState
    ) -> None:
        change = change_of(claimed, uid=7, state=state)
        catalog.change_state(change)

        assert catalog.commit(appending_commit(claimed, uid=22)) == NotLanded(
            changed(claimed, change)
        )

    def test_a_commit_between_reading_and_changing_does_no_harm_and_is_kept(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        change = change_of(claimed, uid=7)
        catalog.commit(commit)

        assert catalog.change_state(change) == Landed(changed(moved(claimed, commit), change))

    def test_a_commit_after_a_deletion_was_called_off_keeps_the_revision(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        deleting = changed(claimed, change_of(claimed, uid=7))
        back = change_of(deleting, uid=8, state=StreamState.LIVE)
        catalog.change_state(change_of(claimed, uid=7))
        catalog.change_state(back)
        commit = appending_commit(claimed, uid=22)

        assert catalog.commit(commit) == Landed(moved(changed(deleting, back), commit))

    # The condition, a test for every clause: all others hold.

    def test_a_change_on_another_revision_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        for revision in (1, 2):
            outcome = catalog.change_state(change_of(claimed, uid=7, read_revision=revision))
            assert not isinstance(outcome, Landed)

        assert catalog.get(claimed.stream) == claimed

    def test_a_change_from_another_state_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        change = change_of(claimed, uid=7, read_state=StreamState.REBUILDING)

        assert catalog.change_state(change) == NotLanded(claimed)
        assert catalog.get(claimed.stream) == claimed

    def test_a_change_for_another_table_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        change = change_of(claimed, uid=7, table_id="restored")

        assert catalog.change_state(change) == NotLanded(claimed)
        assert catalog.get(claimed.stream) == claimed

    def test_a_change_on_a_stream_without_an_item_does_not_land_and_creates_none(
        self, catalog: Catalog, stream: str
    ) -> None:
        item = CatalogItem(stream=stream, table_id=catalog.table_id())

        assert catalog.change_state(change_of(item, uid=7)) == NotLanded(None)
        assert catalog.get(stream) is None

    # The three outcomes.

    def test_a_repeated_change_finds_its_own_uid_and_has_landed(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        change = change_of(claimed, uid=7)
        catalog.change_state(change)

        assert catalog.change_state(change) == Landed(changed(claimed, change))
        assert catalog.get(claimed.stream) == changed(claimed, change)

    def test_a_change_that_lost_to_another_or_was_built_upon_is_unknown(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        first = change_of(claimed, uid=7)
        after = change_of(changed(claimed, first), uid=8, state=StreamState.LIVE)
        there = changed(changed(claimed, first), after)
        catalog.change_state(first)
        catalog.change_state(after)

        assert catalog.change_state(first) == Unknown(there)
        assert catalog.change_state(change_of(claimed, uid=9)) == Unknown(there)
        assert catalog.get(claimed.stream) == there

    # Pages.

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_pages_join_to_all_streams_without_gap_or_repeat(
        self, catalog: Catalog, stream: str, limit: int
    ) -> None:
        items = [
            catalog.anchor(CatalogItem(stream=f"{stream}_{n}", table_id=catalog.table_id()))
            for n in range(5)
        ]
        seen: list[CatalogItem] = []
        cursor: str | None = None
        while True:
            page = catalog.page(cursor, limit)
            assert len(page.items) <= limit
            assert not page.damaged
            seen += page.items
            cursor = page.cursor
            if cursor is None:
                break

        assert [each for each in items if seen.count(each) != 1] == []
        assert sorted(i.stream for i in seen) == sorted(i.stream for i in catalog.streams())

    def test_a_stream_that_is_added_meanwhile_makes_no_other_stream_be_left_out(
        self, catalog: Catalog, stream: str
    ) -> None:
        def anchor(name: str) -> CatalogItem:
            return catalog.anchor(CatalogItem(stream=name, table_id=catalog.table_id()))

        items = [anchor(f"{stream}_{n}") for n in range(5)]
        seen: list[CatalogItem] = []
        cursor: str | None = None
        for number in range(10_000):
            page = catalog.page(cursor, 1)
            seen += page.items
            cursor = page.cursor
            if cursor is None:
                break
            if number < 5:
                anchor(f"{stream}_late_{number}")

        assert [each for each in items if seen.count(each) != 1] == []

    def test_a_cursor_of_nobody_is_refused(self, catalog: Catalog) -> None:
        with pytest.raises(InvalidInputError):
            catalog.page("", 10)


class StateRaceSuite(CatalogFixtures):
    """What holds under many threads; not for backends that are not safe for them (moto)."""

    racers = 8

    def test_of_many_changes_of_one_revision_exactly_one_lands(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        with ThreadPoolExecutor(self.racers) as pool:
            outcomes = list(
                pool.map(
                    lambda uid: catalog.change_state(change_of(claimed, uid=uid)),
                    range(1, self.racers + 1),
                )
            )

        (landed,) = (each for each in outcomes if isinstance(each, Landed))
        assert catalog.get(claimed.stream) == landed.item

    @pytest.mark.parametrize("token", [0, 1, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15])
    def test_from_anywhere_to_the_end_and_again_from_the_begin_every_item_is_seen(
        self, catalog: Catalog, stream: str, token: int
    ) -> None:
        names = {f"{stream}_{number}" for number in range(5)}
        for name in sorted(names):
            catalog.anchor(CatalogItem(stream=name, table_id=catalog.table_id()))
        seen: set[str] = set()
        for begin in (catalog.cursor_at(token), None):
            cursor = begin
            while True:
                page = catalog.page(cursor, 2)
                seen |= {item.stream for item in page.items}
                cursor = page.cursor
                if cursor is None:
                    break

        assert names <= seen


class RulesSuite(CatalogFixtures):
    """A change that was decided by the operator's rules holds only while they are in force."""

    @pytest.fixture
    def policies(self, catalog: Catalog) -> Policies:
        """The rules of the same cluster."""
        raise NotImplementedError

    @pytest.mark.parametrize("changes", [0, 1, 3])
    def test_a_change_by_the_rules_that_are_in_force_holds(
        self, catalog: Catalog, policies: Policies, claimed: CatalogItem, changes: int
    ) -> None:
        for number in range(changes):
            assert policies.save(PolicySet((Rule(f"r{number}"),)), number)
        change = change_of(claimed, uid=7, rules_revision=changes)

        assert catalog.change_state(change) == Landed(changed(claimed, change))
        assert catalog.get(claimed.stream) == changed(claimed, change)

    @pytest.mark.parametrize("read", [0, 1, 2])
    def test_a_hold_that_came_into_force_since_they_were_read_stops_the_change(
        self, catalog: Catalog, policies: Policies, claimed: CatalogItem, read: int
    ) -> None:
        for number in range(read):
            assert policies.save(PolicySet((Rule(f"r{number}"),)), number)
        change = change_of(claimed, uid=7, rules_revision=read)
        assert policies.save(PolicySet((Rule("court", hold=True),)), read)

        assert catalog.change_state(change) == NotLanded(claimed)
        assert catalog.get(claimed.stream) == claimed

    def test_rules_that_are_in_force_do_not_save_a_change_whose_state_was_read_too_early(
        self, catalog: Catalog, policies: Policies, claimed: CatalogItem
    ) -> None:
        assert policies.save(PolicySet(), 0)
        first = change_of(claimed, uid=7, rules_revision=1)
        catalog.change_state(first)
        second = change_of(claimed, uid=8, rules_revision=1)

        assert catalog.change_state(second) == Unknown(changed(claimed, first))
        assert catalog.change_state(first) == Landed(changed(claimed, first))

    def test_a_change_that_had_landed_has_landed_whatever_became_of_the_rules(
        self, catalog: Catalog, policies: Policies, claimed: CatalogItem
    ) -> None:
        change = change_of(claimed, uid=7, rules_revision=0)
        catalog.change_state(change)
        assert policies.save(PolicySet((Rule("court", hold=True),)), 0)

        assert catalog.change_state(change) == Landed(changed(claimed, change))


class LostChangeAnswerSuite(CatalogFixtures):
    """What a change must say when the network loses requests or answers."""

    @pytest.fixture
    def lose_answer(self, catalog: Catalog) -> Callable[..., None]:
        """`lose_answer(between=...)`: the next change is performed, its answer never comes."""
        raise NotImplementedError

    @pytest.fixture
    def repeat_request(self, catalog: Catalog) -> Callable[..., None]:
        """`repeat_request(between=...)`: the SDK sends the next change twice."""
        raise NotImplementedError

    @pytest.fixture
    def lose_request(self, catalog: Catalog) -> Callable[[], None]:
        """The next change never reaches the service."""
        raise NotImplementedError

    def test_a_change_that_landed_but_lost_its_answer_has_landed(
        self, catalog: Catalog, claimed: CatalogItem, lose_answer: Callable[..., None]
    ) -> None:
        change = change_of(claimed, uid=7)
        lose_answer()

        assert catalog.change_state(change) == Landed(changed(claimed, change))

    def test_a_change_that_the_sdk_sent_twice_has_landed_once(
        self, catalog: Catalog, claimed: CatalogItem, repeat_request: Callable[..., None]
    ) -> None:
        change = change_of(claimed, uid=7)
        repeat_request()

        assert catalog.change_state(change) == Landed(changed(claimed, change))
        assert catalog.get(claimed.stream) == changed(claimed, change)

    def test_a_deletion_sent_twice_with_an_undelete_between_never_undoes_the_undelete(
        self, catalog: Catalog, claimed: CatalogItem, repeat_request: Callable[..., None]
    ) -> None:
        change = change_of(claimed, uid=7)
        deleting = changed(claimed, change)
        undelete = change_of(deleting, uid=8, state=StreamState.LIVE)
        repeat_request(between=lambda: catalog.change_state(undelete))

        assert catalog.change_state(change) == Unknown(changed(deleting, undelete))
        assert catalog.get(claimed.stream) == changed(deleting, undelete)

    def test_an_unchanged_state_after_a_lost_request_proves_nothing(
        self, catalog: Catalog, claimed: CatalogItem, lose_request: Callable[[], None]
    ) -> None:
        lose_request()

        assert catalog.change_state(change_of(claimed, uid=7)) == Unknown(claimed)
