"""Which streams go into which table, and how: the operator's rules, as values.

    {"version": 1,
     "tables": [{"streams": "orders.*", "table": "analytics.orders", "body": "json",
                 "partition": "day", "keep": "400d", "body_format": "auto",
                 "schema": "s3://bucket/orders.avsc", "misfits": "dead-letter",
                 "maintenance": "glue"},
                {"streams": "customers", "table": "shop.customers", "body": "json",
                 "latest": "properties.message_id", "keyless": "skip", "buckets": 16}]}

A stream goes into the table of the first rule whose pattern matches its queue's name as a whole, so
no message is in two tables. One rule can also be given as arguments of the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from coldstream.bodies.steps import NO_STEPS, BodySteps
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.iceberg.catalog_ref import RestCatalogRef, parse_catalog
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.latest.rule import WORDS as LATEST_WORDS
from coldstream.jobs.materialise.latest.rule import Latest, key_column, rule_latest
from coldstream.jobs.materialise.rule_bodies import DECODED, rule_body
from coldstream.jobs.materialise.rule_bodies import WORDS as BODY_WORDS
from coldstream.jobs.materialise.schema import EXTRA_COLUMNS
from coldstream.osiris.body import BodyFormat, parse_body_format
from coldstream.plans import name_pattern
from coldstream.quantities import parse_duration

VERSION = 1
_DAY_SECONDS = 86_400
_TABLE = re.compile(r"[a-z0-9_]{1,255}\.[a-z0-9_]{1,255}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
#: Added to a table's name for the table of what could not go into it.
DEAD_LETTERS = "_dead_letters"


E = TypeVar("E", bound=StrEnum)


class TablePartition(StrEnum):
    """How a table's files are divided: always by stream, and by the time of the chunk."""

    HOUR = "hour"
    DAY = "day"
    NONE = "none"


class TableFiles(StrEnum):
    """Whose rows a file has: one stream's, or those of many small ones."""

    OWN = "own"
    SHARED = "shared"


class Maintenance(StrEnum):
    """Who merges files and forgets versions: this job when asked, or AWS Glue all the time."""

    OWN = "own"
    GLUE = "glue"


