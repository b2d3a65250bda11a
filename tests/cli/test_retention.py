"""`coldstream retention`: what goes and why, the rules, and legal holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from coldstream.adapters.memory import MemoryPolicies
from coldstream.errors import ConflictError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.plans.policy import PolicySet, Rule
from coldstream.plans.policy_document import parse_policies
from coldstream.usecases.hold import hold, hold_name, release
from tests.support.tier import Tier, chunk

Run = Callable[..., Result]
Put = Callable[..., None]
DAY = 86_400_000
NOW = time.time_ns() // 1_000_000


@pytest.fixture
def orders(tier: Tier) -> Tier:
    """Twenty fragments, one a day, in groups of four; and a small stream of today."""
    tier.add_tree(
        "s", [[chunk(n, b"x" * 50, timestamp=NOW - (20 - n) * DAY - DAY // 2)] for n in range(20)]
    )
    tier.catalog.set_name("s", QueueName("c", "/", "orders"))
    tier.add("t", [[chunk(n, b"x", timestamp=NOW)] for n in range(3)],
             name=QueueName("c", "/", "audit"))  # fmt: skip
    return tier


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "rules.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def document(*rules: dict[str, Any]) -> str:
    return json.dumps({"rules": rules})


def test_a_plan_has_a_line_for_each_range_with_its_reason_and_one_for_what_stays(
    orders: Tier, run: Run, put_rules: Put
) -> None:
    put_rules(Rule("short", queue="orders", max_age_ms=15 * DAY, max_bytes=1500))

    table = run("retention", "plan", "//orders")
    (row,) = json.loads(run("retention", "plan", "s", "--json").stdout)

    header, *lines = [line.split("\t") for line in table.stdout.splitlines()]
    assert header[:7] == ["stream", "first", "next", "reason", "rule", "fragments", "bytes"]
    assert [(line[3], line[4]) for line in lines] == [
        ("max-age", "short"),
        ("max-length-bytes", "short"),
        ("stays", "short"),
    ]
    assert row["ranges"][0]["first"] == 0
    for before, after in zip([*row["ranges"]], [*row["ranges"][1:], row["stays"]], strict=True):
        assert before["next"] == after["first"]
    assert row["ranges"][0]["first_time"] < row["ranges"][0]["last_time"]
    assert row["stays"]["next"] == 20
    assert row["stays"]["bytes"] <= 1500
    gone = sum(each["fragments"] for each in row["ranges"])
    assert gone + row["stays"]["fragments"] == 20
    assert f"{gone} fragments of 1 stream would go" in table.stderr


def test_run_with_dry_run_says_what_plan_says(orders: Tier, run: Run, put_rules: Put) -> None:
    put_rules(Rule("short", max_bytes=1500))

    plan, dry_run = run("retention", "plan", "s"), run("retention", "run", "s", "--dry-run")

    assert (plan.stdout, plan.stderr) == (dry_run.stdout, dry_run.stderr)


def test_a_plan_over_all_lists_streams_that_lose_something_or_are_held(
    orders: Tier, run: Run, put_rules: Put
) -> None:
    put_rules(Rule("short", max_age_ms=5 * DAY), Rule("case-1", queue="audit", hold=True))

    rows = json.loads(run("retention", "plan", "--json").stdout)
    table = run("retention", "plan")

    assert {row["stream"]: bool(row["ranges"]) for row in rows} == {"s": True, "t": False}
    assert "t\t0\t3\theld\tcase-1" in table.stdout
    assert "held: 1 stream" in table.stderr


def test_nothing_of_a_held_stream_goes_and_the_plan_names_the_rules(
    orders: Tier, run: Run, put_rules: Put
) -> None:
    put_rules(Rule("short", max_bytes=1), Rule("b", queue="orders", hold=True),
              Rule("a", vhost="/", hold=True))  # fmt: skip

    (row,) = json.loads(run("retention", "plan", "s", "--json").stdout)

    assert (row["ranges"], row["held_by"], row["rule"]) == ([], ["a", "b"], "a")
    assert row["stays"]["fragments"] == 20


def test_a_plan_without_rules_takes_nothing(orders: Tier, run: Run) -> None:
    (row,) = json.loads(run("retention", "plan", "s", "--json").stdout)

    assert (row["ranges"], row["rule"]) == ([], None)
    assert json.loads(run("retention", "plan", "--json").stdout) == []


def test_rules_are_shown_strongest_first_and_json_is_what_set_takes(
    orders: Tier, run: Run, put_rules: Put, tmp_path: Path, policies: MemoryPolicies
) -> None:
    none = run("retention", "rules")
    put_rules(Rule("default", max_age_ms=30 * DAY),
              Rule("audit", priority=9, queue="audit", consolidate=False, hold=True))  # fmt: skip

    table, shown = run("retention", "rules"), run("retention", "rules", "--json")

    assert "everything is kept" in none.stderr
    assert [line.split("\t")[0] for line in table.stdout.splitlines()] == [
        "name", "audit", "default"]  # fmt: skip
    assert table.stdout.splitlines()[1].endswith("\tno\tyes")
    assert parse_policies(shown.stdout) == policies.load()[0]
    assert "revision 1" in table.stderr
    again = run("retention", "rules", "--set", written(tmp_path, shown.stdout))
    assert "nothing to change" in again.stderr
    assert policies.load()[1] == 1


def test_set_says_what_changes_for_which_stream_and_a_dry_run_changes_nothing(
    orders: Tier, run: Run, tmp_path: Path, policies: MemoryPolicies
) -> None:
    path = written(tmp_path, document({"name": "o", "queue": "orders", "max-age": "7D"}))

    dry = run("retention", "rules", "--set", path, "--dry-run")
    assert policies.load() == (PolicySet(), 0)
    wet = run("retention", "rules", "--set", path)
    twice = json.loads(run("retention", "rules", "--set", path, "--json").stdout)

    assert dry.stdout == wet.stdout
    assert "s\t/\torders\tno rule\to: max-age 7D" in wet.stdout
    assert len(wet.stdout.splitlines()) == 2
    assert "added: o" in wet.stderr
    assert "revision 0 stays; this would change 1 stream" in dry.stderr
    assert "revision 1 is in force; it changes 1 stream" in wet.stderr
    assert (twice["saved"], twice["revision"], twice["streams"]) == (False, 1, [])
    assert policies.load()[1] == 1


def test_set_reads_standard_input(orders: Tier, run: Run, policies: MemoryPolicies) -> None:
    text = document({"name": "o", "max-length-bytes": 5, "consolidate": False})

    done = run("retention", "rules", "--set", "-", "--json", input=text)

    assert done.exit_code == 0
    after = json.loads(done.stdout)["streams"][0]["after"]
    assert (after["max-length-bytes"], after["consolidate"]) == (5, False)
    assert policies.load()[0].rules[0].max_bytes == 5


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"rules": [{}]}', b'{"rules": [{"name": "a", "max-age": 5}]}',
     b'{"rules": [{"name": "a", "queue": "(a"}]}', b"x" * 2_000_000],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_a_document_that_is_none_changes_nothing(
    orders: Tier, run: Run, tmp_path: Path, policies: MemoryPolicies, text: bytes
) -> None:
    done = run("retention", "rules", "--set", written(tmp_path, text))

    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 3
    assert policies.load()[1] == 0


def test_a_file_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    for path in (str(tmp_path / "nowhere"), str(tmp_path)):
        done = run("retention", "rules", "--set", path)

        assert done.exit_code == 2
        assert path in done.stderr


@pytest.mark.parametrize("option", ["--dry-run", "--release-holds"])
def test_options_of_set_without_it_are_refused(run: Run, option: str) -> None:
    assert run("retention", "rules", option).exit_code == 2


def test_rules_that_somebody_else_changed_meanwhile_are_not_overwritten(
    orders: Tier, run: Run, tmp_path: Path, policies: MemoryPolicies, monkeypatch: Any
) -> None:
    load = policies.load

    def late() -> tuple[PolicySet, int]:
        found = load()
        if found[1] == 0:
            policies.save(PolicySet((Rule("theirs"),)), 0)
        return found

    monkeypatch.setattr(policies, "load", late)

    done = run("retention", "rules", "--set", written(tmp_path, document({"name": "mine"})))

    assert done.exit_code == 75
    assert "not those of revision 0" in done.stderr
    assert [rule.name for rule in load()[0].rules] == ["theirs"]


def test_very_many_rules_are_told_by_a_few_names_and_held_no_further_one_by_one(
    orders: Tier, run: Run, tmp_path: Path
) -> None:
    rules = [{"name": f"r{number:04d}", "directory": f"d{number}"} for number in range(2000)]

    done = run("retention", "rules", "--set", written(tmp_path, document(*rules)))
    one_more = run("retention", "hold", "s")

    assert "added: r0000, r0001, r0002, r0003, r0004 and 1995 more\n" in done.stderr
    assert one_more.exit_code == 2
    assert "2001 rules are more than 2000" in one_more.stderr
    assert "let one rule speak of many streams by a pattern" in one_more.stderr


def test_a_document_that_lacks_a_hold_is_refused_unless_that_is_meant(
    orders: Tier, run: Run, tmp_path: Path, policies: MemoryPolicies
) -> None:
    assert run("retention", "hold", "s").exit_code == 0
    path = written(tmp_path, document({"name": "default", "max-age": "1D"}))

    refused = run("retention", "rules", "--set", path)
    dry = run("retention", "rules", "--set", path, "--dry-run")
    assert [rule.name for rule in policies.load()[0].rules] == ["hold:s"]
    meant = run("retention", "rules", "--set", path, "--release-holds")

    assert (refused.exit_code, dry.exit_code, meant.exit_code) == (1, 0, 0)
    assert "hold:s" in refused.stderr
    assert "--release-holds" in refused.stderr
    assert "legal holds that end: hold:s" in dry.stderr
    assert [rule.name for rule in policies.load()[0].rules] == ["default"]


def test_hold_and_release_change_one_rule_about_exactly_this_directory(
    orders: Tier, run: Run, put_rules: Put, policies: MemoryPolicies
) -> None:
    put_rules(Rule("default", max_bytes=1))

    held, twice = run("retention", "hold", "//orders"), run("retention", "hold", "s", "--json")
    plan = json.loads(run("retention", "plan", "--json").stdout)
    freed, again = run("retention", "release", "//orders"), run("retention", "release", "s")

    assert [each.exit_code for each in (held, twice, freed, again)] == [0, 0, 0, 0]
    assert "s\thold:s" in held.stdout
    assert json.loads(twice.stdout) == {"stream": "s", "held_by": ["hold:s"], "changed": False}
    assert {row["stream"]: row["held_by"] for row in plan} == {"s": ["hold:s"], "t": []}
    # The hold does not take the place of the rule that sets the limits.
    assert {row["rule"] for row in plan} == {"default"}
    assert "there is no rule hold:s" in again.stderr
    assert policies.load()[0] == PolicySet((Rule("default", max_bytes=1),))


def test_release_says_which_rules_still_hold_the_stream(
    orders: Tier, run: Run, put_rules: Put
) -> None:
    put_rules(Rule("case-1", hold=True))
    run("retention", "hold", "s")

    done = run("retention", "release", "s", "--json")

    assert json.loads(done.stdout) == {"stream": "s", "held_by": ["case-1"], "changed": True}


def test_a_hold_can_be_released_when_the_stream_is_long_gone(
    orders: Tier, run: Run, policies: MemoryPolicies
) -> None:
    run("retention", "hold", "s")
    del orders.catalog.items["s"]

    assert run("retention", "release", "s").exit_code == 0
    assert policies.load()[0] == PolicySet()


@pytest.mark.parametrize("command", ["hold", "release"])
@pytest.mark.parametrize("name", ["nobody", "../x", ".*", "x" * 300])
def test_nobody_is_held(run: Run, policies: MemoryPolicies, command: str, name: str) -> None:
    assert run("retention", command, name).exit_code == 66
    assert policies.load()[1] == 0


def test_of_a_stream_that_is_gone_nothing_can_be_held(orders: Tier, run: Run) -> None:
    orders.catalog.items["s"] = replace(orders.catalog.items["s"], state=StreamState.DELETED)

    done = run("retention", "hold", "s")

    assert done.exit_code == 66
    assert "it is gone" in done.stderr


@pytest.mark.parametrize("length", [1, 250, 251, 255])
def test_any_directory_can_be_held_and_no_other_with_it(length: int) -> None:
    policies, stream = MemoryPolicies(), "-" * length

    assert hold(policies, stream)
    (rule,) = policies.load()[0].rules

    assert rule.matches(stream, QueueName())
    assert not rule.matches(stream[:-1] + "a", QueueName())
    assert hold_name(stream) != hold_name(stream[:-1] + "a")
    assert release(policies, stream)
    assert not release(policies, stream)


def test_a_hold_decides_again_when_others_change_the_rules_and_ends_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies, save = MemoryPolicies(), MemoryPolicies.save
    others = iter(range(3))

    def late(policy_set: PolicySet, revision: int) -> bool:
        number = next(others, None)
        if number is not None:
            save(policies, PolicySet((Rule(f"r{number}"),)), revision)
        return save(policies, policy_set, revision)

    monkeypatch.setattr(policies, "save", late)
    assert hold(policies, "s")
    assert [rule.name for rule in policies.load()[0].rules] == ["r2", "hold:s"]

    monkeypatch.setattr(policies, "save", lambda *_: False)
    with pytest.raises(ConflictError):
        release(policies, "s")
