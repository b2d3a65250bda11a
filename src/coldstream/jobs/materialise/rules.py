"""Which streams go into which table, and how: the operator's rules, as values.

    {"version": 1,
     "tables": [{"streams": "orders.*", "table": "analytics.orders", "body": "json",
                 "partition": "day", "keep": "400d", "body_format": "auto"}]}

A stream goes into the table of the first rule whose pattern matches its queue's name as a whole, so
no message is in two tables. One rule can also be given as arguments of the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coldstream.errors import InvalidInputError
from coldstream.osiris.body import BodyFormat, parse_body_format
from coldstream.plans import name_pattern
from coldstream.quantities import parse_duration

VERSION = 1
_DAY_SECONDS = 86_400
_TABLE = re.compile(r"[a-z0-9_]{1,255}\.[a-z0-9_]{1,255}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
#: Added to a table's name for the table of what could not go into it.
DEAD_LETTERS = "_dead_letters"


class TablePartition(StrEnum):
    """How a table's files are divided: always by stream, and by the time of the chunk."""

    HOUR = "hour"
    DAY = "day"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TableRule:
    """One table and what goes into it.

    Attributes:
        streams: pattern over names of queues; the whole name must match.
        table: `database.table` in the Glue catalog, lower case.
        body: "raw" (body as bytes), "json" (fields of the body as columns), or `module:function`.
        partition: of the table's files.
        start: where a stream that the table has nothing of begins: first, next, or an offset.
        keep_seconds: rows of chunks older than this are removed; None keeps all.
        body_format: how messages are read, before anything is made of their bodies.
    """

    streams: str
    table: str
    body: str = "raw"
    partition: TablePartition = TablePartition.DAY
    start: str = "first"
    keep_seconds: int | None = None
    body_format: BodyFormat = BodyFormat.AUTO

    def __post_init__(self) -> None:
        trouble = name_pattern.problem(self.streams)
        if trouble is not None:
            raise InvalidInputError(f"the pattern {self.streams!r} {trouble}")
        if not _TABLE.fullmatch(self.table) or self.table.endswith(DEAD_LETTERS):
            raise InvalidInputError(
                f"{self.table!r} is no name of a table: write database.table in lower case, "
                f"letters, digits and _, not ending in {DEAD_LETTERS}"
            )
        if self.body not in ("raw", "json") and not _FUNCTION.fullmatch(self.body):
            raise InvalidInputError(f"body is raw, json or module:function, not {self.body!r}")
        if self.start not in ("first", "next") and not self.start.isdecimal():
            raise InvalidInputError(f"start is first, next or an offset, not {self.start!r}")
        if self.keep_seconds is not None and self.keep_seconds < _DAY_SECONDS:
            raise InvalidInputError("keep is at least 1d")

    @property
    def database(self) -> str:
        """Before the point."""
        return self.table.partition(".")[0]

    @property
    def dead_letters(self) -> str:
        """Name of the table of what could not go into this one."""
        return self.table + DEAD_LETTERS

    def matches(self, name: str) -> bool:
        """Whether a queue of this name is meant."""
        return name_pattern.compiled(self.streams).fullmatch(name) is not None


def parse_rules(text: str) -> tuple[TableRule, ...]:
    """Rules out of a document; see the top of this module.

    Raises:
        InvalidInputError: it is no such document; names the rule.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(f"the rules are no JSON: {exc}") from exc
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        raise InvalidInputError(f'the rules begin with {{"version": {VERSION}, "tables": [')
    tables = document.get("tables")
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise InvalidInputError("the rules name no tables")
    rules = []
    for number, each in enumerate(tables, 1):
        try:
            rules.append(_rule(each))
        except InvalidInputError as exc:
            raise InvalidInputError(f"rule {number}: {exc.reason}") from exc
    return check_rules(rules)


def check_rules(rules: Sequence[TableRule]) -> tuple[TableRule, ...]:
    """Rules that name the same table must agree on what it is.

    Raises:
        InvalidInputError: two do not.
    """
    by_table: dict[str, TableRule] = {}
    for rule in rules:
        other = by_table.setdefault(rule.table, rule)
        ours = (rule.body, rule.partition, rule.keep_seconds, rule.body_format)
        if ours != (other.body, other.partition, other.keep_seconds, other.body_format):
            raise InvalidInputError(f"two rules describe the table {rule.table} differently")
    return tuple(rules)


def rule_for(rules: Sequence[TableRule], name: str) -> TableRule | None:
    """The first rule that means a queue of this name."""
    return next((rule for rule in rules if rule.matches(name)), None)


_WORDS = {
    "streams": "streams",
    "table": "table",
    "body": "body",
    "partition": "partition",
    "start": "start",
    "keep": "keep_seconds",
    "body_format": "body_format",
}


def _rule(value: object) -> TableRule:
    if not isinstance(value, Mapping):
        raise InvalidInputError("is no object")
    unknown = sorted(set(value) - set(_WORDS))
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r} is not known; there are {', '.join(_WORDS)}")
    for word in ("streams", "table"):
        if word not in value:
            raise InvalidInputError(f"{word!r} is missing")
    arguments: dict[str, Any] = {}
    for word, each in value.items():
        if type(each) is not str:
            raise InvalidInputError(f"{word} is no text")
        arguments[_WORDS[word]] = parse_duration(each) if word == "keep" else each
    if "body_format" in arguments:
        arguments["body_format"] = parse_body_format(arguments["body_format"])
    if "partition" in arguments:
        given = arguments["partition"]
        if given not in list(TablePartition):
            raise InvalidInputError(
                f"partition is one of {', '.join(TablePartition)}, not {given!r}"
            )
        arguments["partition"] = TablePartition(given)
    return TableRule(**arguments)
