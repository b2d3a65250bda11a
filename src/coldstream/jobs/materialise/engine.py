"""What does the reading and writing of a run: the port, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coldstream.jobs.materialise.compact import CompactPiece, CompactResult
from coldstream.jobs.materialise.latest.merge import MergePiece, MergeResult
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.task_result import TaskResult
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.write import FileLayout
from coldstream.manifest.ledger import Ledger
from coldstream.osiris.offsets import OffsetSet


@dataclass(frozen=True, slots=True)
class TaskPiece:
    """Work for one task, or for a part of one.

    Attributes:
        stream: directory name.
        span: offsets [first, next) of the stream within which the task reads.
        split: which part of them; opaque.
        size: bytes, about.
        reach_ms: time over which its messages were written, about.
    """

    stream: str
    span: tuple[int, int]
    split: Any
    size: int
    reach_ms: int = 0


#: What a worker does at once: pieces of several streams only where they share files.
Task = tuple[TaskPiece, ...]


@dataclass(frozen=True, slots=True)
class StreamNow:
    """A stream as a run found it.

    Attributes:
        stream: directory name.
        name: of the queue; the directory name where nobody knows it.
        first_offset: of the manifest.
        next_offset: of the manifest.
        snapshot: of the manifest, opaque.
        ledger: of the manifest.
        erased: offsets whose rows no table may have.
        deleted: nothing of it can be read any more; then it holds nothing up to `next_offset`.
        super_stream: of which it is a partition; "" if of none, or nobody knows.
    """

    stream: str
    name: str
    first_offset: int
    next_offset: int
    snapshot: Any = None
    ledger: Ledger = field(default_factory=Ledger)
    erased: OffsetSet = field(default_factory=OffsetSet)
    deleted: bool = False
    super_stream: str = ""


class Engine(Protocol):
    """Does the reading and writing; on Spark in `spark_engine`."""

    def pieces(self, stream: StreamNow, ranges: Ranges) -> list[TaskPiece]:
        """Cut what is to be read into tasks of even size, in the order of offsets.

        Messages that are erased are covered by their tasks, and become nothing.
        """
        ...

    def perform(
        self, tasks: Sequence[Task], rules: TaskRules, row_limit: int | None = None
    ) -> list[tuple[TaskResult, ...]]:
        """Do tasks, all at once; for each the results of its pieces, in their order.

        A file may have rows of all pieces of a task, so their results belong together. That a
        stream cannot be read is a result of its pieces (`TaskResult.error`), and no error.
        """
        ...

    def merge(self, pieces: Sequence[MergePiece], layout: FileLayout) -> list[MergeResult]:
        """Bring buckets of a table up to date; results in the order of the pieces."""
        ...

    def compact(self, pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
        """Merge small files; results in the order of the pieces. What fails is a result, too."""
        ...
