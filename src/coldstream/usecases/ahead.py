"""How far a stream's uploads are ahead of its manifest: a reconcile that commits nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.errors import RefusedFragmentError
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.extend import extend


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a reconcile would do.

    Attributes:
        stream: directory name.
        first_offset: next offset of the manifest.
        next_offset: what it would become; the same if nothing is ahead.
        fragments: that would be appended.
        bytes: their size.
        refused: one error a fragment that would be left out.
    """

    stream: str
    first_offset: int
    next_offset: int
    fragments: int
    bytes: int
    refused: tuple[RefusedFragmentError, ...]


def ahead(
    context: Context,
    stream: str,
    *,
    limit: int = 500,
    time_left: Callable[[], bool] = lambda: True,
) -> Ahead:
    """Resolve and verify, commit by commit, all that `commit_runs` would append.

    Args:
        context: where.
        stream: directory name.
        limit: fragments in one commit, as there.
        time_left: whether there is time for another commit's worth.

    Raises:
        As `load`, and `extend`.
    """
    root = load(context, stream).root
    begin, fragments, size = root.next_offset, 0, 0
    refused: dict[str | None, RefusedFragmentError] = {}
    while True:
        extension = extend(context, stream, root, limit=limit)
        refused.update((each.key, each) for each in extension.refused)
        fragments += extension.fragments
        size += sum(each.listed.size for each in extension.run)
        root = extension.root
        if not extension.more or not time_left():
            return Ahead(stream, begin, root.next_offset, fragments, size, (*refused.values(),))
