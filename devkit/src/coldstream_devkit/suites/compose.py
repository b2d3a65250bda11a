"""What every `Composer` must do, beside an `ObjectStore` of the same bucket.

`LostComposeAnswerSuite` is for backends that talk over a network.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from coldstream.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.ports import (
    MAX_PARTS,
    MIN_PART_BYTES,
    BytesPart,
    Composer,
    CopyPart,
    ObjectStore,
    Part,
)
from coldstream_devkit.suites.object_store import StoreFixtures

#: Two parts' worth of bytes in which no two ranges look alike.
BODY = secrets.token_bytes(MIN_PART_BYTES * 2 + 17)


class ComposerFixtures(StoreFixtures):
    """What the suites need; the backend overrides `composer` and `uploads`."""

    @pytest.fixture
    def composer(self, store: ObjectStore) -> Composer:
        """The composer under test."""
        raise NotImplementedError

    @pytest.fixture
    def source(self, store: ObjectStore, prefix: str) -> str:
        """Key of an object with the bytes of `BODY`."""
        store.put(f"{prefix}source", BODY, write_id="source")
        return f"{prefix}source"

    @pytest.fixture
    def target(self, prefix: str) -> str:
        """A key that is free."""
        return f"{prefix}target"

    def uploads(self, prefix: str) -> list[str]:
        """Keys below `prefix` whose uploads have begun and neither ended nor been dropped."""
        return []


class ComposerSuite(ComposerFixtures):
    """The rules of the port, one test a rule."""

    def test_parts_of_objects_and_bytes_are_joined_in_their_order(
        self, store: ObjectStore, composer: Composer, source: str, target: str, prefix: str
    ) -> None:
        store.put(f"{prefix}other", BODY[::-1], write_id="other")
        end = MIN_PART_BYTES + 5
        parts: list[Part] = [
            BytesPart(BODY[:MIN_PART_BYTES]),
            CopyPart(source, 5, end),
            CopyPart(f"{prefix}other", 0, MIN_PART_BYTES),
            BytesPart(b"the end"),
        ]

        composer.compose(target, parts, write_id="one")

        expected = BODY[:MIN_PART_BYTES] + BODY[5:end] + BODY[::-1][:MIN_PART_BYTES] + b"the end"
        assert store.get_all(target, limit=len(expected)) == expected
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_can_be_a_part_and_one_small_part_is_enough(
        self,
        store: ObjectStore,
        composer: Composer,
        target: str,
        kind: Callable[[bytes], bytes],
    ) -> None:
        composer.compose(target, [BytesPart(kind(b"hello"))], write_id="one")

        assert store.get_all(target, limit=10) == b"hello"

    def test_the_last_part_may_be_a_single_copied_byte(
        self, store: ObjectStore, composer: Composer, source: str, target: str
    ) -> None:
        size = len(BODY)
        parts = [CopyPart(source, 0, MIN_PART_BYTES), CopyPart(source, size - 1, size)]

        composer.compose(target, parts, write_id="one")

        assert store.get_all(target, limit=size) == BODY[:MIN_PART_BYTES] + BODY[-1:]

    def test_a_key_of_another_write_is_refused_and_not_overwritten(
        self, store: ObjectStore, composer: Composer, source: str, target: str, prefix: str
    ) -> None:
        store.put(target, b"first", write_id="one")

        with pytest.raises(AlreadyExistsError) as caught:
            composer.compose(target, [CopyPart(source, 0, 10)], write_id="two")

        assert caught.value.key == target
        assert store.get_all(target, limit=10) == b"first"
        assert self.uploads(prefix) == []

    def test_a_repeated_write_counts_as_landed_once_whether_put_or_composed(
        self, store: ObjectStore, composer: Composer, source: str, target: str, prefix: str
    ) -> None:
        composer.compose(target, [CopyPart(source, 0, 10)], write_id="one")

        composer.compose(target, [CopyPart(source, 0, 10)], write_id="one")
        store.put(target, BODY[:10], write_id="one")
        with pytest.raises(AlreadyExistsError):
            store.put(target, BODY[:10], write_id="two")

        assert store.get_all(target, limit=10) == BODY[:10]
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize(
        "parts",
        [
            [],
            [BytesPart(b"")],
            [BytesPart(b"x"), BytesPart(b"y")],
            [CopyPart("k", 0, MIN_PART_BYTES - 1), BytesPart(b"y")],
            [CopyPart("k", 0, MIN_PART_BYTES), BytesPart(b"y"), BytesPart(b"z")],
            [CopyPart("k", 5, 5)],
            [CopyPart("k", 6, 5)],
            [CopyPart("k", -1, 5)],
            [CopyPart("k", 0, 5 * 2**30 + 1)],
            [CopyPart("k", 0, MIN_PART_BYTES)] * (MAX_PARTS + 1),
        ],
        ids=lambda parts: f"{len(parts)}-parts",
    )
    def test_parts_that_s3_would_not_take_are_refused_before_anything_is_sent(
        self,
        store: ObjectStore,
        composer: Composer,
        target: str,
        prefix: str,
        parts: list[Part],
    ) -> None:
        with pytest.raises(InternalError):
            composer.compose(target, parts, write_id="one")

        assert store.list(prefix) == []
        assert self.uploads(prefix) == []

    def test_a_missing_source_is_named_and_nothing_is_left_behind(
        self, store: ObjectStore, composer: Composer, source: str, target: str, prefix: str
    ) -> None:
        missing = f"{prefix}missing"
        parts = [CopyPart(source, 0, MIN_PART_BYTES), CopyPart(missing, 0, 10)]

        with pytest.raises(NotFoundError) as caught:
            composer.compose(target, parts, write_id="one")

        assert caught.value.key == missing
        assert [row.key for row in store.list(prefix)] == [source]
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize("beyond", [1, 2**30])
    def test_a_range_beyond_its_source_is_corrupt_data_and_never_a_shorter_object(
        self,
        store: ObjectStore,
        composer: Composer,
        source: str,
        target: str,
        prefix: str,
        beyond: int,
    ) -> None:
        parts = [CopyPart(source, 0, MIN_PART_BYTES), CopyPart(source, 17, len(BODY) + beyond)]

        with pytest.raises(CorruptDataError) as caught:
            composer.compose(target, parts, write_id="one")

        assert caught.value.key == source
        assert [row.key for row in store.list(prefix)] == [source]
        assert self.uploads(prefix) == []


class LostComposeAnswerSuite(ComposerFixtures):
    """What a composition must do when the network loses requests or answers.

    Steps are named as S3 names them: CreateMultipartUpload, UploadPart, UploadPartCopy,
    CompleteMultipartUpload.
    """

    @pytest.fixture
    def lose_step_answers(self, composer: Composer) -> Callable[[str, int], None]:
        """Lose the answers of the next so many requests of a step; the service performs them."""
        raise NotImplementedError

    @pytest.fixture
    def lose_step_requests(self, composer: Composer) -> Callable[[str, int], None]:
        """Lose the next so many requests of a step before the service sees them."""
        raise NotImplementedError

    @pytest.fixture
    def answer_step(self, composer: Composer) -> Callable[[str, int, str, int], None]:
        """`answer_step(step, status, code, count)`: answer in the service's stead."""
        raise NotImplementedError

    @pytest.fixture
    def parts(self, source: str) -> list[Part]:
        """Parts that send and copy."""
        return [CopyPart(source, 0, MIN_PART_BYTES), BytesPart(b"the end")]

    def composed(self, store: ObjectStore, target: str) -> bool:
        """Whether `parts` have landed."""
        expected = BODY[:MIN_PART_BYTES] + b"the end"
        return store.get_all(target, limit=len(expected)) == expected

    def test_a_composition_that_landed_but_lost_its_last_answer_counts_once(
        self,
        store: ObjectStore,
        composer: Composer,
        target: str,
        prefix: str,
        parts: list[Part],
        lose_step_answers: Callable[[str, int], None],
    ) -> None:
        lose_step_answers("CompleteMultipartUpload", 1)

        composer.compose(target, parts, write_id="one")

        assert self.composed(store, target)
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize("step", ["UploadPart", "UploadPartCopy", "CompleteMultipartUpload"])
    def test_a_step_whose_request_was_lost_is_sent_again(
        self,
        store: ObjectStore,
        composer: Composer,
        target: str,
        prefix: str,
        parts: list[Part],
        lose_step_requests: Callable[[str, int], None],
        step: str,
    ) -> None:
        lose_step_requests(step, 1)

        composer.compose(target, parts, write_id="one")

        assert self.composed(store, target)
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize("step", ["UploadPart", "UploadPartCopy"])
    def test_a_part_that_never_gets_through_leaves_no_upload_behind(
        self,
        store: ObjectStore,
        composer: Composer,
        source: str,
        target: str,
        prefix: str,
        parts: list[Part],
        lose_step_requests: Callable[[str, int], None],
        step: str,
    ) -> None:
        lose_step_requests(step, 1000)

        with pytest.raises(UnavailableError):
            composer.compose(target, parts, write_id="one")

        assert [row.key for row in store.list(prefix)] == [source]
        assert self.uploads(prefix) == []

    def test_an_end_that_never_gets_through_is_unknown_and_not_a_refusal(
        self,
        composer: Composer,
        target: str,
        parts: list[Part],
        lose_step_requests: Callable[[str, int], None],
    ) -> None:
        lose_step_requests("CompleteMultipartUpload", 1000)

        with pytest.raises(UnknownOutcomeError) as caught:
            composer.compose(target, parts, write_id="one")

        assert caught.value.key == target

    def test_a_lost_end_over_a_foreign_object_is_a_refusal(
        self,
        store: ObjectStore,
        composer: Composer,
        target: str,
        prefix: str,
        parts: list[Part],
        lose_step_answers: Callable[[str, int], None],
    ) -> None:
        store.put(target, b"theirs", write_id="theirs")
        lose_step_answers("CompleteMultipartUpload", 1)

        with pytest.raises(AlreadyExistsError):
            composer.compose(target, parts, write_id="ours")

        assert store.get_all(target, limit=10) == b"theirs"
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize(
        ("status", "code"), [(409, "ConditionalRequestConflict"), (404, "NoSuchUpload")]
    )
    def test_an_upload_that_can_no_longer_end_is_made_again(
        self,
        store: ObjectStore,
        composer: Composer,
        target: str,
        prefix: str,
        parts: list[Part],
        answer_step: Callable[[str, int, str, int], None],
        status: int,
        code: str,
    ) -> None:
        answer_step("CompleteMultipartUpload", status, code, 1)

        composer.compose(target, parts, write_id="one")

        assert self.composed(store, target)
        assert self.uploads(prefix) == []

    @pytest.mark.parametrize(
        ("code", "expected"),
        [("AccessDenied", PermissionDeniedError), ("EntityTooSmall", InternalError)],
    )
    def test_an_end_that_is_refused_as_such_leaves_no_upload_behind(
        self,
        store: ObjectStore,
        composer: Composer,
        source: str,
        target: str,
        prefix: str,
        parts: list[Part],
        answer_step: Callable[[str, int, str, int], None],
        code: str,
        expected: type[Exception],
    ) -> None:
        answer_step("CompleteMultipartUpload", 400, code, 1)

        with pytest.raises(expected):
            composer.compose(target, parts, write_id="one")

        assert [row.key for row in store.list(prefix)] == [source]
        assert self.uploads(prefix) == []
