"""What a setting of `cdk.json` or of `-c coldstream:name=value` may be, one kind after the other.

Each raises InvalidInputError with the setting's name and what it may be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coldstream.errors import InvalidInputError
from coldstream.names import check_prefix

NAMESPACE = "coldstream:"

# What CloudWatch Logs accepts, up to where keeping logs becomes an archive.
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 180, 365)

# An alarm looks back for seven days, and a run that came must be among them.
LONGEST_INTERVAL_MINUTES = 6 * 1440

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_ACCOUNT = re.compile(r"[0-9]{12}")
# Bucket names begin with it, and the names of rules and roles have 64 characters.
_STACK = re.compile(r"[a-z][a-z0-9-]{0,39}")
_DATABASE = re.compile(r"[a-z0-9_]{1,255}")
_ROLE_OR_USER = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:(?:role|user|root)(?:/[\w+=,.@/-]+)?")


def shown(name: str) -> str:
    """How a setting is written in cdk.json, and after `-c`."""
    return NAMESPACE + name.replace("_", "-")


def text(name: str, value: object) -> str:
    """Text without spaces around it."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{shown(name)} must be text, not {value!r}")
    return value.strip()


def whole(given: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A whole number within limits."""
    value = given[name]
    # `-c` gives text, cdk.json gives numbers; a JSON `true` is no number, and neither is 1.5.
    try:
        if isinstance(value, bool | float):
            raise TypeError
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{shown(name)} must be a whole number, not {value!r}") from None
    if not low <= number <= high:
        raise InvalidInputError(f"{shown(name)} must be {low} to {high}, not {number}")
    return number


def off_or(given: Mapping[str, Any], name: str, low: int) -> int:
    """Minutes between two runs, at least `low`; 0 for none."""
    minutes = whole(given, name, 0, 43_200)
    if 0 < minutes < low:
        raise InvalidInputError(f"{shown(name)} must be 0 for off, or {low} to 43200")
    return minutes


def interval(given: Mapping[str, Any], name: str) -> int:
    """Minutes between two runs of what always runs."""
    return whole(given, name, 1, LONGEST_INTERVAL_MINUTES)


def stack_name(value: object) -> str:
    """The name of a stack, with which those of buckets, rules and roles begin."""
    name = text("stack_name", value)
    if not _STACK.fullmatch(name):
        raise InvalidInputError(
            f"{shown('stack_name')} must be small letters, digits and -, begin with a letter and"
            f" have at most 40 characters, not {name!r}"
        )
    return name


def named(given: Mapping[str, Any], setting: str, pattern: re.Pattern[str]) -> str:
    """A name or ARN that AWS takes; "" for none."""
    name = text(setting, given[setting])
    if name and not pattern.fullmatch(name):
        raise InvalidInputError(f"{shown(setting)} is no name that AWS takes: {name!r}")
    return name


def database(value: object) -> str:
    """A database of the Glue catalog."""
    database = text("database", value)
    if not _DATABASE.fullmatch(database):
        raise InvalidInputError(
            f"{shown('database')} must be small letters, digits and _, not {database!r}"
        )
    return database


def maintenance(value: object) -> str:
    """Who keeps the tables: own or glue."""
    if value not in ("own", "glue"):
        raise InvalidInputError(f"{shown('table_maintenance')} must be own or glue, not {value!r}")
    return str(value)


def yes_or_no(given: Mapping[str, Any], name: str) -> bool:
    """Whether something holds."""
    value = given[name]
    # `-c` gives text, cdk.json gives a JSON value.
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise InvalidInputError(f"{shown(name)} must be true or false, not {value!r}")


def prefix(value: object) -> str:
    """Of all keys."""
    prefix = check_prefix(text("prefix", value))
    # Both are legal in a key. But an IAM policy would read "*" as a wildcard, and the filter of a
    # bucket's events takes "=" for nothing unless it is encoded: no upload would raise an event.
    for each in "*=":
        if each in prefix:
            raise InvalidInputError(f"{shown('prefix')} must not contain {each!r}: {prefix!r}")
    return prefix


def email(value: object) -> str:
    """Where alarms go; "" for nowhere."""
    email = text("alarm_email", value)
    if email and not _EMAIL.fullmatch(email):
        raise InvalidInputError(f"{shown('alarm_email')} is no address: {email!r}")
    return email


def retention(days: int) -> int:
    """Days for which logs are kept."""
    if days not in LOG_RETENTION_DAYS:
        choices = ", ".join(map(str, LOG_RETENTION_DAYS))
        raise InvalidInputError(f"{shown('log_retention_days')} must be one of {choices}")
    return days


def principals(value: object) -> tuple[str, ...]:
    """Accounts, roles and users, sorted, each once."""
    principals = [one.strip() for one in text("agent_principals", value).split(",")]
    for one in principals:
        if one and not _ACCOUNT.fullmatch(one) and not _ROLE_OR_USER.fullmatch(one):
            raise InvalidInputError(
                f"{shown('agent_principals')} takes account ids and ARNs of roles or users,"
                f" not {one!r}"
            )
    return tuple(sorted({one for one in principals if one}))
