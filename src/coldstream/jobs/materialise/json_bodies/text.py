"""Bytes that should be one JSON object: its values, and the text that its publisher wrote for each.

What cannot be a column is rescued as that very text, so no number loses a digit on its way through
a Python float, and nothing is written anew that was nested too deeply to be.

A name that is there twice in one object is refused. Readers of JSON differ in which of the two they
take, and one of them would be lost. So is an object of more than `MAX_VALUES`: Python takes some
100 bytes for a value that has two in the text, and one body must not take a worker's memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Self

#: Python refuses to read longer numbers than some thousand digits; no column holds them anyway.
_MAX_DIGITS = 400
#: Values that one body may have, names of fields among them: half a GB, more or less.
MAX_VALUES = 2**22
#: Characters of the longest text that has no more for certain: a value and a comma are two.
LONG_TEXT = 2 * MAX_VALUES


class Real(float):
    """A number with a point, an exponent or too many digits, and the text that it was read from."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> Self:
        """The number that JSON text is."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


_GAP = re.compile(r"[ \t\n\r,:]*")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class _DoubledError(ValueError):
    """One name, two values."""


def parse_object(text: str) -> dict[str, Any]:
    """The object that a text is.

    Raises:
        ValueError: it is none, or has more than `MAX_VALUES`; says why.
    """
    if is_crowded(text):
        raise ValueError(f"the body has more than {MAX_VALUES:,} JSON values")
    try:
        document = _DECODER.decode(text)
    except RecursionError as exc:
        raise ValueError("the body's JSON is nested too deeply") from exc
    except _DoubledError:
        raise
    except ValueError as exc:
        raise ValueError(f"the body is no JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise ValueError(f"the body is no JSON object but a {type(document).__name__}")
    return document


def is_crowded(text: str) -> bool:
    """Whether a text has more than `MAX_VALUES` if it is JSON."""
    return len(text) > LONG_TEXT and _values(text) > MAX_VALUES


def texts_of(text: str) -> dict[str, str]:
    """How the values of an object that `parse_object` takes are written, by their names."""
    found = {}
    at = _after_gap(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _after_gap(text, at)
        _, at = _DECODER.raw_decode(text, begin)
        found[name] = text[begin:at]
        at = _after_gap(text, at)
    return found


def json_of(value: Any) -> str:
    """A value that `parse_object` gave, as JSON; every number with the digits that it was read of.

    Args:
        value: any but text that UTF-8 has no bytes for, which comes out as it is.
    """
    if isinstance(value, Real):
        return value.text
    if isinstance(value, dict):
        fields = (f"{json_of(name)}:{json_of(each)}" for name, each in value.items())
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(json_of, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _values(text: str) -> int:
    """How many values, and names of fields, a text has at the most if it is JSON."""
    if (most := _marks(text)) > MAX_VALUES:
        most = _marks(_STRING.sub("", text))  # marks in strings are text
    return most


def _marks(text: str) -> int:
    return 1 + sum(map(text.count, ",:[{"))


def _after_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    assert gap is not None
    return gap.end()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _DoubledError(f"the name {twice!r} is there twice in one object of the body")
    return document


def _whole(digits: str) -> int | Real:
    return int(digits) if len(digits) < _MAX_DIGITS else Real(digits)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_whole, parse_float=Real, parse_constant=_refuse
)
