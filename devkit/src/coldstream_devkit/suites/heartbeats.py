"""What every `Heartbeats` must do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import InvalidInputError
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.stream_words import WordsPage
from coldstream.ports import Heartbeats

ONE = Heartbeat("rabbit@a", 1_800_000_000_000, 60_000, streams=7, behind=2, standing=1, failing=0)
TWO = replace(ONE, node="rabbit@ä", at_ms=0, streams=2**63 - 1, lag_ms=86_400_000, left_out=9)
TWO = replace(TWO, shared=1, instance="0123456789abcdef")


class HeartbeatsSuite:
    """The rules of the port, one test a rule; the backend overrides `heartbeats`, empty then."""

    @pytest.fixture
    def heartbeats(self) -> Heartbeats:
        """The heartbeats under test."""
        raise NotImplementedError

    def test_nobody_has_been_heard_of_at_first(self, heartbeats: Heartbeats) -> None:
        assert heartbeats.all() == []

    def test_the_last_word_of_each_node_is_kept(self, heartbeats: Heartbeats) -> None:
        later = replace(ONE, at_ms=ONE.at_ms + 1, behind=0)
        for each in (ONE, TWO, later):
            heartbeats.beat(each)

        assert {each.node: each for each in heartbeats.all() if isinstance(each, Heartbeat)} == {
            "rabbit@a": later,
            "rabbit@ä": TWO,
        }

    def test_a_word_is_given_back_by_the_next_one_of_its_node(self, heartbeats: Heartbeats) -> None:
        later = replace(ONE, at_ms=ONE.at_ms + 1, instance="f" * 16)

        assert heartbeats.beat(ONE) is None
        assert heartbeats.beat(TWO) is None
        assert heartbeats.beat(later) == ONE
        assert heartbeats.beat(ONE) == later

    @pytest.mark.parametrize("node", ["", "n" * 256])
    def test_a_name_that_no_node_can_have_is_refused(
        self, heartbeats: Heartbeats, node: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            heartbeats.beat(replace(ONE, node=node))

    def test_the_last_page_of_each_number_and_count_is_kept(self, heartbeats: Heartbeats) -> None:
        one = WordsPage("rabbit@a", 0, 2, 5, b"one")
        other = WordsPage("rabbit@a", 1, 2, 5, b"other")
        for each in (one, other, replace(one, at_ms=6, data=b"later")):
            heartbeats.tell(each)

        assert heartbeats.told("rabbit@a", 2) == [replace(one, at_ms=6, data=b"later"), other]
        assert heartbeats.told("rabbit@a", 2, 1) == [other]

    def test_pages_of_another_count_or_node_are_not_given(self, heartbeats: Heartbeats) -> None:
        heartbeats.tell(WordsPage("rabbit@a", 0, 1, 5, b"before it had more streams"))
        heartbeats.tell(WordsPage("rabbit@a/00002/", 0, 1, 5, b"a name that looks like a place"))

        assert heartbeats.told("rabbit@a", 2) == []
        assert heartbeats.told("rabbit@b", 1) == []
        assert heartbeats.all() == [], "a page is no heartbeat"

    @pytest.mark.parametrize("node", ["", "n" * 256])
    def test_a_page_of_a_name_that_no_node_can_have_is_refused(
        self, heartbeats: Heartbeats, node: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            heartbeats.tell(WordsPage(node, 0, 1, 5, b""))
