"""The job around `run` and `maintain`: arguments, which stream goes where, one table after another.

A table that fails does not stop the others; the job fails at the end, and names them all.
"""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from coldstream import names
from coldstream.adapters.documents import read_document
from coldstream.adapters.place import Place, connect
from coldstream.errors import ColdstreamError, InvalidInputError, NotFoundError
from coldstream.jobs.arguments import (
    DATABASE,
    WAREHOUSE,
    Argument,
    Given,
    flag,
    one_of,
    text,
    whole_number,
)
from coldstream.jobs.materialise.catalog_ref import GLUE, parse_catalog
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.failures import failed, mixed
from coldstream.jobs.materialise.json_body import Misfits
from coldstream.jobs.materialise.latest import DEFAULT_BUCKETS, Keyless, rule_latest
from coldstream.jobs.materialise.open_tables import open_tables
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rule_bodies import rule_body
from coldstream.jobs.materialise.rules import (
    Maintenance,
    TablePartition,
    TableRule,
    check_rules,
    names_in,
    parse_rules,
    rule_for,
)
from coldstream.jobs.materialise.run import Runner, RunSettings, Tables
from coldstream.jobs.materialise.spark_engine import SparkEngine, stream_deleted, stream_now
from coldstream.jobs.materialise.sweep import MIN_AGE_SECONDS
from coldstream.jobs.materialise.table_report import TableReport
from coldstream.jobs.materialise.upkeep import UpkeepSettings, check_upkeep, keep_up
from coldstream.jobs.materialise.write import DEFAULT_FILE_BYTES
from coldstream.jobs.report import JobReport
from coldstream.manifest.catalog import StreamState
from coldstream.osiris.body import BodyFormat
from coldstream.plans.probe import is_probe
from coldstream.ports import MetricUnit
from coldstream.quantities import parse_duration, parse_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "Put streams into tables, exactly once; compact the tables and remove old rows."


def old_enough(value: str) -> int:
    """Seconds; more than any run takes."""
    seconds = parse_duration(value)
    if seconds < MIN_AGE_SECONDS:
        raise ValueError("must be 2d at least: files of a run that is under way must stay")
    return seconds


STREAMS = Argument("streams", text, "Pattern over names of queues; all of a name must match.", "")
SUPER_STREAMS = Argument(
    "super-streams", text, "Pattern over names of super streams: all their partitions.", ""
)
INTO = Argument("into", text, "The table, or database.table, in the Glue Data Catalog.", "")
BODY = Argument(
    "body",
    text,
    "raw, json, avro, protobuf, csv, text (fields as columns), or module:function.",
    "raw",
)
CONTENT_ENCODING = Argument(
    "content-encoding",
    one_of("keep", "decode"),
    "decode inflates bodies whose content encoding is gzip, deflate or zstd.",
    "keep",
)
REGISTRY = Argument(
    "registry",
    text,
    "Where the schemas are that bodies of avro, protobuf or json name by id: the URL of a schema"
    " registry, or glue.",
    "",
)
SUBJECT = Argument(
    "subject", text, "With --registry, in the place of --schema: its newest schema.", ""
)
MESSAGE = Argument("message", text, "With --body protobuf: the full name of the message.", "")
BODY_FORMAT = Argument(
    "body-format",
    one_of(*BodyFormat),
    "auto (what is no AMQP 1.0 is plain bytes), amqp (it is a dead letter), bytes (nothing is).",
    "auto",
)
COLUMNS = Argument(
    "columns",
    text,
    "Columns that the table has beside the usual ones, with commas, such as header.",
    "",
)
LATEST = Argument(
    "latest",
    text,
    "One row a key and stream, the last message of each; an empty body deletes it. The key:"
    " properties.NAME, application_properties.NAME or body.PATH.",
    "",
)
KEYLESS = Argument(
    "keyless", one_of(*Keyless), "With --latest: what becomes of a message without a key.", ""
)
BUCKETS: Argument[int | None] = Argument(
    "buckets",
    whole_number,
    f"With --latest: parts of a stream's rows, written anew when touched; {DEFAULT_BUCKETS} if not"
    " given.",
    None,
)
PARTITION = Argument(
    "partition", one_of(*TablePartition), "Divide files by time of the chunk.", "day"
)
START = Argument("start", text, "Where a new table begins: first, next or an offset.", "first")
KEEP: Argument[int | None] = Argument(
    "keep", parse_duration, "Remove rows of chunks older than this, such as 400d.", None
)
SCHEMA = Argument(
    "schema",
    text,
    "With --body json or csv: the fields of bodies, as lines of `name: type`, a JSON Schema, an"
    " Avro schema, or the path or s3:// URL of a file with one of these. With avro: its schema."
    " With protobuf: the file of a descriptor set.",
    "",
)
MISFITS = Argument(
    "misfits",
    one_of(*Misfits),
    "With --schema: what becomes of a body with a value that does not fit.",
    "rescue",
)
RULES = Argument("rules", text, "Rules as JSON, or the path or s3:// URL of a file with them.", "")
FROM: Argument[int | None] = Argument("from", whole_number, "Back-fill from this offset on.", None)
TO: Argument[int | None] = Argument("to", whole_number, "Stop before this offset.", None)
OVERWRITE = Argument("overwrite", flag, "Make rows of the range anew.", False)
PARTITION_BYTES = Argument("partition-bytes", parse_size, "What one task reads.", 256 * 2**20)
WINDOW_BYTES = Argument("window-bytes", parse_size, "What one commit takes in.", 64 * 2**30)
FILE_BYTES = Argument("file-bytes", parse_size, "Size of a table's files.", DEFAULT_FILE_BYTES)
MAINTAIN = Argument("maintain", flag, "Compact and remove old rows after filling.", False)
EXPIRE: Argument[int | None] = Argument(
    "expire",
    old_enough,
    "With --maintain, or by glue: forget what a table was before this time, such as 7d, and delete"
    " the files that nothing else needs; 2d at least.",
    None,
)
CATALOG = Argument(
    "catalog",
    text,
    "glue, or a REST catalog: JSON, or the path or s3:// URL of a file with it. No secret stands in"
    " it.",
    GLUE,
)
MAINTENANCE = Argument(
    "maintenance",
    one_of(*Maintenance),
    "Who merges files and forgets versions: this job with --maintain and --expire (own), or the"
    " table optimisers of AWS Glue, which it switches on (glue).",
    Maintenance.OWN.value,
)
OPTIMIZER_ROLE = Argument(
    "optimizer-role", text, "With --maintenance glue: ARN of the role of the optimisers.", ""
)
DRY_RUN = Argument("dry-run", flag, "Only say what would be done.", False)
PLAN = Argument(
    "plan", flag, "A dry run that reads a sample, and says of every column what and why.", False
)

