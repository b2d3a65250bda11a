"""How people write sizes and durations: in rules, in options of Spark, in arguments of jobs.

    size       1048576   64MiB   64m        bytes; k m g t and KiB MiB GiB TiB are powers of 1024
    duration   90   90s   15m   6h   30d    seconds; also D, M (30 days) and Y (365 days)

The number is whole. A space may stand before the unit. The case of a size's unit does not matter;
that of a duration's does: `m` is minutes and `M` is months, as in RabbitMQ's `max-age`.
"""

from __future__ import annotations

import re

from coldstream.errors import InvalidInputError

SIZES = "a size such as 1048576, 64MiB or 1TiB"
DURATIONS = "a duration such as 90s, 15m, 6h, 30d, 6M (months) or 1Y"

_SIZE = re.compile(r"([0-9]{1,18}) ?([A-Za-z]*)")
_DURATION = re.compile(r"([0-9]{1,12}) ?([A-Za-z]*)")
_BYTES = {"": 1, "b": 1} | {
    unit: 1 << 10 * power
    for power, letter in enumerate("kmgt", 1)
    for unit in (letter, f"{letter}ib")
}
_DECIMAL = frozenset(f"{letter}b" for letter in "kmgt")
_SECONDS = {
    "": 1,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "D": 86_400,
    "M": 30 * 86_400,
    "Y": 365 * 86_400,
}
#: Units in which a duration is written, the largest first.
_WRITTEN = ("D", "h", "m", "s")


def parse_size(text: str) -> int:
    """Bytes.

    Raises:
        InvalidInputError: it is no size. Also for `64MB`, which Spark takes for 64 * 2**20 bytes
            and others for 64,000,000.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = match[2].lower() if match else "?"
    if match and unit in _DECIMAL:
        raise InvalidInputError(
            f"{match[2]} may be 1000s or 1024s: write {match[1]}{unit[0].upper()}iB, or the bytes"
        )
    if match is None or unit not in _BYTES:
        raise InvalidInputError(f"must be {SIZES}, not {text[:80]!r}")
    return int(match[1]) * _BYTES[unit]


def parse_duration(text: str) -> int:
    """Seconds.

    Raises:
        InvalidInputError: it is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or match[2] not in _SECONDS:
        raise InvalidInputError(f"must be {DURATIONS}, not {text[:80]!r}")
    return int(match[1]) * _SECONDS[match[2]]


def duration_text(seconds: int) -> str:
    """A duration in the largest unit from days down that leaves no rest; no time is `0s`."""
    unit = next(each for each in _WRITTEN if seconds % _SECONDS[each] == 0) if seconds else "s"
    return f"{seconds // _SECONDS[unit]}{unit}"
