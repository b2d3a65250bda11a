"""The arguments of a job, as Glue passes them: `--key value`, text only, Glue's own among them.

    STREAM = Argument("stream", text, "Queue name, directory or pattern.")
    LIMIT = Argument("max-bytes", parse_size, "Read at most so much.", default=2**30)

    given = parse("scrub", "Check every byte.", (*WHERE, STREAM, LIMIT), sys.argv[1:])
    given[STREAM]    # a str, and `given[LIMIT]` an int: the type is that of the argument

Unlike awsglue's `getResolvedOptions`, this needs no Glue to import, refuses what it does not know
(a misspelled limit would otherwise be no limit; in a run of Glue's, what resembles none of ours is
told on stderr only), and knows defaults. An empty value counts as not
given, because a field in the console that was left empty arrives as one.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from argparse import Action as ParserAction
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, NoReturn, TypeVar, cast

from coldstream.adapters.place import Place
from coldstream.deployment import (
    ENV_BUCKET,
    ENV_DATABASE,
    ENV_PREFIX,
    ENV_TABLE,
    ENV_WAREHOUSE,
    METRIC_SERVICE,
)
from coldstream.errors import InvalidInputError
from coldstream.names import DEFAULT_PREFIX, check_prefix
from coldstream.plans.name_pattern import problem

T = TypeVar("T")

#: What Glue itself reads or adds: the job parameters of its developer guide, and those that it
#: passes to every script. Beside these it has switches that begin with `enable-`.
GLUE_OWN = frozenset(
    {
        "JOB_ID", "JOB_NAME", "JOB_RUN_ID", "RedshiftTempDir", "SECURITY_CONFIGURATION", "TempDir",
        "additional-python-modules", "auto-scale-within-microbatch", "auto-tune", "class", "conf",
        "continuous-log-conversionPattern", "continuous-log-logGroup",
        "continuous-log-logStreamPrefix", "custom-logGroup-prefix", "custom-logStream-prefix",
        "customer-driver-env-vars", "customer-executor-env-vars", "datalake-formats",
        "disable-proxy", "disable-proxy-v2", "encryption-type", "executor-cores", "extra-files",
        "extra-jars", "extra-py-files", "job-bookmark-from", "job-bookmark-option",
        "job-bookmark-to",
        "job-language", "mode", "python-modules-installer-option", "scriptLocation",
        "spark-event-logs-path", "user-jars-first", "use-postgres-driver",
        "write-shuffle-files-to-s3", "write-shuffle-spills-to-s3",
    }
)  # fmt: skip
_GLUE_SWITCH = "--enable-"
#: The one whose value begins with dashes.
_PIP_OPTIONS = "--python-modules-installer-option"
_RUN_ID = "JOB_RUN_ID"
_FLAG = {"": True, "true": True, "1": True, "yes": True, "on": True}
_FLAG |= {"false": False, "0": False, "no": False, "off": False}


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


class _Parser(ArgumentParser):
    """Raises what every command here raises, instead of leaving."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInputError(f"{self.prog}: {message.removeprefix('argument ')}")


class _Once(ParserAction):
    """Takes the text of an argument; a second one is not silently the one that counts."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option: Any = None
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option} is given twice")
        setattr(namespace, self.dest, values)


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
    variables = os.environ if environment is None else environment
    parser = _Parser(job, description=description, allow_abbrev=False)
    for each in arguments:
        # As in Python, "_" and "-" are the same between words.
        parser.add_argument(
            *dict.fromkeys((f"--{each.name}", f"--{each.name.replace('-', '_')}")),
            dest=each.name,
            action=_Once,
            nargs="?" if each.read is flag else None,
            const="",
            metavar="VALUE",
            help=_help(each).replace("%", "%%"),
        )
    for name in GLUE_OWN:
        parser.add_argument(f"--{name}", dest=name, nargs="?", help=SUPPRESS)
    found, rest = parser.parse_known_args(_joined(sys.argv[1:] if argv is None else argv))
    run_id = getattr(found, _RUN_ID) or ""
    _refuse(parser, rest, {each.name for each in arguments}, by_person=not run_id)
    values = {each.name: _value(parser, each, found, variables) for each in arguments}
    return Given(values, run_id)


def _joined(argv: Sequence[str]) -> list[str]:
    """The words, the options of pip as one with the argument that they are the value of."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == _PIP_OPTIONS:
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _refuse(parser: _Parser, rest: Sequence[str], known: set[str], *, by_person: bool) -> None:
    """Refuse what is left over and is not Glue's; of what may be, tell only."""
    before = ""
    for word in rest:
        if word.startswith("--") and not word.startswith(_GLUE_SWITCH):
            name = word[2:].partition("=")[0]
            near = get_close_matches(name.replace("_", "-"), known, n=1)
            what = f"there is no argument --{name[:100]}"
            if near or by_person:
                hint = f"did you mean --{near[0]}?" if near else "see --help"
                parser.error(f"{what}; {hint}")
            # A new one of Glue's, most likely: that must not stop all jobs on one day.
            sys.stderr.write(f"{parser.prog}: {what}: it counts for nothing\n")
        # Glue is free to add words of its own; a person who does so has forgotten dashes or quotes.
        if by_person and not word.startswith("--") and not before.startswith(_GLUE_SWITCH):
            parser.error(f"{word!r} is no argument: each is --key value")
        before = word


def _value(
    parser: _Parser, argument: Argument[Any], found: Namespace, variables: Mapping[str, str]
) -> Any:
    text, source = getattr(found, argument.name), f"--{argument.name}"
    # A switch counts by being there; everything else that is empty was left empty in the console.
    given = bool(text) or (text is not None and argument.read is flag)
    if not given and argument.env and variables.get(argument.env):
        text, source, given = variables[argument.env], argument.env, True
    if not given:
        if isinstance(argument.default, _Required):
            instead = f" (or {argument.env})" if argument.env else ""
            parser.error(f"--{argument.name}{instead} must be given")
        return argument.default
    try:
        return argument.read(text)
    except ValueError as exc:
        reason = exc.reason if isinstance(exc, InvalidInputError) else f"{exc}, not {text[:100]!r}"
        raise InvalidInputError(f"{parser.prog}: {source}: {reason}") from exc


def _help(argument: Argument[Any]) -> str:
    about = argument.help
    if isinstance(argument.default, _Required):
        about += " Required."
    elif argument.default not in (None, "", False):
        about += f" Default: {argument.default}."
    return f"{about} From the environment: {argument.env}." if argument.env else about


def text(value: str) -> str:
    """Text as it is."""
    return value


def flag(value: str) -> bool:
    """A switch: true by being there, or by its value."""
    if value.strip().lower() not in _FLAG:
        raise ValueError("must be true or false")
    return _FLAG[value.strip().lower()]


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


def table_url(value: str) -> str:
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
    "warehouse", table_url, "URL below which this job's tables have their files.", env=ENV_WAREHOUSE
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

SERVICE = Argument("service", text, "Dimension `service` of its metrics.", METRIC_SERVICE)

#: Where the remote tier is, and whose metrics are reported; every job takes these.
WHERE: tuple[Argument[Any], ...] = (BUCKET, TABLE, PREFIX, REGION, ENDPOINT, SERVICE)


def place_of(given: Given) -> Place:
    """The remote tier that a job was pointed at by the arguments `WHERE`."""
    return Place(given[BUCKET], given[TABLE], given[PREFIX], given[REGION], given[ENDPOINT])
