"""How the parts of this package tell what they are doing."""

from __future__ import annotations

import sys
from collections.abc import Callable

Progress = Callable[[str], None]


def to_stderr(message: str) -> None:
    """One line on stderr."""
    print(message, file=sys.stderr, flush=True)  # noqa: T201 - stderr is for exactly this


def silent(_: str) -> None:
    """Say nothing."""
