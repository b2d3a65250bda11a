"""Schemas by the id that a body begins with: registries of the usual HTTP interface, and Glue's.

    usual   u8 0 │ u32 id, big-endian │ body                    GET /schemas/ids/ID
    Glue    u8 3 │ u8 0, or 5 for zlib │ 16-byte UUID │ body    GetSchemaVersion

Protobuf has more in front of the body: the path to its message as zigzag varints, their number
first; with Glue one varint, its number among all messages of the file, those within others too, by
their full names.

Sources: Confluent Schema Registry, "Wire format" and API reference; AWS Glue Schema Registry,
awslabs/aws-glue-schema-registry, classes AWSSchemaRegistryConstants and MessageIndexFinder. A
schema is asked for once a process: neither registry ever changes what an id stands for.
COLDSTREAM_REGISTRY_AUTH (user:secret) is sent to the one with the usual interface, if it is set.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from coldstream.bodies.content import inflated
from coldstream.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from coldstream.adapters.glue_schemas import GlueSchemas

ENV_AUTH = "COLDSTREAM_REGISTRY_AUTH"
_MAX_ANSWER = 4 * 2**20
_SECONDS = 20
_MAX_REFERENCES = 100
_GLUE_HEAD = 18
_GLUE_ZLIB = 5


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema.

    Attributes:
        kind: AVRO, PROTOBUF or JSON.
        text: of Avro as JSON; of Protobuf a FileDescriptorProto in base64.
        references: the schemas that it imports, by the name it does that by; they come first.
    """

    kind: str
    text: str
    references: Mapping[str, Schema] = field(default_factory=dict)


class Registry(Protocol):
    """Knows schemas.

    Attributes:
        indexed: whether it is a path of indexes that says which message a body of Protobuf is.
    """

    indexed: bool

    def split(self, body: bytes, limit: int) -> tuple[str, bytes]:
        """The id that a body begins with, and what follows.

        Args:
            body: with its head.
            limit: bytes that the rest may have.

        Raises:
            CorruptDataError: it begins with no such head.
        """
        ...

    def schema(self, schema_id: str) -> Schema:
        """The schema of an id.

        Raises:
            NotFoundError: there is none.
            UnavailableError, PermissionDeniedError: no answer, or none for us.
        """
        ...

    def latest(self, subject: str) -> Schema:
        """The newest schema of a subject.

        Raises:
            As `schema`.
        """
        ...


