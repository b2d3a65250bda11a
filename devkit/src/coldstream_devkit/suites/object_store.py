"""What every `ObjectStore` must do. A backend's test file subclasses the suite and gives a store.

    class TestMemoryObjectStore(ObjectStoreSuite):
        @pytest.fixture
        def store(self) -> ObjectStore:
            return MemoryObjectStore()

`ObjectStoreRaceSuite` is for backends that are safe for threads, `LostPutAnswerSuite` for those
that talk over a network: its subclass can lose an answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.crc import crc32
from coldstream.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.ports import ObjectStore


class StoreFixtures:
    """What the suites need; the backend overrides `store` and, where it likes, `fill`."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        """The store under test."""
        raise NotImplementedError

    @pytest.fixture
    def prefix(self) -> str:
        """Keys of one test lie below a prefix of their own, because backends may be shared."""
        return f"t{secrets.token_hex(4)}/stream/__orders_1/data/"

    def fill(self, store: ObjectStore, keys: Sequence[str]) -> None:
        """Create small objects under `keys`."""
        for key in keys:
            store.put(key, b"x", write_id="w")


class ObjectStoreSuite(StoreFixtures):
    """The rules of the port, one test a rule."""

    def test_an_object_is_read_back_byte_for_byte(self, store: ObjectStore, prefix: str) -> None:
        body = bytes(range(256)) * 5

        store.put(f"{prefix}a", body, write_id="one")

        assert bytes(store.get(f"{prefix}a", 0, len(body))) == body
        assert store.get_all(f"{prefix}a", limit=len(body)) == body

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_can_be_put(
        self, store: ObjectStore, prefix: str, kind: Callable[[bytes], bytes]
    ) -> None:
        store.put(f"{prefix}a", kind(b"hello"), write_id="one")

        assert store.get_all(f"{prefix}a", limit=10) == b"hello"

    def test_a_buffer_that_changes_after_the_put_changes_nothing(
        self, store: ObjectStore, prefix: str
    ) -> None:
        body = bytearray(b"hello")
        store.put(f"{prefix}a", body, write_id="one")

        body[:] = b"HELLO"

        assert store.get_all(f"{prefix}a", limit=10) == b"hello"

    def test_a_key_of_another_write_is_refused_and_not_overwritten(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}a", b"first", write_id="one")

        with pytest.raises(AlreadyExistsError) as caught:
            store.put(f"{prefix}a", b"second", write_id="two")

        assert isinstance(caught.value, ConflictError)
        assert caught.value.key == f"{prefix}a"
        assert store.get_all(f"{prefix}a", limit=10) == b"first"

    def test_equal_bytes_of_another_write_are_refused_too(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}a", b"same", write_id="one")

        with pytest.raises(AlreadyExistsError):
            store.put(f"{prefix}a", b"same", write_id="two")

    def test_a_put_that_finds_its_own_write_id_counts_as_landed_once(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}a", b"same", write_id="one")

        store.put(f"{prefix}a", b"same", write_id="one")

        assert [each.key for each in store.list(prefix)] == [f"{prefix}a"]
        assert store.get_all(f"{prefix}a", limit=10) == b"same"

    def test_bytes_that_are_not_those_that_were_checked_are_not_stored(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}good", b"checked", write_id="one", crc=crc32(b"checked"))

        with pytest.raises((UnavailableError, UnknownOutcomeError)):
            store.put(f"{prefix}bad", b"changed", write_id="one", crc=crc32(b"checked"))

        assert [each.key for each in store.list(prefix)] == [f"{prefix}good"]
        assert store.get_all(f"{prefix}good", limit=10) == b"checked"

    def test_an_own_write_is_recognised_when_the_object_is_empty(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}a", b"", write_id="one")

        store.put(f"{prefix}a", b"", write_id="one")
        with pytest.raises(AlreadyExistsError):
            store.put(f"{prefix}a", b"", write_id="two")

    @pytest.mark.parametrize(
        ("start", "end"), [(0, 1), (0, 100), (99, 100), (10, 20), (41, 42), (1, 99)]
    )
    def test_a_range_is_exact(self, store: ObjectStore, prefix: str, start: int, end: int) -> None:
        body = bytes(range(100))
        store.put(f"{prefix}a", body, write_id="one")

        assert bytes(store.get(f"{prefix}a", start, end)) == body[start:end]

    @pytest.mark.parametrize(("start", "end"), [(0, 101), (99, 101), (50, 2**40)])
    def test_a_range_that_reaches_beyond_the_end_is_corrupt_data_and_never_a_short_answer(
        self, store: ObjectStore, prefix: str, start: int, end: int
    ) -> None:
        store.put(f"{prefix}a", bytes(100), write_id="one")

        with pytest.raises(CorruptDataError) as caught:
            store.get(f"{prefix}a", start, end)

        assert caught.value.key == f"{prefix}a"

    @pytest.mark.parametrize(("start", "end"), [(100, 101), (500, 600)])
    def test_a_range_that_begins_beyond_the_end_is_corrupt_data(
        self, store: ObjectStore, prefix: str, start: int, end: int
    ) -> None:
        store.put(f"{prefix}a", bytes(100), write_id="one")

        with pytest.raises(CorruptDataError):
            store.get(f"{prefix}a", start, end)

    def test_a_range_of_an_empty_object_is_corrupt_data(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}a", b"", write_id="one")

        with pytest.raises(CorruptDataError):
            store.get(f"{prefix}a", 0, 1)

    @pytest.mark.parametrize("length", [1, 10, 99, 100, 101, 5000])
    def test_a_suffix_is_the_last_bytes_or_all_of_a_shorter_object(
        self, store: ObjectStore, prefix: str, length: int
    ) -> None:
        body = bytes(range(100))
        store.put(f"{prefix}a", body, write_id="one")

        assert store.get_suffix(f"{prefix}a", length) == body[-length:]

    def test_the_suffix_of_an_empty_object_is_empty(self, store: ObjectStore, prefix: str) -> None:
        store.put(f"{prefix}a", b"", write_id="one")

        assert store.get_suffix(f"{prefix}a", 156) == b""

    def test_a_whole_object_up_to_the_limit_is_read(self, store: ObjectStore, prefix: str) -> None:
        store.put(f"{prefix}a", bytes(100), write_id="one")
        store.put(f"{prefix}empty", b"", write_id="two")

        assert store.get_all(f"{prefix}a", limit=100) == bytes(100)
        assert store.get_all(f"{prefix}empty", limit=100) == b""

    def test_a_whole_object_above_the_limit_is_refused(
        self, store: ObjectStore, prefix: str
    ) -> None:
        store.put(f"{prefix}a", bytes(101), write_id="one")

        with pytest.raises(CorruptDataError) as caught:
            store.get_all(f"{prefix}a", limit=100)

        assert caught.value.key == f"{prefix}a"

    def test_a_missing_object_is_not_found_by_every_way_to_read(
        self, store: ObjectStore, prefix: str
    ) -> None:
        key = f"{prefix}missing"

        with pytest.raises(NotFoundError) as by_range:
            store.get(key, 0, 1)
        with pytest.raises(NotFoundError) as by_whole:
            store.get_all(key, limit=10)
        with pytest.raises(NotFoundError) as by_suffix:
            store.get_suffix(key, 10)

        assert [e.value.key for e in (by_range, by_whole, by_suffix)] == [key] * 3

    def test_a_listing_is_sorted_and_says_sizes(self, store: ObjectStore, prefix: str) -> None:
        for key, size in (("b", 2), ("a", 1), ("c/d", 3), ("a.b", 4), ("B", 0)):
            store.put(prefix + key, bytes(size), write_id=key)

        rows = store.list(prefix)

        assert [(each.key.removeprefix(prefix), each.size) for each in rows] == [
            ("B", 0), ("a", 1), ("a.b", 4), ("b", 2), ("c/d", 3),
        ]  # fmt: skip

    def test_a_listing_shows_a_put_at_once_and_nothing_beside_the_prefix(
        self, store: ObjectStore, prefix: str
    ) -> None:
        beside = prefix.replace("__orders_1", "__orders_11")
        store.put(f"{beside}x", b"1", write_id="one")
        assert store.list(prefix) == []

        store.put(f"{prefix}x", b"1", write_id="two")

        assert [each.key for each in store.list(prefix)] == [f"{prefix}x"]

    def test_a_listing_starts_after_a_key_that_need_not_exist(
        self, store: ObjectStore, prefix: str
    ) -> None:
        self.fill(store, [f"{prefix}{number:03d}.x" for number in range(5)])

        def numbers(start: str) -> list[int]:
            rows = store.list(prefix, start_after=prefix + start)
            return [int(each.key.removeprefix(prefix)[:3]) for each in rows]

        assert numbers("002.x") == [3, 4]
        assert numbers("002") == [2, 3, 4]
        assert numbers("004.x") == []
        assert numbers("") == [0, 1, 2, 3, 4]

    def test_a_prefix_may_end_in_the_middle_of_a_name(
        self, store: ObjectStore, prefix: str
    ) -> None:
        names = ["ro", "root", "root-1", "root.1", "root.2", "root.3", "root/4", "roots", "rpot"]
        self.fill(store, [prefix + name for name in names])

        def found(within: str, start: str = "", limit: int = 1000) -> list[str]:
            after = prefix + start if start else ""
            rows = store.list(prefix + within, start_after=after, limit=limit)
            return [each.key.removeprefix(prefix) for each in rows]

        assert found("root.") == ["root.1", "root.2", "root.3"]
        assert found("root.", start="root.1") == ["root.2", "root.3"]
        assert found("root.", start="a") == ["root.1", "root.2", "root.3"]
        assert found("root.", limit=2) == ["root.1", "root.2"]
        assert found("root.2") == ["root.2"]
        assert found("root") == ["root", "root-1", "root.1", "root.2", "root.3", "root/4", "roots"]
        assert found("roots.") == []

    def test_a_level_has_one_entry_for_all_that_lies_in_a_folder(
        self, store: ObjectStore, prefix: str
    ) -> None:
        names = ["a-b/x", "a.b/x", "a/1", "a/2/3", "a0", "b", "c/x", "c/y"]
        self.fill(store, [prefix + name for name in names])

        def found(start: str = "", limit: int = 1000) -> list[str]:
            after = prefix + start if start else ""
            rows = store.level(prefix, start_after=after, limit=limit)
            return [each.removeprefix(prefix) for each in rows]

        assert found() == ["a-b/", "a.b/", "a/", "a0", "b", "c/"]
        assert found(limit=3) == ["a-b/", "a.b/", "a/"]
        assert found("a-b0") == ["a.b/", "a/", "a0", "b", "c/"]
        assert found("a0") == ["b", "c/"]
        assert found("b") == ["c/"]
        assert found("c0") == []
        assert store.level(prefix + "nothing/") == []

    def test_a_listing_stops_at_its_limit(self, store: ObjectStore, prefix: str) -> None:
        self.fill(store, [f"{prefix}{number}" for number in range(5)])

        assert [each.key for each in store.list(prefix, limit=1)] == [f"{prefix}0"]
        assert [each.key for each in store.list(prefix, start_after=f"{prefix}0", limit=2)] == [
            f"{prefix}1",
            f"{prefix}2",
        ]
        assert len(store.list(prefix, limit=5)) == 5

    def test_a_listing_of_nothing_is_empty(self, store: ObjectStore, prefix: str) -> None:
        assert store.list(prefix) == []

    def test_pages_of_more_than_1000_objects_join_without_gap_or_repeat(
        self, store: ObjectStore, prefix: str
    ) -> None:
        keys = [f"{prefix}{number:05d}" for number in range(1003)]
        self.fill(store, keys)

        first = store.list(prefix)
        second = store.list(prefix, start_after=first[-1].key)

        assert len(first) == 1000
        assert [each.key for each in (*first, *second)] == keys
        assert len(store.list(prefix, limit=5000)) == 1000


class ObjectStoreRaceSuite(StoreFixtures):
    """What holds under many threads; not for backends that are not safe for them (moto)."""

    racers = 8

    def test_of_many_writers_of_one_key_exactly_one_lands(
        self, store: ObjectStore, prefix: str
    ) -> None:
        def write(number: int) -> int | None:
            try:
                store.put(f"{prefix}a", f"writer {number}".encode(), write_id=str(number))
            except AlreadyExistsError:
                return None
            return number

        with ThreadPoolExecutor(self.racers) as pool:
            winners = [each for each in pool.map(write, range(self.racers)) if each is not None]

        assert len(winners) == 1
        assert store.get_all(f"{prefix}a", limit=100) == f"writer {winners[0]}".encode()


class LostPutAnswerSuite(StoreFixtures):
    """What a PUT must do when the network loses requests or answers."""

    @pytest.fixture
    def lose_answers(self, store: ObjectStore) -> Callable[[int], None]:
        """Lose the answers of the next so many PUTs, which the service performs all the same."""
        raise NotImplementedError

    @pytest.fixture
    def lose_requests(self, store: ObjectStore) -> Callable[[int], None]:
        """Lose the next so many PUTs before the service sees them."""
        raise NotImplementedError

    @pytest.fixture
    def answer_conflict(self, store: ObjectStore) -> Callable[[int], None]:
        """Answer the next so many PUTs with 409, as S3 does while another PUT is under way."""
        raise NotImplementedError

    def test_a_put_that_landed_but_lost_its_answer_counts_once(
        self, store: ObjectStore, prefix: str, lose_answers: Callable[[int], None]
    ) -> None:
        lose_answers(1)

        store.put(f"{prefix}a", b"body", write_id="one")

        assert store.get_all(f"{prefix}a", limit=10) == b"body"

    def test_a_put_whose_request_was_lost_is_sent_again(
        self, store: ObjectStore, prefix: str, lose_requests: Callable[[int], None]
    ) -> None:
        lose_requests(1)

        store.put(f"{prefix}a", b"body", write_id="one")

        assert store.get_all(f"{prefix}a", limit=10) == b"body"

    def test_a_lost_answer_over_a_foreign_object_is_a_refusal(
        self, store: ObjectStore, prefix: str, lose_answers: Callable[[int], None]
    ) -> None:
        store.put(f"{prefix}a", b"theirs", write_id="theirs")
        lose_answers(1)

        with pytest.raises(AlreadyExistsError):
            store.put(f"{prefix}a", b"ours", write_id="ours")

        assert store.get_all(f"{prefix}a", limit=10) == b"theirs"

    def test_a_put_that_never_gets_through_is_unknown_and_not_a_refusal(
        self, store: ObjectStore, prefix: str, lose_requests: Callable[[int], None]
    ) -> None:
        lose_requests(1000)

        with pytest.raises(UnknownOutcomeError) as caught:
            store.put(f"{prefix}a", b"body", write_id="one")

        assert caught.value.key == f"{prefix}a"

    def test_a_conflict_with_a_put_that_is_still_under_way_is_tried_again(
        self, store: ObjectStore, prefix: str, answer_conflict: Callable[[int], None]
    ) -> None:
        # S3 answers 409 while another PUT of the key is under way, which may be an earlier attempt
        # of ours; nothing can be read back yet, so nothing says that somebody else has the key.
        answer_conflict(1)

        store.put(f"{prefix}a", b"body", write_id="one")

        assert store.get_all(f"{prefix}a", limit=10) == b"body"
