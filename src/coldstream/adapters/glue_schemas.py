"""Schemas of AWS Glue's schema registry, by boto3."""

from __future__ import annotations

from typing import Any

from coldstream.adapters.aws_errors import AWS_ERRORS, code_of, translated
from coldstream.errors import NotFoundError

_SERVICE = "Glue's schema registry"


class GlueSchemas:
    """Versions of schemas, as Glue has them.

    Args:
        client: of boto3, for the service glue.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def version(self, **which: Any) -> tuple[str, str]:
        """Format and text of the version that `which` names, as GetSchemaVersion takes it.

        Raises:
            NotFoundError: there is none.
            PermissionDeniedError, UnavailableError: from Glue.
        """
        try:
            answer = self._client.get_schema_version(**which)
        except AWS_ERRORS as exc:
            code = code_of(exc)
            if code == "EntityNotFoundException":
                raise NotFoundError(f"{_SERVICE} answers {code}") from exc
            raise translated(exc, _SERVICE) from exc
        return answer["DataFormat"], answer["SchemaDefinition"]


def open_glue_schemas() -> GlueSchemas:
    """Those of this account and region."""
    import boto3

    return GlueSchemas(boto3.client("glue"))
