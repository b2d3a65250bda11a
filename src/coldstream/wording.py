"""How messages list things: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def listed(
    names: Sequence[str], most: int = 5, *, total: int | None = None, separator: str = ", "
) -> str:
    """`a, b and 3 more`, in the order that they have.

    Args:
        names: all of them, or the first ones.
        most: so many are named.
        total: how many there are, where `names` are only the first.
        separator: what stands between two; `and 3 more` follows one that is no comma.
    """
    shown = names[:most]
    words = separator.join(shown)
    more = max(len(names), total or 0) - len(shown)
    if more <= 0 or not shown:
        return f"{more} of them" if more > 0 else words
    return f"{words}{' ' if separator == ', ' else separator}and {more} more"
