"""Every small case is for `make test-slow`; `make test` has those that are there in part."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each of them takes seconds, and most changes touch none of what they are about."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "in part" not in item.name:
            item.add_marker(pytest.mark.slow)
