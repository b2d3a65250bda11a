"""What a person is told about: every alarm can go off, reaches somebody, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coldstream import deployment

if TYPE_CHECKING:
    from conftest import Assembly

ROOT = Path(__file__).resolve().parents[2]
ALARM = "AWS::CloudWatch::Alarm"
DAY = 86_400


def alarms(made: Assembly) -> dict[str, dict[str, Any]]:
    """The alarms by their names, without the CDK's digest of the path."""
    return {
        name.removeprefix("Alarms")[:-8]: one["Properties"]
        for name, one in made.of_type(ALARM).items()
    }


def period(alarm: dict[str, Any]) -> int:
    return int(alarm["Period"])


def test_what_needs_a_person_raises_an_alarm(assembly: Assembly) -> None:
    watched = {(each["Namespace"], each["MetricName"]) for each in alarms(assembly).values()}

    assert watched == {
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
        ("AWS/SQS", "ApproximateAgeOfOldestMessage"),
        ("AWS/Lambda", "Errors"),
        ("AWS/Lambda", "Throttles"),
        ("AWS/Lambda", "IteratorAge"),
        ("AWS/States", "ExecutionsSucceeded"),
        ("AWS/DynamoDB", "ReadThrottleEvents"),
        ("AWS/DynamoDB", "WriteThrottleEvents"),
        *(
            (deployment.METRIC_NAMESPACE, name)
            for name in (
                deployment.METRIC_AGENTS_SILENT,
                deployment.METRIC_AGENTS_TROUBLED,
                deployment.METRIC_AGENTS_RACING,
                deployment.METRIC_AGENTS_LAG,
                deployment.METRIC_CLAIMS_THAT_CUT,
                deployment.METRIC_HOLES_COMMITTED,
                deployment.METRIC_OFFSETS_LOST,
                deployment.METRIC_DELETES_REFUSED,
                deployment.METRIC_STREAMS_FAILED,
                deployment.METRIC_STREAMS_WITHOUT_ITEM,
                deployment.METRIC_FRAGMENTS_REFUSED,
                deployment.METRIC_WORKFLOW_FAILURES,
                deployment.METRIC_SCRUB_FINDINGS,
                deployment.METRIC_DEAD_LETTER_ROWS,
            )
        ),
    }
    assert all(one["TreatMissingData"] for one in alarms(assembly).values())


@pytest.mark.parametrize("part", ["Claims", "CommitRuns", "StepsReport"])
def test_a_function_that_is_throttled_raises_an_alarm(assembly: Assembly, part: str) -> None:
    watched = [
        str(each["Dimensions"])
        for each in alarms(assembly).values()
        if each["MetricName"] == "Throttles"
    ]

    assert any(f"'{part}" in each for each in watched)


@pytest.mark.parametrize("which", ["assembly", "customised"])
def test_cloudwatch_can_look_back_as_far_as_every_alarm_asks(
    which: str, request: pytest.FixtureRequest
) -> None:
    for name, alarm in alarms(request.getfixturevalue(which)).items():
        # A period is a day at most, and all are a week, or a day where one is below an hour.
        assert period(alarm) <= DAY, name
        farthest = 7 * DAY if period(alarm) >= 3600 else DAY
        assert alarm["EvaluationPeriods"] * period(alarm) <= farthest, name


#: Minutes between two looks of a workflow at one and the same stream, with cdk.json's settings.
LOOKS = {"rebalance": 60, "retention": 60, "consolidate": 60, "collect": 1440, "reconcile": 60}


@pytest.mark.parametrize("workflow", LOOKS)
def test_a_stream_that_fails_in_every_run_raises_an_alarm_however_rarely_it_is_looked_at(
    assembly: Assembly, workflow: str
) -> None:
    """Three periods of five minutes in a row are never all filled by what runs once an hour."""
    alarm = alarms(assembly)[f"{workflow.capitalize()}StreamsFailed"]

    assert {"Name": "workflow", "Value": workflow} in alarm["Dimensions"]
    assert alarm["Threshold"] == 1
    assert period(alarm) >= 60 * LOOKS[workflow] or alarm["EvaluationPeriods"] == 1
    if alarm["EvaluationPeriods"] > 1:  # whatever the schedule's drift: a run in each of them
        assert period(alarm) >= 2 * 60 * LOOKS[workflow]


