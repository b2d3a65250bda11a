"""The arguments of materialise, and the rules that they give."""

from __future__ import annotations

from typing import Any

from coldstream.adapters.documents import read_document
from coldstream.adapters.place import Place
from coldstream.errors import InvalidInputError
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
from coldstream.jobs.materialise.iceberg.catalog_ref import GLUE, parse_catalog
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.latest.rule import DEFAULT_BUCKETS, Keyless, rule_latest
from coldstream.jobs.materialise.open_file import DEFAULT_GROUP_BYTES
from coldstream.jobs.materialise.rule_bodies import rule_body
from coldstream.jobs.materialise.rules import (
    Maintenance,
    TableFiles,
    TablePartition,
    TableRule,
    check_rules,
    names_in,
    parse_rules,
)
from coldstream.jobs.materialise.sweep import MIN_AGE_SECONDS
from coldstream.jobs.materialise.write import DEFAULT_FILE_BYTES
from coldstream.osiris.body import BodyFormat
from coldstream.quantities import parse_duration, parse_size


def old_enough(value: str) -> int:
    """Seconds; more than any run takes."""
    seconds = parse_duration(value)
    if seconds < MIN_AGE_SECONDS:
        raise ValueError("must be 2d at least: files of a run that is under way must stay")
    return seconds


def file_size(value: str) -> int:
    """Bytes; not more than S3 takes at once, with the row group that a file may be larger by."""
    size = parse_size(value)
    if not 2**20 <= size <= 4 * 2**30:
        raise ValueError("must be 1MiB to 4GiB: S3 takes no file of more than 5 GiB at once")
    return size


def group_size(value: str) -> int:
    """Bytes; of a size with which a worker gets on."""
    size = parse_size(value)
    if not 2**20 <= size <= 2**30:
        raise ValueError("must be 1MiB to 1GiB: a worker holds two row groups of a task's files")
    return size


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
FILE_BYTES = Argument("file-bytes", file_size, "Size of a table's files.", DEFAULT_FILE_BYTES)
ROW_GROUP_BYTES = Argument(
    "row-group-bytes",
    group_size,
    "Size of a row group of a file, as its rows are in memory; encoded it is a few times smaller.",
    DEFAULT_GROUP_BYTES,
)
FILES = Argument(
    "files",
    one_of(*TableFiles),
    "own (each stream has files of its own) or shared (streams share files, for very many small"
    " ones).",
    TableFiles.OWN.value,
)
ORDER = Argument(
    "order",
    text,
    "Columns by which the rows of a file are sorted, with commas; by stream and offset if not"
    " given.",
    "",
)
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
    RULES, FROM, TO, OVERWRITE, PARTITION_BYTES, WINDOW_BYTES, FILE_BYTES, ROW_GROUP_BYTES,
    FILES, ORDER, MAINTAIN, EXPIRE,
    CATALOG, MAINTENANCE, OPTIMIZER_ROLE, DRY_RUN, PLAN,
)  # fmt: skip

#: What a rule of a document says by itself.
_OF_A_RULE: tuple[Argument[Any], ...] = (
    BODY, BODY_FORMAT, CONTENT_ENCODING, SCHEMA, MISFITS, MESSAGE, REGISTRY, SUBJECT, COLUMNS,
    LATEST, KEYLESS, BUCKETS, PARTITION, START, KEEP, FILES, ORDER,
)  # fmt: skip


def rules_of(given: Given, place: Place) -> tuple[TableRule, ...]:
    """The rules that the arguments give.

    Raises:
        InvalidInputError: none, two kinds, malformed ones, or words of a rule beside `--rules`.
    """
    wanted = given[STREAMS] or given[SUPER_STREAMS]
    if bool(wanted or given[INTO]) == bool(given[RULES]):
        raise InvalidInputError("give --streams or --super-streams, and --into; or --rules")

    def read(source: str) -> str:
        return _document(source, place)

    if given[RULES]:
        beside = [f"--{each.name}" for each in _OF_A_RULE if given[each] != each.default]
        if beside:
            raise InvalidInputError(f"{', '.join(beside)}: with --rules each rule says that itself")
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
        TableFiles(given[FILES]),
        names_in(given[ORDER]),
    )
    return check_rules([rule])


def _document(source: str, place: Place) -> str:
    if source.lstrip().startswith("{"):
        return source
    return read_document(source, place).decode(errors="surrogateescape")
