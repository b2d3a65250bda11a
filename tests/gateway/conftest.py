"""A gateway over an empty tier, which a test fills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway import Gateway
from tests.support.tier import Tier


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """One that listens on loopback."""
    with Gateway(Tier()) as made:
        yield made