def test_every_step_that_may_leave_a_stream_undone_has_its_alarm() -> None:
    """The handlers report by these names; `delete` and `erase` fail as a whole."""
    told = set()
    for path in (ROOT / "functions").glob("*.py"):
        told |= set(re.findall(r'report\(\s*"(\w+)",', path.read_text()))

    assert told - {"delete", "erase"} == set(LOOKS)


def test_alarms_about_agents_wait_for_the_scan_that_reads_their_heartbeats(
    assembly: Assembly, customised: Assembly
) -> None:
    from aws_cdk import App, Stack

    from infra.alarm_rows import of_agents

    scope = Stack(App(), "scope")
    for every in (1, 5, 7, 60, 1440):
        rows = {each.name: each for each in of_agents(scope, every, 15)}
        for name, minutes in (
            ("AgentsSilent", 10),
            ("AgentsTroubled", 30),
            ("AgentsRacing", 1),
            ("AgentsBehind", 1),
        ):
            row = rows[name]
            seconds = row.metric.to_metric_config().metric_stat.period.to_seconds()  # type: ignore
            assert seconds >= 60 * every
            assert row.periods * seconds >= 60 * minutes
            # No more of them than it takes.
            assert (row.periods - 1) * seconds < 60 * minutes
    for made in (assembly, customised):
        assert period(alarms(made)["AgentsSilent"]) == 300
        assert alarms(made)["AgentsRacing"]["EvaluationPeriods"] == 1


def test_an_agent_that_moves_but_is_late_raises_an_alarm_after_the_time_of_a_setting(
    assembly: Assembly, customised: Assembly
) -> None:
    for made, minutes in ((assembly, 15), (customised, 45)):
        alarm = alarms(made)["AgentsBehind"]

        assert alarm["MetricName"] == deployment.METRIC_AGENTS_LAG
        # Of several nodes the latest; a sum of their lags would be nobody's.
        assert (alarm["Statistic"], alarm["Threshold"]) == ("Maximum", 60 * minutes)
        assert alarm["EvaluationPeriods"] == 1


def test_an_agent_that_does_what_its_settings_allow_is_not_behind() -> None:
    """Twice the flush time and the time before a take-over is usual, also by `--flush 5m`."""
    from coldstream.agent.settings import AgentSettings
    from infra.config import Settings, default_context

    settings = Settings.from_context(default_context(ROOT))
    for flush_seconds in (AgentSettings().flush_ms / 1000, 300):
        usual = 2 * (flush_seconds + AgentSettings().takeover_seconds)
        assert usual <= 60 * settings.agents_behind_minutes


@pytest.mark.parametrize(
    "name", ["HolesCommitted", "ClaimsThatCut", "FragmentsRefused", "AgentsTroubled"]
)
def test_what_a_thief_of_an_agent_may_have_done_sends_the_reader_to_the_undo(
    assembly: Assembly, name: str
) -> None:
    runbook = (ROOT / "docs/how-to/alarms.md").read_text()
    section = runbook.partition(f"### {name}\n")[2].partition("\n#")[0]

    assert "docs/security.md" in alarms(assembly)[name]["AlarmDescription"]
    assert "(../security.md#undo-a-theft)" in section


@pytest.mark.parametrize(
    ("minutes", "seconds", "periods"),
    [
        (1, 900, 3), (5, 900, 3), (59, 3540, 3), (60, 3600, 3), (1440, DAY, 3),
        (2000, DAY, 5), (2880, DAY, 6), (3600, DAY, 7), (8640, DAY, 7),
    ],
)  # fmt: skip
def test_whatever_the_interval_an_alarm_sees_that_a_schedule_starts_nothing(
    minutes: int, seconds: int, periods: int
) -> None:
    from aws_cdk import App, Stack
    from aws_cdk import aws_stepfunctions as sfn

    from infra.alarm_rows import of_schedules

    stack = Stack(App(), "scope")
    machine = sfn.StateMachine.from_state_machine_name(stack, "M", "m")
    (row,) = of_schedules({"collect": machine}, {"collect": minutes})
    stat = row.metric.to_metric_config().metric_stat

    assert stat is not None
    assert (stat.period.to_seconds(), row.periods) == (seconds, periods)
    assert row.too_few
    # A run among them for certain, or it would go off while all is well.
    assert periods * seconds >= 60 * minutes + DAY or periods * seconds >= 3 * 60 * minutes


