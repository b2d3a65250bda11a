"""Something that is to be fetched: what it is, how large, and who else may want the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Span(NamedTuple):
    """What makes two fetches of one stream the same.

    Attributes:
        key: the object, and which part of it.
        first_offset: of what it brings.
        next_offset: of what it brings.
    """

    key: Hashable
    first_offset: int
    next_offset: int


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Fetch(Generic[T]):
    """Something to be fetched.

    Attributes:
        size: bytes that its result holds.
        run: does it, in a worker thread; what it raises is raised to the consumer, in its turn.
        span: says what other readers of the stream ask for by it, too; None if nobody else can
            have its result.
        sound: whether a result may be given to others.
    """

    size: int
    run: Callable[[], T]
    span: Span | None = None
    sound: Callable[[T], bool] = _always
