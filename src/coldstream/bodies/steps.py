"""What is to be done with bodies before they are rows, as a value that goes from driver to workers.

Bodies of Avro and Protobuf become JSON objects: `jobs.materialise` and Spark's own functions know
what to do with these. A decimal is text in it, bytes are base64, and times and dates are the
numbers that Avro has for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import InvalidInputError

#: A body has at most so many bytes when it is inflated, unless somebody says otherwise.
MAX_BODY_BYTES = 64 * 2**20


class BodyType(StrEnum):
    """What a body is, beside its bytes."""

    AS_IT_IS = "as-it-is"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    CSV = "csv"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class BodySteps:
    """What becomes of a body, in this order.

    Attributes:
        inflate: undo its content encoding.
        max_bytes: that it may have then.
        kind: what it is.
        schema: of Avro as JSON, of Protobuf a FileDescriptorSet in base64; what bodies are read by
            if no registry knows better, and for Avro what they become. "" if there is none.
        message: full name of the Protobuf message; "" for the first of the schema's last file.
        registry: where the schemas are that bodies name by id: an URL of the usual interface, or
            "glue"; "" where bodies name none.
        fields: of CSV: name and type (text, number, boolean or word) of each, in order.
    """

    inflate: bool = False
    max_bytes: int = MAX_BODY_BYTES
    kind: BodyType = BodyType.AS_IT_IS
    schema: str = ""
    message: str = ""
    registry: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        needs_schema = self.kind in (BodyType.AVRO, BodyType.PROTOBUF)
        if needs_schema and not (self.schema or self.registry):
            raise InvalidInputError(f"bodies of {self.kind} need a schema, or a registry of them")
        if self.schema and not needs_schema:
            raise InvalidInputError(f"a schema is for bodies of avro or protobuf, not {self.kind}")
        if self.registry and not (needs_schema or self.kind is BodyType.JSON):
            raise InvalidInputError("a schema registry is for bodies of avro, protobuf or json")
        if self.registry and not is_registry(self.registry):
            raise InvalidInputError(
                f"a schema registry is http://…, https://… or glue, not {self.registry[:80]!r}"
            )
        if self.registry == "glue" and self.kind is BodyType.PROTOBUF and not self.schema:
            raise InvalidInputError(
                "Glue's registry has Protobuf as source text: give its descriptor set as schema"
            )
        if self.message and self.kind is not BodyType.PROTOBUF:
            raise InvalidInputError("the name of a message is for bodies of protobuf")

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self.inflate or self.kind is not BodyType.AS_IT_IS


def is_registry(text: str) -> bool:
    """Whether it says where a registry is."""
    return text == "glue" or text.startswith(("http://", "https://"))


#: Bodies as they came.
NO_STEPS = BodySteps()
