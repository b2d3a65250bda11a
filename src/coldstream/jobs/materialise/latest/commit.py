"""The second half of a window of a table of the latest: staged messages into its buckets.

The buckets are written anew from the files that the table has at that moment, and the commit holds
only for these (`Append.removes`). Where somebody else has changed one of them meanwhile (an
erasure, a compaction), that is done again; where others were changed, what was written is good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coldstream.jobs.materialise.engine import Engine
from coldstream.jobs.materialise.latest.merge import MergePiece, MergeResult, plan_merge
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.table import Append, Loaded, Table, WrittenFile
from coldstream.jobs.materialise.write import FileLayout


@dataclass(slots=True)
class Merging:
    """Completes the `Append` of a window.

    Args:
        engine: does the tasks.
        table: that gets the rows.
        layout: of its files, as it was loaded.
        staged: what the first round of tasks has written.
        unread: offsets by stream whose messages are there and cannot be read: rows that they gave
            once stay.
    """

    engine: Engine
    table: Table
    layout: Callable[[Loaded], FileLayout]
    staged: Sequence[WrittenFile]
    unread: Mapping[str, Ranges]
    _pieces: tuple[MergePiece, ...] = ()
    _results: list[MergeResult] = field(default_factory=list)

    def complete(self, loaded: Loaded, append: Append) -> Append:
        """The change with the files that it adds to the table, and those that these replace.

        Raises:
            ColdstreamError: from the workers or the table.
        """
        without = {
            stream: (ranges - append.lost.get(stream, Ranges()) - self.unread.get(stream, Ranges()))
            | append.replaces.get(stream, Ranges())
            for stream, ranges in append.covered.items()
        }
        pieces = plan_merge(self.table.files(loaded), self.staged, without)
        if pieces != self._pieces:
            self._results = self.engine.merge(pieces, self.layout(loaded))
            self._pieces = pieces
        removes = [path for piece in pieces for path, _ in piece.present]
        return replace(append, files=self.files, removes=removes)

    @property
    def files(self) -> list[WrittenFile]:
        """That the buckets are in now."""
        return [file for result in self._results for file in result.files]

    @property
    def rows(self) -> int:
        """Of new messages, that are the last of their key."""
        return sum(result.rows for result in self._results)
