"""Where to begin and to end, as people type it: also relative to now, and to the end of a stream.

first  last  next  12345  2026-03-01T08:00  timestamp:MILLISECONDS     as `reader.spec` says
1h  90s  30d                                                           so long ago
-10                                                                    ten offsets before the end
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from coldstream import clock
from coldstream.cli.output import note
from coldstream.errors import InvalidInputError
from coldstream.quantities import parse_duration

if TYPE_CHECKING:
    from coldstream.manifest.catalog import CatalogItem
    from coldstream.manifest.root import Root
    from coldstream.reader import Bound, OffsetSpec, StreamReader
    from coldstream.reader.follow import RangeRead

_End = TypeVar("_End", int, str)

#: A duration has a unit here: a number alone is an offset.
_AGO = re.compile(r"[0-9]{1,12} ?[smhdDMY]")
_BACK = re.compile(r"-[0-9]{1,20}")
_FORMS = (
    "an offset, a time such as 2026-03-01T08:00Z (UTC unless it has a zone),"
    " timestamp:MILLISECONDS, 1h for an hour ago, or -10 for ten offsets before the end"
)
_SPECS = f"first, last, next, {_FORMS}"

FromOption = Annotated[str, typer.Option("--from", metavar="SPEC", help=f"{_SPECS}.")]
UNTIL_HELP = f"Stop before this offset, or before the first chunk at or after this time: {_FORMS}."
UntilOption = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="OFFSET|TIME",
        help=UNTIL_HELP,
        show_default="the end of the manifest",
    ),
]


def until_of(until: _End | None, to: _End | None) -> _End | None:
    """The end that `--until` says, or `--to`, as it was called where that is no destination.

    Raises:
        InvalidInputError: both say one.
    """
    if until is not None and to is not None:
        raise InvalidInputError("--to is the older name of --until: give one of them")
    return to if until is None else until


def spec_of(text: str, stream: Root | CatalogItem, now_ms: int | None = None) -> OffsetSpec:
    """Where a read is to begin.

    Args:
        text: as typed.
        stream: what says its offsets.
        now_ms: ms since the Unix epoch; by this machine's clock unless given.

    Raises:
        InvalidInputError: it is none of the forms.
    """
    from coldstream.reader import parse_spec

    return _relative(text, stream, now_ms) or parse_spec(text, _SPECS)


def bound_of(text: str, stream: Root | CatalogItem, now_ms: int | None = None) -> Bound | None:
    """Where a read is to end; None for an empty text. Arguments and errors as `spec_of`."""
    from coldstream.reader import parse_bound

    return (_relative(text, stream, now_ms) or parse_bound(text, _FORMS)) if text else None


def read_of(reader: StreamReader, start: str, until: str) -> RangeRead:
    """A read from `--from` to `--until`.

    Raises:
        InvalidInputError: they are none, or in the wrong order.
        As `StreamReader.chunks`.
    """
    stream = reader.glance().extent
    spec, bound = spec_of(start, stream), bound_of(until, stream)
    check_order(spec, bound, "--until")
    return reader.begin(spec, bound)


def tell_nothing_left(reader: StreamReader, read: RangeRead, until: str) -> None:
    """Say so if nothing is read because the stream begins behind the offset of `--until`.

    Raises:
        As `StreamReader.glance`.
    """
    from coldstream.reader import Offset

    stream = reader.glance().extent
    bound = bound_of(until, stream)
    if (
        isinstance(bound, Offset)
        and bound.value <= stream.first_offset
        and read.start >= bound.value
    ):
        note(f"the stream begins at offset {stream.first_offset}: nothing of it is below {bound}")


def is_ahead(spec: OffsetSpec, end: int, now_ms: int) -> bool:
    """Whether a spec means an offset or a time to which a stream that ends at `end` has not come.

    A time that is over is none: whatever comes is of a later one.
    """
    from coldstream.reader import Offset, Timestamp

    match spec:
        case Offset(value):
            return value > end
        case Timestamp(value):
            return value > now_ms
    return False


def is_relative(text: str) -> bool:
    """Whether a spec means another place of a stream that has grown when it is given again."""
    word = text.strip()
    return word.lower() in ("last", "next") or any(each.fullmatch(word) for each in (_BACK, _AGO))


def range_of(text: str) -> tuple[int, int]:
    """The offsets of `FIRST..NEXT`.

    Raises:
        InvalidInputError: it is none.
    """
    first, dots, next_offset = text.partition("..")
    if not (
        dots and first.isdecimal() and next_offset.isdecimal() and int(first) < int(next_offset)
    ):
        raise InvalidInputError(f"{text[:80]!r} is no range such as 70..80")
    return int(first), int(next_offset)


def check_order(spec: OffsetSpec, bound: Bound | None, name: str) -> None:
    """Refuse an end before the beginning.

    Args:
        spec: where to begin.
        bound: where to end.
        name: of the option that says it.
    """
    from coldstream.reader.spec import check_order as in_order

    in_order(spec, bound, "--from", name)


def _relative(text: str, stream: Root | CatalogItem, now_ms: int | None) -> Bound | None:
    from coldstream.reader import Offset, Timestamp

    word = text.strip()
    if _BACK.fullmatch(word):
        return Offset(max(stream.first_offset, stream.next_offset + int(word)))
    if _AGO.fullmatch(word):
        now = clock.now_ms() if now_ms is None else now_ms
        return Timestamp(now - 1000 * parse_duration(word))
    return None
