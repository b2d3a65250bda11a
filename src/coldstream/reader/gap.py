"""Offsets that a read passes over, because no tier has them any more. Never silent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import LostRangeError


class GapReason(StrEnum):
    """Why there is nothing to read."""

    HOLE = "hole"
    RETENTION = "retention"
    TRUNCATION = "truncation"

    @property
    def meaning(self) -> str:
        """The reason in words."""
        return _MEANINGS[self]


_MEANINGS = {
    GapReason.HOLE: "were lost before they could be uploaded",
    # Also of a read that begins there: of those nobody knows which of the two it was.
    GapReason.RETENTION: (
        "were removed by retention, or never uploaded: the stream begins behind them"
    ),
    GapReason.TRUNCATION: "were cut off under a higher epoch during the read",
}


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first_offset, next_offset) that cannot be read, and why."""

    first_offset: int
    next_offset: int
    reason: GapReason = GapReason.HOLE

    def __str__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1} {self.reason.meaning}"


def refuse_gap(gap: Gap) -> None:
    """Stop at a gap: what happens unless the caller says otherwise.

    Raises:
        LostRangeError: always.
    """
    raise LostRangeError(str(gap), offset=gap.first_offset)
