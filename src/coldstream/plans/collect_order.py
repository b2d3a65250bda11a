"""In which order a run of `collect` goes over a stream, and its cursor, as values.

Manifest nodes first, then all the rest from a place on, and then the rest before that place. The
place is another one in each run, so that a run that never gets through does not always leave the
same part out. A cursor decides what comes next and nothing else: one that is stale, or made up,
makes a run pass over objects, and the next one sees them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum


class Phase(StrEnum):
    """A part of a run."""

    NODES = "nodes"
    REST = "rest"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class ListPosition:
    """How far a run has come.

    Attributes:
        phase: in which part.
        after: the last key that was looked at, "" at the part's begin.
        start: key behind which the rest begins and the wrapped part ends; "" for all at once.
    """

    phase: Phase = Phase.NODES
    after: str = ""
    start: str = ""

    @classmethod
    def parse(cls, cursor: str | None) -> ListPosition | None:
        """The place that a cursor stands for; None for the begin, and for what is no cursor."""
        name, colon, rest = (cursor or "").partition(":")
        name, _, size = name.partition("@")
        if not colon or name not in list(Phase) or not (size.isdecimal() or not size):
            return None
        length = int(size or 0)
        return cls(Phase(name), rest[length:], rest[:length])

    @property
    def text(self) -> str:
        """The cursor. Keys may hold any character, so the length says where one ends."""
        size = f"@{len(self.start)}" if self.start else ""
        return f"{self.phase}{size}:{self.start}{self.after}"

    def at(self, phase: Phase, after: str) -> ListPosition:
        """The same run, elsewhere."""
        return replace(self, phase=phase, after=after)

    def phases(self) -> Iterator[Phase]:
        """What is left of the run, from this place on."""
        order = [Phase.NODES, Phase.REST, *([Phase.WRAP] if self.start else [])]
        yield from order[order.index(self.phase) :] if self.phase in order else ()

    def after_in(self, phase: Phase) -> str:
        """The key behind which a part goes on."""
        if phase is self.phase and self.after:
            return self.after
        return self.start if phase is Phase.REST else ""

    def is_beyond(self, phase: Phase, key: str) -> bool:
        """Whether a key lies behind the end of a part."""
        return phase is Phase.WRAP and key > self.start


def draw(stream: str, run_ms: int) -> int:
    """A 64-bit number that is another one for each stream and run."""
    digest = hashlib.sha256(f"{run_ms}:{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
