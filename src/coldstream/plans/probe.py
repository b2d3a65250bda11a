"""The stream that `coldstream doctor` writes to, one for each node: what it is called and holds.

It is a stream like any other, so that a probe goes the way of every upload. Its log is nowhere on a
disk: chunk n has one message, which says n, and all have one epoch. So every run knows the whole
log, whoever has written its beginning. All chunks are of one size and follow each other in a
segment, so that the workflow consolidate makes few objects of many.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.plans.claim import LocalChunk

VHOST = "coldstream"
EPOCH = 1
#: Messages that a probe stream may hold: 3 MB. At this many somebody has to delete it.
MOST = 10_000
#: Streams of one node that were deleted one after the other.
_MOST_GENERATIONS = 1000
_MOST_NODE = 200  # characters
_ODD = re.compile(r"[^A-Za-z0-9=-]")
# A broker writes nanoseconds behind the last "_", which have 19 digits.
_PROBE = re.compile(rf"{VHOST}_doctor-[A-Za-z0-9_=-]+_[0-9]{{1,6}}")


def probe_name(node: str) -> QueueName:
    """What listings call the probe stream of a node."""
    return QueueName("", VHOST, f"doctor-{_ODD.sub('_', node)[:_MOST_NODE]}")


def probe_stream(node: str, generation: int) -> str:
    """The directory name that it has, as a broker would make one; generations count from 1."""
    name = probe_name(node)
    return f"{name.vhost}_{name.queue}_{generation}"


def is_probe(stream: str) -> bool:
    """Whether a stream is one of `coldstream doctor`, and so of no interest to readers."""
    return _PROBE.fullmatch(stream) is not None


def choose(get: Callable[[str], CatalogItem | None], node: str) -> tuple[str, CatalogItem | None]:
    """The probe stream of a node, and its item: the first one that was not deleted.

    Args:
        get: reads an item.
        node: name of the machine.

    Raises:
        InvalidInputError: very many were deleted.
        ColdstreamError: as `get`.
    """
    for generation in range(1, _MOST_GENERATIONS + 1):
        stream = probe_stream(node, generation)
        item = get(stream)
        if item is None or not item.state.is_tombstone:
            return stream, item
    raise InvalidInputError(f"{_MOST_GENERATIONS} probe streams of {node!r} were deleted")


@dataclass(frozen=True, slots=True)
class ProbeLog:
    """The log of a probe stream, as a claim compares it.

    Args:
        end: one past its last message, at least 1.
    """

    end: int

    def chunks_near(self, offset: int) -> list[LocalChunk]:
        """As `LocalHistory` says."""
        last = self.end - 1
        return [_chunk(each) for each in sorted({max(0, min(offset - 1, last)), last})]

    def chunks_between(self, first: int, next_offset: int) -> list[LocalChunk]:
        """As `LocalHistory` says."""
        return [_chunk(each) for each in range(max(0, first), min(next_offset, self.end))]

    def first_offset(self) -> int | None:
        """As `LocalHistory` says."""
        return 0


def _chunk(offset: int) -> LocalChunk:
    return LocalChunk(offset, offset + 1, EPOCH)
