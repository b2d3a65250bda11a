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
from infra.config import LOG_RETENTION_DAYS, NAMESPACE, Settings, default_context

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
        ("prefix", "a*/", r"must not contain '\*'"),
        ("alarm_email", "nobody", "is no address"),
        ("batch_window_seconds", 0, "must be 1 to 60"),
        ("batch_window_seconds", 61, "must be 1 to 60"),
        ("batch_window_seconds", 1.5, "must be a whole number"),
        ("batch_window_seconds", True, "must be a whole number"),
        ("batch_window_seconds", "soon", "must be a whole number"),
        ("batch_window_seconds", None, "must be a whole number"),
        ("max_concurrency", 1, "must be 2 to 1000"),
        ("max_concurrency", 1001, "must be 2 to 1000"),
        ("reconcile_interval_minutes", 0, "must be 1 to 1440"),
        ("log_retention_days", 31, "must be one of"),
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
    from infra.function import _RETENTION

    assert days in _RETENTION


def test_the_app_refuses_bad_settings_in_one_line(refuse: Callable[[dict[str, Any]], str]) -> None:
    said = refuse({"coldstream:max-concurrency": "many"})

    assert said.strip().splitlines()[-1] == (
        "app.py: coldstream:max-concurrency must be a whole number, not 'many'"
    )
    assert "Traceback" not in said
