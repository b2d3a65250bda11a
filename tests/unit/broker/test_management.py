"""What a broker's management API says of who asks it."""

from __future__ import annotations

import ssl
from itertools import count
from pathlib import Path

import pytest

from coldstream.broker.management import Management, Partition
from coldstream.broker.tls import Tls
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError
from tests.support.certificate import certificate
from tests.support.trickle import ANSWER, HANDSHAKE, HEADERS, Trickle


@pytest.mark.parametrize(
    ("answer", "sees"),
    [
        ({"tags": ["administrator"]}, True),
        ({"tags": ["management"]}, False),
        ({"tags": [7, None]}, False),
        ({"tags": None}, False),
        ([], False),
    ],
)
def test_only_an_administrator_is_shown_the_queues_of_all_virtual_hosts(
    monkeypatch: pytest.MonkeyPatch, answer: object, sees: bool
) -> None:
    monkeypatch.setattr(Management, "get", lambda _, path: {"/api/whoami": answer}[path])

    assert Management.parse("http://tier:secret@127.0.0.1:1").sees_all() is sees


@pytest.mark.parametrize(
    "refusal", [PermissionDeniedError("3.10.8 answers 401"), NotFoundError("4.3.6 answers 404")]
)
def test_who_monitors_a_broker_sees_the_queues_of_those_virtual_hosts_only_that_he_may_enter(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """A stream in another one would count as deleted, and its remote tier go with it."""
    closed = {"b/c"}

    def get(_: Management, path: str) -> object:
        if path == "/api/whoami":
            return {"tags": "management,monitoring"}
        if path == "/api/vhosts?columns=name":
            return [{"name": "/"}, {"name": "b/c"}]
        vhost = {"%2F": "/", "b%2Fc": "b/c"}[path.removeprefix("/api/queues/").split("?")[0]]
        if vhost in closed:
            raise refusal
        return {"items": []}

    monkeypatch.setattr(Management, "get", get)
    management = Management.parse("http://tier:secret@127.0.0.1:1")

    assert not management.sees_all()
    closed.clear()
    assert management.sees_all()


@pytest.mark.parametrize(
    ("nodes", "knows"),
    [
        ([(True, [])], True),
        ([(True, []), (True, []), (False, None)], True),
        ([(True, []), (False, None), (False, None)], False),
        ([(True, []), (False, None)], False),
        ([(True, ["n1@b", "n2@c"]), (True, []), (True, [])], False),
        ([(True, []), (True, ["n0@a"]), (True, [])], False),
        ([], False),
    ],
)
def test_a_node_that_was_cut_off_from_its_cluster_does_not_know_the_queues_made_there(
    monkeypatch: pytest.MonkeyPatch, nodes: list[tuple[bool, object]], knows: bool
) -> None:
    """3.10.8 lists what it knew before, also long after the others are back."""
    rows = [
        {"name": f"n{number}", "running": running, "partitions": partitions}
        for number, (running, partitions) in enumerate(nodes)
    ]
    answers = {"/api/nodes?columns=name,running,partitions": rows}
    monkeypatch.setattr(Management, "get", lambda _, path: answers[path])

    assert Management.parse("http://tier:secret@127.0.0.1:1").knows_all() is knows


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


@pytest.mark.parametrize("begin", [ANSWER, HEADERS])
@pytest.mark.parametrize("tls", [False, True])
def test_a_whole_answer_has_one_deadline_however_its_bytes_trickle(
    begin: bytes, tls: bool, tmp_path: Path
) -> None:
    """Each byte was waited for anew: with one in two seconds the agent stood still for good."""
    context, trust = None, None
    if tls:
        ours, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        certificate(ours, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(ours, key)
        trust = Tls(str(ours), "localhost")
    ticks = count()
    server = Trickle(begin, context)
    api = Management("127.0.0.1", server.port, "u", "p", trust, clock=lambda: float(next(ticks)))
    try:
        with pytest.raises(UnavailableError, match="has not answered within 30 s"):
            api.get("/api/whoami")
    finally:
        server.close()


def test_a_handshake_has_the_deadline_of_the_answer() -> None:
    server = Trickle(HANDSHAKE)
    api = Management("127.0.0.1", server.port, "u", "p", Tls(), seconds=0.5)
    try:
        with pytest.raises(UnavailableError, match=r"has not answered within 1\.5 s"):
            api.streams()
    finally:
        server.close()
