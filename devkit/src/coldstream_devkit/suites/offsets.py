"""What every `ConsumerOffsets` must do."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError
from coldstream.ports import MAX_REFERENCE, ConsumerOffsets

STREAM, OTHER = "__orders_1", "__orders_2"
#: References that the backend lets a stream have.
MOST = 4


class OffsetsSuite:
    """The rules of the port, one test a rule; the backend overrides `offsets`, empty then."""

    @pytest.fixture
    def offsets(self) -> ConsumerOffsets:
        """The offsets under test."""
        raise NotImplementedError

    def test_nothing_is_stored_at_first(self, offsets: ConsumerOffsets) -> None:
        assert offsets.query(STREAM, "app") is None

    def test_each_consumer_of_each_stream_has_its_own(self, offsets: ConsumerOffsets) -> None:
        assert offsets.store(STREAM, "app", 7) == 7
        assert offsets.store(STREAM, "größer/#1", 2**64 - 1) == 2**64 - 1
        assert offsets.store(OTHER, "app", 0) == 0

        assert offsets.query(STREAM, "app") == 7
        assert offsets.query(STREAM, "größer/#1") == 2**64 - 1
        assert offsets.query(OTHER, "app") == 0
        assert offsets.query(OTHER, "größer/#1") is None

    def test_a_consumer_that_was_replaced_takes_nobody_back(self, offsets: ConsumerOffsets) -> None:
        offsets.store(STREAM, "app", 50)
        offsets.store(STREAM, "app", 100)

        assert offsets.store(STREAM, "app", 60, seen=50) == 100
        assert offsets.store(STREAM, "app", 60) == 100
        assert offsets.query(STREAM, "app") == 100

    def test_a_consumer_may_go_back_from_what_it_has_seen(self, offsets: ConsumerOffsets) -> None:
        offsets.store(STREAM, "app", 100)

        assert offsets.store(STREAM, "app", 3, seen=100) == 3
        assert offsets.query(STREAM, "app") == 3

    def test_the_same_again_changes_nothing(self, offsets: ConsumerOffsets) -> None:
        for _ in range(2):
            assert offsets.store(STREAM, "app", 9, seen=None) == 9

    @pytest.mark.parametrize("reference", ["", "r" * (MAX_REFERENCE + 1), "a\0b"])
    def test_a_name_that_no_consumer_can_have_is_refused(
        self, offsets: ConsumerOffsets, reference: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            offsets.store(STREAM, reference, 1)
        with pytest.raises(InvalidInputError):
            offsets.query(STREAM, reference)

    @pytest.mark.parametrize("offset", [-1, 2**64])
    def test_an_offset_that_no_message_has_is_refused(
        self, offsets: ConsumerOffsets, offset: int
    ) -> None:
        with pytest.raises(InvalidInputError):
            offsets.store(STREAM, "app", offset)

    def test_a_stream_has_so_many_consumers_and_those_below_its_begin_make_room(
        self, offsets: ConsumerOffsets
    ) -> None:
        for number in range(MOST):
            offsets.store(STREAM, f"app{number}", number)
        with pytest.raises(InvalidInputError, match=f"{MOST} consumers"):
            offsets.store(STREAM, "one more", 1000)
        assert offsets.store(STREAM, "app0", 5) == 5, "who is there already needs no room"

        assert offsets.store(STREAM, "one more", 1000, first=2) == 1000

        assert offsets.query(STREAM, "app1") is None
        assert offsets.query(STREAM, "app0") == 5
        assert offsets.query(STREAM, "app2") == 2
