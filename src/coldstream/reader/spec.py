"""Where a read begins and ends, in RabbitMQ's own words.

    first            the first retained chunk
    last             the last chunk that holds messages
    next             after everything that is there now
    12345            the chunk that contains offset 12345
    2026-03-01T08:00 the first chunk at or after that time (UTC unless a zone is given)
    timestamp:1772352000000   the same, in ms since the Unix epoch

This module knows no manifest and reads no clock; `locate` turns a spec into an offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from coldstream.errors import InvalidInputError
from coldstream.names import MAX_OFFSET

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_A_BOUND = "an offset or a time such as 2026-03-01T08:00:00Z"
_MIN_TIMESTAMP, _MAX_TIMESTAMP = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class First:
    """The first retained chunk."""

    def __str__(self) -> str:
        return "first"


@dataclass(frozen=True, slots=True)
class Last:
    """The last chunk of messages; chunks of tracking data do not count."""

    def __str__(self) -> str:
        return "last"


@dataclass(frozen=True, slots=True)
class Next:
    """After everything that is there now."""

    def __str__(self) -> str:
        return "next"


@dataclass(frozen=True, slots=True)
class Offset:
    """The chunk that contains offset `value`.

    Below the first offset it is the first retained chunk, and the read tells what lies between.
    """

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= MAX_OFFSET:
            raise InvalidInputError(f"an offset lies between 0 and 2**64 - 1, not at {self.value}")

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first chunk whose timestamp is `value` (ms since the Unix epoch) or later."""

    value: int

    def __post_init__(self) -> None:
        if not _MIN_TIMESTAMP <= self.value <= _MAX_TIMESTAMP:
            raise InvalidInputError(f"{self.value} ms is no 64-bit timestamp")

    def __str__(self) -> str:
        return f"timestamp:{self.value}"


Bound = Offset | Timestamp
OffsetSpec = First | Last | Next | Bound

_WORDS: dict[str, OffsetSpec] = {"first": First(), "last": Last(), "next": Next()}


def parse_spec(text: str, expected: str = f"first, last, next, {_A_BOUND}") -> OffsetSpec:
    """Read a spec as people write it; see the top of this module.

    Args:
        text: as written.
        expected: what the error says may be written.

    Raises:
        InvalidInputError: it is none of the forms.
    """
    word = text.strip().lower()
    return _WORDS.get(word) or _bound(word, expected)


def parse_bound(text: str, expected: str = _A_BOUND) -> Bound:
    """Read the end of a range: an offset or a time, both exclusive. Arguments as of `parse_spec`.

    Raises:
        InvalidInputError: it is neither.
    """
    return _bound(text.strip().lower(), expected)


def as_spec(value: OffsetSpec | int | str | datetime) -> OffsetSpec:
    """A spec from what a program has: an offset, a time, or words as of `parse_spec`.

    Raises:
        InvalidInputError: it is none.
    """
    if isinstance(value, str):
        return parse_spec(value)
    if isinstance(value, First | Last | Next):
        return value
    return as_bound(value)


def check_order(spec: OffsetSpec, bound: Bound | None, begin: str, end: str) -> None:
    """Refuse an end before the beginning, where both are offsets.

    Args:
        spec: where to begin.
        bound: where to end; None for nowhere.
        begin: what says where to begin.
        end: what says where to end.

    Raises:
        InvalidInputError: it lies before it.
    """
    if isinstance(spec, Offset) and isinstance(bound, Offset) and bound.value < spec.value:
        raise InvalidInputError(f"{end} {bound.value} lies before {begin} {spec.value}")


def as_bound(value: Bound | int | str | datetime) -> Bound:
    """The end of a range from what a program has.

    Raises:
        InvalidInputError: it is none.
    """
    if isinstance(value, str):
        return parse_bound(value)
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, Offset | Timestamp):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Offset(value)
    raise InvalidInputError(f"{value!r:.80} is no offset and no time")


def _moment(moment: datetime) -> Timestamp:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Chunks are stamped in whole milliseconds, so "at or after" rounds up.
    return Timestamp(-((_EPOCH - moment) // _MILLISECOND))


def _bound(text: str, expected: str) -> Bound:
    if text.isascii() and text.isdigit():
        return Offset(_integer(text))
    label, colon, digits = text.partition(":")
    if colon and label == "timestamp" and digits.removeprefix("-").isdigit() and digits.isascii():
        return Timestamp(_integer(digits))
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as exc:
        raise InvalidInputError(f"expected {expected}, not {text[:80]!r}") from exc
    return _moment(moment)


def _integer(digits: str) -> int:
    if len(digits) > 21:  # 2**64 has 20 digits; int() of a huge string is slow
        raise InvalidInputError(f"a number of {len(digits)} digits is out of range")
    return int(digits)
