"""What an agent tells of its streams: what has changed, a few pages at a time, none forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coldstream.adapters.memory import MemoryHeartbeats
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.heartbeat import Beats, Teller, word_of
from coldstream.agent.telling.progress import Progress, Standstill
from coldstream.agent.telling.watermarks import Mark, Watermarks
from coldstream.errors import UnavailableError
from coldstream.plans.heartbeats import Heartbeat, NameWatch
from coldstream.plans.stream_words import StreamWord, WordsPage, unpack
from tests.unit.agent.machine import Machine

SETTINGS = AgentSettings(node="rabbit@a")


class Heard(MemoryHeartbeats):
    """Counts pages; refuses one, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[int] = []
        self.refuses = False

    def tell(self, page: WordsPage) -> None:
        if self.refuses:
            self.refuses = False
            raise UnavailableError("DynamoDB did not answer")
        self.pages.append(page.number)
        super().tell(page)


class Scene:
    def __init__(self, streams: int, heard: Heard | None = None, instance: str = "a") -> None:
        self.heard = heard or Heard()
        self.teller = Teller(self.heard, NameWatch(instance))
        self.rows = [Progress(f"__s{number}_1") for number in range(streams)]
        self.now_ms = 1_800_000_000_000

    def tell(self, rows: Sequence[Progress] | None = None) -> str | None:
        self.heard.pages.clear()
        self.now_ms += 60_000
        return self.teller.tell(self.rows if rows is None else rows, SETTINGS, self.now_ms)

    @property
    def beat(self) -> Heartbeat:
        (found,) = self.heard.all()
        assert isinstance(found, Heartbeat)
        return found

    def words(self) -> dict[str, StreamWord]:
        pages = self.heard.told(SETTINGS.node, self.beat.pages)
        return {
            word.stream: word
            for page in pages
            if isinstance(page, WordsPage)
            for word in unpack(page.data)
        }


def test_a_page_is_told_again_only_when_one_of_its_words_has_changed() -> None:
    scene = Scene(100)
    scene.tell()
    assert sorted(scene.heard.pages) == [0, 1]
    assert set(scene.words()) == {row.stream for row in scene.rows}

    scene.tell()
    assert scene.heard.pages == []

    scene.rows[7].marks.published = Mark(5, 1)
    scene.tell()
    assert len(scene.heard.pages) == 1
    assert scene.words()["__s7_1"].offsets[-1] == 5


def test_of_very_many_streams_all_are_told_in_turns_and_until_then_the_agent_says_so() -> None:
    scene = Scene(2_500)

    for pages in (0, 64):
        scene.tell()
        assert len(scene.heard.pages) == 32
        assert scene.beat.pages == pages
    assert len(scene.words()) == 2_500

    seen: set[int] = set()
    for number in range(64 // 8):
        for row in scene.rows:
            row.marks.published = Mark(number + 1, 1)
        scene.tell()
        assert len(scene.heard.pages) == 8
        seen |= set(scene.heard.pages)
    assert seen == set(range(64)), "what has waited longest is first"


def test_a_heartbeat_has_the_longest_lag_of_all_its_streams() -> None:
    scene = Scene(3)
    scene.rows[0].marks.lag_seconds, scene.rows[2].marks.lag_seconds = 1.5, 900.25

    scene.tell()
    assert scene.beat.lag_ms == 900_250
    scene.tell([])
    assert scene.beat.lag_ms == 0


def test_a_page_that_was_refused_is_told_with_the_next_heartbeat() -> None:
    scene = Scene(100)
    scene.heard.refuses = True

    assert scene.tell() == "no heartbeat: DynamoDB did not answer"
    assert scene.tell() is None
    assert set(scene.words()) == {row.stream for row in scene.rows}


def test_a_stream_that_is_followed_no_more_is_taken_back() -> None:
    scene = Scene(3)
    scene.tell()

    scene.tell(scene.rows[:2])

    assert set(scene.words()) == {"__s0_1", "__s1_1"}


def test_streams_that_local_retention_is_about_to_reach_are_counted() -> None:
    scene = Scene(3)
    scene.rows[0].marks.headroom_seconds = 3599.0
    scene.rows[1].marks.headroom_seconds = 3601.0

    scene.tell()

    assert scene.beat.racing == 1


@pytest.mark.parametrize(
    ("still", "error", "reason", "since"),
    [
        (None, None, "", 0),
        (None, UnavailableError("no answer"), "no answer", 0),
        (Standstill(180.0, 3, "it waits"), UnavailableError("x"), "it waits", 820_000),
    ],
)
def test_a_word_has_the_reason_and_since_when_nothing_moves(
    still: Standstill | None, error: UnavailableError | None, reason: str, since: int
) -> None:
    row = Progress("s", error=error, standstill=still)
    row.marks = Watermarks(lag_seconds=1.5, lag_bytes=9, headroom_seconds=2.0, super_stream="all")

    word = word_of(row, 1_000_000)

    assert (word.reason, word.stuck_since_ms) == (reason, since)
    assert (word.lag_ms, word.lag_bytes, word.headroom_ms) == (1500, 9, 2000)
    assert word.super_stream == "all"


class Speaker:
    def submit(self, act: Callable[..., object], /, *given: object) -> None:
        act(*given)


def test_two_agents_of_one_name_warn_and_say_so_until_one_of_them_has_another_name() -> None:
    """Each wrote over what the other had said, and its silence was not seen when it died."""
    heard, machine = Heard(), Machine()
    all_beats = [Beats(Scene(1, heard, instance).teller, machine) for instance in ("a", "b", "c")]
    said = []
    for now in range(10):
        machine.now += 60
        for each in all_beats if now < 3 else all_beats[:1]:
            each.beat(Speaker(), SETTINGS, list, 0)
        (word,) = heard.all()
        assert isinstance(word, Heartbeat)
        said.append((word.shared, all_beats[0].shared != ()))

    assert said == [(0, False), (0, True), (1, True), *[(1, True)] * 5, (0, False), (0, False)]
    (warning,) = all_beats[1].shared
    assert "'rabbit@a'" in warning
    assert "host name" in warning


def test_an_agent_that_was_restarted_is_no_other_agent() -> None:
    """The word of its earlier life is younger than an interval."""
    heard, machine = Heard(), Machine()
    for instance in ("a", "b"):
        beats = Beats(Scene(1, heard, instance).teller, machine)
        for _ in range(3):
            beats.beat(Speaker(), SETTINGS, list, 0)
            machine.now += 60
            assert beats.shared == ()


@pytest.mark.parametrize("where", ["in its thread", "without a thread"])
def test_a_fault_while_it_is_told_is_said_and_the_next_heartbeat_comes(where: str) -> None:
    scene, faults, sent = Scene(1), [RuntimeError("can't start new thread")], []
    machine = Machine()
    beats = Beats(scene.teller, machine)

    class Speaker:
        def submit(self, act: Callable[..., object], /, *given: object) -> None:
            if where == "without a thread" and faults:
                raise faults.pop()
            act(*given)

    def rows() -> list[Progress]:
        sent.append(machine.now)
        return scene.rows if not faults or where != "in its thread" else [faults.pop()]  # type: ignore[list-item]

    beats.beat(Speaker(), SETTINGS, rows, 0)
    assert beats.unheard[0].startswith("no heartbeat: ")
    machine.now += 59
    beats.beat(Speaker(), SETTINGS, rows, 0)
    machine.now += 1
    beats.beat(Speaker(), SETTINGS, rows, 0)

    assert (beats.unheard, len(sent)) == ((), 2)
    assert scene.beat.streams == 1