@dataclass(frozen=True, slots=True)
class TableRule:
    """One table and what goes into it.

    Attributes:
        streams: pattern over names of queues; the whole name must match.
        super_streams: pattern over names of super streams, of which a stream must be a partition;
            "" for any stream.
        table: `database.table` in its catalog, lower case.
        body: "raw" (body as bytes), "json" (fields of the body as columns), or `module:function`.
            What a rule calls avro, protobuf, csv or text is json here, with steps before.
        partition: of the table's files.
        start: where a stream that the table has nothing of begins: first, next, or an offset.
        keep_seconds: rows of chunks older than this are removed; None keeps all.
        body_format: how messages are read, before anything is made of their bodies.
        schema: with a body of "json": the fields that it has, as `declared` makes them; None where
            the bodies themselves say so.
        misfits: what becomes of a body that does not fit `schema`.
        steps: what is done to bodies first.
        columns: some of `schema.EXTRA_COLUMNS`, which the table has beside the usual ones.
        catalog: where the table is registered; None for the Glue Data Catalog.
        maintenance: who keeps it in shape.
        latest: where the table has one row a key and stream, its last message; None for a row of
            every message.
        files: whose rows a file has.
        order: names of columns by which the rows of a file are sorted; by stream and offset, as
            they come, if there are none.
    """

    streams: str
    table: str
    body: str = "raw"
    partition: TablePartition = TablePartition.DAY
    start: str = "first"
    keep_seconds: int | None = None
    body_format: BodyFormat = BodyFormat.AUTO
    schema: pa.Schema | None = None
    misfits: Misfits = Misfits.RESCUE
    super_streams: str = ""
    steps: BodySteps = NO_STEPS
    columns: tuple[str, ...] = ()
    catalog: RestCatalogRef | None = None
    maintenance: Maintenance = Maintenance.OWN
    latest: Latest | None = None
    files: TableFiles = TableFiles.OWN
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (self.streams, self.super_streams):
            trouble = name_pattern.problem(pattern)
            if trouble is not None:
                raise InvalidInputError(f"the pattern {pattern!r} {trouble}")
        if not _TABLE.fullmatch(self.table) or self.table.endswith(DEAD_LETTERS):
            raise InvalidInputError(
                f"{self.table!r} is no name of a table: write database.table in lower case, "
                f"letters, digits and _, not ending in {DEAD_LETTERS}"
            )
        if self.body not in ("raw", "json") and not _FUNCTION.fullmatch(self.body):
            raise InvalidInputError(
                f"body is raw, json, {', '.join(DECODED)} or module:function, not {self.body!r}"
            )
        for name in self.columns:
            if name not in EXTRA_COLUMNS or self.columns.count(name) > 1:
                raise InvalidInputError(
                    f"columns: {name[:80]!r} is named twice, or none of {', '.join(EXTRA_COLUMNS)}"
                )
        if len(set(self.order)) < len(self.order):
            raise InvalidInputError("order: a column is named twice")
        if self.start not in ("first", "next") and not self.start.isdecimal():
            raise InvalidInputError(f"start is first, next or an offset, not {self.start!r}")
        if self.keep_seconds is not None and self.keep_seconds < _DAY_SECONDS:
            raise InvalidInputError("keep is at least 1d")
        if self.schema is not None and self.body != "json":
            raise InvalidInputError(f"a schema is for a body of json, not {self.body}")
        if self.schema is None and self.misfits is not Misfits.RESCUE:
            raise InvalidInputError(f"misfits: {self.misfits} needs a schema")
        if self.maintenance is Maintenance.GLUE and self.catalog is not None:
            raise InvalidInputError("maintenance: glue is for tables of the Glue Data Catalog")
        if self.latest is not None:
            self._check_latest()

    def _check_latest(self) -> None:
        if _FUNCTION.fullmatch(self.body):
            raise InvalidInputError("latest is for messages as they are, not for a function's rows")
        if self.partition is not TablePartition.DAY:
            raise InvalidInputError("latest: files are divided by key, so there is no partition")
        if self.order:
            raise InvalidInputError("latest: rows are divided by key, so there is no order")
        if self.files is TableFiles.SHARED:
            raise InvalidInputError("latest: a bucket is of one stream, so files are not shared")
        if self.keep_seconds is not None:
            raise InvalidInputError("latest: a key stays until a tombstone deletes it; no keep")
        column = key_column(self.body)
        names = () if self.schema is None else self.schema.names
        if column.lower() in map(str.lower, names):  # as catalogs compare them
            raise InvalidInputError(f"the schema has a field {column}, which is the key's column")

    @property
    def database(self) -> str:
        """Before the point."""
        return self.table.partition(".")[0]

    @property
    def buckets(self) -> Buckets | None:
        """Of the table's files, in the place of `partition`."""
        return None if self.latest is None else self.latest.divided(self.body)

    @property
    def shared(self) -> bool:
        """Whether streams share files."""
        return self.files is TableFiles.SHARED

    @property
    def dead_letters(self) -> str:
        """Name of the table of what could not go into this one."""
        return self.table + DEAD_LETTERS

    def matches(self, name: str, super_stream: str = "") -> bool:
        """Whether a queue of this name, a partition of that super stream or none, is meant."""
        pattern = self.super_streams
        if pattern and not (
            super_stream and name_pattern.compiled(pattern).fullmatch(super_stream)
        ):
            return False
        return name_pattern.compiled(self.streams).fullmatch(name) is not None


#: As `unless_said` of `parse_rules`.
NOTHING_SAID: Mapping[str, Any] = MappingProxyType({})


def no_files(place: str) -> str:
    """For rules that name no file."""
    raise InvalidInputError(f"there is no file {place}")


