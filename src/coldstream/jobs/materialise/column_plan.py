"""What a run would do to each column of a table, and why: a dry run over a sample of bodies.

A table without a declared schema gets the columns that the sample asks for, each with a type that
takes all of the sample's values. So the same two steps as in a run, and nothing is written: learn
which fields there are, then look at the sample again and count what would not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from coldstream.errors import ColdstreamError
from coldstream.jobs.materialise.engine import Engine, TaskPiece
from coldstream.jobs.materialise.kinds import name_of
from coldstream.jobs.materialise.latest.rows import staged_schema
from coldstream.jobs.materialise.latest.rule import key_column
from coldstream.jobs.materialise.rule_fit import new_schema, with_rule
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.schema import (
    KEY_COLUMNS,
    MAX_FIELDS,
    RESCUED,
    RESERVED,
    can_be_column,
    columns_of,
    dead_schema,
)
from coldstream.jobs.materialise.survey import OTHERS, Counts, Survey
from coldstream.jobs.materialise.task_result import TaskResult, unreadable, with_found
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.write import FileLayout

#: So many tasks look at the beginning of their piece; they are spread over all that is to be read.
SAMPLE_PIECES = 8
#: Characters of a type in a line for people; the JSON has all of it.
_MAX_TYPE = 40


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What would become of a column, or of a field that gets none.

    Attributes:
        name: of the column.
        type: that it would have, in words; "" where there is no column.
        action: new, kept, wider (the type, or fields inside), or rescued: there is no column.
        why: in words.
        values: of the sample that are not null; None where bodies have no fields.
        rescued: how many of these would be in `_rescued`.
    """

    name: str
    type: str
    action: str
    why: str
    values: int | None = None
    rescued: int = 0


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What would become of a table.

    Attributes:
        table: "new" or "there".
        messages: in the sample.
        rows: that it would become.
        dead_letters: that it would become.
        reasons: of some of these.
        columns: of the table, then fields without one.
        latest: what its key is and how many buckets it has, in words; "" for a row of each message.
        no_key: messages of the sample without a key.
        tombstones: messages of the sample that delete their key; they count as `rows`, too.
    """

    table: str
    messages: int = 0
    rows: int = 0
    dead_letters: int = 0
    reasons: list[str] = field(default_factory=list)
    columns: list[ColumnPlan] = field(default_factory=list)
    latest: str = ""
    no_key: int = 0
    tombstones: int = 0

    def told(self) -> str:
        """As lines for a person."""
        head = ("column", "type", "", "values", "rescued", "why")
        lines = [
            (
                each.name,
                each.type if len(each.type) <= _MAX_TYPE else f"{each.type[: _MAX_TYPE - 1]}…",
                each.action,
                "" if each.values is None else f"{each.values:,}",
                "" if each.values is None else f"{each.rescued:,}",
                each.why,
            )
            for each in self.columns
        ]
        wide = [max(len(line[n]) for line in (head, *lines)) for n in range(len(head) - 1)]
        told = [
            f"the table is {self.table}; of {self.messages:,} messages in the sample {self.rows:,}"
            f" would be rows, {self.dead_letters:,} dead letters"
        ]
        if self.latest:
            told.append(
                f"the last row of each key, {self.latest}: {self.tombstones:,} of these rows only"
                f" delete theirs, {self.no_key:,} messages have none"
            )
        told += [f"  dead letter: {reason}" for reason in self.reasons]
        for line in (head, *lines):
            cells = [
                each.rjust(width) if number in (3, 4) else each.ljust(width)
                for number, (each, width) in enumerate(zip(line, wide, strict=False))
            ]
            told.append("  ".join(("", *cells, line[-1])).rstrip())
        return "\n".join(told)


def grows(rule: TableRule) -> bool:
    """Whether bodies say which columns there are."""
    return rule.body == "json" and rule.schema is None


def sample_of(pieces: Sequence[TaskPiece]) -> list[TaskPiece]:
    """Some of them, from the first to the last: what a stream has may change in its life."""
    last = len(pieces) - 1
    if last < SAMPLE_PIECES:
        return list(pieces)
    return [pieces[number * last // (SAMPLE_PIECES - 1)] for number in range(SAMPLE_PIECES)]


def plan_columns(
    rule: TableRule,
    present: pa.Schema | None,
    sample: Sequence[TaskPiece],
    engine: Engine,
    sample_rows: int,
) -> tuple[TablePlan, dict[str, ColdstreamError]]:
    """What a run would do to each column; and the streams of the sample that cannot be read.

    Args:
        rule: of the table.
        present: columns of the table; None if there is none.
        sample: whose beginnings are looked at.
        engine: that looks.
        sample_rows: messages of each piece.

    Raises:
        InvalidInputError: the rule does not fit the table.
    """
    first = new_schema(rule)
    after = with_rule(rule, first if present is None else present, first)
    looks = [(piece,) for piece in sample]
    if grows(rule) and sample:
        learnt = engine.perform(looks, _rules(rule, after), sample_rows)
        after = with_found(after, chain.from_iterable(learnt))
    survey, looked = Survey(), list[TaskResult]()
    if sample:
        rules = _rules(rule, after, survey=True)
        looked += chain.from_iterable(engine.perform(looks, rules, sample_rows))
    for result in looked:
        survey.merge(result.survey)
    plan = TablePlan(
        "new" if present is None else "there",
        survey.messages,
        survey.rows,
        survey.dead,
        survey.reasons,
        [*_columns(rule, present, after, survey), *_fields(rule, after, survey)],
        "" if rule.buckets is None else rule.buckets.told(),
        survey.no_key,
        survey.tombstones,
    )
    return plan, unreadable(looked)


def _rules(rule: TableRule, schema: pa.Schema, *, survey: bool = False) -> TaskRules:
    """For tasks that only look: nothing is written, so nowhere is good enough."""
    if rule.latest is not None:
        schema = staged_schema(schema)
    rows = FileLayout("", schema, rule.partition, columns_of(rule.body), buckets=rule.buckets)
    dead = FileLayout("", dead_schema(), rule.partition, KEY_COLUMNS)
    return TaskRules(
        rule.body,
        rows,
        dead,
        rule.body_format,
        rule.schema,
        rule.misfits,
        survey,
        rule.steps,
        rule.columns,
        rule.latest,
    )


def _columns(
    rule: TableRule, present: pa.Schema | None, after: pa.Schema, survey: Survey
) -> list[ColumnPlan]:
    found = []
    fields_of_bodies = rule.body == "json"
    for column in after:
        before = None if present is None or column.name not in present.names else present
        action, why = "new", ""
        if before is not None:
            known = before.field(column.name).type
            action = "kept" if known == column.type else "wider"
            why = "the table has it" if action == "kept" else f"it is {name_of(known)} now"
        kinds = survey.kinds.get(column.name, {})
        ours = not fields_of_bodies or column.name.lower() in RESERVED or _is_key(rule, column.name)
        reasons = [why, _origin(rule, column.name, ours, kinds)]
        found.append(
            ColumnPlan(
                column.name,
                name_of(column.type),
                action,
                "; ".join(each for each in reasons if each),
                None if ours else _values(kinds),
                survey.rescued.get(column.name, 0),
            )
        )
    return found


def _is_key(rule: TableRule, name: str) -> bool:
    return rule.latest is not None and name == key_column(rule.body)


def _origin(rule: TableRule, name: str, ours: bool, kinds: Counts) -> str:
    if rule.latest is not None and _is_key(rule, name):
        return f"the key: {rule.latest.key}"
    if name == RESCUED:
        return "what has no column, or does not fit its column"
    if ours:
        return "of the message" if name.startswith("_") or rule.body == "raw" else rule.body
    declared = rule.schema is not None and name in rule.schema.names
    return "; ".join(each for each in ("declared" if declared else "", _seen(kinds)) if each)


def _seen(kinds: Counts) -> str:
    """Kinds of values, most of them first."""
    known = sorted(((count, kind) for kind, count in kinds.items() if kind != "null"), reverse=True)
    return "sample: " + ", ".join(f"{kind} {count:,}" for count, kind in known) if known else ""


def _values(kinds: Counts) -> int:
    return sum(count for kind, count in kinds.items() if kind != "null")


def _fields(rule: TableRule, after: pa.Schema, survey: Survey) -> list[ColumnPlan]:
    """Fields of bodies that the table has no column for."""
    lower = {name.lower() for name in after.names}
    return [
        ColumnPlan(
            name or "(others)",
            "",
            "rescued",
            f"{_no_column(rule, name, lower, len(after))}; {_seen(kinds)}".removesuffix("; "),
            _values(kinds),
            survey.rescued.get(name, 0),
        )
        for name, kinds in sorted(survey.kinds.items())
        if name not in after.names or name.lower() in RESERVED or _is_key(rule, name)
    ]


def _no_column(rule: TableRule, name: str, lower: set[str], columns: int) -> str:
    if name == OTHERS:
        return "more names than are counted"
    if name.lower() in RESERVED or _is_key(rule, name):
        return "the name is one of ours"
    if not can_be_column(name):
        return "no catalog takes the name"
    if rule.schema is not None:
        return "not declared"
    if name.lower() in lower:
        return "another column has the name in other case"
    return (
        f"{MAX_FIELDS} columns already"
        if columns >= MAX_FIELDS
        else "no type that a column has room for"
    )
