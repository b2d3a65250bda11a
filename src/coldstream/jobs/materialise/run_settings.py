"""How a run goes about it, and what follows for the files that it writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.jobs.materialise.open_file import DEFAULT_GROUP_BYTES
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.schema import columns_of
from coldstream.jobs.materialise.table import Loaded
from coldstream.jobs.materialise.write import FileLayout


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run goes about it.

    Attributes:
        window: of a back-fill.
        window_bytes: what one commit takes in, in bytes of fragments.
        target_bytes: size of a file.
        sample_rows: of each of the first tasks, to learn the fields of a new table's bodies.
        dry_run: only say what would be done.
        task_bytes: what one task reads of several streams that share files.
        columns: with `dry_run`: also what would become of every column, out of a sample.
        group_bytes: of a row group, as rows are in memory.
    """

    window: BackfillWindow = field(default_factory=BackfillWindow)
    window_bytes: int = 64 * 2**30
    target_bytes: int = 256 * 2**20
    sample_rows: int = 20_000
    dry_run: bool = False
    columns: bool = False
    group_bytes: int = DEFAULT_GROUP_BYTES
    task_bytes: int = 256 * 2**20


def layout_of(rule: TableRule, loaded: Loaded, settings: RunSettings) -> FileLayout:
    """How the files of a rule's table are written."""
    return FileLayout(
        loaded.location,
        loaded.schema,
        rule.partition,
        columns_of(rule.body),
        settings.target_bytes,
        buckets=rule.buckets,
        shared=rule.shared,
        group_bytes=settings.group_bytes,
        order=rule.order,
    )
