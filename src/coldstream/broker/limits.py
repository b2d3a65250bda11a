"""How much of a stream its brokers keep, as its arguments and policies say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_AGE = re.compile(r"([0-9]{1,12})([YMDhms])")
#: As `rabbit_amqqueue:check_max_age` counts them, ms.
_UNITS_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Local retention of a stream; None where there is no such limit.

    Attributes:
        max_bytes: of all its segments.
        max_age_ms: of a segment's newest chunk.
    """

    max_bytes: int | None = None
    max_age_ms: int | None = None


def limits_of(arguments: object, *policies: object) -> Limits:
    """What is in force: of an argument and a policy that disagree, the broker takes the smaller.

    Args:
        arguments: of the queue, as the management API tells them; whatever else it is, it says
            nothing.
        policies: definitions of policy and operator policy.
    """
    said = [
        *_values(arguments, "x-max-length-bytes", "x-max-age"),
        *(value for each in policies for value in _values(each, "max-length-bytes", "max-age")),
    ]
    return Limits(
        max_bytes=min((value for is_size, value in said if is_size), default=None),
        max_age_ms=min((value for is_size, value in said if not is_size), default=None),
    )


def _values(definition: object, size: str, age: str) -> list[tuple[bool, int]]:
    if not isinstance(definition, Mapping):
        return []
    found: list[tuple[bool, int]] = []
    most: Any = definition.get(size)
    if isinstance(most, int) and not isinstance(most, bool) and most > 0:
        found.append((True, most))
    match = _AGE.fullmatch(str(definition.get(age, "")))
    if match is not None:
        found.append((False, int(match[1]) * _UNITS_MS[match[2]]))
    return found
