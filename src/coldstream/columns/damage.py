"""Offsets whose bytes are there and damaged."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import CorruptDataError


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """A chunk, several, or a whole fragment that cannot be believed.

    Attributes:
        first_offset: of the first damaged chunk.
        next_offset: after the last one.
        timestamp: of the first damaged chunk as its index says it, ms; for a whole fragment the
            lowest that its manifest entry says.
        error: what is wrong; names stream, offset and key.
    """

    first_offset: int
    next_offset: int
    timestamp: int
    error: CorruptDataError
