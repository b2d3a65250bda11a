"""What every `Catalog` must do. A backend's test file subclasses the suite and gives a catalog.

`CatalogRaceSuite` is for backends that are safe for threads, `PrefixedCatalogSuite` for those whose
table several clusters share. What is lost on a network is in `commit_answer_suite`, states and
pages are in `state_suite`, a restored table in `adoption_suite`.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState, moved
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.ports import Catalog, Landed, NotLanded, Unknown
from coldstream_devkit.suites.catalog_fixtures import (
    CatalogFixtures,
    appending_commit,
    commit_of,
    next_commit,
)


class CatalogSuite(CatalogFixtures):
    """The rules of the port, one test a rule."""

    def test_the_id_of_the_table_is_known_and_stays(self, catalog: Catalog) -> None:
        assert catalog.table_id()
        assert catalog.table_id() == catalog.table_id()

    def test_a_stream_without_an_item_has_none(self, catalog: Catalog, stream: str) -> None:
        assert catalog.get(stream) is None

    def test_an_anchor_gives_the_item_that_was_asked(self, catalog: Catalog, stream: str) -> None:
        item = CatalogItem(
            stream=stream,
            table_id=catalog.table_id(),
            first_offset=1592,
            next_offset=1592,
            name=QueueName("rabbit@node", "/", "naïve queue"),
        )

        assert catalog.anchor(item) == item
        assert catalog.get(stream) == item

    def test_a_stream_is_anchored_once_and_a_second_anchor_changes_nothing(
        self, catalog: Catalog, anchored: CatalogItem
    ) -> None:
        again = catalog.anchor(replace(anchored, first_offset=7, next_offset=7))

        assert again == anchored
        assert catalog.get(anchored.stream) == anchored

    def test_an_anchor_never_resets_a_stream_that_has_moved_on(
        self, catalog: Catalog, anchored: CatalogItem, claimed: CatalogItem
    ) -> None:
        assert catalog.anchor(anchored) == claimed
        assert catalog.get(anchored.stream) == claimed

    def test_a_commit_that_holds_moves_the_item_to_its_root(
        self, catalog: Catalog, anchored: CatalogItem, claimed: CatalogItem
    ) -> None:
        commit = appending_commit(claimed, uid=22)

        outcome = catalog.commit(commit)

        assert outcome == Landed(moved(claimed, commit))
        assert catalog.get(anchored.stream) == moved(claimed, commit)

    def test_an_item_repeats_the_kilo_groups_of_its_root_and_of_no_other(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        fragment = appending_commit(claimed, uid=21).root.entries[0]
        group = replace(fragment, kind=EntryKind.KILO_GROUP, uid=20)
        last = replace(fragment, first_offset=10, next_offset=20)
        first = replace(appending_commit(claimed, uid=22).root, entries=Entries.of([group, last]))
        commit = commit_of(claimed, replace(first, next_offset=20), uid=22)

        outcome = catalog.commit(commit)

        assert isinstance(outcome, Landed)
        found = catalog.get(claimed.stream)
        assert found == outcome.item == moved(claimed, commit)
        assert list(found.told) == [group]
        assert catalog.commit(appending_commit(found, uid=23)) is not None
        after = catalog.get(claimed.stream)
        assert after is not None
        assert (after.uid, list(after.told)) == (23, [])

    def test_the_greatest_numbers_come_back_as_they_were(
        self, catalog: Catalog, anchored: CatalogItem
    ) -> None:
        entry = Entry(
            first_offset=2**64 - 2,
            next_offset=2**64 - 1,
            min_timestamp=-(2**63),
            max_timestamp=2**63 - 1,
            kind=EntryKind.FRAGMENT,
            size=2**56 - 1,
            records=1,
            epoch=2**32 - 1,
            uid=2**64 - 1,
        )
        root = Root(
            first_offset=2**64 - 2,
            next_offset=2**64 - 1,
            epoch=2**32 - 1,
            version=1,
            ledger=Ledger.of([(1, 0), (2**32 - 1, 2**64 - 2)]),
            entries=Entries.of([entry]),
        )
        commit = commit_of(anchored, root, uid=2**64 - 1, claim=True)

        assert catalog.commit(commit) == Landed(moved(anchored, commit))
        assert catalog.get(anchored.stream) == moved(anchored, commit)

    # The condition, a test for every clause: all others hold.

    def test_a_commit_on_another_version_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        for version in (claimed.version - 1, claimed.version + 1):
            outcome = catalog.commit(
                replace(appending_commit(claimed, uid=22), read_version=version)
            )
            assert not isinstance(outcome, Landed)

        assert catalog.get(claimed.stream) == claimed

    def test_a_commit_on_another_root_of_the_same_version_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        commit = replace(appending_commit(claimed, uid=22), read_uid=claimed.uid + 1)

        assert catalog.commit(commit) == NotLanded(claimed)
        assert catalog.get(claimed.stream) == claimed

    def test_a_commit_for_another_table_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        commit = replace(appending_commit(claimed, uid=22), table_id="restored")

        assert catalog.commit(commit) == NotLanded(claimed)
        assert catalog.get(claimed.stream) == claimed

    @pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.REBUILDING])
    def test_a_commit_on_a_stream_that_is_not_live_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem, state: StreamState
    ) -> None:
        self.set_state(catalog, claimed.stream, state)

        outcome = catalog.commit(appending_commit(claimed, uid=22))

        assert outcome == NotLanded(replace(claimed, state=state))
        assert catalog.get(claimed.stream) == replace(claimed, state=state)

    def test_a_claim_needs_a_lower_epoch_in_the_item(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        root = replace(
            next_commit(claimed, uid=22).root, epoch=claimed.epoch, ledger=claimed.ledger
        )

        outcome = catalog.commit(commit_of(claimed, root, uid=22, claim=True))

        assert outcome == NotLanded(claimed)
        assert catalog.get(claimed.stream) == claimed

    def test_a_claim_may_skip_epochs(self, catalog: Catalog, claimed: CatalogItem) -> None:
        root = replace(
            next_commit(claimed, uid=22).root, epoch=9, ledger=claimed.ledger.claimed(9, 0)
        )

        assert isinstance(catalog.commit(commit_of(claimed, root, uid=22, claim=True)), Landed)

    def test_a_commit_under_a_lower_epoch_does_not_land(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        second = catalog.commit(next_commit(claimed, uid=22))
        assert isinstance(second, Landed)
        stale = appending_commit(second.item, uid=33)
        stale = replace(stale, root=replace(stale.root, epoch=1, ledger=claimed.ledger))

        assert catalog.commit(stale) == NotLanded(second.item)
        assert catalog.get(claimed.stream) == second.item

    def test_a_commit_under_the_same_epoch_that_is_no_claim_lands(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        assert isinstance(catalog.commit(appending_commit(claimed, uid=22)), Landed)

    def test_a_commit_on_a_stream_without_an_item_does_not_land_and_creates_none(
        self, catalog: Catalog, stream: str
    ) -> None:
        item = CatalogItem(stream=stream, table_id=catalog.table_id())

        assert catalog.commit(next_commit(item, uid=22)) == NotLanded(None)
        assert catalog.get(stream) is None

    # The three outcomes.

    def test_a_repeated_commit_finds_its_own_uid_and_has_landed(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        first = catalog.commit(commit)

        assert isinstance(first, Landed)
        assert catalog.commit(commit) == Landed(first.item)
        assert catalog.get(claimed.stream) == first.item

    def test_a_repeated_commit_that_was_built_upon_is_unknown(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        first = catalog.commit(commit)
        assert isinstance(first, Landed)
        second = catalog.commit(appending_commit(first.item, uid=33))
        assert isinstance(second, Landed)

        assert catalog.commit(commit) == Unknown(second.item)
        assert catalog.get(claimed.stream) == second.item

    def test_a_commit_that_lost_to_another_is_unknown_because_it_looks_the_same(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        winner = catalog.commit(appending_commit(claimed, uid=22))
        assert isinstance(winner, Landed)

        assert catalog.commit(appending_commit(claimed, uid=33)) == Unknown(winner.item)

    # Names, and all streams.

    def test_a_name_is_recorded_and_no_commit_notices(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        name = QueueName("rabbit@node", "/", "orders")

        catalog.set_name(claimed.stream, name)

        assert catalog.get(claimed.stream) == replace(claimed, name=name)
        assert catalog.commit(commit) == Landed(moved(replace(claimed, name=name), commit))

    def test_a_name_for_a_stream_without_an_item_is_refused_and_creates_none(
        self, catalog: Catalog, stream: str
    ) -> None:
        with pytest.raises(NotFoundError) as caught:
            catalog.set_name(stream, QueueName("c", "/", "q"))

        assert caught.value.stream == stream
        assert catalog.get(stream) is None

    def test_all_streams_are_listed_whatever_their_state(
        self, catalog: Catalog, stream: str
    ) -> None:
        items = [
            catalog.anchor(CatalogItem(stream=f"{stream}_{n}", table_id=catalog.table_id()))
            for n in range(3)
        ]
        self.set_state(catalog, items[2].stream, StreamState.DELETING)

        listed = {each.stream: each for each in catalog.streams()}

        assert [listed[each.stream].state for each in items] == ["live", "live", "deleting"]
        assert listed[items[0].stream] == items[0]


class CatalogRaceSuite(CatalogFixtures):
    """What holds under many threads; not for backends that are not safe for them (moto)."""

    racers = 8

    def test_of_many_commits_on_one_version_exactly_one_lands(
        self, catalog: Catalog, claimed: CatalogItem
    ) -> None:
        for _ in range(5):
            item = catalog.get(claimed.stream)
            assert item is not None
            commits = [
                appending_commit(item, uid=secrets.randbits(63) + 1, records=number + 1)
                for number in range(self.racers)
            ]
            with ThreadPoolExecutor(self.racers) as pool:
                outcomes = list(pool.map(catalog.commit, commits))

            landed = [
                commit
                for commit, outcome in zip(commits, outcomes, strict=True)
                if isinstance(outcome, Landed)
            ]
            assert len(landed) == 1
            assert catalog.get(claimed.stream) == moved(item, landed[0])

    def test_of_many_claims_of_one_epoch_exactly_one_lands(
        self, catalog: Catalog, anchored: CatalogItem
    ) -> None:
        with ThreadPoolExecutor(self.racers) as pool:
            outcomes = list(
                pool.map(
                    lambda uid: catalog.commit(next_commit(anchored, uid=uid)),
                    range(1, self.racers + 1),
                )
            )

        assert sum(isinstance(each, Landed) for each in outcomes) == 1

    def test_of_many_anchors_one_is_there_and_all_see_it(
        self, catalog: Catalog, stream: str
    ) -> None:
        item = CatalogItem(stream=stream, table_id=catalog.table_id())

        with ThreadPoolExecutor(self.racers) as pool:
            seen = list(
                pool.map(
                    lambda offset: catalog.anchor(
                        replace(item, first_offset=offset, next_offset=offset)
                    ),
                    range(self.racers),
                )
            )

        assert set(seen) == {catalog.get(stream)}


class PrefixedCatalogSuite(CatalogFixtures):
    """What a catalog must do whose table several clusters share."""

    @pytest.fixture
    def neighbour(self, catalog: Catalog) -> Catalog:
        """A catalog of another cluster (another prefix) on the same table."""
        raise NotImplementedError

    def test_streams_of_another_prefix_are_not_listed_and_not_found(
        self, catalog: Catalog, neighbour: Catalog, stream: str
    ) -> None:
        neighbour.anchor(CatalogItem(stream=stream, table_id=neighbour.table_id()))

        assert catalog.get(stream) is None
        assert stream not in {each.stream for each in catalog.streams()}
        assert stream in {each.stream for each in neighbour.streams()}

    def test_the_same_directory_name_in_two_clusters_is_two_streams(
        self, catalog: Catalog, neighbour: Catalog, claimed: CatalogItem
    ) -> None:
        theirs = neighbour.anchor(CatalogItem(claimed.stream, neighbour.table_id()))

        assert theirs.version == 0
        assert catalog.get(claimed.stream) == claimed

    @pytest.mark.parametrize("hostile", ["", "../x", "a/b", "eu/x", "x" * 256, "a\nb", "naïve"])
    def test_a_hostile_stream_name_never_reaches_the_table(
        self, catalog: Catalog, hostile: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            catalog.get(hostile)
        with pytest.raises(InvalidInputError):
            catalog.anchor(CatalogItem(stream=hostile, table_id="t"))
