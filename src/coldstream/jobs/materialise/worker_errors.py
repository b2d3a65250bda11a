"""Our own errors as JSON: for their way from a worker to the driver, as part of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldstream import errors
from coldstream.errors import ColdstreamError, InternalError


def error_json(error: ColdstreamError) -> dict[str, Any]:
    """What `error_from` reads."""
    return {
        "type": type(error).__name__,
        "reason": error.reason,
        "stream": error.stream,
        "offset": error.offset,
        "key": error.key,
    }


def error_from(document: Mapping[str, Any]) -> ColdstreamError:
    """The error that `error_json` was given; an InternalError where its type is not known."""
    kind = getattr(errors, document["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, ColdstreamError)):
        kind = InternalError
    where = {name: document[name] for name in ("stream", "offset", "key")}
    return kind(document["reason"], **where)
