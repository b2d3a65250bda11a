"""A broker's data directory as a source for `coldstream repair`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from coldstream.agent.disk.log import StreamLog
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Chunk, chunk_at, parse_chunk_header
from coldstream.plans.cut import SegmentView

_GIVE = (
    "give --from-dir the broker's directory `stream`, or the stream's own in it; the user needs the"
    " right to read it"
)


class LogReplica:
    """The files of one stream on a node, or a copy of them.

    Args:
        directory: the stream's own, or the one that holds it.
        stream: directory name of the stream.
        tell: told of files that cannot be used.

    Raises:
        NotFoundError: there is no such directory, or it holds no segment.
    """

    def __init__(self, directory: Path, stream: str, tell: Callable[[str], None]) -> None:
        own = directory if directory.name == stream else directory / stream
        self._log = StreamLog(own)
        self._tell = tell
        try:
            self._segments = self._log.segments()
        except OSError as exc:
            raise NotFoundError(
                f"no such directory: {exc.strerror}", key=str(own), remedy=_GIVE
            ) from exc
        if not self._segments:
            raise NotFoundError(
                "no segment with its index is here", stream=stream, key=str(own), remedy=_GIVE
            )

    @property
    def name(self) -> str:
        """For messages."""
        return str(self._log.directory)

    def chunks(self, first: int, next_offset: int) -> Iterator[Chunk]:
        """Chunks that begin in offsets [first, next_offset), as they are in the files."""
        ends = [*self._segments[1:], 2**64]
        for segment, end in zip(self._segments, ends, strict=True):
            if segment >= next_offset or end <= first:
                continue
            view = self._view(segment)
            if view is not None:
                yield from self._chunks_of(view, first, next_offset)

    def epoch_of(self, chunk_id: int) -> int | None:
        """Epoch of the chunk with this id, as its header says; None if there is no such chunk."""
        segment = max((each for each in self._segments if each <= chunk_id), default=None)
        view = None if segment is None else self._view(segment)
        if view is None:
            return None
        at = int(np.searchsorted(view.records["offset"], np.uint64(chunk_id)))
        if at == len(view.records) or int(view.records["offset"][at]) != chunk_id:
            return None
        with self._log.segment_path(view.first_offset).open("rb") as file:
            position = int(view.records["position"][at])
            try:
                header = parse_chunk_header(os.pread(file.fileno(), CHUNK_HEADER_SIZE, position))
            except CorruptDataError:
                return None
        return header.epoch if header.chunk_id == chunk_id else None

    def _view(self, segment: int) -> SegmentView | None:
        try:
            return self._log.view(segment, since=segment, closed=True)
        except (CorruptDataError, OSError) as exc:
            self._tell(f"a segment of {self.name} cannot be used: {exc}")
            return None

    def _chunks_of(self, view: SegmentView, first: int, next_offset: int) -> Iterator[Chunk]:
        offsets = view.records["offset"].astype(np.uint64)
        positions = [*view.records["position"].astype(np.int64).tolist(), view.end_position]
        wanted = np.flatnonzero(
            (offsets >= np.uint64(first)) & (offsets < np.uint64(min(next_offset, 2**64 - 1)))
        )
        with self._log.segment_path(view.first_offset).open("rb") as file:
            for number in wanted.tolist():
                start, end = positions[number], positions[number + 1]
                data = memoryview(os.pread(file.fileno(), end - start, start))
                try:
                    yield chunk_at(data, 0, len(data))
                except CorruptDataError as exc:
                    self._tell(f"chunk {int(offsets[number])} of {self.name}: {exc.reason}")
