"""Which rule is about a stream: the first that matches, and none before its name is settled."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.agent.disk import directory
from coldstream.agent.disk.directory import Directories
from coldstream.agent.selection import TIERED, UNDECIDED, Selection, StreamRule, settings_for
from coldstream.agent.settings import AgentSettings
from coldstream.agent.steering import Steered, Steering
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName

from .machine import Machine, Workers

TEST = StreamRule(vhost="test-.*", tier=False)
AUDIT = StreamRule(name=r"audit\..*", flush=5)


def test_the_first_rule_that_matches_decides() -> None:
    selection = Selection((TEST, AUDIT, StreamRule(name="audit.*", tier=False)))

    assert selection.rule_for(QueueName("", "test-1", "audit.a")) is TEST
    assert selection.rule_for(QueueName("", "/", "audit.a")) is AUDIT
    assert selection.rule_for(QueueName("", "/", "orders")) is TIERED


def test_a_pattern_is_about_the_whole_name_and_both_patterns_must_match() -> None:
    rule = StreamRule(vhost="a", name="b")

    assert rule.matches(QueueName("", "a", "b"))
    for vhost, queue in (("aa", "b"), ("a", "bb"), ("a", "c"), ("", "b")):
        assert not rule.matches(QueueName("", vhost, queue))


@pytest.mark.parametrize("name", [None, QueueName(), QueueName("cluster", "/", "")])
def test_a_stream_whose_name_is_not_settled_is_never_judged_by_a_rule_for_names(
    name: QueueName | None,
) -> None:
    assert Selection((AUDIT, StreamRule(tier=False))).rule_for(name) is UNDECIDED


def test_a_rule_without_a_pattern_decides_before_the_name_is_known() -> None:
    everything = StreamRule(tier=False)

    assert Selection((everything, AUDIT)).rule_for(None) is everything
    assert Selection().rule_for(None) is TIERED


@pytest.mark.parametrize("pattern", ["(", "a" * 257, r"\d+"])
def test_a_pattern_that_cannot_be_matched_is_refused_and_shown(pattern: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        StreamRule(vhost=pattern)

    assert "vhost" in caught.value.reason
    assert repr(pattern[:80]) in caught.value.reason


def test_a_rule_changes_only_what_it_names() -> None:
    base = AgentSettings(flush_ms=60_000, target_size=2**20, uploads=7)

    quick = settings_for(AUDIT, base)

    assert (quick.flush_ms, quick.target_size, quick.uploads) == (5000, 2**20, 7)
    assert settings_for(StreamRule(fragment_size=4096), base).target_size == 4096
    assert settings_for(TIERED, base) is base


def test_a_fragment_that_the_agents_memory_cannot_hold_is_refused_with_its_rule() -> None:
    large = Selection((AUDIT, StreamRule(fragment_size=2**30)))

    with pytest.raises(InvalidInputError, match=r"rule 2 .*memory"):
        large.check(AgentSettings(memory_budget=256 * 2**20))


class TestSteering:
    names: dict[str, QueueName]
    asked: list[str]

    def steering(self, *rules: StreamRule) -> Steering:
        self.names, self.asked = {"__b_1": QueueName("", "/", "audit.b")}, []
        return Steering(AgentSettings(), Selection(rules), self.names, self.asked.append)

    def chosen(self, steering: Steering) -> tuple[str, ...]:
        return steering.chosen(Directories(("__a_1", "__b_1"), ("bare",), ("odd!",))).streams

    def test_a_stream_is_taken_only_once_its_name_is_settled(self) -> None:
        steering = self.steering(AUDIT, TEST)

        assert self.chosen(steering) == ("__b_1",)
        assert (steering.undecided, self.asked) == (("__a_1",), [])

        self.names["__a_1"] = QueueName("", "/", "a")
        assert self.chosen(steering) == ("__a_1", "__b_1")
        assert steering.undecided == ()

    def test_a_stream_is_taken_only_once_nobody_asks_about_it_any_more(self) -> None:
        """Two who ask about one stream at a time may keep what was proved first."""
        steering, machine = self.steering(AUDIT, TEST), Machine()
        self.chosen(steering)
        steering.asking.begin(Workers(machine, "name"), steering.undecided, machine.flag())
        self.names["__a_1"] = QueueName("", "/", "a")

        assert self.chosen(steering) == ("__b_1",)
        machine.work()
        assert self.asked == ["__a_1"]
        assert self.chosen(steering) == ("__a_1", "__b_1")

    def test_a_stream_that_a_rule_leaves_alone_is_not_seen(self) -> None:
        steering = self.steering(StreamRule(name=r"audit\.b", tier=False))
        self.names["__a_1"] = QueueName("", "/", "a")

        assert self.chosen(steering) == ("__a_1",)
        assert steering.left == ("__b_1",)

    def test_each_stream_has_the_settings_of_its_rule(self) -> None:
        steering = self.steering(AUDIT)

        assert steering.settings_of("__b_1").flush_ms == 5000
        assert steering.settings_of("__a_1").flush_ms == 60_000

    def test_rules_that_do_not_fit_change_nothing(self) -> None:
        steering = self.steering(AUDIT)

        with pytest.raises(InvalidInputError):
            steering.change(AgentSettings(), Selection((StreamRule(fragment_size=2**31),)))

        assert steering.selection.rules == (AUDIT,)


def test_a_directory_that_a_rule_leaves_alone_is_looked_into_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever another one came or went, all of them were, thousands in the agent's own thread."""
    steering = Steering(
        AgentSettings(), Selection((StreamRule(tier=False),)), {}, lambda stream: None
    )
    host, looked = Steered(steering), []

    def written(path: Path) -> int:
        looked.append(path.name)
        return 1

    monkeypatch.setattr(directory, "_written", written)
    for number in range(3):
        (tmp_path / f"__test_{number}").mkdir()
        assert host.scan(tmp_path, ()).streams == ()

    assert looked == ["__test_0", "__test_1", "__test_2"]
    assert len(steering.left) == 3
