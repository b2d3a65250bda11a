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


def reconcile(
    world: World,
    *,
    pause: Callable[[int], None],
    time_left: Callable[[], bool] = lambda: True,
    begin: float = 0.0,
) -> Iterator[CommitReport | Failure]:
    """Run `commit_runs` on every live stream; one that fails does not stop the others.

    Args:
        world: where.
        pause: as in `commit_runs`.
        time_left: whether there is time for another stream.
        begin: how far into the list of streams to begin, from 0 up to 1. Where the time does not
            suffice for all of them, another beginning each time sees to it that none starves.
    """
    streams = []
    try:
        for item in world.catalog.streams():
            if item.state is StreamState.LIVE:
                streams.append(item.stream)  # noqa: PERF401 - an error must not lose those before
    except CorruptDataError as exc:  # an item that cannot be read; the others came before
        yield Failure(exc.stream or exc.key or "", exc)
    first = int(begin * len(streams))
    for stream in (*streams[first:], *streams[:first]):
        if not time_left():
            return
        try:
            yield commit_runs(world, stream, pause=pause, time_left=time_left)
        except ColdstreamError as exc:
            yield Failure(stream, exc)
