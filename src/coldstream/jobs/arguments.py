"""The arguments of a job, as Glue passes them: `--key value`, text only, Glue's own among them.

    STREAM = Argument("stream", text, "Queue name, directory or pattern.")
    LIMIT = Argument("max-bytes", size_bytes, "Read at most so much.", default=2**30)

    given = parse("scrub", "Check every byte.", (*WHERE, STREAM, LIMIT), sys.argv[1:])
    given[STREAM]    # a str, and `given[LIMIT]` an int: the type is that of the argument

Unlike awsglue's `getResolvedOptions`, this needs no Glue to import, refuses what it does not know
(a misspelled limit would otherwise be no limit), and knows defaults. An empty value counts as not
given, because a field in the console that was left empty arrives as one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from textwrap import fill
from typing import Any, Generic, TypeVar, cast

from coldstream.errors import InvalidInputError
from coldstream.names import (
    DEFAULT_PREFIX,
    ENV_BUCKET,
    ENV_DATABASE,
    ENV_PREFIX,
    ENV_TABLE,
    ENV_WAREHOUSE,
    check_prefix,
)
from coldstream.plans.name_pattern import problem

T = TypeVar("T")

#: What Glue itself reads or adds: the job parameters of its developer guide, and those that it
#: passes to every script.
GLUE_OWN = frozenset(
    {
        "JOB_ID",
        "JOB_NAME",
        "JOB_RUN_ID",
        "RedshiftTempDir",
        "SECURITY_CONFIGURATION",
        "TempDir",
        "additional-python-modules",
        "auto-scale-within-microbatch",
        "auto-tune",
        "class",
        "conf",
        "continuous-log-conversionPattern",
        "continuous-log-logGroup",
        "continuous-log-logStreamPrefix",
        "custom-logGroup-prefix",
        "custom-logStream-prefix",
        "customer-driver-env-vars",
        "customer-executor-env-vars",
        "datalake-formats",
        "disable-proxy",
        "encryption-type",
        "executor-cores",
        "extra-files",
        "extra-jars",
        "extra-py-files",
        "job-bookmark-from",
        "job-bookmark-option",
        "job-bookmark-to",
        "job-language",
        "mode",
        "python-modules-installer-option",
        "scriptLocation",
        "spark-event-logs-path",
        "user-jars-first",
        "use-postgres-driver",
        "write-shuffle-files-to-s3",
        "write-shuffle-spills-to-s3",
    }
)
_GLUE_SWITCH = "enable-"
_RUN_ID = "JOB_RUN_ID"

_UNITS = {
    "": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_SIZE = re.compile(r"([0-9]{1,18})\s*([A-Za-z]*)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,12})\s*([smhd]?)")
_TRUE = frozenset({"", "true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


class _Required:
    """No default: the argument must be given."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True)
class Argument(Generic[T]):
    """One argument of a job.

    Attributes:
        name: without the dashes, with "-" between words; "_" is taken for "-" when it is given.
        read: makes a value of its text, or raises a ValueError that says what is wrong with it.
        help: a sentence for `--help`.
        default: what it is when it is not given.
        env: the environment variable that stands in for it, if any.
    """

    name: str
    read: Callable[[str], T]
    help: str
    default: T | _Required = REQUIRED
    env: str = ""


class Given:
    """The values of all arguments of a job, by the `Argument` that declares each."""

    def __init__(self, values: Mapping[str, Any], run_id: str) -> None:
        self._values = values
        self.run_id = run_id
        """Glue's id of this run; "" where no Glue runs it."""

    def __getitem__(self, argument: Argument[T]) -> T:
        return cast(T, self._values[argument.name])


