"""Regular expressions over names that cannot keep a workflow busy for ever.

Python's matcher goes back and tries again, and nothing stops it: `(a+)+` against thirty letters
takes longer than any Lambda lives, and one such rule would stop retention for every stream. So a
pattern must match whole names, is short, and repeats little:

  * at most 256 characters, against names of at most 255;
  * at most 3 of `*`, `+` and `{}`, and at most 4 of `?`;
  * at most 16 `|` inside groups, while outside there may be any number;
  * what is repeated as a group contains neither a repetition nor an alternative, so `(eu|us)-.*`
    is allowed and `(eu|us)+` is not;
  * plain groups only: no back-references, no looking ahead or behind, no flags.

A pattern within these limits can be slow (a second was the worst we made), never endless.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_PATTERN = 256
#: RabbitMQ's own limit for names of virtual hosts and queues, in bytes.
MAX_NAME = 255
MAX_REPEATS = 3
MAX_OPTIONALS = 4
MAX_CHOICES = 16

# An escape, a class with its members, the beginning of a group, a repetition, any other character.
_SIGN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:|\(\?|\{[0-9]*,?[0-9]*\}|.", re.DOTALL)
_BACK_REFERENCE = re.compile(r"\\[1-9]")


@lru_cache(maxsize=8192)
def compiled(pattern: str) -> re.Pattern[str]:
    """The matcher of a pattern that `problem` finds no fault with."""
    return re.compile(pattern)


def problem(pattern: str) -> str | None:
    """What is wrong with `pattern`, in words; None if nothing is."""
    if len(pattern) > MAX_PATTERN:
        return f"has {len(pattern)} characters, more than {MAX_PATTERN}"
    # Before it is compiled: the compiler itself is slow on some of what is refused here.
    trouble = _unbounded(_SIGN.findall(pattern))
    if trouble is not None:
        return trouble
    try:
        compiled(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        return f"is no regular expression: {exc}"
    return None


def _unbounded(signs: list[str]) -> str | None:
    """Why a pattern of these signs could take too long; None if it could not."""
    repeats = optionals = choices = 0
    nested = [False]  # for each open group: whether it holds a repetition or an alternative
    heavy = False  # whether the sign before ends a group that does
    for sign in signs:
        ends_heavy = False
        if sign in ("(", "(?:"):
            nested.append(False)
        elif sign == "(?":
            return "has a group other than (...) and (?:...)"
        elif sign == ")":
            if len(nested) > 1:
                ends_heavy = nested.pop()
                nested[-1] |= ends_heavy
        elif sign == "|":
            choices += len(nested) > 1
            nested[-1] = True
        elif sign == "?":
            optionals += 1
            nested[-1] = True
        elif sign in "*+" or (sign[0] == "{" and len(sign) > 1):
            if heavy:
                return "repeats a group that holds a repetition or an alternative"
            repeats += 1
            nested[-1] = True
        elif _BACK_REFERENCE.fullmatch(sign):
            return "has a back-reference"
        heavy = ends_heavy
    if repeats > MAX_REPEATS or optionals > MAX_OPTIONALS:
        return f"has more than {MAX_REPEATS} of * + {{}} or more than {MAX_OPTIONALS} of ?"
    if choices > MAX_CHOICES:
        return f"has more than {MAX_CHOICES} of | inside groups"
    return None
