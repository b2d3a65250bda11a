"""Make a failing history small: fewer choices, plainer ones, the same kind of failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Gives the kind of failure of a list of choices, None if it does not fail.
Fails = Callable[[Sequence[int]], str | None]


def shrink(choices: Sequence[int], kind: str, fails: Fails, *, tries: int = 600) -> list[int]:
    """A list no longer than `choices`, with no number greater, that fails in the same way.

    Args:
        choices: that fail.
        kind: of the failure.
        fails: tries a list.
        tries: how many lists may be tried.
    """
    best = _trimmed(list(choices))
    left = tries

    def better(candidate: list[int]) -> bool:
        nonlocal best, left
        candidate = _trimmed(candidate)
        if left <= 0 or candidate == best:
            return False
        left -= 1
        if fails(candidate) != kind:
            return False
        best = candidate
        return True

    size = max(1, len(best) // 2)
    while left > 0:
        changed = False
        at = 0
        while at < len(best) and left > 0:
            if better(best[:at] + best[at + size :]):
                changed = True
            elif any(best[at : at + size]) and better(
                best[:at] + [0] * len(best[at : at + size]) + best[at + size :]
            ):
                changed = True
                at += size
            else:
                at += size
        if size == 1 and not changed:
            break
        size = max(1, size // 2)
    for at in range(len(best)):
        while left > 0 and at < len(best) and best[at] > 1:
            if not better([*best[:at], best[at] // 2, *best[at + 1 :]]):
                break
    return best


def _trimmed(choices: list[int]) -> list[int]:
    """Without the zeros at the end, which a replay adds by itself."""
    while choices and choices[-1] == 0:
        choices.pop()
    return choices