class HttpRegistry:
    """A registry of the usual interface.

    Args:
        url: of its root.
        get: gives the JSON of a path below it; by HTTP unless given.
    """

    indexed = True

    def __init__(self, url: str, get: Callable[[str], Any] | None = None) -> None:
        self._url = url.rstrip("/")
        self._get = get or self._fetched
        self._known: dict[str, Schema] = {}

    def split(self, body: bytes, limit: int) -> tuple[str, bytes]:
        """As `Registry` says."""
        del limit
        if len(body) < 5 or body[0] != 0:
            raise CorruptDataError("the body does not begin with the id of a schema")
        return str(int.from_bytes(body[1:5], "big")), body[5:]

    def schema(self, schema_id: str) -> Schema:
        """As `Registry` says; once asked for, it is remembered."""
        known = self._known.get(schema_id)
        if known is None:
            path = f"/schemas/ids/{schema_id}"
            known = self._known[schema_id] = self._made(path, self._get(path), [_MAX_REFERENCES])
        return known

    def latest(self, subject: str) -> Schema:
        """As `Registry` says."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return self._made(path, self._get(path), [_MAX_REFERENCES])

    def _made(self, path: str, answer: Any, left: list[int]) -> Schema:
        kind = answer.get("schemaType", "AVRO") if isinstance(answer, Mapping) else None
        if kind == "PROTOBUF":
            # Its source text would need a compiler; asked for so, it comes as a descriptor.
            answer = self._get(f"{path}?format=serialized")
        text = answer.get("schema") if isinstance(answer, Mapping) else None
        if kind not in ("AVRO", "PROTOBUF", "JSON") or not isinstance(text, str):
            raise UnavailableError(f"{self._url}{path} does not answer as a schema registry does")
        found: dict[str, Schema] = {}
        for name, below in self._references(path, answer):
            left[0] -= 1
            if left[0] < 0:
                raise InvalidInputError(f"{path}: more than {_MAX_REFERENCES} references")
            found[name] = self._made(below, self._get(below), left)
        return Schema(kind, text, found)

    def _references(self, path: str, answer: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Names of what a schema imports, and the paths of it."""
        try:
            return [
                (
                    str(each["name"]),
                    f"/subjects/{quote(str(each['subject']), safe='')}"
                    f"/versions/{int(each['version'])}",
                )
                for each in answer.get("references") or ()
            ]
        except (KeyError, TypeError, ValueError) as exc:
            raise UnavailableError(f"{self._url}{path} has references that are none") from exc

    def _fetched(self, path: str) -> Any:
        request = Request(self._url + path, headers={"Accept": "application/json"})  # noqa: S310
        auth = os.environ.get(ENV_AUTH)
        if auth:
            # Not handed on to wherever an answer leads.
            basic = base64.b64encode(auth.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {basic}")
        try:
            with urlopen(request, timeout=_SECONDS) as response:  # noqa: S310 - http, https only
                data = response.read(_MAX_ANSWER + 1)
            answer = json.loads(data) if len(data) <= _MAX_ANSWER else None
        except HTTPError as exc:
            words = f"the schema registry answers {exc.code} to {path}"
            if exc.code == 404:
                raise NotFoundError(words) from exc
            if exc.code in (401, 403):
                raise PermissionDeniedError(f"{words}; {ENV_AUTH} is user:secret") from exc
            raise UnavailableError(words) from exc
        except (URLError, OSError, HTTPException, ValueError, RecursionError) as exc:
            raise UnavailableError(f"the schema registry at {self._url}: {exc}") from exc
        if len(data) > _MAX_ANSWER:
            raise InvalidInputError(f"{self._url}{path}: more than {_MAX_ANSWER} bytes")
        return answer


class GlueRegistry:
    """AWS Glue's.

    Args:
        schemas: as Glue gives them.
    """

    indexed = False

    def __init__(self, schemas: GlueSchemas) -> None:
        self._schemas = schemas
        self._known: dict[str, Schema] = {}

    def split(self, body: bytes, limit: int) -> tuple[str, bytes]:
        """As `Registry` says."""
        if len(body) < _GLUE_HEAD or body[0] != 3 or body[1] not in (0, _GLUE_ZLIB):
            raise CorruptDataError("the body does not begin with a head of Glue's schema registry")
        rest = body[_GLUE_HEAD:]
        if body[1] == _GLUE_ZLIB:
            rest = inflated(rest, "deflate", limit)
        return str(uuid.UUID(bytes=body[2:_GLUE_HEAD])), rest

    def schema(self, schema_id: str) -> Schema:
        """As `Registry` says; once asked for, it is remembered."""
        known = self._known.get(schema_id)
        if known is None:
            known = self._known[schema_id] = self._asked(SchemaVersionId=schema_id)
        return known

    def latest(self, subject: str) -> Schema:
        """As `Registry` says; a subject is NAME or REGISTRY/NAME."""
        registry, _, name = subject.rpartition("/")
        return self._asked(
            SchemaId={"RegistryName": registry or "default-registry", "SchemaName": name},
            SchemaVersionNumber={"LatestVersion": True},
        )

    def _asked(self, **which: Any) -> Schema:
        return Schema(*self._schemas.version(**which))


@cache
def open_registry(where: str) -> Registry:
    """The registry that `BodySteps.registry` names; one a process, which remembers schemas."""
    if where != "glue":
        return HttpRegistry(where)
    from coldstream.adapters.glue_schemas import open_glue_schemas

    return GlueRegistry(open_glue_schemas())
