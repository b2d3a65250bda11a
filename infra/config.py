"""Settings of a deployment: what `cdk.json` and `-c coldstream:name=value` may say, with limits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from coldstream.errors import InvalidInputError
from coldstream.names import check_prefix

NAMESPACE = "coldstream:"

# What CloudWatch Logs accepts, up to where keeping logs becomes an archive.
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 180, 365)

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_ACCOUNT = re.compile(r"[0-9]{12}")
_ROLE_OR_USER = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:(?:role|user|root)(?:/[\w+=,.@/-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can differ between two deployments.

    In the context each name has dashes and the namespace: `coldstream:batch-window-seconds`. The
    values in use are those of `cdk.json`; nothing has a second default here.

    Attributes:
        prefix: everything coldstream stores lies below this key prefix; ends in "/".
        alarm_email: who is told when an alarm goes off; empty for nobody.
        batch_window_seconds: how long events are gathered before a commit. Longer means fewer
            commits, and as much more time until an upload is in the manifest. 1 to 60.
        max_concurrency: how many commit functions may run at once. 2 to 1000.
        reconcile_interval_minutes: how often streams are checked for uploads whose event was lost.
            1 to 1440.
        log_retention_days: how long the functions' logs are kept; a value CloudWatch knows.
        agent_principals: who may assume the agents' role besides EC2 instances: account ids, or
            ARNs of roles and users; in the context one string, separated by commas.
    """

    prefix: str
    alarm_email: str
    batch_window_seconds: int
    max_concurrency: int
    reconcile_interval_minutes: int
    log_retention_days: int
    agent_principals: tuple[str, ...]

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Settings:
        """Read the settings from the app's context. Other tools' entries are ignored.

        Raises:
            InvalidInputError: a setting is missing, unknown, or outside its limits.
        """
        given = {
            name.removeprefix(NAMESPACE).replace("-", "_"): value
            for name, value in context.items()
            if name.startswith(NAMESPACE)
        }
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidInputError(f"unknown setting {_shown(name)}")
        for name in known:
            if name not in given:
                raise InvalidInputError(f"the setting {_shown(name)} is missing; see cdk.json")
        return cls(
            prefix=_prefix(given["prefix"]),
            alarm_email=_email(given["alarm_email"]),
            # A batch of more than ten messages needs a window of at least one second.
            batch_window_seconds=_whole(given, "batch_window_seconds", 1, 60),
            max_concurrency=_whole(given, "max_concurrency", 2, 1000),
            reconcile_interval_minutes=_whole(given, "reconcile_interval_minutes", 1, 1440),
            log_retention_days=_retention(_whole(given, "log_retention_days", 1, 365)),
            agent_principals=_principals(given["agent_principals"]),
        )


def default_context(root: Path) -> dict[str, Any]:
    """The context of `cdk.json`, so that `python app.py` works without the CDK's own CLI."""
    context: dict[str, Any] = json.loads((root / "cdk.json").read_text("utf-8"))["context"]
    return context


def _shown(name: str) -> str:
    return NAMESPACE + name.replace("_", "-")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"{_shown(name)} must be text, not {value!r}")
    return value.strip()


def _whole(given: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = given[name]
    # `-c` gives text, cdk.json gives numbers; a JSON `true` is no number, and neither is 1.5.
    try:
        if isinstance(value, bool | float):
            raise TypeError
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{_shown(name)} must be a whole number, not {value!r}") from None
    if not low <= number <= high:
        raise InvalidInputError(f"{_shown(name)} must be {low} to {high}, not {number}")
    return number


def _prefix(value: object) -> str:
    prefix = check_prefix(_text("prefix", value))
    if "*" in prefix:
        # Legal in a key, but an IAM policy would read it as a wildcard.
        raise InvalidInputError(f"{_shown('prefix')} must not contain '*': {prefix!r}")
    return prefix


def _email(value: object) -> str:
    email = _text("alarm_email", value)
    if email and not _EMAIL.fullmatch(email):
        raise InvalidInputError(f"{_shown('alarm_email')} is no address: {email!r}")
    return email


def _retention(days: int) -> int:
    if days not in LOG_RETENTION_DAYS:
        choices = ", ".join(map(str, LOG_RETENTION_DAYS))
        raise InvalidInputError(f"{_shown('log_retention_days')} must be one of {choices}")
    return days


def _principals(value: object) -> tuple[str, ...]:
    principals = [one.strip() for one in _text("agent_principals", value).split(",")]
    for one in principals:
        if one and not _ACCOUNT.fullmatch(one) and not _ROLE_OR_USER.fullmatch(one):
            raise InvalidInputError(
                f"{_shown('agent_principals')} takes account ids and ARNs of roles or users,"
                f" not {one!r}"
            )
    return tuple(sorted({one for one in principals if one}))
