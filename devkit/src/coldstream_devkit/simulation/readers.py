"""A reader among all the trouble: each offset once, in order, byte for byte; gaps are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.errors import (
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.ports import Catalog, ObjectStore
from coldstream.reader.budget import MemoryBudget
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import Offset
from coldstream.reader.stream import StreamReader
from coldstream.remote.nodes import NodeCache
from coldstream_devkit.simulation.cluster import ChunkId
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.oracle import BrokenError, Oracle


@dataclass(slots=True)
class ReadBack:
    """What a read came to.

    Attributes:
        next_offset: where it ended.
        gaps: that it was told of.
    """

    next_offset: int
    gaps: list[Gap]


def read(
    store: ObjectStore,
    catalog: Catalog,
    oracle: Oracle,
    *,
    start: int,
    clock: Callable[[], float],
    refresh_seconds: float,
    rest: Callable[[], None] = lambda: None,
) -> ReadBack | None:
    """Read everything from an offset on, as the library does, and compare it with what was written.

    None if the world did not answer, or the stream is not there yet. `rest` is called after each
    chunk.

    Raises:
        BrokenError: a chunk is missing, comes twice, is not what the broker wrote, or was never
            committed; or an object is missing that the manifest refers to.
    """
    cluster = oracle.cluster
    reader = StreamReader(
        store,
        catalog,
        oracle.prefix,
        oracle.stream,
        settings=ReaderSettings(pool=Inline, refresh_seconds=refresh_seconds),
        # Of its own: tasks of the simulator cannot wait for each other's GETs.
        budget=MemoryBudget(),
        nodes=NodeCache(),
        clock=clock,
    )
    told: list[Gap] = []
    at: int | None = None
    last: ChunkId | None = None

    def on_gap(gap: Gap) -> None:
        nonlocal at, last
        # What was handed on and then cut off is told from the cut on, below what was read last.
        below = gap.reason is GapReason.TRUNCATION and gap.next_offset >= (at or 0)
        if at is not None and gap.first_offset != at and not (below and gap.first_offset < at):
            raise _broken(f"a gap at {gap.first_offset} instead of {at}", gap.first_offset)
        told.append(gap)
        at, last = gap.next_offset, None

    try:
        for chunk in reader.chunks(Offset(start), on_gap=on_gap):
            header = chunk.header
            begins, next_offset = header.chunk_id, header.next_offset
            # Behind a gap, as at the beginning, the chunk that contains the offset comes first.
            early = next_offset <= (start if at is None else at) or (last and begins < (at or 0))
            if early or (at is not None and begins > at):
                raise _broken(f"chunk {begins} where {start if at is None else at} is next", begins)
            written = cluster.written.get((begins, header.epoch))
            if written is None or not oracle.contents.erased.is_as_written(
                written.data, bytes(chunk.buffer), header.epoch, begins
            ):
                raise _broken("not what the broker wrote", begins)
            if written.identity not in cluster.committed:
                raise _broken("never committed", begins)
            if (
                last is not None
                and written.previous not in (last, None)
                and (last, written.identity) not in cluster.unseen_joins
            ):
                raise _broken(f"chunk {written.identity} follows {last} of another history", begins)
            at, last = next_offset, written.identity
            rest()
    except (UnavailableError, PermissionDeniedError):
        return None
    except CorruptDataError as exc:
        if oracle.contents.harmed:
            return None  # told, as it should be
        raise BrokenError([Violation(Invariant.DURABILITY, f"a reader: {exc}")]) from exc
    except NotFoundError as exc:
        item = oracle.catalog().items.get(oracle.stream)
        gone = item is None or item.state is StreamState.DELETED
        if not exc.key or oracle.contents.harmed or gone:
            return None  # no such stream (yet, or any more), or told of what the world has taken
        raise BrokenError(
            [Violation(Invariant.PUBLISH_BEFORE_DELETE, f"a reader: {exc}", key=exc.key)]
        ) from exc
    return ReadBack(start if at is None else at, told)


def _broken(message: str, offset: int) -> BrokenError:
    return BrokenError([Violation(Invariant.DURABILITY, f"a reader: {message}", offset)])
