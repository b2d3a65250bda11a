"""`coldstream delete` and `undelete`, and what other commands say of deleted streams."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from coldstream.adapters.memory import MemoryHeartbeats
from coldstream.broker.management import Management, StreamQueue
from coldstream.cli import delete as command
from coldstream.cli import workflow
from coldstream.cli.workflow import connect_workflows
from coldstream.deployment import ENV_UNDELETE_SECONDS, execution_name
from coldstream.errors import NotFoundError, UnavailableError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.policy import Rule
from coldstream.plans.stream_words import StreamWord, WordsPage, pack
from coldstream.ports import Execution, ExecutionStatus
from tests.cli.conftest import Machines
from tests.support.tier import Tier, chunk

Run = Callable[..., Result]
WEEK_MS = 7 * 86_400_000


@pytest.fixture
def orders(tier: Tier) -> Tier:
    tier.add("s", [[chunk(0, b"0")], [chunk(1, b"1")]], name=QueueName("c", "/", "orders"))
    return tier


def state(tier: Tier, **changes: Any) -> None:
    tier.catalog.items["s"] = replace(tier.catalog.items["s"], **changes)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_delete_writes_a_tombstone_and_says_until_when_it_can_be_undeleted(
    orders: Tier, run: Run, machines: Machines
) -> None:
    before = now_ms()

    done = run("delete", "//orders", "--yes", "--json")

    item = orders.catalog.items["s"]
    assert (done.exit_code, item.state, item.revision) == (0, StreamState.DELETING, 1)
    assert before + WEEK_MS <= item.undelete_until <= now_ms() + WEEK_MS
    told = json.loads(done.stdout)
    assert (told["state"], told["bytes"], told["fragments"]) == ("deleting", item.total_size, 2)
    assert f"can be undeleted until {told['undelete_until']}" in done.stderr
    # The tombstone itself starts the machine, through the table's stream.
    assert not machines.executions


@pytest.mark.parametrize(("flags", "env", "seconds"), [
    (["--undelete", "1m"], {}, 60),
    ([], {"COLDSTREAM_UNDELETE_SECONDS": "120"}, 120),
    (["--undelete", "0"], {"COLDSTREAM_UNDELETE_SECONDS": "120"}, 0),
])  # fmt: skip
def test_the_undelete_time_can_be_set(
    orders: Tier, run: Run, flags: list[str], env: dict[str, str], seconds: int
) -> None:
    before = now_ms()

    assert run("delete", "s", "-y", *flags, env=env).exit_code == 0

    assert 0 <= orders.catalog.items["s"].undelete_until - before - 1000 * seconds < 60_000


def test_an_undelete_time_that_the_stack_s_machine_does_not_wait_for_deletes_nothing(
    orders: Tier, run: Run
) -> None:
    env = {ENV_UNDELETE_SECONDS: "120"}

    done = run("delete", "s", "-y", "--undelete", "3m", env=env)

    assert done.exit_code == 2
    assert "undelete-seconds" in done.stderr
    assert orders.catalog.items["s"].state is StreamState.LIVE
    assert run("delete", "s", "-y", "--undelete", "2m", env=env).exit_code == 0


def test_the_command_line_and_the_stack_know_the_same_longest_undelete_time() -> None:
    from infra.config import MAX_UNDELETE_SECONDS

    assert command.MAX_UNDELETE_SECONDS == MAX_UNDELETE_SECONDS


@pytest.mark.parametrize("seconds", ["-1", "x", "365d", "99999999999"])
def test_an_undelete_time_out_of_range_deletes_nothing(
    orders: Tier, run: Run, seconds: str
) -> None:
    assert run("delete", "s", "-y", f"--undelete={seconds}").exit_code == 2
    assert orders.catalog.items["s"].state is StreamState.LIVE


def test_nobody_is_asked_where_there_is_no_terminal(orders: Tier, run: Run) -> None:
    done = run("delete", "s", input="y\n")

    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert orders.catalog.items["s"].state is StreamState.LIVE


@pytest.mark.parametrize(("answer", "code", "after"), [
    ("y\n", 0, StreamState.DELETING), ("n\n", 1, StreamState.LIVE), ("\n", 1, StreamState.LIVE),
    ("", 1, StreamState.LIVE),
])  # fmt: skip
def test_on_a_terminal_the_question_says_what_goes(
    orders: Tier, run: Run, monkeypatch: Any, answer: str, code: int, after: StreamState
) -> None:
    monkeypatch.setattr(command, "_a_person_is_there", lambda: True)

    done = run("delete", "s", input=answer)

    assert done.exit_code == code
    assert "Delete s (//orders), offsets 0 to 2, 2 fragments" in done.stderr
    assert "Delete" not in done.stdout
    assert orders.catalog.items["s"].state is after


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_held_stream_is_refused_by_the_name_of_the_rule(
    orders: Tier, run: Run, put_rules: Callable[..., None], dry_run: list[str]
) -> None:
    put_rules(Rule("case-17", queue="orders", hold=True))

    done = run("delete", "s", "--yes", *dry_run)

    assert done.exit_code == 1
    assert "case-17" in done.stderr
    assert "retention release" in done.stderr
    assert orders.catalog.items["s"].state is StreamState.LIVE


def test_delete_again_starts_the_machine_only_if_it_does_not_run(
    orders: Tier, run: Run, machines: Machines
) -> None:
    run("delete", "s", "--yes")
    until = orders.catalog.items["s"].undelete_until
    first = execution_name("delete", "s", f"r1-{until}")
    machines.executions["delete", first] = Execution(ExecutionStatus.RUNNING)
    machines.looks = 99

    running = run("delete", "s", "--yes", "--json")
    machines.executions["delete", first] = Execution(ExecutionStatus.FAILED)
    failed = run("delete", "s", "--yes", "--json")
    twice = run("delete", "s", "--json")

    assert [each.exit_code for each in (running, failed, twice)] == [0, 0, 0]
    assert json.loads(running.stdout)["execution"] == first
    name = json.loads(failed.stdout)["execution"]
    assert re.fullmatch(r"delete-s-[0-9a-f]{8}-cli-[0-9]{8}T[0-9]{4}", name)
    assert json.loads(twice.stdout)["execution"] == name
    document = machines.inputs["delete", name]
    assert document["work"] == [{"stream": "s", "revision": 1}]
    # Not a moment before the time: the step would only be sent away.
    told = time.strptime(document["undelete_until"], "%Y-%m-%dT%H:%M:%SZ")
    assert 0 <= 1000 * (calendar_seconds(told)) - until < 1000
    # The time that was promised stays, however often it is deleted.
    assert orders.catalog.items["s"].undelete_until == until


def calendar_seconds(moment: time.struct_time) -> int:
    import calendar

    return calendar.timegm(moment)


def test_a_machine_that_is_only_just_starting_is_waited_for(
    orders: Tier, run: Run, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("delete", "s", "--yes")
    until = orders.catalog.items["s"].undelete_until
    first, looks = execution_name("delete", "s", f"r1-{until}"), iter(range(3))
    describe = machines.describe
    machines.looks = 99

    def late(workflow: str, name: str) -> Execution:
        if next(looks, None) is None:
            machines.executions.setdefault(("delete", first), Execution(ExecutionStatus.RUNNING))
        return describe(workflow, name)

    monkeypatch.setattr(machines, "describe", late)

    again = json.loads(run("delete", "s", "--json").stdout)

    assert again["execution"] == first
    assert machines.names() == [first]


def test_a_sweep_that_broke_off_is_started_again_for_its_own_tombstone(
    orders: Tier, run: Run, machines: Machines
) -> None:
    state(orders, state=StreamState.DELETED, revision=8, undelete_until=5)
    first = execution_name("delete", "s", "r7-5")
    machines.executions["delete", first] = Execution(ExecutionStatus.ABORTED)

    again = json.loads(run("delete", "s", "--json").stdout)
    assert machines.inputs["delete", again["execution"]]["work"] == [{"stream": "s", "revision": 7}]

    machines.executions["delete", first] = Execution(ExecutionStatus.SUCCEEDED)
    done = run("delete", "s")
    assert done.exit_code == 0
    assert "coldstream collect" in done.stderr
    assert len(machines.executions) == 2


def test_a_dry_run_of_a_restart_starts_nothing(orders: Tier, run: Run, machines: Machines) -> None:
    state(orders, state=StreamState.DELETING, revision=1, undelete_until=5)

    done = run("delete", "s", "--dry-run")

    assert done.exit_code == 0
    assert "would be started" in done.stderr
    assert not machines.executions


def test_only_a_restart_needs_to_know_the_machines(
    orders: Tier, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "connect_workflows", connect_workflows)

    assert run("delete", "s", "--yes").exit_code == 0
    again = run("delete", "s", "--yes")

    assert again.exit_code == 78
    assert "COLDSTREAM_WORKFLOW_ARN_PREFIX" in again.stderr


def test_undelete_gives_back_all_and_twice_is_refused(orders: Tier, run: Run) -> None:
    run("delete", "//orders", "--yes")
    dry, done, twice = (run("undelete", "//orders", *flags) for flags in (["--dry-run"], [], []))

    assert [each.exit_code for each in (dry, done, twice)] == [0, 0, 1]
    assert "is live again" in done.stderr
    assert "is live, not being deleted" in twice.stderr
    assert run("read", "//orders", "-o", "raw").stdout == "01"


def test_of_a_queue_that_was_declared_anew_the_deleted_stream_is_undeleted(
    orders: Tier, run: Run
) -> None:
    run("delete", "s", "--yes")
    orders.add("s2", [[chunk(0, b"new")]], name=QueueName("c", "/", "orders"))

    assert run("undelete", "//orders").exit_code == 0
    assert orders.catalog.items["s"].state is StreamState.LIVE


def test_undelete_is_refused_once_the_objects_go(orders: Tier, run: Run) -> None:
    state(orders, state=StreamState.DELETED, undelete_until=5)

    done = run("undelete", "s")

    assert done.exit_code == 1
    assert "its undelete time ended at 1970-01-01T00:00:00.005Z: it is gone" in done.stderr


@pytest.mark.parametrize("verb", ["delete", "undelete"])
@pytest.mark.parametrize("name", ["nobody", "../x", "x" * 300])
def test_nobody_is_deleted(orders: Tier, run: Run, verb: str, name: str) -> None:
    flags = ["--yes"] if verb == "delete" else []

    assert run(verb, name, *flags).exit_code == 66
    assert orders.catalog.items["s"].state is StreamState.LIVE


def test_streams_shows_tombstones_with_their_time(orders: Tier, run: Run) -> None:
    run("delete", "s", "--yes")

    (row,) = json.loads(run("streams", "--json").stdout)

    assert row["state"] == "deleting"
    assert row["undelete_until"] in run("streams").stdout
    sections = json.loads(run("describe", "s", "--json").stdout)
    assert sections["summary"]["undelete_until"] == row["undelete_until"]


@pytest.mark.parametrize("verb", ["read", "describe", "verify"])
@pytest.mark.parametrize(("until", "words"), [
    (WEEK_MS, "it can be undeleted until"), (-1000, "its objects are about to go"),
])  # fmt: skip
def test_a_stream_that_is_being_deleted_can_be_looked_at_and_is_told(
    orders: Tier, run: Run, verb: str, until: int, words: str
) -> None:
    state(orders, state=StreamState.DELETING, undelete_until=now_ms() + until)

    done = run(verb, "s")

    assert done.exit_code == 0
    assert words in done.stderr


@pytest.mark.parametrize("verb", [
    ["read"], ["describe"], ["verify"], ["rebalance"], ["retention", "run"], ["retention", "plan"],
    ["consolidate", "--dry-run"], ["reconcile", "--dry-run"],
])  # fmt: skip
def test_a_stream_that_is_gone_is_no_missing_object(
    orders: Tier, run: Run, machines: Machines, verb: list[str]
) -> None:
    state(orders, state=StreamState.DELETED, undelete_until=5)
    orders.store.objects.clear()

    done = run(*verb, "s")

    assert (done.exit_code, done.stdout) == (66, "")
    assert "was deleted" in done.stderr
    assert "why: deleted" in done.stderr
    assert not machines.executions


@pytest.mark.parametrize("verb", ["read", "describe", "verify"])
def test_a_stream_that_goes_during_the_look_is_told_as_deleted(
    orders: Tier, run: Run, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(key: str, **_: Any) -> bytes:
        state(orders, state=StreamState.DELETED, undelete_until=5)
        raise NotFoundError("no such object", key=key)

    monkeypatch.setattr(orders.store, "get_all", gone)

    done = run(verb, "s")

    assert (done.exit_code, done.stdout) == (66, "")
    assert "was deleted" in done.stderr


@pytest.mark.parametrize("verb", ["read", "describe"])
def test_a_missing_object_of_a_live_stream_is_told_as_that(
    orders: Tier, run: Run, verb: str
) -> None:
    key = orders.catalog.items["s"].root_key
    del orders.store.objects[key]

    done = run(verb, "s")

    assert done.exit_code == 65
    assert key in done.stderr


@pytest.mark.parametrize("verb", [
    ["rebalance"], ["retention", "run"], ["consolidate"], ["collect"], ["collect", "--delete"],
    ["reconcile"],
])  # fmt: skip
@pytest.mark.parametrize("now", [StreamState.DELETING, StreamState.REBUILDING])
def test_no_workflow_starts_on_a_stream_that_is_not_live(
    orders: Tier, run: Run, machines: Machines, verb: list[str], now: StreamState
) -> None:
    state(orders, state=now, undelete_until=now_ms() + WEEK_MS)

    done = run(*verb, "s")

    assert done.exit_code == 75
    assert ("undelete" if now is StreamState.DELETING else "wait for the rebuild") in done.stderr
    assert not machines.executions


def test_a_table_that_does_not_answer_deletes_nothing(
    orders: Tier, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr(orders.catalog, "get", fail)

    assert run("delete", "s", "--yes").exit_code == 69
    assert run("undelete", "s").exit_code == 69
    assert orders.catalog.items["s"].state is StreamState.LIVE


class TestGone:
    """`--gone`: what the broker has no more, by its own list; never by what an agent says."""

    MADE = "1795444148462839326"  # in November 2026, ns
    ORDERS, BILLS = f"__orders_{MADE}", f"__bills_{MADE}"

    @pytest.fixture
    def broker(self, monkeypatch: pytest.MonkeyPatch) -> Broker:
        made = Broker(["orders"])
        monkeypatch.setattr(Management, "streams", lambda _: made.streams())
        monkeypatch.setattr(Management, "sees_all", lambda _: made.sees_all)
        monkeypatch.setattr(Management, "knows_all", lambda _: made.knows_all)
        monkeypatch.setenv("COLDSTREAM_MANAGEMENT_URI", "http://op:secret@broker-1:15672")
        return made

    @pytest.fixture(autouse=True)
    def _now(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(command, "now_ms", lambda: int(self.MADE[:13]) + 30 * 86_400_000)

    @pytest.fixture
    def two(self, tier: Tier) -> Tier:
        for stream, queue in ((self.ORDERS, "orders"), (self.BILLS, "bills")):
            tier.add(stream, [[chunk(0, b"0")]], name=QueueName("c", "/", queue))
        return tier

    def states(self, tier: Tier) -> dict[str, str]:
        return {name: str(item.state) for name, item in tier.catalog.items.items()}

    @pytest.mark.usefixtures("broker")
    def test_what_the_broker_has_no_queue_for_is_shown_and_then_deleted(
        self, two: Tier, run: Run
    ) -> None:
        plan = run("delete", "--gone", "--dry-run")
        assert plan.exit_code == 0, plan.stderr
        assert [row.split("\t")[0] for row in plan.stdout.splitlines()[1:]] == [self.BILLS]
        assert "1 stream would be deleted; nothing was changed" in plan.stderr
        assert set(self.states(two).values()) == {"live"}
        assert "secret" not in plan.output

        refused = run("delete", "--gone")
        assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)

        done = run("delete", "--gone", "--yes", "--json")
        assert [row["stream"] for row in json.loads(done.stdout)] == [self.BILLS]
        assert self.states(two) == {self.ORDERS: "live", self.BILLS: "deleting"}
        assert run("undelete", self.BILLS).exit_code == 0

    @pytest.mark.usefixtures("broker", "two")
    def test_what_was_written_to_lately_stays(self, run: Run) -> None:
        done = run("delete", "--gone", "--older-than", "40d", "--yes")

        assert "gone, and younger than asked for" in done.stderr

    @pytest.mark.usefixtures("broker")
    def test_a_hold_and_an_agent_that_has_it_keep_a_stream(
        self, two: Tier, run: Run, put_rules: Callable[..., None], heartbeats: MemoryHeartbeats
    ) -> None:
        told = f"__told_{self.MADE}"
        two.add(told, [[chunk(0, b"0")]], name=QueueName("c", "/", "told"))
        put_rules(Rule("case-17", queue="bills", hold=True))
        at_ms = command.now_ms()
        heartbeats.beat(Heartbeat("n", at_ms, 60_000, 1, 0, 0, 0, pages=1))
        word = StreamWord(told, True, (0,) * 5, (0,) * 5)
        heartbeats.tell(WordsPage("n", 0, 1, at_ms, pack([word])))

        done = run("delete", "--gone", "--yes")

        assert done.exit_code == 0, done.stderr
        assert "under legal hold" in done.stdout
        assert "an agent has it" in done.stdout
        assert set(self.states(two).values()) == {"live"}

    @pytest.mark.usefixtures("broker")
    def test_a_name_that_a_thief_has_given_a_stream_is_no_evidence(
        self, two: Tier, run: Run
    ) -> None:
        """Whoever has an agent's credentials may say what queues are called."""
        item = two.catalog.items[self.ORDERS]
        two.catalog.items[self.ORDERS] = replace(item, name=QueueName("c", "/", "elsewhere"))

        assert run("delete", "--gone", "--yes").exit_code == 0
        assert self.states(two)[self.ORDERS] == "live"

    def test_agents_that_say_that_all_is_gone_delete_nothing(
        self, two: Tier, run: Run, heartbeats: MemoryHeartbeats
    ) -> None:
        heartbeats.beat(Heartbeat("n", command.now_ms(), 60_000, 0, 0, 0, 0, pages=1))

        done = run("delete", "--gone", "--yes", env={"COLDSTREAM_MANAGEMENT_URI": ""})

        assert (done.exit_code, "--management-uri" in done.stderr) == (2, True)
        assert set(self.states(two).values()) == {"live"}

    @pytest.mark.parametrize(
        ("what", "value"),
        [
            ("queues", ["of", "another", "cluster"]),
            ("sees_all", False),  # the user
            ("knows_all", False),  # the broker
        ],
    )
    def test_a_list_that_says_nothing_of_this_tier_is_no_evidence(
        self, two: Tier, run: Run, broker: Broker, what: str, value: object
    ) -> None:
        setattr(broker, what, value)

        done = run("delete", "--gone", "--yes")

        assert done.exit_code == 1
        assert "no evidence" in done.stderr
        assert set(self.states(two).values()) == {"live"}

    def test_the_age_of_gone_streams_is_not_passed_over_where_one_is_named(
        self, two: Tier, run: Run
    ) -> None:
        """Whoever gives it means that a stream that is written to stays."""
        for age in ("30d", "7d"):
            done = run("delete", self.ORDERS, "--older-than", age, "--yes")
            assert (done.exit_code, "--older-than" in done.stderr) == (2, True)
        assert set(self.states(two).values()) == {"live"}

    @pytest.mark.parametrize("words", [["--gone", "s"], []])
    def test_either_a_stream_or_gone_ones_are_meant(self, run: Run, words: list[str]) -> None:
        assert run("delete", *words, "--yes").exit_code == 2


class Broker:
    def __init__(self, queues: list[str]) -> None:
        self.queues, self.sees_all, self.knows_all = queues, True, True

    def streams(self) -> list[StreamQueue]:
        return [StreamQueue("/", each) for each in self.queues]