def test_a_schedule_that_starts_nothing_raises_an_alarm(
    assembly: Assembly, customised: Assembly
) -> None:
    missing, more = (
        {name: each for name, each in alarms(made).items() if "Missing" in name}
        for made in (assembly, customised)
    )

    assert {name: each["Period"] for name, each in missing.items()} == {
        "ReconcileMissing": 900,
        "RetentionMissing": 3600,
        "ConsolidateMissing": 3600,
        "CollectMissing": DAY,
    }
    # Of the jobs those that have a schedule, but for one that comes once a week.
    assert more.keys() - missing.keys() == {
        "MaterialiseJobMissing",
        "ScrubJobMissing",
        "FleetJobMissing",
    }
    for each in (*missing.values(), *more.values()):
        assert each["TreatMissingData"] == "breaching"
        assert (each["ComparisonOperator"], each["Threshold"]) == ("LessThanThreshold", 1)


def test_an_execution_that_fails_or_times_out_as_a_whole_is_reported(assembly: Assembly) -> None:
    (rule,) = (
        one["Properties"]
        for name, one in assembly.of_type("AWS::Events::Rule").items()
        if name.startswith("MachineFailures")
    )
    machines = assembly.of_type("AWS::StepFunctions::StateMachine")

    assert rule["EventPattern"]["source"] == ["aws.states"]
    assert rule["EventPattern"]["detail"]["status"] == ["FAILED", "TIMED_OUT"]
    watched = rule["EventPattern"]["detail"]["stateMachineArn"]
    assert sorted(each["Ref"] for each in watched) == sorted(machines)
    assert len(machines) == len(deployment.WORKFLOWS)
    (target,) = rule["Targets"]
    assert "StepsReport" in str(target["Arn"])
    # As it is: nothing that an event may lack is asked of it.
    assert "InputTransformer" not in target


def test_the_name_of_an_alarm_says_whose_it_is_and_what_it_is_about(
    assembly: Assembly, customised: Assembly
) -> None:
    for made, stack in ((assembly, "coldstream"), (customised, "rabbit-eu")):
        for name, alarm in alarms(made).items():
            assert alarm["AlarmName"] == f"{stack}-{name}"


def test_the_alarms_are_worth_what_they_cost(assembly: Assembly) -> None:
    """0.10 $ a month for each metric of each alarm; the idle stack may cost 6 $ in all."""
    made = alarms(assembly).values()

    assert len(made) <= 36
    # A sum of metrics would be paid for by each of them, and say less.
    assert all("Metrics" not in each for each in made)


@pytest.mark.parametrize("which", ["assembly", "customised"])
def test_every_alarm_reaches_a_topic_that_lets_cloudwatch_publish(
    which: str, request: pytest.FixtureRequest
) -> None:
    made: Assembly = request.getfixturevalue(which)
    (topic_id,) = made.of_type("AWS::SNS::Topic")
    policy = made.only("AWS::SNS::TopicPolicy")["Properties"]
    allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]

    for alarm in made.of_type("AWS::CloudWatch::Alarm").values():
        assert alarm["Properties"]["AlarmActions"] == [{"Ref": topic_id}]
        assert alarm["Properties"]["OKActions"] == [{"Ref": topic_id}]
    assert policy["Topics"] == [{"Ref": topic_id}]
    (statement,) = allowed
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert (statement["Action"], statement["Resource"]) == ("sns:Publish", {"Ref": topic_id})
    # Alarms of this account, and of no other.
    assert statement["Condition"]["StringEquals"] == {
        "aws:SourceAccount": {"Ref": "AWS::AccountId"}
    }


def _sections(text: str) -> dict[str, list[str]]:
    """The runbook's sections by their anchors, each with the alarms that it is about.

    That is the one of its heading, or those of the line `Alarms:` below it.
    """
    found = {}
    for section in text.split("\n### ")[1:]:
        heading, _, body = section.partition("\n")
        listed = re.search(r"^Alarms: (.+?)\.$", body, re.MULTILINE | re.DOTALL)
        found[heading.lower()] = re.findall(r"`(\w+)`", listed[1]) if listed else [heading]
    return found


def test_every_alarm_says_where_its_runbook_is_and_the_runbook_has_no_other(
    customised: Assembly,
) -> None:
    sections = _sections((ROOT / "docs/how-to/alarms.md").read_text())
    seen = set()
    for name, alarm in alarms(customised).items():
        path, _, anchor = alarm["AlarmDescription"].partition("Runbook: ")[2].partition("#")
        assert path == "docs/how-to/alarms.md"
        assert anchor in sections, name
        assert name in sections[anchor]
        seen.add(name)

    every = {name for told in sections.values() for name in told}
    # A schedule that is so rare that nothing can watch it.
    assert every - seen == {"ProfileJobMissing"}