def parse_rules(
    text: str,
    read: Callable[[str], str] = no_files,
    unless_said: Mapping[str, Any] = NOTHING_SAID,
) -> tuple[TableRule, ...]:
    """Rules out of a document; see the top of this module.

    Args:
        text: the document.
        read: gives what is in a file; its schema may be named by path or s3:// URL.
        unless_said: words of rules, and what they are where a rule does not have them.

    Raises:
        InvalidInputError: it is no such document; names the rule.
    """
    try:
        document: Any = json.loads(text, object_pairs_hook=_without_doubles)
    except InvalidInputError:
        raise
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
            rules.append(_rule(each, read, unless_said))
        except InvalidInputError as exc:
            raise InvalidInputError(f"rule {number}: {exc.reason}") from exc
    return check_rules(rules)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in JSON; a word that is there twice would silently lose one of its values."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(word for at, (word, _) in enumerate(pairs) if word in dict(pairs[:at]))
        raise InvalidInputError(f"{twice[:80]!r} is there twice in one object of the rules")
    return found


def check_rules(rules: Sequence[TableRule]) -> tuple[TableRule, ...]:
    """Rules that name the same table must agree on what it is.

    Raises:
        InvalidInputError: two do not.
    """
    by_table: dict[str, TableRule] = {}
    for rule in rules:
        other = by_table.setdefault(rule.table, rule)
        alike = replace(
            rule, streams=other.streams, super_streams=other.super_streams, start=other.start
        )
        if alike != other:
            raise InvalidInputError(f"two rules describe the table {rule.table} differently")
    return tuple(rules)


def rule_for(rules: Sequence[TableRule], name: str, super_stream: str = "") -> TableRule | None:
    """The first rule that means a queue of this name, a partition of that super stream or none."""
    return next((rule for rule in rules if rule.matches(name, super_stream)), None)


_WORDS = {
    "streams": "streams",
    "super_streams": "super_streams",
    "table": "table",
    **dict.fromkeys(BODY_WORDS, ""),
    "partition": "partition",
    "start": "start",
    "keep": "keep_seconds",
    "body_format": "body_format",
    "misfits": "misfits",
    "columns": "columns",
    "catalog": "catalog",
    "maintenance": "maintenance",
    "files": "files",
    "order": "order",
    **dict.fromkeys(LATEST_WORDS, ""),
}
#: Words that need not be text.
_OBJECTS = ("schema", "catalog", "buckets")
_ENUMERATIONS: Mapping[str, type[StrEnum]] = {
    "partition": TablePartition,
    "misfits": Misfits,
    "maintenance": Maintenance,
    "files": TableFiles,
}


def names_in(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(each for each in (part.strip() for part in text.split(",")) if each)


def one_of(words: type[E], name: str, given: str) -> E:
    """The member of an enumeration that a word means.

    Raises:
        InvalidInputError: there is none.
    """
    if given not in list(words):
        raise InvalidInputError(f"{name} is one of {', '.join(words)}, not {given!r}")
    return words(given)


def _rule(value: object, read: Callable[[str], str], unless_said: Mapping[str, Any]) -> TableRule:
    if not isinstance(value, Mapping):
        raise InvalidInputError("is no object")
    unknown = sorted(set(value) - set(_WORDS))
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r} is not known; there are {', '.join(_WORDS)}")
    if "table" not in value or not {"streams", "super_streams"} & value.keys():
        word = "table" if "table" not in value else "streams"
        raise InvalidInputError(f"{word!r} is missing")
    arguments: dict[str, Any] = {"streams": ".*"}
    of_bodies: dict[str, Any] = {}
    of_latest: dict[str, Any] = {}
    for word, each in {**unless_said, **value}.items():
        if type(each) is not str and word not in _OBJECTS:
            raise InvalidInputError(f"{word} is no text")
        if word in BODY_WORDS:
            of_bodies[word] = each
            continue
        if word in LATEST_WORDS:
            of_latest[word] = each
            continue
        arguments[_WORDS[word]] = parse_duration(each) if word == "keep" else each
    for word in ("columns", "order"):
        if word in arguments:
            arguments[word] = names_in(arguments[word])
    if "body_format" in arguments:
        arguments["body_format"] = parse_body_format(arguments["body_format"])
    if "catalog" in arguments:
        arguments["catalog"] = parse_catalog(arguments["catalog"], read)
    for word, words in _ENUMERATIONS.items():
        if word in arguments:
            arguments[word] = one_of(words, word, arguments[word])
    arguments["latest"] = rule_latest(of_latest)
    made = rule_body(of_bodies, read)
    return TableRule(body=made.body, schema=made.schema, steps=made.steps, **arguments)
