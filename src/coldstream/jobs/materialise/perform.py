"""What the workers do for a table: look at bodies, and read and write a window.

A window is done again in part where bodies had fields that the table had no column for, and where a
stream cannot be read because an object of it is damaged or lost. Such a stream is left out, and
files may hold rows of several: each task that has a piece of it is done again without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from coldstream.errors import ColdstreamError
from coldstream.jobs.materialise.column_plan import grows
from coldstream.jobs.materialise.engine import Engine, Task, TaskPiece
from coldstream.jobs.materialise.latest.rows import staged_schema
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run_settings import RunSettings, layout_of
from coldstream.jobs.materialise.schema import KEY_COLUMNS, dead_schema
from coldstream.jobs.materialise.table import Loaded
from coldstream.jobs.materialise.table_report import TableReport
from coldstream.jobs.materialise.task_result import TaskResult, unreadable, with_found
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.window_commit import Tables
from coldstream.jobs.materialise.write import FileLayout

#: So often a window is done again because its bodies had fields that the table had no column for.
_MAX_GROWTH = 3


@dataclass(frozen=True, slots=True)
class Done:
    """A window that was read and written.

    Attributes:
        results: of all pieces of the streams that can be read.
        loaded: the table, with the columns that it has by now.
        unread: the other streams, and why: nothing of them is in a file of `results`.
    """

    results: list[TaskResult]
    loaded: Loaded
    unread: dict[str, ColdstreamError]


@dataclass(frozen=True, slots=True)
class Performer:
    """Has the tasks of a table done.

    Args:
        engine: does them.
        rule: of the table.
        tables: the table and its dead letters.
        settings: of the run.
        report: is told of new columns.
        say: takes a line of progress.
    """

    engine: Engine
    rule: TableRule
    tables: Tables
    settings: RunSettings
    report: TableReport
    say: Callable[[str], None]

    def learn(self, loaded: Loaded, pieces: Sequence[TaskPiece]) -> Loaded:
        """Give a new table the columns that a sample of its bodies has.

        A stream that cannot be read is met again, and told, by the window that reads it.
        """
        looks = [(piece,) for piece in pieces]
        rules = self._rules(loaded)
        results = chain.from_iterable(self.engine.perform(looks, rules, self.settings.sample_rows))
        return self.grow(loaded, with_found(loaded.schema, results))

    def perform(self, loaded: Loaded, window: Sequence[Task]) -> Done:
        """Do a window, and what of it must be done again."""
        tasks, growth = list(window), 0
        results: list[tuple[TaskResult, ...]] = [()] * len(tasks)
        unread: dict[str, ColdstreamError] = {}
        todo = list(range(len(tasks)))
        while todo:
            done = self.engine.perform([tasks[number] for number in todo], self._rules(loaded))
            for number, result in zip(todo, done, strict=True):
                results[number] = result
            wrong = unreadable(chain.from_iterable(done))
            unread |= wrong
            again = {number for number, task in enumerate(tasks) if _has(task, wrong)}
            if grows(self.rule) and growth < _MAX_GROWTH:
                kept = [each for each in chain.from_iterable(done) if each.stream not in unread]
                grown = self.grow(loaded, with_found(loaded.schema, kept))
                if not grown.schema.equals(loaded.schema):
                    growth += 1
                    loaded = grown
                    # Of a task with several streams all is done again: they are in the same files.
                    again |= {number for number in todo if _lacks(results[number])}
            for number in again:
                tasks[number], results[number] = without(tasks[number], unread), ()
            todo = [number for number in sorted(again) if tasks[number]]
        return Done(list(chain.from_iterable(results)), loaded, unread)

    def grow(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        """The table with all columns of a schema."""
        if schema.equals(loaded.schema):
            return loaded
        after = self.tables.rows.grow(loaded, schema)
        new = [name for name in after.schema.names if name not in loaded.schema.names]
        self.report.columns_added += new
        self.say(f"{self.report.table}: new columns {', '.join(new) or 'inside of others'}")
        return after

    def _rules(self, loaded: Loaded) -> TaskRules:
        rule, settings = self.rule, self.settings
        dead = self.tables.dead.grow(self.tables.dead.load(dead_schema()), dead_schema())
        rows = layout_of(rule, loaded, settings)
        if rule.latest is not None:
            staged = f"{loaded.location}/data/staged"
            staging = staged_schema(loaded.schema)
            rows = replace(rows, location=staged, schema=staging, footers=False)
        return TaskRules(
            rule.body,
            rows,
            FileLayout(
                dead.location,
                dead.schema,
                rule.partition,
                KEY_COLUMNS,
                settings.target_bytes,
                shared=rule.shared,
                group_bytes=settings.group_bytes,
            ),
            rule.body_format,
            rule.schema,
            rule.misfits,
            steps=rule.steps,
            columns=rule.columns,
            latest=rule.latest,
        )


def without(task: Task, streams: Collection[str]) -> Task:
    """The pieces of a task that are of other streams."""
    return tuple(piece for piece in task if piece.stream not in streams)


def _has(task: Task, streams: Collection[str]) -> bool:
    return any(piece.stream in streams for piece in task)


def _lacks(results: Sequence[TaskResult]) -> bool:
    """Whether a task has found fields that the table had no column for."""
    return any(len(result.found) for result in results)
