"""Regular expressions over names that cannot keep a workflow busy for ever.

Python's matcher goes back and tries again, and nothing stops it: `(a+)+` against thirty letters
takes longer than any Lambda lives, and one such rule would stop retention for every stream. So a
pattern must match whole names, is short, and repeats little:

  * at most 256 characters, against names of at most 255;
  * at most 3 of `*`, `+` and `{}`, and at most 4 of `?`;
  * at most 16 `|` inside groups, while outside there may be any number;
  * all of these together leave the matcher few ways: what alternatives and `?` multiply, every
    repetition multiplies again (see `MAX_STEPS`), so `(a|b|c)-.*` is allowed, and 16 groups of
    two alternatives are, but not with three `.*` behind them;
  * what is repeated as a group contains neither a repetition nor an alternative, so `(eu|us)-.*`
    is allowed and `(eu|us)+` is not;
  * plain groups only: no back-references, no looking ahead or behind, no flags;
  * no surrogates: they are in no name, and no document of rules can be written with them.

A pattern within these limits can be slow (two seconds were the worst we made), never endless.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import comb

MAX_PATTERN = 256
#: RabbitMQ's own limit for names of virtual hosts and queues, in bytes.
MAX_NAME = 255
MAX_REPEATS = 3
MAX_OPTIONALS = 4
MAX_CHOICES = 16
#: How a name can be cut for so many repetitions, 64 times: once for every way through alternatives
#: and options. As many as the matcher may try before it knows that a name does not match.
MAX_STEPS = 64 * comb(MAX_NAME + MAX_REPEATS, MAX_REPEATS)

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
    if any("\ud800" <= each <= "\udfff" for each in pattern):
        return "has a surrogate, which no name has"
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
    ways = _Ways()
    for sign in signs:
        ends_heavy = False
        if sign in ("(", "(?:"):
            nested.append(False)
            ways.begin()
        elif sign == "(?":
            return "has a group other than (...) and (?:...)"
        elif sign == ")":
            if len(nested) > 1:
                ends_heavy = nested.pop()
                nested[-1] |= ends_heavy
                ways.end()
        elif sign == "|":
            choices += len(nested) > 1
            nested[-1] = True
            ways.other()
        elif sign == "?":
            optionals += 1
            nested[-1] = True
            ways.or_nothing()
        elif sign in "*+" or (sign[0] == "{" and len(sign) > 1):
            if heavy:
                return "repeats a group that holds a repetition or an alternative"
            repeats += 1
            nested[-1] = True
            ways.again()
        elif _BACK_REFERENCE.fullmatch(sign):
            return "has a back-reference"
        else:
            ways.sign()
        heavy = ends_heavy
    if repeats > MAX_REPEATS or optionals > MAX_OPTIONALS:
        return f"has more than {MAX_REPEATS} of * + {{}} or more than {MAX_OPTIONALS} of ?"
    if choices > MAX_CHOICES:
        return f"has more than {MAX_CHOICES} of | inside groups"
    if ways.steps() > MAX_STEPS:
        return "has too many alternatives, options and repetitions together"
    return None


class _Ways:
    """How often the matcher may try, at most: counted sign by sign.

    Ways of what follows each other multiply, ways of alternatives add up. Repetitions count for a
    whole alternative outside groups: a name can be cut for `r` of them in `comb(255 + r, r)` ways.
    """

    def __init__(self) -> None:
        # For each open group: its alternatives so far, this one without its last part, that part.
        self._open = [(0, 1, 1)]
        self._repeats = 0
        self._steps = 0

    def sign(self, ways: int = 1) -> None:
        """A part that can match in so many ways."""
        before, this, last = self._open.pop()
        self._open.append((before, this * last, ways))

    def or_nothing(self) -> None:
        """The last part may be left out."""
        before, this, last = self._open.pop()
        self._open.append((before, this, last + 1))

    def again(self) -> None:
        """The last part is repeated."""
        self._repeats += 1

    def other(self) -> None:
        """Another alternative begins."""
        before, this, last = self._open.pop()
        if self._open:
            self._open.append((before + this * last, 1, 1))
            return
        self._steps += this * last * comb(MAX_NAME + self._repeats, self._repeats)
        self._repeats = 0
        self._open.append((0, 1, 1))

    def begin(self) -> None:
        """A group begins."""
        self._open.append((0, 1, 1))

    def end(self) -> None:
        """The group ends: it is a part of the one around it."""
        before, this, last = self._open.pop()
        self.sign(before + this * last)

    def steps(self) -> int:
        """Of the whole pattern; nothing may follow."""
        while len(self._open) > 1:  # groups that nobody has closed: the compiler refuses them
            self.end()
        self.other()
        return self._steps
