"""Commands that start a state machine: names, inputs, how they end, and what people are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coldstream.adapters.place import Place, Remote
from coldstream.cli import workflow
from coldstream.cli.main import app
from coldstream.cli.workflow import connect_workflows
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError
from coldstream.ports import Execution, ExecutionStatus
from tests.cli.conftest import ARN_PREFIX, Machines
from tests.support.tier import Tier, chunk

Run = Callable[..., Result]
#: Every way to start a machine: its command line, its workflow.
STARTS = [
    (["rebalance", "s"], "rebalance"),
    (["retention", "run", "s"], "retention"),
    (["consolidate", "s"], "consolidate"),
    (["collect", "s", "--delete"], "collect"),
    (["reconcile", "s"], "reconcile"),
]
ON_ALL = [
    (["retention", "run"], "retention"),
    (["consolidate"], "consolidate"),
    (["collect", "--delete"], "collect"),
    (["reconcile"], "reconcile"),
]


@pytest.fixture
def stream(tier: Tier) -> str:
    tier.add("s", [[chunk(n, b"x")] for n in range(3)])
    return "s"


@pytest.mark.parametrize(("command", "machine"), STARTS)
def test_a_machine_is_started_on_one_stream_and_followed_to_its_end(
    stream: str, run: Run, machines: Machines, command: list[str], machine: str
) -> None:
    done = run(*command, "--json")

    assert done.exit_code == 0
    ((started, name),) = machines.executions
    assert started == machine
    assert re.fullmatch(rf"{machine}-s-[0-9a-f]{{8}}-cli-[0-9]{{8}}T[0-9]{{4}}", name)
    document = machines.inputs[started, name]
    assert document["work"] == [{"stream": stream}]
    assert document["reason"].startswith("cli-")
    told = json.loads(done.stdout)
    assert (told["execution"], told["status"]) == (name, "succeeded")
    assert told["output"] == {"reason": "r", "streams": 1}
    assert told["before"] == told["after"]
    assert f"started {name}" in done.stderr


@pytest.mark.parametrize(("command", "machine"), ON_ALL)
def test_without_a_stream_the_machine_scans_them_all(
    run: Run, machines: Machines, command: list[str], machine: str
) -> None:
    done = run(*command, "--reason", "tonight")

    assert done.exit_code == 0
    ((_, name),) = machines.executions
    assert re.fullmatch(rf"{machine}-all-[0-9a-f]{{8}}-tonight", name)
    assert machines.inputs[machine, name] == {"reason": "tonight"}
    assert re.search(r"streams +1", done.stdout)


@pytest.mark.parametrize(("command", "machine"), STARTS)
def test_the_same_reason_starts_once_and_says_so_with_75(
    stream: str, run: Run, machines: Machines, command: list[str], machine: str
) -> None:
    first, second = (run(*command, "--reason", "once") for _ in range(2))

    assert (first.exit_code, second.exit_code) == (0, 75)
    assert len(machines.executions) == 1
    assert "was started before; it has succeeded" in second.stderr
    assert "another reason" in second.stderr.splitlines()[-1]


@pytest.mark.parametrize(("command", "machine"), [*STARTS, *ON_ALL])
@pytest.mark.parametrize("reason", ["a b", "x" * 35, "ü", "a/b"])
def test_a_reason_that_no_name_can_hold_starts_nothing(
    stream: str, run: Run, machines: Machines, command: list[str], machine: str, reason: str
) -> None:
    assert run(*command, "--reason", reason).exit_code == 2
    assert not machines.executions


def test_a_setting_of_the_stack_s_own_is_refused_where_the_stack_does_the_work(
    stream: str, run: Run, machines: Machines
) -> None:
    """Whoever gives a longer one means that what is younger stays."""
    for words in (["rebalance", "s", "--branching", "8"], ["consolidate", "--fragment-size", "1m"]):
        assert (run(*words).exit_code, machines.names()) == (2, [])
    done = run("collect", "s", "--delete", "--grace", "30d")

    assert (done.exit_code, "--grace" in done.stderr, machines.names()) == (2, True, [])
    assert run("collect", "s", "--delete", env={"COLDSTREAM_GRACE_SECONDS": "7200"}).exit_code == 0


@pytest.mark.parametrize("command", ["rebalance", "reconcile", "consolidate", "collect"])
def test_a_dry_run_refuses_the_reason_that_the_run_would_refuse(
    stream: str, run: Run, command: str
) -> None:
    assert run(command, "s", "--dry-run", "--reason", "tonight").exit_code == 0
    done = run(command, "s", "--dry-run", "--reason", "a b")
    assert (done.exit_code, "'a b'" in done.stderr) == (2, True)


def test_no_wait_prints_the_name_alone(stream: str, run: Run, machines: Machines) -> None:
    plain = run("rebalance", "s", "--no-wait", "--reason", "a")
    document = run("rebalance", "s", "--no-wait", "--reason", "b", "--json")

    assert plain.stdout.splitlines() == [machines.names()[0]]
    assert json.loads(document.stdout)["execution"] == machines.names()[1]
    assert all(each.status is ExecutionStatus.RUNNING for each in machines.executions.values())


def test_what_the_machine_changed_is_told_from_the_catalog(
    tier: Tier, run: Run, machines: Machines
) -> None:
    root = tier.add("s", [[chunk(n, b"x")] for n in range(3)])
    machines.acts = lambda: tier.commit("s", root) and None

    done = run("rebalance", "s")

    lines = [line.split("\t")[:2] for line in done.stdout.splitlines()[-3:]]
    assert lines == [["catalog", "version"], ["before", "1"], ["after", "2"]]


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (Execution(ExecutionStatus.FAILED, None, "CorruptDataError",
                   '{"errorMessage": "the root is damaged", "stackTrace": ["a"]}'),
         65, "CorruptDataError: the root is damaged"),
        (Execution(ExecutionStatus.FAILED, None, "UnavailableError", "no answer"),
         69, "UnavailableError: no answer"),
        (Execution(ExecutionStatus.FAILED, None, "PermissionDeniedError", ""), 77, "PermissionD"),
        (Execution(ExecutionStatus.FAILED, None, "Kind", "[1]"), 1, "has failed: Kind: [1]"),
        (Execution(ExecutionStatus.FAILED, None, "E", "a\n\x1b[2Jb"), 1, "E: a \\x1b[2Jb"),
        (Execution(ExecutionStatus.FAILED), 1, "has failed"),
        (Execution(ExecutionStatus.TIMED_OUT, None, "States.Timeout"), 1, "too slow"),
        (Execution(ExecutionStatus.ABORTED), 1, "was aborted"),
    ],
)  # fmt: skip
def test_an_execution_that_ends_badly_ends_the_command_so(
    stream: str, run: Run, machines: Machines, end: Execution, code: int, words: str
) -> None:
    machines.end = end

    done = run("rebalance", "s")

    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr
    assert done.stderr.splitlines()[-3].startswith("coldstream rebalance failed: rebalance-s-")


def test_streams_that_failed_inside_a_machine_that_succeeded_are_no_success(
    stream: str, run: Run, machines: Machines
) -> None:
    machines.end = Execution(ExecutionStatus.SUCCEEDED, {"streams": 5, "failed": [[], [0, 1], [1]]})

    done = run("retention", "run", "--json")

    assert done.exit_code == 1
    assert json.loads(done.stdout)["output"]["failed"] == 2
    assert "2 streams" in done.stderr


@pytest.mark.parametrize("output", [None, [1], "text", {}])
def test_an_output_that_is_no_object_is_printed_all_the_same(
    stream: str, run: Run, machines: Machines, output: Any
) -> None:
    machines.end = Execution(ExecutionStatus.SUCCEEDED, output)

    assert run("rebalance", "s").exit_code == 0
    assert run("rebalance", "s", "--json", "--reason", "b").exit_code == 0


@pytest.mark.parametrize("error", [NotFoundError("not yet"), UnavailableError("no answer")])
def test_a_few_looks_without_an_answer_do_not_end_the_following(
    stream: str, run: Run, machines: Machines, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Step Functions may not know an execution right after it has been started.
    describe, answers = machines.describe, iter([error] * 9)

    def sometimes(workflow: str, name: str) -> Execution:
        for each in answers:
            raise each
        return describe(workflow, name)

    monkeypatch.setattr(machines, "describe", sometimes)

    assert run("rebalance", "s").exit_code == 0


@pytest.mark.parametrize(
    ("error", "looks"),
    [(NotFoundError("gone"), 10), (UnavailableError("down"), 10), (PermissionDeniedError("no"), 1)],
)
def test_looks_without_an_answer_end_at_last(
    stream: str,
    run: Run,
    machines: Machines,
    error: Exception,
    looks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def never(workflow: str, name: str) -> Execution:
        seen.append(name)
        raise error

    monkeypatch.setattr(machines, "describe", never)

    assert run("rebalance", "s").exit_code in (66, 69, 77)
    assert len(seen) == looks


def test_an_interrupt_leaves_the_machine_running_and_says_so(
    stream: str, run: Run, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "sleep", interrupt)

    done = run("rebalance", "s")

    assert done.exit_code == 130
    assert f"{machines.names()[0]} goes on by itself" in done.stderr


def test_a_long_run_is_told_once_a_minute_where_there_is_no_terminal(
    stream: str, run: Run, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Iterator[float] = iter(range(0, 10_000, 5))
    monkeypatch.setattr(workflow, "clock", lambda: float(next(clock)))
    machines.looks = 30

    lines = run("rebalance", "s").stderr.splitlines()

    assert [line for line in lines if "running for" in line] == [
        "rebalance: running for 60 s",
        "rebalance: running for 120 s",
    ]


@pytest.mark.parametrize(("command", "machine"), [*STARTS, *ON_ALL])
def test_a_missing_or_malformed_setting_is_78_and_nothing_is_read(
    tier: Tier,
    command: list[str],
    machine: str,
    run: Run,
    machines: Machines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del run  # its fixtures stay: no real table is behind this
    monkeypatch.setattr(workflow, "connect_workflows", connect_workflows)

    for arguments in ([], ["--workflows", "coldstream-"], ["--workflows", f"x{ARN_PREFIX}"]):
        done = CliRunner().invoke(app, [*command, *arguments])

        assert done.exit_code == 78
        assert "COLDSTREAM_WORKFLOW_ARN_PREFIX" in done.stderr
        assert "coldstream local env" in done.stderr
    assert not machines.executions


@pytest.mark.parametrize(("command", "machine"), STARTS)
def test_a_stack_without_the_machine_is_a_wrong_setting(
    stream: str, run: Run, machines: Machines, command: list[str], machine: str
) -> None:
    machines._workflows = ()

    done = run(*command)

    assert done.exit_code == 78
    assert f"no state machine for {machine}" in done.stderr


@pytest.mark.parametrize(
    "command",
    [*(each for each, _ in (*STARTS, *ON_ALL)), ["retention", "plan"], ["retention", "rules"],
     ["retention", "hold", "s"], ["retention", "release", "s"], ["delete", "s"],
     ["undelete", "s"], ["collect"]],
)  # fmt: skip
def test_without_bucket_and_table_every_command_is_78(command: list[str]) -> None:
    done = CliRunner().invoke(app, command)

    assert done.exit_code == 78
    assert "COLDSTREAM_BUCKET" in done.stderr


def test_the_setting_makes_the_machines_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")

    found: Any = workflow.connect_workflows(ARN_PREFIX)

    assert found._arn_prefix == ARN_PREFIX


@pytest.mark.parametrize(("command", "machine"), STARTS)
@pytest.mark.parametrize("name", ["nobody", "../x", "a b", "x" * 300])
def test_a_stream_that_is_none_starts_nothing(
    stream: str, run: Run, machines: Machines, command: list[str], machine: str, name: str
) -> None:
    arguments = [name if each == "s" else each for each in command]

    done = run(*arguments)

    assert done.exit_code == 66
    assert len(done.stderr.splitlines()) == 3
    assert not machines.executions


def test_a_remote_makes_a_context_whose_ids_are_random(tier: Tier) -> None:
    remote: Any = Remote(tier.store, tier.catalog, None, Place("b", "t", "p/"))  # type: ignore[arg-type]

    context = remote.context()

    assert context.new_uid() != context.new_uid()
    assert context.prefix == "p/"


@pytest.mark.parametrize("text", ["[" * 20_000, '{"a":' * 20_000])
def test_a_cause_that_is_nested_deeper_than_json_can_be_read_is_told_as_it_is(text: str) -> None:
    said = workflow._cause(text)

    assert said == text[: len(said)]
    assert 0 < len(said) <= 500
