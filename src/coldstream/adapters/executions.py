"""What an execution of a workflow can be called and given, whoever runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from coldstream.errors import InvalidInputError

_EXECUTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: Step Functions takes 262,144 bytes; the rest is room for what an adapter adds.
MAX_INPUT = 262_000


def check_execution_name(name: str) -> str:
    """Return `name` if an execution can be called so.

    Raises:
        InvalidInputError: it cannot.
    """
    if not _EXECUTION_NAME.fullmatch(name):
        raise InvalidInputError(f"not the name of an execution: {name[:100]!r}")
    return name


def input_text(document: Mapping[str, Any]) -> str:
    """The JSON text of an input.

    Raises:
        InvalidInputError: it is no JSON, or too large.
    """
    try:
        text = json.dumps(dict(document), allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InvalidInputError(f"the input of a workflow is JSON: {exc}") from exc
    if len(text) > MAX_INPUT:
        raise InvalidInputError(f"an input of {len(text)} bytes is larger than {MAX_INPUT}")
    return text
