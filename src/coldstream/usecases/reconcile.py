"""Complete the runs of every stream, with no event at all: the answer to lost ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coldstream.errors import ColdstreamError, CorruptDataError
from coldstream.manifest.catalog import StreamState
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from coldstream.usecases.load import World


@dataclass(frozen=True, slots=True)
class Failure:
    """A stream that could not be brought forward, and why."""

    stream: str
    error: ColdstreamError


def reconcile(world: World, *, pause: Callable[[int], None]) -> Iterator[CommitReport | Failure]:
    """Run `commit_runs` on every live stream; one that fails does not stop the others."""
    try:
        for item in world.catalog.streams():
            if item.state is not StreamState.LIVE:
                continue
            try:
                yield commit_runs(world, item.stream, pause=pause)
            except ColdstreamError as exc:
                yield Failure(item.stream, exc)
    except CorruptDataError as exc:  # an item that cannot be read
        yield Failure(exc.stream or exc.key or "", exc)
