"""What a broker's management API says of who asks it."""

from __future__ import annotations

import pytest

from coldstream.broker.management import Management, Partition


@pytest.mark.parametrize(
    ("answer", "sees"),
    [
        ({"tags": ["administrator"]}, True),
        ({"tags": "management,monitoring"}, True),
        ({"tags": ["management"]}, False),
        ({"tags": [7, None]}, False),
        ({"tags": None}, False),
        ([], False),
    ],
)
def test_only_some_tags_show_the_queues_of_all_virtual_hosts(
    monkeypatch: pytest.MonkeyPatch, answer: object, sees: bool
) -> None:
    monkeypatch.setattr(Management, "get", lambda _, path: {"/api/whoami": answer}[path])

    assert Management.parse("http://tier:secret@127.0.0.1:1").sees_all() is sees


def test_a_partition_is_what_an_exchange_of_a_super_stream_is_bound_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = [
        {"destination_type": "queue", "destination": "orders-eu", "routing_key": "eu"},
        {"destination_type": "queue", "destination": "orders-eu", "routing_key": "europe"},
        {"destination_type": "exchange", "destination": "orders-us", "routing_key": "us"},
        "nonsense",
    ]
    answers = {
        "/api/exchanges?columns=name,vhost,arguments": [
            {"vhost": "/", "name": "orders", "arguments": {"x-super-stream": True}},
            {"vhost": "/", "name": "plain", "arguments": {}},
        ],
        "/api/exchanges/%2F/orders/bindings/source": bound,
    }
    monkeypatch.setattr(Management, "get", lambda _, path: answers[path])

    found = Management.parse("http://tier:secret@127.0.0.1:1").super_streams()

    assert found == {("/", "orders-eu"): Partition("orders", "eu")}
