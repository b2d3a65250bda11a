"""Which segment files a broker's directory gets from fragments, and where each begins.

A fragment never crosses a segment of the node that cut it, and its trailer says where it stood
there. So runs of chunks join in one file exactly where they joined in the broker's: same segment,
next byte. Everywhere else (another node had rolled elsewhere, retention or a bound cut the
beginning off) a new file begins, as after a roll; its positions count from its own first chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from coldstream.osiris.segment import SEGMENT_HEADER_SIZE

#: Positions in an index have 32 bits.
MAX_SEGMENT_SIZE = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Run:
    """Chunks that lie back to back, and where they stood in a broker's files.

    Attributes:
        first_offset: of the first chunk.
        next_offset: after the last chunk.
        segment_offset: first offset of the broker's segment.
        position: byte position of the first chunk in that segment.
        size: bytes.
        chunks: how many.
    """

    first_offset: int
    next_offset: int
    segment_offset: int
    position: int
    size: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file, whole or as far as it has come.

    Attributes:
        first_offset: of its first chunk, which names it.
        next_offset: after its last chunk.
        size: of the file in bytes, with its header.
        chunks: how many.
        original: whether it is the broker's own file from its first byte on; otherwise it was
            rolled anew.
        origin: segment and byte position of the broker's files at which its last chunk ended.
    """

    first_offset: int
    next_offset: int
    size: int
    chunks: int
    original: bool
    origin: tuple[int, int]

    @classmethod
    def begin(cls, run: Run) -> Segment:
        """The file that begins with a run."""
        original = (run.segment_offset, run.position) == (run.first_offset, SEGMENT_HEADER_SIZE)
        size = SEGMENT_HEADER_SIZE + run.size
        origin = run.segment_offset, run.position + run.size
        return cls(run.first_offset, run.next_offset, size, run.chunks, original, origin)

    def joins(self, run: Run) -> bool:
        """Whether a run goes on in this file."""
        return (
            self.next_offset == run.first_offset
            and self.origin == (run.segment_offset, run.position)
            and self.size + run.size <= MAX_SEGMENT_SIZE
        )

    def with_run(self, run: Run) -> Segment:
        """The file with a run that joins."""
        return replace(
            self,
            next_offset=run.next_offset,
            size=self.size + run.size,
            chunks=self.chunks + run.chunks,
            origin=(run.segment_offset, run.position + run.size),
        )


def segments(runs: Iterable[Run]) -> Iterator[Segment]:
    """The files that runs, in offset order, make."""
    current: Segment | None = None
    for run in runs:
        if current is not None and current.joins(run):
            current = current.with_run(run)
            continue
        if current is not None:
            yield current
        current = Segment.begin(run)
    if current is not None:
        yield current
