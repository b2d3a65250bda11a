"""What a `Catalog` must say when an answer to a commit is lost.

For backends that talk over a network; the backend's test file subclasses the suite, and can lose a
request or an answer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coldstream.manifest.catalog import CatalogItem, moved
from coldstream.ports import Catalog, Landed, Unknown
from coldstream_devkit.suites.catalog_fixtures import CatalogFixtures, appending_commit


class LostCommitAnswerSuite(CatalogFixtures):
    """What a commit must say when the network loses requests or answers.

    The subclass gives three ways to disturb the next commits; `between` runs after the request was
    performed and before the client notices anything.
    """

    @pytest.fixture
    def lose_answer(self, catalog: Catalog) -> Callable[..., None]:
        """`lose_answer(between=...)`: the next commit is performed, its answer never comes."""
        raise NotImplementedError

    @pytest.fixture
    def repeat_request(self, catalog: Catalog) -> Callable[..., None]:
        """`repeat_request(between=...)`: the SDK sends the next commit twice."""
        raise NotImplementedError

    @pytest.fixture
    def lose_request(self, catalog: Catalog) -> Callable[[], None]:
        """The next commit never reaches the service."""
        raise NotImplementedError

    @pytest.fixture
    def lose_reads(self, catalog: Catalog) -> Callable[[str], None]:
        """Every read of an item fails from now on: by "timeout", "forbidden" or "no table"."""
        raise NotImplementedError

    def test_a_commit_that_landed_but_lost_its_answer_has_landed(
        self, catalog: Catalog, claimed: CatalogItem, lose_answer: Callable[..., None]
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        lose_answer()

        assert catalog.commit(commit) == Landed(moved(claimed, commit))

    def test_a_lost_answer_followed_by_another_commit_is_unknown(
        self, catalog: Catalog, claimed: CatalogItem, lose_answer: Callable[..., None]
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        landed = moved(claimed, commit)
        after = appending_commit(landed, uid=33)
        lose_answer(between=lambda: catalog.commit(after))

        assert catalog.commit(commit) == Unknown(moved(landed, after))

    def test_a_commit_that_the_sdk_sent_twice_has_landed_once(
        self, catalog: Catalog, claimed: CatalogItem, repeat_request: Callable[..., None]
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        repeat_request()

        assert catalog.commit(commit) == Landed(moved(claimed, commit))
        assert catalog.get(claimed.stream) == moved(claimed, commit)

    def test_a_commit_sent_twice_with_another_between_is_unknown_and_never_undone(
        self, catalog: Catalog, claimed: CatalogItem, repeat_request: Callable[..., None]
    ) -> None:
        commit = appending_commit(claimed, uid=22)
        landed = moved(claimed, commit)
        after = appending_commit(landed, uid=33)
        repeat_request(between=lambda: catalog.commit(after))

        assert catalog.commit(commit) == Unknown(moved(landed, after))
        assert catalog.get(claimed.stream) == moved(landed, after)

    def test_an_unchanged_item_after_a_lost_request_proves_nothing(
        self, catalog: Catalog, claimed: CatalogItem, lose_request: Callable[[], None]
    ) -> None:
        lose_request()

        assert catalog.commit(appending_commit(claimed, uid=22)) == Unknown(claimed)

    @pytest.mark.parametrize("failure", ["timeout", "forbidden", "no table"])
    def test_a_lost_answer_that_cannot_be_read_back_is_unknown_and_never_raises(
        self,
        catalog: Catalog,
        claimed: CatalogItem,
        lose_answer: Callable[..., None],
        lose_reads: Callable[[str], None],
        failure: str,
    ) -> None:
        lose_answer()
        lose_reads(failure)

        assert catalog.commit(appending_commit(claimed, uid=22)) == Unknown(None)
