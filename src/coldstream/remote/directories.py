"""The directories of streams that a bucket has, whatever else lies between them.

One LIST with a delimiter tells a thousand of them, however many objects each has.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Protocol

from coldstream.errors import InvalidInputError
from coldstream.names import check_stream

_PAGE = 1000
# What may follow a beginning of a stream's directory name, in the order of keys.
_FOLLOWS = "".join(sorted("/=-_" + string.ascii_letters + string.digits))


class Levels(Protocol):
    """What is needed of an object store here; see `ports.ObjectStore`."""

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """What lies directly below a prefix, sorted."""
        ...


def directories(store: Levels, prefix: str) -> Iterator[str]:
    """Every directory whose name can be a stream's and that has an object, in order.

    Our own mark (`.complete`, see `usecases.scan`) is none, nor is what others have put there.

    Args:
        store: the bucket.
        prefix: of all keys.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    for rest in walk(store, prefix):
        name = stream_of(rest)
        if name is not None:
            yield name


def walk(store: Levels, prefix: str, after: str = "") -> Iterator[str]:
    """What lies directly below `<prefix>stream/`, each by what its key has behind that.

    Of names that no stream can have only the first with the same wrong beginning is told, mostly.

    Args:
        store: the bucket.
        prefix: of all keys.
        after: only what lies behind it; `behind` what was told last.
    """
    under = f"{prefix}stream/"
    while page := store.level(under, start_after=under + after, limit=_PAGE):
        for key in page:
            rest = key.removeprefix(under)
            if _end(rest) > after:
                after = behind(rest)
                yield rest


def stream_of(rest: str) -> str | None:
    """The stream of a key, from what it has behind `<prefix>stream/`; None if it has none."""
    name, slash, _ = rest.partition("/")
    try:
        return check_stream(name) if slash else None
    except InvalidInputError:
        return None


def behind(rest: str) -> str:
    """Where a search for directories of streams goes on, from what it has found there.

    Both are what keys have behind `<prefix>stream/`. Of a directory whose name could be a stream's
    all keys are passed over; of one whose name could not, all that begin with what is wrong with
    it: so a million of them cost little. An object beside the directories hides none: `a` sorts
    before `a-b/`, and `a.b/` before `a/`. The answer never ends in "/".
    """
    name = rest.partition("/")[0]
    wrong = next((at for at, character in enumerate(name) if character not in _FOLLOWS), None)
    for at in range(-1 if wrong is None else wrong, -1, -1):
        following = next((each for each in _FOLLOWS if each > name[at]), None)
        if following == "/":
            break
        if following is not None:
            return name[:at] + following
    return _end(rest)


def _end(rest: str) -> str:
    """What sorts behind all keys of a directory, or is the key of an object beside them."""
    name, slash, _ = rest.partition("/")
    return f"{name}0" if slash else name  # "0" is the character behind "/"
