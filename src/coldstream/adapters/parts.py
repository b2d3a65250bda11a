"""The rules for the parts that an object is composed of, whoever composes it."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import InternalError
from coldstream.ports import MAX_PART_BYTES, MAX_PARTS, MIN_PART_BYTES, CopyPart, Part


def check_parts(parts: Sequence[Part]) -> None:
    """See that `parts` obey S3's rules for a multipart upload.

    Raises:
        InternalError: none, too many, or one that is empty, too large, or too small and not last.
    """
    if not 1 <= len(parts) <= MAX_PARTS:
        raise InternalError(f"an object is composed of 1 to {MAX_PARTS} parts, not of {len(parts)}")
    for number, part in enumerate(parts, 1):
        least = 1 if number == len(parts) else MIN_PART_BYTES
        if not least <= part.size <= MAX_PART_BYTES or (
            isinstance(part, CopyPart) and part.start < 0
        ):
            raise InternalError(f"part {number} of {len(parts)} has {part.size} bytes")
