"""The last bytes of listed fragments, several at once."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import NotFoundError, RefusedFragmentError
from coldstream.fragment import TRAILER_SIZE
from coldstream.plans.resolve import Listed
from coldstream.usecases.load import World

_AT_ONCE = 16


def refusal(each: Listed, why: str) -> RefusedFragmentError:
    """Why a fragment must not enter the manifest."""
    return RefusedFragmentError(
        f"fragment refused: {why}",
        stream=each.data_key.stream,
        offset=each.data_key.first_offset,
        key=each.path,
    )


def fetch_tails(world: World, wanted: Sequence[Listed]) -> dict[str, bytes | RefusedFragmentError]:
    """By path: the bytes in which the trailer is, or that the fragment is gone.

    Raises:
        UnavailableError: the store did not answer.
    """
    if len(wanted) < 2:
        return {each.path: _fetch_tail(world, each) for each in wanted}
    with world.pool(min(_AT_ONCE, len(wanted))) as pool:
        tails = pool.map(lambda each: _fetch_tail(world, each), wanted)
        return {each.path: tail for each, tail in zip(wanted, tails, strict=True)}


def _fetch_tail(world: World, each: Listed) -> bytes | RefusedFragmentError:
    try:
        return world.store.get_suffix(each.path, TRAILER_SIZE)
    except NotFoundError:
        return refusal(each, "it vanished after it was listed")
