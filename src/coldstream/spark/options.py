"""The options of the data source: what they are called, what they may say, what they mean.

    spark.read.format("rabbitmq_stream").option("stream", "orders").option("columns", "offset,body")

Names are the same whatever their case, as everywhere in Spark. `docs/how-to/spark.md` lists them.
A name that is not known is refused: a misspelled limit would otherwise be no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from coldstream.adapters.place import Place
from coldstream.bodies.steps import MAX_BODY_BYTES, NO_STEPS, BodySteps, BodyType
from coldstream.deployment import ENV_BUCKET, ENV_PREFIX, ENV_TABLE
from coldstream.errors import InvalidInputError
from coldstream.names import DEFAULT_PREFIX, check_prefix
from coldstream.osiris.body import BodyFormat, parse_body_format
from coldstream.quantities import SIZES, parse_size
from coldstream.reader.spec import First, Offset, OffsetSpec, parse_spec
from coldstream.spark.plan import DEFAULT_MAX_PARTITIONS, DEFAULT_PARTITION_BYTES, Sizes
from coldstream.spark.window import MAX_SIGNED

T = TypeVar("T")

NAMES = (
    "stream",
    "queue",
    "superStream",
    "vhost",
    "bucket",
    "catalog",
    "table",
    "prefix",
    "region",
    "endpoint",
    "columns",
    "bodyFormat",
    "contentEncoding",
    "maxBodyBytes",
    "bodyType",
    "bodySchema",
    "bodyMessage",
    "schemaRegistry",
    "rows",
    "startingOffset",
    "endingOffset",
    "asOfVersion",
    "partitionBytes",
    "maxPartitions",
    "pushFilters",
    "failOnDataLoss",
    "onCorrupt",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
)
_OF_BODIES = (
    "bodyFormat",
    "contentEncoding",
    "maxBodyBytes",
    "bodyType",
    "bodySchema",
    "bodyMessage",
    "schemaRegistry",
)
_OF_MANIFESTS = ("startingOffset", "endingOffset", "asOfVersion")
_STREAMING = ("maxBytesPerTrigger", "maxOffsetsPerTrigger")
_VERSION = re.compile(r"([0-9]{1,12})(?:\.([0-9a-f]{16}))?")
_SWITCH = {"true": True, "false": False}


class Rows(StrEnum):
    """What one row is."""

    MESSAGES = "messages"
    CHUNKS = "chunks"
    TRACKING = "tracking"
    FRAGMENTS = "fragments"
    STREAMS = "streams"
    INDEX = "index"


#: What option `table` calls the metadata tables; any other name is that of the catalog's table.
METADATA = {"streams": Rows.STREAMS, "fragments": Rows.FRAGMENTS, "chunks": Rows.INDEX}
_ROWS = (Rows.MESSAGES, Rows.CHUNKS, Rows.TRACKING, Rows.FRAGMENTS)


@dataclass(frozen=True, slots=True)
class AsOf:
    """An earlier manifest.

    Attributes:
        version: of the catalog item whose root it was.
        uid: of the root, where several were made for that version; else None.
    """

    version: int
    uid: int | None = None

    def __str__(self) -> str:
        return str(self.version) if self.uid is None else f"{self.version}.{self.uid:016x}"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for; see `docs/how-to/spark.md`.

    Attributes:
        streams: names, directories or patterns.
        place: where they are.
        super_streams: names or patterns; all their partitions are read.
        vhost: of the queues that are named; "" for any.
        columns: names; None for the default ones.
        body_format: how messages are read.
        steps: what is made of bodies; a schema may still be the name of its file.
        rows: what one row is.
        starting: where to begin.
        ending: where to end; None for the end of the manifest.
        as_of: an earlier manifest; None for the current one.
        sizes: of the partitions.
        push_filters: whether the source takes filters over: one scan per `load()` then.
        fail_on_data_loss: whether offsets that exist nowhere stop a query.
        fail_on_corrupt: whether damaged chunks stop a query.
        max_bytes: of a micro-batch; None for no limit.
        max_offsets: of a micro-batch; None for no limit.
    """

    streams: tuple[str, ...]
    place: Place
    super_streams: tuple[str, ...] = ()
    vhost: str = ""
    columns: tuple[str, ...] | None = None
    body_format: BodyFormat = BodyFormat.AUTO
    steps: BodySteps = NO_STEPS
    rows: Rows = Rows.MESSAGES
    starting: OffsetSpec = First()  # noqa: RUF009 - it is immutable
    ending: OffsetSpec | None = None
    as_of: AsOf | None = None
    sizes: Sizes = Sizes()  # noqa: RUF009 - it is immutable
    push_filters: bool = False
    fail_on_data_loss: bool = True
    fail_on_corrupt: bool = False
    max_bytes: int | None = None
    max_offsets: int | None = None

    @property
    def several(self) -> bool:
        """Whether there may be more than one stream."""
        patterns = any(is_pattern(each) for each in self.streams)
        return patterns or len(self.streams) > 1 or bool(self.super_streams)

    @property
    def asked(self) -> str:
        """What was asked for, in words."""
        return ", ".join((*self.streams, *self.super_streams))


