"""The driver: what is to be done, window after window, and one commit for each.

A window is read and written by tasks on the workers, checked for completeness, and committed: first
its dead letters, then its rows with the offsets. Whatever dies in between leaves files that no
table names; the next run reads the same offsets again, and its dead letters replace those that it
finds of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from coldstream.jobs.materialise.column_plan import TablePlan, grows, plan_columns, sample_of
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.engine import Engine, StreamNow, TaskPiece
from coldstream.jobs.materialise.erase import erase_all
from coldstream.jobs.materialise.plan import BackfillWindow, Wanted, wanted, windows
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rule_fit import with_rule
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of, dead_schema
from coldstream.jobs.materialise.state import TableState
from coldstream.jobs.materialise.table import Append, Loaded, Table
from coldstream.jobs.materialise.task import TaskResult, TaskRules, check_tiling, with_found
from coldstream.jobs.materialise.transform import first_schema
from coldstream.jobs.materialise.write import FileLayout

#: So often a window is done again because its bodies had fields that the table had no column for.
_MAX_GROWTH = 3
_MAX_TASKS = 2000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run goes about it.

    Attributes:
        window: of a back-fill.
        window_bytes: what one commit takes in, in bytes of fragments.
        target_bytes: size of a file.
        sample_rows: of each of the first tasks, to learn the fields of a new table's bodies.
        dry_run: only say what would be done.
        columns: with `dry_run`: also what would become of every column, out of a sample.
    """

    window: BackfillWindow = field(default_factory=BackfillWindow)
    window_bytes: int = 64 * 2**30
    target_bytes: int = 256 * 2**20
    sample_rows: int = 20_000
    dry_run: bool = False
    columns: bool = False


@dataclass(slots=True)
class TableReport:
    """What a run did to a table; sizes in bytes, times in ms since the Unix epoch.

    Attributes:
        table: its name.
        streams: that go into it and are not deleted.
        planned: by stream, the ranges of offsets that were to be taken in.
        rows: written.
        dead_letters: written.
        lost_offsets: that existed nowhere any more.
        files: of both tables.
        file_bytes: of them.
        bytes_read: of messages, uncompressed.
        commits: of the table.
        columns_added: while it ran.
        times_moved: that lay outside of the years 1 to 9999.
        erased_rows: of messages that were erased, out of both tables.
        oldest_last_ms: of the last messages of all streams, the oldest.
        cut_off: by stream, what the table has of a history that was cut off: such a stream was left
            as it is.
        deleted: by stream that was deleted, the lost offsets that the table never had of it.
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
    oldest_last_ms: int | None = None
    cut_off: dict[str, list[list[int]]] = field(default_factory=dict)
    deleted: dict[str, list[list[int]]] = field(default_factory=dict)
    plan: TablePlan | None = None

    def add(self, other: TableReport) -> None:
        """Take in what another part of the same run did to the table."""
        self.streams += other.streams
        self.planned |= other.planned
        self.cut_off |= other.cut_off
        self.deleted |= other.deleted
        for name in ("rows", "dead_letters", "lost_offsets", "files", "file_bytes", "bytes_read",
                     "times_moved", "erased_rows"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.commits += other.commits
        self.columns_added += other.columns_added
        self.plan = self.plan or other.plan
        self.heard(other.oldest_last_ms)

    def heard(self, last_ms: int | None) -> None:
        """Remember the time of a stream's last message, if it is the oldest so far."""
        if last_ms is not None:
            known = self.oldest_last_ms
            self.oldest_last_ms = last_ms if known is None else min(known, last_ms)


@dataclass(frozen=True, slots=True)
class Tables:
    """The two tables of a rule."""

    rows: Table
    dead: Table


