"""Regular expressions over names, which no rule can make endless: RE2 matches in linear time.

A pattern must match a whole name. What RE2 reads otherwise than Python's `re`, which matched
patterns before, is refused: a rule of retention must never begin to mean other streams.
RE2 is imported when it is needed: the function that commits needs none, and starts cold.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol, cast

from coldstream.errors import InvalidInputError

MAX_PATTERN = 256

# An escape, a class of POSIX's, a repetition without its least number, any other character.
_SIGN = re.compile(r"\\.|\[:\^?[a-z]+:\]|\{,[0-9]+\}|.", re.DOTALL)
#: ASCII only in RE2, all of Unicode in Python.
_CLASSES = {r"\d": "[0-9]", r"\w": "[A-Za-z0-9_]", r"\s": "a space"}


class Matcher(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """Something if the pattern matches the whole text, else None."""
        ...


@lru_cache(maxsize=8192)
def compiled(pattern: str) -> Matcher:
    """The matcher of a pattern that `check_pattern` takes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    return cast(Matcher, re2.compile(pattern, options))


def check_pattern(pattern: str) -> None:
    """See that RE2 takes a pattern, whatever it means there.

    Raises:
        InvalidInputError: it does not.
    """
    import re2

    try:
        compiled(pattern)
    except re2.error as exc:
        why = exc.args[0]
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise InvalidInputError(
            f"{pattern[:MAX_PATTERN]!r} is no regular expression of RE2: {text}"
        ) from None


def problem(pattern: str) -> str | None:
    """What is wrong with `pattern`, in words that follow it; None if nothing is."""
    if len(pattern) > MAX_PATTERN:
        return f"has {len(pattern)} characters, more than {MAX_PATTERN}"
    if any("\ud800" <= each <= "\udfff" for each in pattern):
        return "has a surrogate, which no name has"
    for sign in _SIGN.findall(pattern):
        trouble = _ambiguous(sign)
        if trouble is not None:
            return trouble
    try:
        check_pattern(pattern)
    except InvalidInputError as exc:
        return exc.reason.removeprefix(f"{pattern[:MAX_PATTERN]!r} ")
    return None


def _ambiguous(sign: str) -> str | None:
    """Why a sign that RE2 reads otherwise than Python is refused; None if it is not."""
    if sign in _CLASSES:
        return f"has {sign}, which other engines read otherwise: write {_CLASSES[sign]}"
    if sign in (r"\D", r"\W", r"\S", r"\b", r"\B"):
        return f"has {sign}, which other engines read otherwise: write the characters as [...]"
    if sign.startswith("{,"):
        return f"has {sign}, which other engines read otherwise: write {{0{sign[1:]}"
    if sign.startswith("[:"):
        return f"has {sign}, which other engines read otherwise: write the characters as [...]"
    return None
