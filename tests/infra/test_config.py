"""Settings are checked before anything is built from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from coldstream.errors import InvalidInputError
from coldstream.names import DEFAULT_PREFIX
from infra.config import PUBLISHING_TIMEOUT_SECONDS, Settings, default_context, refuse_move
from infra.setting_values import LOG_RETENTION_DAYS, NAMESPACE

ROOT = Path(__file__).resolve().parents[2]


def settings(**changes: Any) -> Settings:
    context = default_context(ROOT)
    context.update({NAMESPACE + name.replace("_", "-"): value for name, value in changes.items()})
    return Settings.from_context(context)


def test_cdk_json_has_every_setting_and_no_other() -> None:
    written = json.loads((ROOT / "cdk.json").read_text())["context"]

    assert [name.removeprefix(NAMESPACE).replace("-", "_") for name in written] == [
        field.name for field in fields(Settings)
    ]
    assert settings().prefix == DEFAULT_PREFIX


def test_every_setting_is_explained() -> None:
    for field in fields(Settings):
        assert f"{field.name}:" in (Settings.__doc__ or "")


def test_values_from_the_command_line_are_text_and_count_as_numbers() -> None:
    assert settings(batch_window_seconds="12").batch_window_seconds == 12


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("prefix", "rabbitmq", "not a key prefix"),
        ("prefix", "", "not a key prefix"),
        ("prefix", 7, "must be text"),
        ("prefix", "a" * 128 + "/", "at most 128 characters"),
        ("prefix", "a*/", r"must not contain '\*'"),
        ("prefix", "cluster=prod/", "must not contain '='"),
        ("alarm_email", "nobody", "is no address"),
        ("agents_behind_minutes", 4, "must be 5 to 10080"),
        ("encryption_key", "alias/mine", "is no name that AWS takes"),
        ("table_maintenance", "aws", "must be own or glue"),
        ("catalog_secret", "iceberg", "is no name that AWS takes"),
        ("batch_window_seconds", 0, "must be 1 to 60"),
        ("batch_window_seconds", 61, "must be 1 to 60"),
        ("batch_window_seconds", 1.5, "must be a whole number"),
        ("batch_window_seconds", True, "must be a whole number"),
        ("batch_window_seconds", "soon", "must be a whole number"),
        ("batch_window_seconds", None, "must be a whole number"),
        ("max_concurrency", 1, "must be 2 to 1000"),
        ("max_concurrency", 1001, "must be 2 to 1000"),
        ("reconcile_interval_minutes", 0, "must be 1 to 1440"),
        ("reconcile_idle_interval_minutes", 0, "must be 1 to 10080"),
        ("retention_interval_minutes", 0, "must be 1 to 8640"),
        ("protected", "maybe", "must be true or false"),
        ("reserved_concurrency", 9, "must be 0 for none, or at least coldstream:max-concurrency"),
        ("fragment_size_mib", 128, "coldstream:commit-memory-mib must be at least 640"),
        ("reserved_concurrency", 1001, "must be 0 to 1000"),
        ("claim_concurrency", 1001, "must be 0 to 1000"),
        ("commit_memory_mib", 511, "must be 512 to 10240"),
        ("step_memory_mib", 10_241, "must be 512 to 10240"),
        ("consolidate_interval_minutes", 8641, "must be 1 to 8640"),
        ("collect_interval_minutes", 8641, "must be 1 to 8640"),
        ("fragment_size_mib", 0, "must be 1 to 1024"),
        ("branching", 1, "must be 2 to 4096"),
        ("branching", 4097, "must be 2 to 4096"),
        ("grace_seconds", 0, "must be 1 to 2592000"),
        ("undelete_seconds", -1, "must be 0 to 31449600"),
        ("deleted_kept_days", 0, "must be 1 to 365"),
        ("archive_after_days", 3651, "must be 0 to 3650"),
        ("tracing", "sometimes", "must be true or false"),
        ("step_timeout_seconds", 901, "must be 30 to 900"),
        ("testing", "yes", "must be true or false"),
        ("testing", 1, "must be true or false"),
        ("log_retention_days", 31, "must be one of"),
        ("database", "Streams", "must be small letters"),
        ("bucket_name", "Bucket", "is no name that AWS takes"),
        ("table_name", "a/b", "is no name that AWS takes"),
        ("stack_name", "", "must be small letters"),
        ("stack_name", "Rabbit", "must be small letters"),
        ("stack_name", "a" * 41, "at most 40"),
        ("materialise_interval_minutes", 4, "must be 0 for off, or 5 to 43200"),
        ("scrub_interval_minutes", 59, "must be 0 for off, or 60 to 43200"),
        ("profile_interval_minutes", 43_201, "must be 0 to 43200"),
        ("fleet_interval_minutes", -1, "must be 0 to 43200"),
        ("job_workers", 1, "must be 2 to 299"),
        ("agent_principals", "*", "takes account ids and ARNs"),
        ("agent_principals", "arn:aws:iam::123456789012:role/*", "takes account ids and ARNs"),
        ("agent_principals", ["123456789012"], "must be text"),
        ("prefx", "a/", "unknown setting coldstream:prefx"),
    ],
)
def test_a_setting_outside_its_limits_is_refused_by_name(
    name: str, value: object, complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        settings(**{name: value})


def test_the_grace_time_is_twice_as_long_as_anything_may_take_to_publish() -> None:
    least = 2 * PUBLISHING_TIMEOUT_SECONDS

    assert settings(grace_seconds=least).grace_seconds == least
    with pytest.raises(InvalidInputError, match=f"must be at least {least}"):
        settings(grace_seconds=least - 1)


@pytest.mark.parametrize("testing", [True, "true"])
def test_only_a_deployment_for_tests_may_have_a_grace_time_of_seconds(testing: object) -> None:
    assert settings().testing is False
    assert settings(grace_seconds=2, testing=testing).grace_seconds == 2
    with pytest.raises(InvalidInputError, match="must be 1 to"):
        settings(grace_seconds=0, testing=testing)


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_a_missing_setting_is_named(field: Any) -> None:
    context = default_context(ROOT)
    del context[NAMESPACE + field.name.replace("_", "-")]

    with pytest.raises(InvalidInputError, match=f"{NAMESPACE}.* is missing"):
        Settings.from_context(context)


def test_context_of_the_cdk_itself_is_none_of_our_business() -> None:
    context = default_context(ROOT) | {"@aws-cdk/core:something": True, "availability-zones:x": []}

    assert Settings.from_context(context) == settings()


def test_principals_come_out_sorted_and_once() -> None:
    role = "arn:aws:iam::123456789012:role/path/broker"

    assert settings(agent_principals=f"{role}, 210987654321,,{role}").agent_principals == (
        "210987654321",
        role,
    )


@pytest.mark.parametrize("days", LOG_RETENTION_DAYS)
def test_every_retention_that_is_offered_is_one_the_logs_have(days: int) -> None:
    from infra.function import RETENTION

    assert days in RETENTION


def test_the_app_refuses_bad_settings_in_one_line(refuse: Callable[[dict[str, Any]], str]) -> None:
    said = refuse({"coldstream:max-concurrency": "many"})

    assert said.strip().splitlines()[-1] == (
        "app.py: coldstream:max-concurrency must be a whole number, not 'many'"
    )
    assert "Traceback" not in said


def test_a_schedule_for_tables_needs_rules_for_them() -> None:
    with pytest.raises(InvalidInputError, match="needs coldstream:materialise-rules"):
        settings(materialise_interval_minutes=15)

    assert (
        settings(materialise_interval_minutes=15, materialise_rules="{}").materialise_rules == "{}"
    )


def test_another_prefix_for_the_stack_of_cdk_json_is_refused_before_it_moves_the_first_cluster(
    refuse: Callable[[dict[str, Any]], str],
) -> None:
    said = refuse({"coldstream:prefix": "prod/"})

    assert said.strip().splitlines()[-1] == (
        "app.py: coldstream:prefix prod/ is not that of the stack coldstream in cdk.json,"
        " rabbitmq/: another cluster needs coldstream:stack-name, too"
    )


def test_another_cluster_is_another_stack_with_another_prefix_or_the_same() -> None:
    written = settings()

    refuse_move(settings(stack_name="prod", prefix="prod/"), written)
    refuse_move(settings(stack_name="prod"), written)
    refuse_move(written, written)
    with pytest.raises(InvalidInputError, match="another cluster needs"):
        refuse_move(settings(prefix="prod/"), written)