@dataclass(frozen=True, slots=True)
class Runner:
    """Fills tables.

    Args:
        engine: does the tasks.
        new_id: gives an id that is used once.
        pause: waits after attempt n of a commit.
        say: takes a line of progress.
    """

    engine: Engine
    new_id: Callable[[], str]
    pause: Callable[[int], None]
    say: Callable[[str], None]

    def fill(
        self, rule: TableRule, tables: Tables, streams: Sequence[StreamNow], settings: RunSettings
    ) -> TableReport:
        """Bring one table up to date with its streams.

        Args:
            rule: of the table; of several that name it, any: they differ in `start` only.
            tables: the table and its dead letters.
            streams: all that go into it.
            settings: how.

        Raises:
            ConflictError: another run was quicker with some of these offsets; run again.
            InvalidInputError: the table was filled by another rule, which this one does not fit.
            ColdstreamError: from the streams, the tables or the workers. What was committed before
                stays; the next run goes on there.
        """
        report = TableReport(rule.table, sum(not now.deleted for now in streams))
        if settings.dry_run:
            self._only_told(rule, tables, streams, settings, report)
            return report
        begin = first_schema(rule.body, rule.schema, rule.columns)
        loaded = tables.rows.load(begin)
        with_rule(rule, loaded.schema, begin)
        todo = todo_of(rule, loaded.state, streams, settings.window)
        self._plan_told(todo, report)
        epochs = {now.stream: now.ledger.epoch for now, _ in todo if now.ledger.epoch}
        loaded = self._lost_committed(tables, loaded, begin, todo, epochs, report)
        pieces = [piece for now, each in todo for piece in self.engine.pieces(now, each.read)]
        if pieces:
            loaded = self._grow(tables, loaded, with_rule(rule, loaded.schema, begin), report)
            with_rule(rule, loaded.schema, begin)  # another run may have said the type first
        if grows(rule) and pieces and loaded.schema.equals(begin):
            loaded = self._learn(rule, tables, loaded, sample_of(pieces), settings, report)
        replaces = {now.stream: each.replaces for now, each in todo if each.replaces}
        left = {now.stream: each.read for now, each in todo}
        sized = ((piece, piece.size) for piece in pieces)
        for window in windows(sized, max_bytes=settings.window_bytes, max_items=_MAX_TASKS):
            results, loaded = self._perform(rule, tables, loaded, window, settings, report)
            covered = _covered(results)
            later = {piece.stream for piece in pieces[pieces.index(window[-1]) + 1 :]}
            for stream in {piece.stream for piece in window}:
                mine = [result for result in results if result.stream == stream]
                ranges = covered.get(stream, Ranges())
                # What a window covers must follow on what the windows before it have covered.
                expected = _head(left[stream], ranges) if stream in later else left[stream]
                check_tiling(stream, mine, expected)
                left[stream] = left[stream] - ranges
            within = {s: ranges & replaces.get(s, Ranges()) for s, ranges in covered.items()}
            self._commit(tables, begin, results, covered, within, epochs, report)
            self.say(
                f"{rule.table}: {report.rows} rows, {report.dead_letters} dead letters, "
                f"{report.files} files of {report.file_bytes} bytes, {report.commits} commits"
            )
        both = ((tables.rows, begin), (tables.dead, dead_schema()))
        report.erased_rows = erase_all(both, streams, new_id=self.new_id, pause=self.pause)
        return report

    def _plan_told(self, todo: Sequence[tuple[StreamNow, Wanted]], report: TableReport) -> None:
        for now, each in todo:
            if each.refused:
                report.cut_off[now.stream] = each.refused.to_json()
            else:
                report.planned[now.stream] = (each.read | each.lost).to_json()
            if now.deleted and each.lost:
                report.deleted[now.stream] = lost = each.lost.to_json()
                self.say(f"{report.table}: {now.stream} was deleted, and {lost} with it")

    def _lost_committed(
        self,
        tables: Tables,
        loaded: Loaded,
        begin: pa.Schema,
        todo: Sequence[tuple[StreamNow, Wanted]],
        epochs: Mapping[str, int],
        report: TableReport,
    ) -> Loaded:
        """Commit that offsets are lost which exist nowhere any more, if there are any."""
        gone = {now.stream: each.lost for now, each in todo if each.lost}
        if not gone:
            return loaded
        cut = {now.stream: each.lost & each.replaces for now, each in todo if each.lost}
        append = Append(self.new_id(), covered=gone, lost=gone, replaces=cut, epochs=epochs)
        loaded = commit(tables.rows, append, first_schema=begin, pause=self.pause)
        report.lost_offsets += sum(ranges.offsets for ranges in gone.values())
        report.commits += 1
        return loaded

    def _only_told(
        self,
        rule: TableRule,
        tables: Tables,
        streams: Sequence[StreamNow],
        settings: RunSettings,
        report: TableReport,
    ) -> None:
        """Say what would be done; neither table is made or changed."""
        there = tables.rows.peek()
        if there is not None:
            with_rule(rule, there.schema, first_schema(rule.body, rule.schema, rule.columns))
        state = TableState() if there is None else there.state
        todo = todo_of(rule, state, streams, settings.window)
        self._plan_told(todo, report)
        if settings.columns:
            pieces = [piece for now, each in todo for piece in self.engine.pieces(now, each.read)]
            present = None if there is None else there.schema
            sample = sample_of(pieces)
            report.plan = plan_columns(rule, present, sample, self.engine, settings.sample_rows)
            self.say(f"{rule.table}\n{report.plan.told()}")

    def _learn(
        self,
        rule: TableRule,
        tables: Tables,
        loaded: Loaded,
        pieces: Sequence[TaskPiece],
        settings: RunSettings,
        report: TableReport,
    ) -> Loaded:
        """Give a new table the columns that a sample of its bodies has."""
        rules = self._rules(rule, tables, loaded, settings)
        results = self.engine.perform(pieces, rules, settings.sample_rows)
        return self._grow(tables, loaded, with_found(loaded.schema, results), report)

    def _perform(
        self,
        rule: TableRule,
        tables: Tables,
        loaded: Loaded,
        window: Sequence[TaskPiece],
        settings: RunSettings,
        report: TableReport,
    ) -> tuple[list[TaskResult], Loaded]:
        """Do a window; again, where bodies had fields for which there was no column yet."""
        results: list[TaskResult | None] = [None] * len(window)
        todo = list(range(len(window)))
        for growth in range(_MAX_GROWTH + 1):
            rules = self._rules(rule, tables, loaded, settings)
            done = self.engine.perform([window[number] for number in todo], rules)
            for number, result in zip(todo, done, strict=True):
                results[number] = result
            if not grows(rule) or growth == _MAX_GROWTH:
                break
            after = self._grow(tables, loaded, with_found(loaded.schema, done), report)
            if after.schema.equals(loaded.schema):
                break
            loaded = after
            todo = [number for number, result in zip(todo, done, strict=True) if len(result.found)]
        return [result for result in results if result is not None], loaded

    def _grow(
        self, tables: Tables, loaded: Loaded, schema: pa.Schema, report: TableReport
    ) -> Loaded:
        if schema.equals(loaded.schema):
            return loaded
        after = tables.rows.grow(loaded, schema)
        new = [name for name in after.schema.names if name not in loaded.schema.names]
        report.columns_added += new
        self.say(f"{report.table}: new columns {', '.join(new) or 'inside of others'}")
        return after

    def _rules(
        self, rule: TableRule, tables: Tables, loaded: Loaded, settings: RunSettings
    ) -> TaskRules:
        dead = tables.dead.grow(tables.dead.load(dead_schema()), dead_schema())
        rows = FileLayout(
            loaded.location,
            loaded.schema,
            rule.partition,
            columns_of(rule.body),
            settings.target_bytes,
        )
        return TaskRules(
            rule.body,
            rows,
            replace(rows, location=dead.location, schema=dead.schema, columns=KEY_COLUMNS),
            rule.body_format,
            rule.schema,
            rule.misfits,
            steps=rule.steps,
            columns=rule.columns,
        )

    def _commit(
        self,
        tables: Tables,
        begin: pa.Schema,
        results: Sequence[TaskResult],
        covered: Mapping[str, Ranges],
        replaces: Mapping[str, Ranges],
        epochs: Mapping[str, int],
        report: TableReport,
    ) -> None:
        """Dead letters first: a message that is in neither table would be lost."""
        dead_files = [each for result in results for each in result.dead_files]
        # A run that died between the two commits has left its dead letters: ours replace them.
        known = tables.dead.load(dead_schema()).state
        before = {stream: ranges & known.of(stream) for stream, ranges in covered.items()}
        if dead_files or any(before.values()):
            dead = Append(self.new_id(), dead_files, covered, replaces=before)
            commit(tables.dead, dead, first_schema=dead_schema(), pause=self.pause)
        lost: dict[str, Ranges] = defaultdict(Ranges)
        for result in results:
            lost[result.stream] |= Ranges.of(result.lost)
        files = [each for result in results for each in result.files]
        gone = {stream: ranges for stream, ranges in lost.items() if ranges}
        append = Append(self.new_id(), files, covered, gone, replaces, epochs=epochs)
        commit(tables.rows, append, first_schema=begin, pause=self.pause)
        report.rows += sum(result.rows for result in results)
        report.dead_letters += sum(result.dead for result in results)
        report.lost_offsets += sum(ranges.offsets for ranges in gone.values())
        report.bytes_read += sum(result.bytes_read for result in results)
        report.times_moved += sum(result.times_moved for result in results)
        report.files += len(files) + len(dead_files)
        report.file_bytes += sum(each.size for each in (*files, *dead_files))
        report.commits += 1
        newest: dict[str, int] = {}
        for result in results:
            if result.last_ms is not None:
                newest[result.stream] = max(newest.get(result.stream, 0), result.last_ms)
        for last_ms in newest.values():
            report.heard(last_ms)


def todo_of(
    rule: TableRule, state: TableState, streams: Sequence[StreamNow], window: BackfillWindow
) -> list[tuple[StreamNow, Wanted]]:
    """What is to be done about each stream, where that is anything."""
    todo = []
    for now in streams:
        each = wanted(
            state.of(now.stream),
            now.first_offset,
            now.next_offset,
            start=rule.start,
            window=window,
            cut_off=state.cut_off(now.stream, now.ledger),
        )
        if each.read or each.lost or each.refused:
            todo.append((now, each))
    return todo


def _covered(results: Sequence[TaskResult]) -> dict[str, Ranges]:
    covered: dict[str, Ranges] = defaultdict(Ranges)
    for result in results:
        covered[result.stream] |= Ranges.of(result.covered)
    return dict(covered)


def _head(left: Ranges, done: Ranges) -> Ranges:
    """What a window had to cover, if it ends where it says: all that is left up to there."""
    return left & Ranges.of([(0, done.spans[-1][1])]) if done else left