ARGUMENTS: tuple[Argument[Any], ...] = (
    WAREHOUSE, DATABASE, STREAMS, SUPER_STREAMS, INTO, BODY, BODY_FORMAT, CONTENT_ENCODING, SCHEMA,
    MISFITS, MESSAGE, REGISTRY, SUBJECT, COLUMNS, LATEST, KEYLESS, BUCKETS, PARTITION, START, KEEP,
    RULES, FROM, TO, OVERWRITE, PARTITION_BYTES, WINDOW_BYTES, FILE_BYTES, MAINTAIN, EXPIRE,
    CATALOG, MAINTENANCE, OPTIMIZER_ROLE, DRY_RUN, PLAN,
)  # fmt: skip


def rules_of(given: Given, place: Place) -> tuple[TableRule, ...]:
    """The rules that the arguments give.

    Raises:
        InvalidInputError: none, two kinds, or malformed ones.
    """
    wanted = given[STREAMS] or given[SUPER_STREAMS]
    if bool(wanted or given[INTO]) == bool(given[RULES]):
        raise InvalidInputError("give --streams or --super-streams, and --into; or --rules")

    def read(source: str) -> str:
        return _document(source, place)

    if given[RULES]:
        unless_said = {"catalog": given[CATALOG], "maintenance": given[MAINTENANCE]}
        return parse_rules(read(given[RULES]), read, unless_said)
    if not (wanted and given[INTO]):
        raise InvalidInputError("--streams (or --super-streams) and --into belong together")
    of_bodies = {
        "body": given[BODY],
        "schema": given[SCHEMA],
        "content_encoding": given[CONTENT_ENCODING],
        "message": given[MESSAGE],
        "registry": given[REGISTRY],
        "subject": given[SUBJECT],
    }
    of_latest = {
        "latest": given[LATEST],
        "keyless": given[KEYLESS],
        "buckets": "" if given[BUCKETS] is None else str(given[BUCKETS]),
    }
    table = given[INTO] if "." in given[INTO] else f"{given[DATABASE]}.{given[INTO]}"
    made = rule_body({word: text for word, text in of_bodies.items() if text}, read)
    rule = TableRule(
        given[STREAMS] or ".*",
        table,
        made.body,
        TablePartition(given[PARTITION]),
        given[START],
        given[KEEP],
        BodyFormat(given[BODY_FORMAT]),
        made.schema,
        Misfits(given[MISFITS]),
        given[SUPER_STREAMS],
        made.steps,
        names_in(given[COLUMNS]),
        parse_catalog(given[CATALOG], read),
        Maintenance(given[MAINTENANCE]),
        rule_latest({word: each for word, each in of_latest.items() if each}),
    )
    return check_rules([rule])


def _document(source: str, place: Place) -> str:
    if source.lstrip().startswith("{"):
        return source
    return read_document(source, place).decode(errors="surrogateescape")