def is_pattern(text: str) -> bool:
    """Whether a name of a stream is a pattern; no queue that is named so can be asked for alone."""
    return "*" in text


def parse_options(given: Mapping[str, str], environment: Mapping[str, str]) -> Options:
    """Read and check options.

    Args:
        given: as Spark passes them.
        environment: variables that stand in for what is not given, as for the command line.

    Raises:
        InvalidInputError: an option is not known, is missing, or says what it cannot mean.
    """
    canonical = {name.lower(): name for name in NAMES}
    found: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() not in canonical:
            near = get_close_matches(name.lower(), canonical, 1)
            hint = f"; did you mean {canonical[near[0]]}?" if near else ""
            raise InvalidInputError(f"there is no option {name[:80]!r}{hint}")
        found[canonical[name.lower()]] = text.strip()

    def read(name: str, parse: Callable[[str], T], default: T) -> T:
        if not found.get(name):
            return default
        try:
            return parse(found[name])
        except ValueError as exc:
            reason = exc.reason if isinstance(exc, InvalidInputError) else exc
            raise InvalidInputError(f"option {name}: {reason}") from exc

    metadata = METADATA.get(found.get("table", "").lower())
    if metadata is not None:
        del found["table"]
        if found.get("rows"):
            raise InvalidInputError("option rows: a metadata table says itself what its rows are")
    first: OffsetSpec = First()
    options = Options(
        streams=read("stream", _list, ()) or read("queue", _list, ()),
        place=_place(found, environment),
        super_streams=read("superStream", _list, ()),
        vhost=found.get("vhost", ""),
        columns=read("columns", _list, None),
        body_format=read("bodyFormat", parse_body_format, BodyFormat.AUTO),
        steps=BodySteps(
            inflate=read("contentEncoding", _content_encoding, False),
            max_bytes=read("maxBodyBytes", size, MAX_BODY_BYTES),
            kind=read("bodyType", _body_type, BodyType.AS_IT_IS),
            schema=found.get("bodySchema", ""),
            message=found.get("bodyMessage", ""),
            registry=found.get("schemaRegistry", ""),
        ),
        rows=metadata or read("rows", _rows, Rows.MESSAGES),
        starting=read("startingOffset", _spec, first),
        ending=read("endingOffset", _spec, None),
        as_of=read("asOfVersion", _as_of, None),
        sizes=Sizes(
            read("partitionBytes", size, DEFAULT_PARTITION_BYTES),
            read("maxPartitions", size, DEFAULT_MAX_PARTITIONS),
        ),
        push_filters=read("pushFilters", _switch, False),
        fail_on_data_loss=read("failOnDataLoss", _switch, True),
        fail_on_corrupt=read("onCorrupt", _on_corrupt, False),
        max_bytes=read("maxBytesPerTrigger", size, None),
        max_offsets=read("maxOffsetsPerTrigger", size, None),
    )
    if found.get("stream") and found.get("queue"):
        raise InvalidInputError("options stream and queue mean the same: give one of them")
    if not options.asked:
        if metadata is None:
            raise InvalidInputError(
                "option stream is missing: a queue name, a directory, several of them separated by "
                "commas, or a pattern such as orders-.*; or option superStream"
            )
        options = replace(options, streams=(".*",))
    if options.as_of is not None and options.several:
        raise InvalidInputError(
            "option asOfVersion: every stream has versions of its own, so name one"
        )
    return options


