"""What `ObjectStore.list` and `Deleter` must do with keys that are not ours, whatever they are."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import pytest

from coldstream.ports import Deleter, ObjectStore
from coldstream_devkit.odd_keys import odd_keys
from coldstream_devkit.suites.object_store import StoreFixtures

_COUNT = 60
_STREAM = "__orders_1"


class OddKeyFixtures(StoreFixtures):
    """What the suites need; the backend overrides `plant` where its store cannot write all keys."""

    @pytest.fixture
    def plant(self, store: ObjectStore) -> Callable[[Sequence[str]], None]:
        """Puts small objects under keys of any kind."""
        return lambda keys: self.fill(store, keys)

    @pytest.fixture
    def root(self) -> str:
        """A prefix of one test's own."""
        return f"t{secrets.token_hex(4)}/"

    @pytest.fixture
    def ours(self, root: str) -> list[str]:
        """Good keys, among which odd ones will lie."""
        under = f"{root}stream/{_STREAM}/"
        return [
            *(f"{under}data/{n:020d}-{n + 10:020d}.{1:010d}.{n:016x}.fragment" for n in range(5)),
            *(f"{under}metadata/root.{1:010d}.{n:012d}.{n:016x}.manifest" for n in range(5)),
        ]


class OddKeysSuite(OddKeyFixtures):
    """Every object is a row, under exactly its key, in the order of UTF-8."""

    @pytest.mark.parametrize("seed", range(3))
    def test_whatever_a_key_is_it_is_listed_exactly_and_in_order(
        self,
        store: ObjectStore,
        plant: Callable[[Sequence[str]], None],
        root: str,
        ours: list[str],
        seed: int,
    ) -> None:
        keys = sorted({*odd_keys(seed, root, _STREAM, _COUNT), *ours}, key=str.encode)
        plant(keys)

        assert [row.key for row in store.list(root)] == keys
        for folder in ("data/", "metadata/", "metadata/root.", ""):
            under = f"{root}stream/{_STREAM}/{folder}"
            assert [row.key for row in store.list(under)] == [
                key for key in keys if key.startswith(under)
            ]

    @pytest.mark.parametrize("limit", [1, 2, 7])
    def test_pages_of_odd_keys_join_without_gap_or_repeat_and_end(
        self,
        store: ObjectStore,
        plant: Callable[[Sequence[str]], None],
        root: str,
        ours: list[str],
        limit: int,
    ) -> None:
        keys = sorted({*odd_keys(limit, root, _STREAM, _COUNT), *ours}, key=str.encode)
        plant(keys)

        found: list[str] = []
        for _ in range(len(keys) + 1):
            page = store.list(root, start_after=found[-1] if found else "", limit=limit)
            found += [row.key for row in page]
            if len(page) < limit:
                break

        assert found == keys

    def test_a_listing_can_begin_behind_any_key_and_below_any_prefix(
        self, store: ObjectStore, plant: Callable[[Sequence[str]], None], root: str
    ) -> None:
        keys = sorted(odd_keys(9, root, _STREAM, _COUNT), key=str.encode)
        plant(keys)

        for at in range(0, len(keys), 5):
            assert [row.key for row in store.list(root, start_after=keys[at], limit=3)] == keys[
                at + 1 : at + 4
            ]
            assert store.list(keys[at], limit=1)[0].key == keys[at]


class OddKeysDeleteSuite(OddKeyFixtures):
    """What is deleted is exactly what was asked for."""

    @pytest.fixture
    def deleter(self, store: ObjectStore) -> Deleter:
        """The deleter under test."""
        raise NotImplementedError

    def test_objects_with_odd_keys_go_and_nothing_else_does(
        self,
        store: ObjectStore,
        deleter: Deleter,
        plant: Callable[[Sequence[str]], None],
        root: str,
        ours: list[str],
    ) -> None:
        odd = [key for key in odd_keys(4, root, _STREAM, _COUNT) if key not in ours]
        plant([*odd, *ours])
        doomed, kept = odd[::2], sorted([*odd[1::2], *ours], key=str.encode)

        assert deleter.delete(doomed) == doomed
        assert [row.key for row in store.list(root)] == kept