def run(spark: SparkSession, place: Place, given: Given, report: JobReport) -> None:
    """Fill every table that a rule names.

    Raises:
        ColdstreamError: of the tables that failed; the others are done.
    """
    rules = rules_of(given, place)
    if given[PLAN] and given[MAINTAIN]:
        raise InvalidInputError("--plan is about columns: give --maintain --dry-run apart from it")
    upkeep = _upkeep(given)
    check_upkeep(rules, upkeep)
    window = BackfillWindow(given[FROM], given[TO], given[OVERWRITE])
    settings = RunSettings(
        window,
        given[WINDOW_BYTES],
        given[FILE_BYTES],
        dry_run=given[DRY_RUN] or given[PLAN],
        columns=given[PLAN],
    )
    chosen, unread = _streams(rules, place, window)
    runner = Runner(
        SparkEngine(spark, place, partition_bytes=given[PARTITION_BYTES]),
        lambda: secrets.token_hex(16),
        lambda attempt: time.sleep(random.uniform(0, min(30, 0.2 * 2**attempt))),
        lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201 - the run's log
    )
    errors: dict[str, ColdstreamError] = dict(unread)
    tables = report.facts.setdefault("tables", {})
    for table, streams in chosen.items():
        rule = next(rule for rule in rules if rule.table == table)
        try:
            pair = open_tables(rule, place, given[WAREHOUSE])
            done = _fill(runner, rules, pair, streams, settings)
            tables[table] = asdict(done)
            if done.plan is None:
                del tables[table]["plan"]
            _count(report, table, done)
            errors |= {
                f"{table} {stream}": mixed(rule, stream, spans)
                for stream, spans in done.cut_off.items()
            }
            kept = keep_up(rule, pair, place, upkeep)
            if kept is not None:
                tables[table]["maintenance"] = kept
        except Exception as exc:  # whatever one table does, the others are filled
            errors[table] = failed(table, exc)
            tables.setdefault(table, {})["error"] = str(errors[table])
    _report_lag(report, tables)
    if errors:
        raise next(iter(errors.values()))


def _upkeep(given: Given) -> UpkeepSettings:
    return UpkeepSettings(
        asked=given[MAINTAIN],
        expire_seconds=given[EXPIRE],
        file_bytes=given[FILE_BYTES],
        role=given[OPTIMIZER_ROLE],
        now_ms=time.time_ns() // 10**6,
        dry_run=given[DRY_RUN],
    )


def _streams(
    rules: tuple[TableRule, ...], place: Place, window: BackfillWindow
) -> tuple[dict[str, list[StreamNow]], dict[str, ColdstreamError]]:
    """The streams by the table that they go into, and those that cannot be read.

    One that was deleted is looked at once, by a run that goes on where the table ends: what the
    table has not of it is lost. A back-fill leaves it alone, and so its rows in the table.
    """
    remote = connect(place)
    chosen: dict[str, list[StreamNow]] = defaultdict(list)
    unread: dict[str, ColdstreamError] = {}
    for item in remote.catalog.streams():
        rule = rule_for(rules, item.name.queue or item.stream, item.name.super_stream)
        if rule is None or is_probe(item.stream):
            continue
        if item.state is StreamState.DELETED:
            if window == BackfillWindow():
                chosen[rule.table].append(stream_deleted(item))
            continue
        try:
            chosen[rule.table].append(stream_now(remote, item))
        except ColdstreamError as error:
            unread[item.stream] = error.located(stream=item.stream)
    if not chosen and not unread:
        raise NotFoundError("no stream's name matches a rule")
    return chosen, unread


def _fill(
    runner: Runner,
    rules: tuple[TableRule, ...],
    pair: Tables,
    streams: list[StreamNow],
    settings: RunSettings,
) -> TableReport:
    """Streams of one table may have rules of their own, which differ in `start` only."""
    by_rule: dict[TableRule, list[StreamNow]] = defaultdict(list)
    for now in streams:
        rule = rule_for(rules, now.name, now.super_stream)
        assert rule is not None
        by_rule[rule].append(now)
    reports = [runner.fill(rule, pair, mine, settings) for rule, mine in by_rule.items()]
    whole = reports[0]
    for each in reports[1:]:
        whole.add(each)
    return whole


def _report_lag(report: JobReport, tables: dict[str, Any]) -> None:
    """How far behind now the stalest stream's newest row is, among those that had new ones."""
    times = [each["oldest_last_ms"] for each in tables.values() if each.get("oldest_last_ms")]
    if times:
        lag = time.time() - min(times) / 1000
        report.count(names.METRIC_MATERIALISE_LAG, max(0.0, lag), MetricUnit.SECONDS)


def _count(report: JobReport, table: str, done: TableReport) -> None:
    report.count(names.METRIC_ROWS_MATERIALISED, done.rows, table=table)
    report.count(names.METRIC_DEAD_LETTER_ROWS, done.dead_letters, table=table)
    report.count(names.METRIC_OFFSETS_LOST, done.lost_offsets, table=table)
    report.count(names.METRIC_BYTES_MATERIALISED, done.file_bytes, MetricUnit.BYTES, table=table)
