"""A catalog that speaks the Iceberg REST protocol, opened: its secrets, and bounded waiting.

A secret of AWS Secrets Manager is JSON with one of two words; without one the environment counts:

    {"token": "..."}                COLDSTREAM_CATALOG_TOKEN         sent as it is
    {"credential": "id:secret"}     COLDSTREAM_CATALOG_CREDENTIAL    changed for a token (OAuth2)
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from coldstream.adapters.place import Place, client
from coldstream.adapters.settings import resolve_region
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.catalog_answers import answers
from coldstream.jobs.materialise.iceberg.catalog_ref import RestCatalogRef, sends_in_the_clear

ENV_TOKEN = "COLDSTREAM_CATALOG_TOKEN"
ENV_CREDENTIAL = "COLDSTREAM_CATALOG_CREDENTIAL"
_WORDS = {"token": ENV_TOKEN, "credential": ENV_CREDENTIAL}
#: Seconds for a connection, and for each part of an answer.
_PATIENCE = (5, 60)


class PatientRestCatalog(RestCatalog):
    """Waits for an answer, but not for ever: pyiceberg sets no limit."""

    def _create_session(self) -> Any:
        session: Any = super()._create_session()
        session.request = partial(session.request, timeout=_PATIENCE)
        return session


def open_rest_catalog(
    ref: RestCatalogRef, place: Place, file_properties: dict[str, str]
) -> RestCatalog:
    """The catalog; it is asked for its configuration.

    Args:
        ref: which.
        place: region and endpoint of AWS's own services.
        file_properties: what file access needs.

    Raises:
        InvalidInputError: a secret is none, or would be sent in the clear.
        UnavailableError, PermissionDeniedError: the catalog or Secrets Manager, no answer or none
            for us.
    """
    properties = {**file_properties, "uri": ref.uri}
    if ref.warehouse:
        properties["warehouse"] = ref.warehouse
    if ref.sign:
        properties["rest.sigv4-enabled"] = "true"
        properties["rest.signing-name"] = ref.sign
        properties["rest.signing-region"] = ref.region or place.region or (resolve_region() or "")
    else:
        properties |= _secrets(ref, place)
    with answers(f"the catalog {ref.uri}"):
        return PatientRestCatalog("rest", **properties)


def _secrets(ref: RestCatalogRef, place: Place) -> dict[str, str]:
    found = _stored(ref.secret, place) if ref.secret else _of_the_environment()
    if not found:
        return {}
    token_uri = ref.token_uri or f"{ref.uri.rstrip('/')}/v1/oauth/tokens"
    for uri in (ref.uri, token_uri):
        if sends_in_the_clear(uri):
            raise InvalidInputError(f"a secret would be sent in the clear to {uri}: use https")
    if "credential" in found:
        found["oauth2-server-uri"] = token_uri
        if ref.scope:
            found["scope"] = ref.scope
    return found


def _of_the_environment() -> dict[str, str]:
    found = {word: os.environ[name] for word, name in _WORDS.items() if os.environ.get(name)}
    if len(found) > 1:
        raise InvalidInputError(f"set {' or '.join(_WORDS.values())}, not both")
    return found


def _stored(name: str, place: Place) -> dict[str, str]:
    with answers(f"the secret {name}"):
        text = client("secretsmanager", place).get_secret_value(SecretId=name).get("SecretString")
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        found = None  # its text is told to nobody
    if (
        not isinstance(found, dict)
        or len(found) != 1
        or not found.keys() <= _WORDS.keys()
        or not all(isinstance(each, str) and each for each in found.values())
    ):
        raise InvalidInputError(f"the secret {name} is no JSON of one of {', '.join(_WORDS)}")
    return found
