"""Every decision of a history: drawn from a seed, or replayed from a list.

0 is always the plainest choice (no fault, the first task), so that a list that is cut short or has
numbers made smaller is a simpler history of the same kind. That is all that shrinking needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Numbers below a bound, one after the other.

    Args:
        seed: of the numbers, if there is nothing to replay.
        replay: numbers that a run drew earlier; after them come zeros.

    Attributes:
        taken: what was drawn so far.
    """

    def __init__(self, seed: int, replay: Sequence[int] | None = None) -> None:
        self._random = Random(seed).random
        self._replay = replay
        self.taken: list[int] = []

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        if bound <= 1:
            return 0
        taken = self.taken
        if self._replay is None:
            number = int(self._random() * bound)
        else:
            at = len(taken)
            number = min(self._replay[at], bound - 1) if at < len(self._replay) else 0
        taken.append(number)
        return number

    def chance(self, percent: float) -> bool:
        """True in so many of a hundred cases; a replayed zero is False."""
        taken = self.taken
        if self._replay is None:
            number = int(self._random() * 100 < percent)
        else:
            at = len(taken)
            number = self._replay[at] if at < len(self._replay) else 0
        taken.append(number)
        return number != 0

    def one_of(self, values: Sequence[T]) -> T:
        """One of some values, the first being the plainest."""
        return values[self.below(len(values))]

    def weighted(self, weights: Sequence[int]) -> int:
        """An index, as often as its weight says."""
        number = self.below(sum(weights))
        for index, weight in enumerate(weights):
            number -= weight
            if number < 0:
                return index
        return 0
