"""What the gateway makes of a client's words, as the broker makes of them."""

from __future__ import annotations

import pytest

from coldstream.gateway.lookups import wanted


@pytest.mark.parametrize(
    ("value", "unfiltered"),
    [("true", True), ("TRUE", False), ("True", False), ("1", False), ("false", False), ("", False)],
)
def test_chunks_without_a_filter_value_come_where_a_broker_would_send_them(
    value: str, unfiltered: bool
) -> None:
    """RabbitMQ 4.3.6 takes `true` alone (rabbit_stream_utils:filter_spec/1)."""
    found = wanted({"filter.1": "eu", "match-unfiltered": value})

    assert found.matcher is not None
    assert found.matcher.match_unfiltered == unfiltered
    assert found.properties["match-unfiltered"] == ("true" if unfiltered else "false")