def parse(
    job: str,
    description: str,
    arguments: Sequence[Argument[Any]],
    argv: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Given:
    """The arguments of a job; `--help` prints them and leaves.

    Args:
        job: its name, for messages.
        description: a sentence on what it does.
        arguments: those it takes.
        argv: what was given; by default the process's.
        environment: where variables are looked up; by default the process's.

    Raises:
        InvalidInputError: one is unknown, missing or malformed, or given twice.
        SystemExit: help was asked for.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    variables = os.environ if environment is None else environment
    by_name = {each.name: each for each in arguments}
    texts: dict[str, str] = {}
    run_id, strays = "", []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word in ("-h", "--help"):
            print(usage(job, description, arguments))  # noqa: T201 - what was asked for
            raise SystemExit(0)
        if not word.startswith("--"):
            strays.append(word)
            continue
        name, separate, text = word[2:].partition("=")
        argument = by_name.get(name.replace("_", "-"))
        follows = position < len(words) and not words[position].startswith("--")
        if not separate and follows:
            text = words[position]
            position += 1
        if argument is None:
            if name == _RUN_ID:
                run_id = text
            elif name not in GLUE_OWN and not name.startswith(_GLUE_SWITCH):
                raise InvalidInputError(f"{job}: {_unknown(name, by_name)}")
            continue
        if argument.name in texts:
            raise InvalidInputError(f"{job}: --{argument.name} is given twice")
        if not separate and not follows and argument.read is not flag:
            raise InvalidInputError(f"{job}: --{argument.name} has no value")
        # A switch counts by being there; everything else that is empty was left empty.
        if text or argument.read is flag:
            texts[argument.name] = text
    # Glue is free to add words of its own; a person who does so has forgotten dashes or quotes.
    if strays and not run_id:
        raise InvalidInputError(f"{job}: {strays[0]!r} is no argument: each is --key value")
    values = {each.name: _value(job, each, texts, variables) for each in arguments}
    return Given(values, run_id)


def _value(
    job: str, argument: Argument[Any], texts: Mapping[str, str], variables: Mapping[str, str]
) -> Any:
    text = texts.get(argument.name)
    source = f"--{argument.name}"
    if text is None and argument.env and variables.get(argument.env):
        text, source = variables[argument.env], argument.env
    if text is None:
        if isinstance(argument.default, _Required):
            instead = f" (or {argument.env})" if argument.env else ""
            raise InvalidInputError(f"{job}: --{argument.name}{instead} must be given")
        return argument.default
    try:
        return argument.read(text)
    except ValueError as exc:
        reason = exc.reason if isinstance(exc, InvalidInputError) else str(exc)
        raise InvalidInputError(f"{job}: {source} {text[:100]!r}: {reason}") from exc


def _unknown(name: str, known: Mapping[str, Argument[Any]]) -> str:
    near = get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"did you mean --{near[0]}?" if near else "see --help"
    return f"there is no argument --{name[:100]}; {hint}"


def usage(job: str, description: str, arguments: Sequence[Argument[Any]]) -> str:
    """What `--help` prints."""
    lines = [f"usage: {job} --key value ...", "", fill(description, 100), ""]
    for each in arguments:
        about = each.help
        if isinstance(each.default, _Required):
            about += " Required."
        elif each.default not in (None, "", False):
            about += f" Default: {each.default}."
        if each.env:
            about += f" From the environment: {each.env}."
        lines.append(f"  --{each.name}")
        lines.append(fill(about, 100, initial_indent=" " * 6, subsequent_indent=" " * 6))
    return "\n".join(lines)


def text(value: str) -> str:
    """Text as it is."""
    return value


def flag(value: str) -> bool:
    """A switch: true by being there, or by its value."""
    lowered = value.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("must be true or false")


def whole_number(value: str) -> int:
    """A whole number that is not negative."""
    if not re.fullmatch(r"[0-9]{1,19}", value.strip()):
        raise ValueError("must be a whole number")
    return int(value)


def positive_number(value: str) -> int:
    """A whole number from 1 on."""
    number = whole_number(value)
    if number < 1:
        raise ValueError("must be 1 or more")
    return number


def branching(value: str) -> int:
    """Entries of a full group of the manifest: 2 to 4096."""
    number = whole_number(value)
    if not 2 <= number <= 4096:
        raise ValueError("must be from 2 to 4096")
    return number


def decimal_number(value: str) -> float:
    """A number that is not negative, such as a price."""
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", value.strip()):
        raise ValueError("must be a number such as 0.023")
    return float(value)


def size_bytes(value: str) -> int:
    """Bytes: `1000`, `64MiB`, `1 TB`."""
    match = _SIZE.fullmatch(value.strip())
    unit = match[2].upper() if match else "?"
    factor = _UNITS.get(unit[:-1] if unit == "B" else unit)
    if match is None or factor is None:
        raise ValueError("must be a size such as 1000, 64MiB or 1TB")
    return int(match[1]) * factor


def duration_seconds(value: str) -> int:
    """Seconds: `90`, `15m`, `6h`, `30d`."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("must be a time such as 90s, 15m, 6h or 30d")
    return int(match[1]) * _SECONDS[match[2] or "s"]


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words."""

    def read(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return value

    return read


def name_pattern(value: str) -> str:
    """A regular expression over names; see `coldstream.plans.name_pattern` for its limits."""
    trouble = problem(value)
    if trouble is not None:
        raise ValueError(trouble)
    return value


def place(value: str) -> str:
    """A URL that ends in "/", of a URL or a path; the slash may be left out."""
    if not re.fullmatch(r"(?:s3://[a-z0-9.-]{3,63}/|file:///|/).{0,900}", value):
        raise ValueError("must be a place such as s3://bucket/tables/")
    whole = value if value.endswith("/") else value + "/"
    return f"file://{whole}" if whole.startswith("/") else whole


def database_name(value: str) -> str:
    """The name of a database, as Glue and Athena both take it."""
    if not re.fullmatch(r"[a-z0-9_]{1,255}", value):
        raise ValueError("must be small letters, digits and _")
    return value


BUCKET = Argument("bucket", text, "S3 bucket of the fragments.", env=ENV_BUCKET)
TABLE = Argument("table", text, "DynamoDB table of the catalog.", env=ENV_TABLE)
PREFIX = Argument(
    "prefix", check_prefix, "What all keys of the cluster begin with.", DEFAULT_PREFIX, ENV_PREFIX
)
REGION = Argument("region", text, "AWS region.", "", "AWS_REGION")
ENDPOINT = Argument("endpoint", text, "URL instead of AWS's own services.", "", "AWS_ENDPOINT_URL")

WAREHOUSE = Argument(
    "warehouse", place, "URL below which this job's tables have their files.", env=ENV_WAREHOUSE
)
DATABASE = Argument(
    "database", database_name, "Database of its tables in the Glue Data Catalog.", env=ENV_DATABASE
)

STREAMS = Argument(
    "streams",
    name_pattern,
    "Regular expression that the directory or the queue of a stream must match as a whole.",
    ".*",
)

#: Where the remote tier is; every job takes these.
WHERE: tuple[Argument[Any], ...] = (BUCKET, TABLE, PREFIX, REGION, ENDPOINT)


@dataclass(frozen=True, slots=True)
class Where:
    """The remote tier of one cluster.

    Attributes:
        bucket: its S3 bucket.
        table: its DynamoDB table.
        prefix: of all its keys.
        region: AWS region; "" for what the SDKs find.
        endpoint: URL of the services; "" for AWS's own.
    """

    bucket: str
    table: str
    prefix: str
    region: str = ""
    endpoint: str = ""


def where(given: Given) -> Where:
    """The remote tier that a job was pointed at by the arguments `WHERE`."""
    return Where(given[BUCKET], given[TABLE], given[PREFIX], given[REGION], given[ENDPOINT])
