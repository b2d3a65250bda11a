"""The driver: what is to be done, window after window, and one commit for each.

A window is read and written by tasks on the workers, checked for completeness, and committed
(`window_commit`). Whatever dies in between leaves files that no table names; the next run reads the
same offsets again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa

from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnknownVersionError,
)
from coldstream.jobs.materialise.column_plan import grows, plan_columns, sample_of
from coldstream.jobs.materialise.engine import Engine, StreamNow, TaskPiece
from coldstream.jobs.materialise.erase import erase_all
from coldstream.jobs.materialise.latest.commit import Merging
from coldstream.jobs.materialise.perform import Performer, without
from coldstream.jobs.materialise.plan import (
    Wanted,
    files_of,
    task_windows,
    tasks_of,
    todo_of,
)
from coldstream.jobs.materialise.rule_fit import new_schema, with_rule
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run_settings import RunSettings, layout_of
from coldstream.jobs.materialise.schema import dead_schema
from coldstream.jobs.materialise.state import TableState
from coldstream.jobs.materialise.table import Append, Loaded
from coldstream.jobs.materialise.table_report import TableReport, tell_holes, tell_plan
from coldstream.jobs.materialise.task_result import TaskResult, spans_of
from coldstream.jobs.materialise.window_changes import WindowChanges
from coldstream.jobs.materialise.window_commit import Tables, WindowCommit


@dataclass(frozen=True, slots=True)
class Runner:
    """Fills tables.

    Args:
        engine: does the tasks.
        new_id: gives an id that is used once.
        pause: waits after attempt n of a commit.
        say: takes a line of progress.

    Attributes:
        unread: streams that were left out, and why.
    """

    engine: Engine
    new_id: Callable[[], str]
    pause: Callable[[int], None]
    say: Callable[[str], None]
    unread: dict[str, ColdstreamError] = field(default_factory=dict)

    def fill(
        self,
        rule: TableRule,
        tables: Tables,
        streams: Sequence[StreamNow],
        settings: RunSettings,
        *,
        named: Sequence[str] = (),
    ) -> TableReport:
        """Bring one table up to date with its streams.

        Args:
            rule: of the table; of several that name it, any: they differ in `start` only.
            tables: the table and its dead letters.
            streams: all that go into it and can be looked at.
            settings: how.
            named: see `todo_of`.

        Raises:
            ConflictError: another run was quicker with some of these offsets; run again.
            CorruptDataError, NotFoundError: of the tables. A stream of which an object is damaged
                or lost is left out, and told in `unread`: what windows before have taken stays, and
                the next run goes on there.
            InvalidInputError: the table was filled by another rule, which this one does not fit.
            ColdstreamError: from the streams, the tables or the workers. What was committed before
                stays; the next run goes on there.
        """
        report = TableReport(rule.table, sum(not now.deleted for now in streams))
        if settings.dry_run:
            self._only_told(rule, tables, streams, settings, report, named)
            return report
        begin = new_schema(rule)
        both = ((tables.rows, begin), (tables.dead, dead_schema()))
        try:
            self._fill(rule, tables, begin, streams, settings, report, named)
        except Exception:
            # Whatever stops a table: what was erased goes, if not now, with the next run.
            with suppress(Exception):
                erase_all(both, streams, new_id=self.new_id, pause=self.pause)
            raise
        report.erased_rows = erase_all(both, streams, new_id=self.new_id, pause=self.pause)
        return report

    def _fill(
        self,
        rule: TableRule,
        tables: Tables,
        begin: pa.Schema,
        streams: Sequence[StreamNow],
        settings: RunSettings,
        report: TableReport,
        named: Sequence[str],
    ) -> None:
        loaded = tables.rows.load(begin)
        with_rule(rule, loaded.schema, begin)
        todo = todo_of(rule, loaded.state, streams, settings.window, named)
        tell_plan(report, todo, self.say)
        epochs = {now.stream: now.ledger.epoch for now, _ in todo if now.ledger.epoch}
        planned = loaded.state
        loaded = self._lost_committed(tables, loaded, begin, todo, epochs, report)
        todo, pieces = self._read(todo, report)
        performer = Performer(self.engine, rule, tables, settings, report, self.say)
        if pieces:
            loaded = performer.grow(loaded, with_rule(rule, loaded.schema, begin))
            with_rule(rule, loaded.schema, begin)  # another run may have said the type first
        if grows(rule) and pieces and loaded.schema.equals(begin):
            loaded = performer.learn(loaded, sample_of(pieces))
        tasks = tasks_of(pieces, shared=rule.shared, max_bytes=settings.task_bytes)
        sized = ((task, sum(piece.size for piece in task)) for task in tasks)
        files = partial(files_of, rule)
        windows = list(task_windows(sized, settings.window_bytes, files))
        in_order = rule.latest is not None
        changes = WindowChanges.of(todo, planned, windows, epochs, self.new_id, in_order=in_order)
        newest: dict[str, int] = {}
        for number, whole in enumerate(windows):
            window = [rest for task in whole if (rest := without(task, report.unread))]
            done = performer.perform(loaded, window)
            results, loaded = done.results, done.loaded
            self._leave_out(done.unread, report)
            read = {piece.stream for piece in chain(*window)} - done.unread.keys()
            covered = changes.cover(number, results, read)
            if not covered:
                continue
            change = changes.change(covered)
            loaded = self._commit(rule, tables, begin, results, change, settings, report)
            for result in results:
                if result.last_ms is not None:
                    known = newest.get(result.stream, result.last_ms)
                    newest[result.stream] = max(known, result.last_ms)
            report.oldest_last_ms = min(newest.values(), default=None)
            self.say(report.told())
        tell_holes(report, loaded.state, streams, self.say)

    def _read(
        self, todo: Sequence[tuple[StreamNow, Wanted]], report: TableReport
    ) -> tuple[list[tuple[StreamNow, Wanted]], list[TaskPiece]]:
        """What is to be read, and of which streams.

        Without those whose manifest is damaged, or that have offsets which no column can hold.
        """
        readable: list[tuple[StreamNow, Wanted]] = []
        pieces: list[TaskPiece] = []
        for now, each in todo:
            try:
                pieces += self.engine.pieces(now, each.read)
            except (
                CorruptDataError,
                InvalidInputError,
                NotFoundError,
                UnknownVersionError,
            ) as error:
                self._leave_out({now.stream: error}, report)
            else:
                readable.append((now, each))
        return readable, pieces

    def _leave_out(self, unread: Mapping[str, ColdstreamError], report: TableReport) -> None:
        """Tell of streams that cannot be read; from here on a run takes nothing of them."""
        for stream, error in unread.items():
            self.unread[stream] = error.located(stream=stream)
            report.unread[stream] = str(error)
            self.say(f"{report.table}: left out: {error}")

    def _lost_committed(
        self,
        tables: Tables,
        loaded: Loaded,
        begin: pa.Schema,
        todo: Sequence[tuple[StreamNow, Wanted]],
        epochs: Mapping[str, int],
        report: TableReport,
    ) -> Loaded:
        """Commit which offsets exist nowhere any more, and where streams begin, if there are any.

        If nobody wrote that down, the next run would begin behind all that has come since.
        """
        gone = {now.stream: each.lost for now, each in todo if each.lost}
        begins = {now.stream: each.begins for now, each in todo if each.begins is not None}
        if not gone and not begins:
            return loaded
        cut = {now.stream: each.lost & each.replaces for now, each in todo if each.lost}
        change = Append(self.new_id(), lost=gone, replaces=cut, epochs=epochs, begins=begins)
        loaded = WindowCommit(tables, begin, self.new_id, self.pause).lose(change, loaded)
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
        named: Sequence[str],
    ) -> None:
        """Say what would be done; neither table is made or changed."""
        there = tables.rows.peek()
        if there is not None:
            with_rule(rule, there.schema, new_schema(rule))
        state = TableState() if there is None else there.state
        todo = todo_of(rule, state, streams, settings.window, named)
        tell_plan(report, todo, self.say)
        if settings.columns:
            _, pieces = self._read(todo, report)
            present = None if there is None else there.schema
            sample = sample_of(pieces)
            report.plan, unread = plan_columns(
                rule, present, sample, self.engine, settings.sample_rows
            )
            self._leave_out(unread, report)
            self.say(f"{rule.table}\n{report.plan.told()}")

    def _commit(
        self,
        rule: TableRule,
        tables: Tables,
        begin: pa.Schema,
        results: Sequence[TaskResult],
        change: Append,
        settings: RunSettings,
        report: TableReport,
    ) -> Loaded:
        dead_files = [each for result in results for each in result.dead_files]
        window = WindowCommit(tables, begin, self.new_id, self.pause)
        files = [each for result in results for each in result.files]
        rows = sum(result.rows for result in results)
        gone = {stream: each for stream, each in spans_of(results, "lost").items() if each}
        if rule.latest is None:
            loaded = window.put(replace(change, files=files, lost=gone), dead_files)
        else:
            merging = Merging(
                self.engine,
                tables.rows,
                lambda now: layout_of(rule, now, settings),
                files,
                spans_of(results, "unread"),
            )
            loaded = window.put(replace(change, lost=gone), dead_files, merging.complete)
            files, rows = merging.files, merging.rows
        report.rows += rows
        report.dead_letters += sum(result.dead for result in results)
        report.no_key += sum(result.no_key for result in results)
        report.tombstones += sum(result.tombstones for result in results)
        report.lost_offsets += sum(ranges.offsets for ranges in gone.values())
        report.bytes_read += sum(result.bytes_read for result in results)
        report.times_moved += sum(result.times_moved for result in results)
        report.files += len(files) + len(dead_files)
        report.file_bytes += sum(each.size for each in (*files, *dead_files))
        report.commits += 1
        return loaded
