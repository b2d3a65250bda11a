"""What every `Deleter` must do, beside an `ObjectStore` of the same bucket.

`LostDeleteAnswerSuite` is for backends that talk over a network.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coldstream.errors import (
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.ports import Deleter, ObjectStore
from coldstream_devkit.suites.object_store import StoreFixtures


class DeleterFixtures(StoreFixtures):
    """What the suites need; the backend overrides `deleter`."""

    @pytest.fixture
    def deleter(self, store: ObjectStore) -> Deleter:
        """The deleter under test."""
        raise NotImplementedError

    @pytest.fixture
    def three(self, store: ObjectStore, prefix: str) -> list[str]:
        """Keys of three objects."""
        keys = [f"{prefix}{letter}" for letter in "abc"]
        self.fill(store, keys)
        return keys

    def keys(self, store: ObjectStore, prefix: str) -> list[str]:
        """Keys of the objects that are there."""
        return [row.key for row in store.list(prefix)]


class DeleterSuite(DeleterFixtures):
    """The rules of the port, one test a rule."""

    def test_what_is_deleted_is_gone_and_nothing_else(
        self, store: ObjectStore, deleter: Deleter, prefix: str, three: list[str]
    ) -> None:
        assert deleter.delete(three[:2]) == three[:2]
        assert self.keys(store, prefix) == three[2:]
        with pytest.raises(NotFoundError):
            store.get_all(three[0], limit=10)

    def test_a_key_without_an_object_is_gone_too_and_a_key_given_twice_is_gone_once(
        self, deleter: Deleter, prefix: str, three: list[str]
    ) -> None:
        missing = f"{prefix}missing"

        assert deleter.delete([missing, three[0], missing]) == [missing, three[0]]
        assert deleter.delete([three[0]]) == [three[0]]

    def test_nothing_asked_is_nothing_done(self, deleter: Deleter) -> None:
        assert deleter.delete([]) == []

    def test_more_keys_than_a_request_takes_are_refused_and_none_goes(
        self, store: ObjectStore, deleter: Deleter, prefix: str, three: list[str]
    ) -> None:
        with pytest.raises(InternalError):
            deleter.delete([*three, *(f"{prefix}{number}" for number in range(998))])

        assert self.keys(store, prefix) == three

    def test_a_thousand_objects_go_at_once(
        self, store: ObjectStore, deleter: Deleter, prefix: str
    ) -> None:
        keys = [f"{prefix}{number:04d}" for number in range(1000)]
        self.fill(store, keys[::50])

        assert deleter.delete(keys) == keys
        assert self.keys(store, prefix) == []

    def test_a_key_with_an_equals_sign_or_a_star_means_itself(
        self, store: ObjectStore, deleter: Deleter, prefix: str
    ) -> None:
        keys = [f"{prefix}=a", f"{prefix}a*", f"{prefix}ab"]
        self.fill(store, keys)

        assert deleter.delete(keys[:2]) == keys[:2]
        assert self.keys(store, prefix) == keys[2:]


class LostDeleteAnswerSuite(DeleterFixtures):
    """What a delete must do when the network or a part of S3 fails."""

    @pytest.fixture
    def lose_delete_answers(self, deleter: Deleter) -> Callable[[int], None]:
        """Lose the answers of the next so many requests; the service performs them."""
        raise NotImplementedError

    @pytest.fixture
    def lose_delete_requests(self, deleter: Deleter) -> Callable[[int], None]:
        """Lose the next so many requests before the service sees them."""
        raise NotImplementedError

    @pytest.fixture
    def refuse_keys(self, deleter: Deleter) -> Callable[..., None]:
        """`refuse_keys(keys, code, count)`: the next `count` requests leave these keys, and say
        with which error; with the code "" they say nothing about them."""
        raise NotImplementedError

    def test_a_delete_whose_answer_or_request_was_lost_is_asked_again(
        self,
        store: ObjectStore,
        deleter: Deleter,
        prefix: str,
        three: list[str],
        lose_delete_answers: Callable[[int], None],
        lose_delete_requests: Callable[[int], None],
    ) -> None:
        lose_delete_answers(1)
        assert deleter.delete(three[:1]) == three[:1]
        lose_delete_requests(1)
        assert deleter.delete(three[1:]) == three[1:]

        assert self.keys(store, prefix) == []

    def test_a_delete_that_never_gets_through_claims_nothing(
        self,
        store: ObjectStore,
        deleter: Deleter,
        prefix: str,
        three: list[str],
        lose_delete_requests: Callable[[int], None],
    ) -> None:
        lose_delete_requests(1000)

        with pytest.raises(UnavailableError):
            deleter.delete(three)

        assert self.keys(store, prefix) == three

    @pytest.mark.parametrize("code", ["InternalError", "SlowDown", ""])
    def test_what_s3_leaves_is_asked_again(
        self,
        store: ObjectStore,
        deleter: Deleter,
        prefix: str,
        three: list[str],
        refuse_keys: Callable[..., None],
        code: str,
    ) -> None:
        refuse_keys(three[1:2], code, 2)

        assert deleter.delete(three) == three
        assert self.keys(store, prefix) == []

    @pytest.mark.parametrize("code", ["InternalError", "AccessDenied", ""])
    def test_what_s3_leaves_for_good_is_never_said_to_be_gone(
        self,
        store: ObjectStore,
        deleter: Deleter,
        prefix: str,
        three: list[str],
        refuse_keys: Callable[..., None],
        code: str,
    ) -> None:
        refuse_keys(three[1:2], code, 1000)

        assert deleter.delete(three) == [three[0], three[2]]
        assert self.keys(store, prefix) == three[1:2]

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("InternalError", UnavailableError),
            ("", UnavailableError),
            ("AccessDenied", PermissionDeniedError),
        ],
    )
    def test_when_nothing_goes_the_reason_is_raised(
        self,
        deleter: Deleter,
        three: list[str],
        refuse_keys: Callable[..., None],
        code: str,
        expected: type[Exception],
    ) -> None:
        refuse_keys(three, code, 1000)

        with pytest.raises(expected):
            deleter.delete(three)
