"""What every `VersionDeleter` must do, in a bucket that keeps versions of what was deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coldstream.errors import InternalError, UnavailableError
from coldstream.ports import MAX_DELETES, Deleter, ObjectStore, ObjectVersion, VersionDeleter
from coldstream_devkit.suites.object_store import StoreFixtures


def all_versions(
    versions: VersionDeleter, prefix: str, *, limit: int = 1000
) -> list[ObjectVersion]:
    """Every page of a listing."""
    rows: list[ObjectVersion] = []
    after = ("", "")
    while True:
        page = versions.versions(prefix, after=after, limit=limit)
        rows += page.rows
        if page.following is None:
            return rows
        after = page.following


class VersionFixtures(StoreFixtures):
    """What the suites need; the backend overrides `versions` and `deleter`, of one bucket."""

    @pytest.fixture
    def versions(self) -> VersionDeleter:
        """The deleter under test."""
        raise NotImplementedError

    @pytest.fixture
    def deleter(self) -> Deleter:
        """Of objects, whose versions stay."""
        raise NotImplementedError


class VersionDeleterSuite(VersionFixtures):
    """The rules of the port, one test a rule."""

    def test_what_was_deleted_is_still_a_version_with_its_size(
        self, store: ObjectStore, versions: VersionDeleter, deleter: Deleter, prefix: str
    ) -> None:
        store.put(f"{prefix}a", b"four", write_id="a")
        store.put(f"{prefix}b", b"seventy", write_id="b")
        deleter.delete([f"{prefix}a"])

        rows = all_versions(versions, prefix)

        held = sorted((row.key, row.size) for row in rows if row.size)
        assert held == [(f"{prefix}a", 4), (f"{prefix}b", 7)]
        assert [row.key for row in rows] == sorted(row.key for row in rows)

    def test_versions_that_are_deleted_are_gone_and_no_others(
        self, store: ObjectStore, versions: VersionDeleter, deleter: Deleter, prefix: str
    ) -> None:
        for letter in "abc":
            store.put(f"{prefix}{letter}", b"x", write_id=letter)
        deleter.delete([f"{prefix}a"])
        doomed = [row for row in all_versions(versions, prefix) if row.key[-1] in "ab"]

        assert versions.delete_versions(doomed) == doomed

        assert {row.key for row in all_versions(versions, prefix)} == {f"{prefix}c"}
        assert [row.key for row in store.list(prefix)] == [f"{prefix}c"]
        assert versions.delete_versions(doomed) == doomed  # gone is gone

    def test_small_pages_come_to_the_same_as_one_large_one(
        self, store: ObjectStore, versions: VersionDeleter, deleter: Deleter, prefix: str
    ) -> None:
        keys = [f"{prefix}{number:02d}" for number in range(9)]
        for key in keys:
            store.put(key, b"x", write_id=key)
        deleter.delete(keys[2:5])

        whole = set(all_versions(versions, prefix))

        assert set(all_versions(versions, prefix, limit=2)) == whole
        assert {row.key for row in whole if row.size} == set(keys)

    def test_a_listing_stays_below_its_prefix_and_an_empty_one_ends(
        self, store: ObjectStore, versions: VersionDeleter, prefix: str
    ) -> None:
        store.put(f"{prefix}in/a", b"x", write_id="a")

        assert [row.key for row in all_versions(versions, f"{prefix}in/")] == [f"{prefix}in/a"]
        assert all_versions(versions, f"{prefix}out/") == []
        assert versions.delete_versions([]) == []

    def test_too_many_at_once_are_refused(self, versions: VersionDeleter) -> None:
        row = ObjectVersion("k", "v", 1, 0)

        with pytest.raises(InternalError):
            versions.delete_versions([row] * (MAX_DELETES + 1))


class LostVersionAnswerSuite(VersionFixtures):
    """For backends that talk over a network."""

    def test_a_lost_answer_is_asked_for_again(
        self,
        store: ObjectStore,
        versions: VersionDeleter,
        lose_delete_answers: Callable[[int], None],
        prefix: str,
    ) -> None:
        store.put(f"{prefix}a", b"x", write_id="a")
        rows = all_versions(versions, prefix)
        lose_delete_answers(1)

        assert versions.delete_versions(rows) == rows
        assert all_versions(versions, prefix) == []

    def test_without_any_answer_nothing_is_said_to_be_gone(
        self,
        store: ObjectStore,
        versions: VersionDeleter,
        lose_delete_answers: Callable[[int], None],
        prefix: str,
    ) -> None:
        store.put(f"{prefix}a", b"x", write_id="a")
        rows = all_versions(versions, prefix)
        lose_delete_answers(99)

        with pytest.raises(UnavailableError):
            versions.delete_versions(rows)
