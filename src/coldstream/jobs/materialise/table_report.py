"""What a run of materialise says that it did to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coldstream.jobs.materialise.column_plan import TablePlan
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.plan import Wanted
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.state import TableState
from coldstream.names import MAX_OFFSET


@dataclass(slots=True)
class TableReport:
    """What a run did to a table; sizes in bytes, times in ms since the Unix epoch.

    Attributes:
        table: its name.
        streams: that go into it and are not deleted.
        planned: by stream, the ranges of offsets that were to be taken in.
        rows: written; where a table has one row a key, those of new messages.
        dead_letters: written.
        lost_offsets: that existed nowhere any more.
        files: of both tables.
        file_bytes: of them.
        bytes_read: of messages, uncompressed.
        commits: of the table.
        columns_added: while it ran.
        times_moved: that lay outside of the years 1 to 9999.
        erased_rows: of messages that were erased, out of both tables.
        no_key: messages without a key, where the table has the latest of each; dead letters or not.
        tombstones: messages that delete their key there.
        oldest_last_ms: of the last messages of all streams that had new ones, the oldest.
        cut_off: by stream, what the table has of a history that was cut off: such a stream was left
            as it is.
        holes: by stream, offsets between others which the table has, that it has not: no run reads
            them unasked.
        deleted: by stream that was deleted, the lost offsets that the table never had of it.
        unread: by stream, which object of it is damaged or lost: nothing of it was taken in by the
            window in which that was found, nor after it.
        plan: what would become of its columns; None where nobody asked.
    """

    table: str
    streams: int = 0
    planned: dict[str, list[list[int]]] = field(default_factory=dict)
    rows: int = 0
    dead_letters: int = 0
    lost_offsets: int = 0
    files: int = 0
    file_bytes: int = 0
    bytes_read: int = 0
    commits: int = 0
    columns_added: list[str] = field(default_factory=list)
    times_moved: int = 0
    erased_rows: int = 0
    no_key: int = 0
    tombstones: int = 0
    oldest_last_ms: int | None = None
    cut_off: dict[str, list[list[int]]] = field(default_factory=dict)
    holes: dict[str, list[list[int]]] = field(default_factory=dict)
    deleted: dict[str, list[list[int]]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    plan: TablePlan | None = None

    def told(self) -> str:
        """What has been written so far, in words."""
        return (
            f"{self.table}: {self.rows} rows, {self.dead_letters} dead letters, {self.files} files"
            f" of {self.file_bytes} bytes, {self.commits} commits"
        )

    def add(self, other: TableReport) -> None:
        """Take in what another part of the same run did to the table."""
        self.streams += other.streams
        self.planned |= other.planned
        self.cut_off |= other.cut_off
        self.holes |= other.holes
        self.deleted |= other.deleted
        self.unread |= other.unread
        for name in ("rows", "dead_letters", "lost_offsets", "files", "file_bytes", "bytes_read",
                     "times_moved", "erased_rows", "no_key", "tombstones"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.commits += other.commits
        self.columns_added += other.columns_added
        self.plan = self.plan or other.plan
        times = (self.oldest_last_ms, other.oldest_last_ms)
        self.oldest_last_ms = min((each for each in times if each is not None), default=None)


def tell_plan(
    report: TableReport, todo: Iterable[tuple[StreamNow, Wanted]], say: Callable[[str], None]
) -> None:
    """What is to be done about each stream."""
    for now, each in todo:
        if each.refused:
            report.cut_off[now.stream] = each.refused.to_json()
        elif each.begins is None:
            report.planned[now.stream] = (each.read | each.lost).to_json()
        if now.deleted and each.lost:
            report.deleted[now.stream] = lost = each.lost.to_json()
            say(f"{report.table}: {now.stream} was deleted, and {lost} with it")


def tell_holes(
    report: TableReport, state: TableState, streams: Iterable[StreamNow], say: Callable[[str], None]
) -> None:
    """What a back-fill has passed over: a table goes on at its end."""
    for now in streams:
        alive = Ranges.of([(now.first_offset, MAX_OFFSET)])
        if holes := state.of(now.stream).holes & alive:
            report.holes[now.stream] = spans = holes.to_json()
            say(f"{report.table}: {now.stream}: {spans} is read only where --from names it")
