"""What must hold when all trouble is over: nothing is behind, nothing leaks, all can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldstream.nodes import NodeCache
from coldstream.reader.gap import Gap
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import Offset
from coldstream.reader.stream import StreamReader
from coldstream.testing.invariants import Invariant, Violation
from coldstream.testing.simulation.cluster import Replica
from coldstream.testing.simulation.inline import Inline
from coldstream.testing.simulation.oracle import BrokenError

if TYPE_CHECKING:
    from coldstream.testing.simulation.history import History


def last_checks(history: History, writer: Replica) -> None:
    """All of them.

    Raises:
        BrokenError: one does not hold.
    """
    arrived(history, writer)
    reads(history)


def arrived(history: History, writer: Replica) -> None:
    """Every committed chunk that the brokers still have is in the manifest."""
    from coldstream.testing.simulation.history import STREAM

    item = history.catalog.inner.items.get(STREAM)
    following = 0 if item is None else item.next_offset
    if following < writer.committed:
        errors = {
            str(a.follower.progress.error) for a in history.agents if a.follower.progress.error
        }
        raise BrokenError(
            [
                Violation(
                    Invariant.CONTIGUOUS_ADVANCE,
                    f"the manifest stands at {following}, {writer.name} has committed up to"
                    f" {writer.committed}; agents say {sorted(errors)}",
                    following,
                )
            ]
        )


def reads(history: History) -> None:
    """A read of everything gives each offset once, in order, byte for byte."""
    from coldstream.testing.simulation.history import PREFIX, STREAM

    item = history.catalog.inner.items[STREAM]
    reader = StreamReader(
        history.objects,
        history.catalog.inner,
        PREFIX,
        STREAM,
        settings=ReaderSettings(pool=Inline),
        nodes=NodeCache(),
        clock=lambda: history.scheduler.now / 1000,
    )
    at = item.first_offset
    gaps: list[Gap] = []

    def on_gap(gap: Gap) -> None:
        nonlocal at
        gaps.append(gap)
        at = gap.next_offset

    written = history.cluster.written
    for chunk in reader.chunks(Offset(item.first_offset), on_gap=on_gap):
        header = chunk.header
        known = written.get((header.chunk_id, header.epoch))
        if known is None or known.data != bytes(chunk.buffer) or header.chunk_id > at:
            raise BrokenError(
                [Violation(Invariant.DURABILITY, f"read {header.chunk_id}, wanted {at}", at)]
            )
        at = header.next_offset
    if at != item.next_offset:
        raise BrokenError([Violation(Invariant.DURABILITY, f"the read ends at {at}", at)])