def refuse_for(options: Options, *, streaming: bool, given: Mapping[str, str]) -> None:
    """Refuse what has no meaning for a streaming read, or for any other.

    Raises:
        InvalidInputError: such an option was given.
    """
    names = {name.lower() for name in given}
    refused = ("asOfVersion", "endingOffset", "pushFilters") if streaming else _STREAMING
    for name in refused:
        if name.lower() in names:
            raise InvalidInputError(
                f"option {name} is for {'batch' if streaming else 'streaming'} reads"
            )
    if streaming and options.rows is not Rows.MESSAGES:
        raise InvalidInputError("options rows and table: a streaming read gives messages")
    for name in () if options.rows is Rows.MESSAGES else _OF_BODIES:
        if name.lower() in names:
            raise InvalidInputError(f"option {name} is about bodies: {options.rows} have none")
    for name in _OF_MANIFESTS if options.rows is Rows.STREAMS else ():
        if name.lower() in names:
            raise InvalidInputError(f"option {name}: the table of streams shows them as they are")


def size(text: str) -> int:
    """A positive size.

    Raises:
        InvalidInputError: it is none.
    """
    number = parse_size(text)
    if not number:
        raise InvalidInputError(f"must be {SIZES}, not 0")
    return number


def _place(found: Mapping[str, str], environment: Mapping[str, str]) -> Place:
    place = Place(
        bucket=found.get("bucket") or environment.get(ENV_BUCKET, ""),
        table=found.get("catalog") or found.get("table") or environment.get(ENV_TABLE, ""),
        prefix=found.get("prefix") or environment.get(ENV_PREFIX) or DEFAULT_PREFIX,
        region=found.get("region", ""),
        endpoint=found.get("endpoint", ""),
    )
    if not place.directory:
        missing = [
            f"{name} (or {variable})"
            for name, variable, value in (
                ("bucket", ENV_BUCKET, place.bucket),
                ("catalog", ENV_TABLE, place.table),
            )
            if not value
        ]
        if missing:
            raise InvalidInputError(f"option {' and option '.join(missing)} is missing")
    try:
        check_prefix(place.prefix)
    except InvalidInputError as exc:
        raise InvalidInputError(f"option prefix: {exc.reason}") from exc
    return place


def _list(text: str) -> tuple[str, ...]:
    return tuple(each for each in (part.strip() for part in text.split(",")) if each)


def _spec(text: str) -> OffsetSpec:
    spec = parse_spec(text)
    if isinstance(spec, Offset) and spec.value > MAX_SIGNED:
        raise InvalidInputError(
            f"offsets of a table are signed numbers, at most 2**63 - 1, not {spec.value}"
        )
    return spec


def _rows(text: str) -> Rows:
    if text.lower() not in _ROWS:
        raise InvalidInputError(f"expected {', '.join(_ROWS)}, not {text[:80]!r}")
    return Rows(text.lower())


def _content_encoding(text: str) -> bool:
    return _word(text, {"keep": False, "decode": True})


def _body_type(text: str) -> BodyType:
    # Spark itself reads lines and CSV.
    words = (BodyType.AVRO, BodyType.PROTOBUF, BodyType.JSON)
    if text.lower() not in words:
        raise InvalidInputError(f"expected {', '.join(words)}, not {text[:80]!r}")
    return BodyType(text.lower())


def _on_corrupt(text: str) -> bool:
    return _word(text, {"rows": False, "fail": True})


def _switch(text: str) -> bool:
    return _word(text, _SWITCH)


def _word(text: str, words: Mapping[str, bool]) -> bool:
    if text.lower() not in words:
        raise InvalidInputError(f"expected {' or '.join(words)}, not {text[:80]!r}")
    return words[text.lower()]


def _as_of(text: str) -> AsOf:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"expected the number of a version, not {text[:80]!r}")
    return AsOf(int(match[1]), int(match[2], 16) if match[2] else None)
