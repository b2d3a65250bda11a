"""Files that a worker wrote, as JSON: for their way to the driver."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coldstream.jobs.materialise.table import WrittenFile


def written_json(file: WrittenFile) -> dict[str, Any]:
    """What `written_from` reads."""
    return asdict(file) | {"footer": base64.b64encode(file.footer).decode()}


def written_from(document: Mapping[str, Any]) -> WrittenFile:
    """The file that `written_json` was given."""
    return WrittenFile(**{**document, "footer": base64.b64decode(document["footer"])})
