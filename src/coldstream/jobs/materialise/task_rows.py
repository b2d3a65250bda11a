"""The rules of a table's tasks, and the rows that they make of a batch: all at once, or with care.

No value may stop a table. Where one cannot be written, a batch is tried before it is written, and
one that fails is halved until the rows that no file takes are alone. These are dead letters with
the reason. What fails without any row is no fault of a message's (a column whose type cannot be
made), and stops the table.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from coldstream.bodies.steps import NO_STEPS, BodySteps
from coldstream.errors import ColdstreamError, InternalError
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.latest.rows import latest_rows
from coldstream.jobs.materialise.latest.rule import Latest
from coldstream.jobs.materialise.transform import Transformed, joined, refused, transform
from coldstream.jobs.materialise.write import FileLayout, attempt
from coldstream.osiris.body import BodyFormat

#: What a value can raise on its way into a file. A mistake of ours raises others: it must not make
#: dead letters of messages that nothing is wrong with.
OF_VALUES = (
    ValueError, ArithmeticError, struct.error, pa.ArrowNotImplementedError, pa.ArrowTypeError
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskRules:
    """What all tasks of a table have in common.

    Attributes:
        body: as in a rule.
        rows: how the table's files are written; where it has the latest of each key, those with its
            new messages (`latest_rows.staged_schema`).
        dead: the same for its dead letters.
        body_format: as in a rule.
        declared: fields of bodies, as in a rule.
        misfits: as in a rule.
        survey: whether a task that only looks counts what it sees.
        steps: as in a rule.
        columns: as in a rule.
        latest: as in a rule.
    """

    body: str
    rows: FileLayout
    dead: FileLayout
    body_format: BodyFormat = BodyFormat.AUTO
    declared: pa.Schema | None = None
    misfits: Misfits = Misfits.RESCUE
    survey: bool = False
    steps: BodySteps = NO_STEPS
    columns: tuple[str, ...] = ()
    latest: Latest | None = None

    @property
    def wants_raw(self) -> bool:
        """Whether the bytes of each message are wanted, and not only those of dead letters."""
        return self.body not in ("raw", "json") or self.steps.any or self.latest is not None


def transform_all(batch: pa.RecordBatch, rules: TaskRules) -> Transformed:
    """A batch as rows and dead letters, in good faith that all can be written."""
    what = (rules.body, rules.rows.schema, rules.declared, rules.misfits)
    if rules.latest is not None:
        return latest_rows(batch, rules.latest, *what)
    return transform(batch, *what)


def transform_what_can_be(batch: pa.RecordBatch, rules: TaskRules) -> Transformed:
    """The same, with a dead letter for each message that cannot become a row of a file.

    Raises:
        InternalError: no message could; not even none can.
    """
    done = _tried(batch, rules)
    if isinstance(done, Transformed):
        return done
    # A user's function may fail where there is no message, which says nothing of the others.
    own = rules.body in ("raw", "json")
    if own and not isinstance(nothing := _tried(batch.slice(0, 0), rules), Transformed):
        raise InternalError(
            f"no row can be written, whatever its message: {type(nothing).__name__}: {nothing}."
            " Has somebody added a column of a type that this release does not know?"
        ) from nothing
    return _halved(batch, rules, done)


def _halved(batch: pa.RecordBatch, rules: TaskRules, error: Exception) -> Transformed:
    """A batch that failed."""
    if batch.num_rows <= 1:
        return refused(batch, rules.rows.schema, f"no row can be written of it: {error}")
    middle = batch.num_rows // 2
    halves = []
    for half in (batch.slice(0, middle), batch.slice(middle)):
        done = _tried(half, rules)
        halves.append(done if isinstance(done, Transformed) else _halved(half, rules, done))
    return joined(*halves)


def _tried(batch: pa.RecordBatch, rules: TaskRules) -> Transformed | Exception:
    """A batch as rows that can be written; or why not all can."""
    try:
        done = transform_all(batch, rules)
        attempt(done.rows, rules.rows)
    except OF_VALUES as error:
        if isinstance(error, ColdstreamError):
            raise
        return error
    return done
