"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(hundreds: float, **more: Any) -> settings:
    """So many hundreds of examples in `make test-slow`; in `make test` fewer, by its profile."""
    return settings(max_examples=max(1, round(hundreds * settings.default.max_examples)), **more)
