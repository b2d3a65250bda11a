"""Where a table is registered: in the Glue Data Catalog, or in a REST catalog that a rule names.

    {"uri": "https://s3tables.eu-central-1.amazonaws.com/iceberg",
     "warehouse": "arn:aws:s3tables:eu-central-1:123456789012:bucket/tables",
     "sign": "s3tables", "place": "catalog"}

No secret stands here: rules lie in buckets and consoles. It is in AWS Secrets Manager, which
`secret` names, or in the environment (`rest_catalog`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from coldstream.errors import InvalidInputError

#: What stands for the Glue Data Catalog.
GLUE = "glue"
_SECRETS = ("token", "credential", "password", "client_secret")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TablePlace(StrEnum):
    """Who gives the files of a new table their place: the job's warehouse, or the catalog."""

    WAREHOUSE = "warehouse"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class RestCatalogRef:
    """A catalog that speaks the Iceberg REST protocol.

    Attributes:
        uri: of it, without "/v1"; http or https.
        warehouse: what the catalog calls the one of its warehouses that is meant; "" for none.
        sign: requests are signed with AWS credentials (SigV4) for this service, such as s3tables,
            glue or execute-api; "" for none.
        region: that they are signed for; "" for the job's own.
        secret: name or ARN of a secret in AWS Secrets Manager; "" for the environment's.
        token_uri: where a credential is changed for a token; "" for the catalog itself.
        scope: that is asked for with it; "" for the protocol's own.
        place: of the files of new tables.
    """

    uri: str
    warehouse: str = ""
    sign: str = ""
    region: str = ""
    secret: str = ""
    token_uri: str = ""
    scope: str = ""
    place: TablePlace = TablePlace.WAREHOUSE

    def __post_init__(self) -> None:
        for name, uri in (("uri", self.uri), ("token_uri", self.token_uri)):
            if uri or name == "uri":
                _check_uri(name, uri)
        if self.sign and (self.secret or self.token_uri):
            raise InvalidInputError("a catalog has sign, or secret and token_uri, not both")


def parse_catalog(value: object, read: Callable[[str], str]) -> RestCatalogRef | None:
    """What a rule or an argument says of a catalog; None is the Glue Data Catalog.

    Args:
        value: an object, or text: "glue", JSON, or the path or s3:// URL of a file with JSON.
        read: gives what is in a file.

    Raises:
        InvalidInputError: it is none of them, or has a secret in it.
    """
    if isinstance(value, str):
        if value == GLUE:
            return None
        text = value if value.lstrip().startswith("{") else read(value)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise InvalidInputError(f"the catalog is no JSON: {exc}") from exc
    if not isinstance(value, Mapping):
        raise InvalidInputError("the catalog is no object")
    return _made(value)


def _made(value: Mapping[Any, Any]) -> RestCatalogRef:
    known = [each.name for each in fields(RestCatalogRef)]
    for name, given in value.items():
        if name in _SECRETS:
            raise InvalidInputError(
                f"catalog: {name} does not stand in a rule: name a secret of AWS Secrets Manager as"
                " secret, or set it in the environment"
            )
        if name not in known:
            raise InvalidInputError(
                f"catalog: {str(name)[:80]!r} is not known; there are {', '.join(known)}"
            )
        if not isinstance(given, str):
            raise InvalidInputError(f"catalog: {name} is no text")
    if "uri" not in value:
        raise InvalidInputError("catalog: 'uri' is missing")
    place = value.get("place", TablePlace.WAREHOUSE)
    if place not in list(TablePlace):
        raise InvalidInputError(f"catalog: place is {' or '.join(TablePlace)}, not {place[:80]!r}")
    return RestCatalogRef(**{**value, "place": TablePlace(place)})


def _check_uri(name: str, uri: str) -> None:
    try:
        parts = urlsplit(uri)
        host = parts.hostname
    except ValueError as exc:
        raise InvalidInputError(f"catalog: {name} is no URL: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInputError(f"catalog: {name} is an http:// or https:// URL, not {uri[:80]!r}")
    if parts.username is not None or parts.password is not None:
        raise InvalidInputError(f"catalog: {name} has a name or password in it: use secret")


def sends_in_the_clear(uri: str) -> bool:
    """Whether others on the network can read what is sent to a URL."""
    parts = urlsplit(uri)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK
