"""What a cluster's agents say of a stream, put together: whose word counts, and what is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryHeartbeats
from coldstream.plans.heartbeats import FORGOTTEN_MS, Heartbeat
from coldstream.plans.stream_words import StreamWord, WordsPage, pack
from coldstream.usecases.told_by_agents import AgentsTold, told_by_agents

NOW = 1_800_000_000_000
ORDERS, BILLS = "__orders_1", "__bills_2"
WORD = StreamWord(ORDERS, True, (100, 90, 80, 70, 70), (NOW,) * 5, lag_ms=9000, lag_bytes=500)


class Scene:
    def __init__(self) -> None:
        self.heartbeats = MemoryHeartbeats()

    def says(self, node: str, *words: StreamWord, age_ms: int = 0, pages: int = 1) -> None:
        beat = Heartbeat(node, NOW - age_ms, 60_000, len(words), 0, 0, 0, 0, pages)
        self.heartbeats.beat(beat)
        self.heartbeats.tell(WordsPage(node, 0, 1, NOW - age_ms, pack(words)))

    def told(self, stream: str | None = None) -> AgentsTold:
        return told_by_agents(self.heartbeats, now_ms=NOW, stream=stream)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_word_of_the_writers_node_counts_most(scene: Scene) -> None:
    ahead = replace(WORD, writer=False, offsets=(200, 90, 80, 70, 70))
    scene.says("a", ahead)
    scene.says("b", WORD)

    told = scene.told()

    assert [each.node for each in told.said[ORDERS]] == ["b", "a"]


def test_an_agent_that_is_silent_counts_least_and_leaves_nothing_known_to_be_gone(
    scene: Scene,
) -> None:
    scene.says("a", WORD, age_ms=600_000)
    scene.says("b", replace(WORD, writer=False))

    told = scene.told()

    assert [(each.node, each.silent) for each in told.said[ORDERS]] == [("b", False), ("a", True)]
    assert not told.is_gone(BILLS)


def test_a_stream_that_was_made_since_an_agent_spoke_is_not_gone(scene: Scene) -> None:
    scene.says("a", WORD)
    scene.says("b", WORD, age_ms=30_000)
    made = {seconds: f"__bills_{(NOW - 1000 * seconds) * 1_000_000}" for seconds in (60, 20, 0)}
    assert [scene.told().is_gone(each) for each in made.values()] == [True, False, False]


def test_a_stream_is_gone_when_every_agent_lives_and_none_has_it(scene: Scene) -> None:
    assert not scene.told().is_gone(BILLS), "there is no agent at all"

    scene.says("a", WORD)
    scene.says("b", pages=0)
    assert not scene.told().is_gone(BILLS), "one has not told of all its streams yet"

    scene.says("b")
    assert scene.told().is_gone(BILLS)
    assert not scene.told().is_gone(ORDERS)


def test_an_agent_that_was_forgotten_is_not_waited_for(scene: Scene) -> None:
    scene.says("a", WORD)
    scene.says("long gone", WORD, age_ms=FORGOTTEN_MS)

    assert scene.told().is_gone(BILLS)


def test_a_page_that_cannot_be_read_is_told_and_nothing_counts_as_gone(scene: Scene) -> None:
    scene.says("a", WORD)
    scene.heartbeats.tell(WordsPage("a", 0, 1, NOW, b"rubbish"))

    told = scene.told()

    assert len(told.troubles) == 1
    assert not told.is_gone(BILLS)


def test_of_one_stream_only_the_pages_are_read_that_may_name_it(scene: Scene) -> None:
    scene.says("a", WORD, replace(WORD, stream=BILLS))

    assert list(scene.told(BILLS).said) == [BILLS]


def test_lag_grows_while_the_manifest_stands_and_ends_when_it_has_followed(scene: Scene) -> None:
    scene.says("a", replace(WORD, stuck_since_ms=NOW - 10**6), age_ms=20_000)
    said = scene.told().of(ORDERS)
    assert said is not None

    assert said.lag_ms(70, NOW) == 29_000
    assert said.lag_ms(75, NOW) == 9000, "it moves"
    assert said.lag_ms(100, NOW) == 0
    assert said.stuck_since_ms(70) == NOW - 10**6
    assert said.stuck_since_ms(75) is None


def test_what_is_not_proved_waits_ever_longer_until_another_node_has_published_it(
    scene: Scene,
) -> None:
    waits = replace(WORD, local_end=120, unproved_ms=5_000)
    scene.says("a", waits, replace(waits, stream=BILLS, unproved_ms=0), age_ms=20_000)
    said, all_proved = scene.told().of(ORDERS), scene.told().of(BILLS)
    assert said is not None
    assert all_proved is not None

    assert said.unproved_ms(119, NOW) == 25_000
    assert said.unproved_ms(120, NOW) == 0, "another node has published all of it"
    assert all_proved.unproved_ms(100, NOW) == 0
