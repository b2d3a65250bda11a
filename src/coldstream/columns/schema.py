"""The columns of a message, as Arrow types, and which of them are wanted.

    stream vhost queue super_stream routing_key offset timestamp chunk_id epoch publishers
    body_kind body header properties application_properties message_annotations
    delivery_annotations footer raw error

and those that are made value by value in Python, so that who wants one names it (`DEAR`):

    application_properties_json message_annotations_json body_json     values with their AMQP types
    application_properties_variant …                                   the same as VARIANT (Spark 4)

`docs/how-to/spark.md` says what each holds. A struct can be narrowed: `properties.subject`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.osiris.body import BodyFormat

TIMESTAMP = pa.timestamp("us", "UTC")
TEXT_MAP = pa.map_(pa.string(), pa.string())

#: Fields of `properties`, in this order.
PROPERTIES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "message_id": pa.string(),
        "message_id_type": pa.string(),
        "user_id": pa.binary(),
        "to": pa.string(),
        "subject": pa.string(),
        "reply_to": pa.string(),
        "correlation_id": pa.string(),
        "correlation_id_type": pa.string(),
        "content_type": pa.string(),
        "content_encoding": pa.string(),
        "absolute_expiry_time": TIMESTAMP,
        "creation_time": TIMESTAMP,
        "group_id": pa.string(),
        "group_sequence": pa.int64(),
        "reply_to_group_id": pa.string(),
    }
)

#: Fields of `header`, in this order; `ttl` in ms.
HEADER: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "durable": pa.bool_(),
        "priority": pa.int64(),
        "ttl": pa.int64(),
        "first_acquirer": pa.bool_(),
        "delivery_count": pa.int64(),
    }
)

#: A VARIANT as Spark 4 takes it from Arrow: marked as such by the metadata of its second field.
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary()),
        pa.field("metadata", pa.binary(), metadata={b"variant": b"true"}),
    ]
)
#: What can be had with the types of its values, and the section that it comes from.
TYPED = ("body", "application_properties", "message_annotations")
#: By name of the column: of what, and whether as VARIANT; otherwise it is tagged JSON.
DEAR: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {
        f"{name}_{suffix}": (name, suffix == "variant")
        for suffix in ("json", "variant")
        for name in TYPED
    }
)

#: All columns, in this order.
COLUMNS: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "stream": pa.string(),
        "vhost": pa.string(),
        "queue": pa.string(),
        "super_stream": pa.string(),
        "routing_key": pa.string(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "chunk_id": pa.int64(),
        "epoch": pa.int64(),
        "publishers": pa.map_(pa.string(), pa.int64()),
        "body_kind": pa.string(),
        "body": pa.binary(),
        "header": pa.struct(list(HEADER.items())),
        "properties": pa.struct(list(PROPERTIES.items())),
        "application_properties": TEXT_MAP,
        "message_annotations": TEXT_MAP,
        "delivery_annotations": TEXT_MAP,
        "footer": TEXT_MAP,
        "raw": pa.binary(),
        "error": pa.string(),
        **{name: VARIANT if variant else pa.string() for name, (_, variant) in DEAR.items()},
    }
)
#: What `*` stands for.
ALL = tuple(name for name in COLUMNS if name not in DEAR)

#: Columns that are the same in all rows of a stream.
OF_STREAM = ("stream", "vhost", "queue", "super_stream", "routing_key")
#: Those of them that say which stream a row is of.
WHICH_STREAM = ("stream", "vhost", "queue")
#: What is selected unless the caller says otherwise: no message is read for it. Spark does not tell
#: a source in Python which columns a query uses, so every query pays for what is here.
DEFAULT = ("offset", "timestamp", "chunk_id", "epoch")


@dataclass(frozen=True, slots=True)
class Origin:
    """Which stream rows are of: the columns `OF_STREAM`.

    Attributes:
        stream: directory name.
        vhost: of its queue; "" where nobody has said it, which is null in a row.
        queue: name; the same.
        super_stream: of which the queue is a partition; "" if of none, or nobody has said it.
        routing_key: of the partition; the same.
    """

    stream: str = ""
    vhost: str = ""
    queue: str = ""
    super_stream: str = ""
    routing_key: str = ""

    def columns(self) -> dict[str, str | None]:
        """Values by column; a queue that nobody knows is null, and so is its virtual host."""
        known, partition = bool(self.queue), bool(self.super_stream)
        return {
            "stream": self.stream,
            "vhost": self.vhost if known else None,
            "queue": self.queue if known else None,
            "super_stream": self.super_stream if partition else None,
            "routing_key": self.routing_key if partition else None,
        }


#: Of rows that nobody asks where they come from.
NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns that are wanted.

    Attributes:
        names: of the columns, in the order asked for.
        schema: the same with types; `properties` may have fewer fields than there are.
        body_format: how messages are read.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    body_format: BodyFormat = BodyFormat.AUTO

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def dear(self) -> tuple[str, ...]:
        """Columns that are made value by value."""
        return tuple(name for name in self.names if name in DEAR)

    @property
    def properties(self) -> tuple[str, ...]:
        """Fields of `properties` that are wanted; none if the struct is not."""
        if "properties" not in self.names:
            return ()
        return tuple(each.name for each in self.schema.field("properties").type)


def select(
    names: Sequence[str] | None = None, body_format: BodyFormat = BodyFormat.AUTO
) -> Selection:
    """A selection of columns by name.

    Args:
        names: columns, and `properties.x` for single fields of that struct; the struct stands where
            its first field is named. `DEFAULT` unless given.
        body_format: how messages are read.

    Raises:
        InvalidInputError: there is no such column, one is named twice, or none is named.
    """
    chosen: dict[str, list[str] | None] = {}
    for name in DEFAULT if names is None else names:
        column, dot, part = name.partition(".")
        if column not in COLUMNS or (dot and (column != "properties" or part not in PROPERTIES)):
            raise InvalidInputError(
                f"there is no column {name[:80]!r}; there are {', '.join(COLUMNS)}"
            )
        parts = chosen.setdefault(column, [] if dot else None)
        if dot and parts is not None and part not in parts:
            parts.append(part)
        elif column in chosen and (not dot) and parts is not None:
            raise InvalidInputError(f"{column} is asked for as a whole and in parts")
        elif dot:
            raise InvalidInputError(f"{name} is asked for twice")
    if not chosen:
        raise InvalidInputError("no column is asked for")
    fields = [
        pa.field(
            column,
            COLUMNS[column] if parts is None else pa.struct([(p, PROPERTIES[p]) for p in parts]),
        )
        for column, parts in chosen.items()
    ]
    return Selection(tuple(chosen), pa.schema(fields), body_format)
