"""What a broker's URI says of TLS; more of the handshakes is in tests/broker/test_tls.py."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.management import Management
from coldstream.broker.tls import Tls
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.gateway.upstream import Upstream
from tests.support.certificate import certificate


def test_certificate_and_name_are_always_checked() -> None:
    context = Tls().context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_name_that_was_given_for_one_node_is_not_asked_of_another() -> None:
    uri = StreamUri.parse("rabbitmq-stream+tls://u:p@10.0.0.1?server_name_indication=a.example")

    assert uri.tls == Tls(name="a.example")
    assert uri.at("b.example", 5551) == StreamUri("b.example", 5551, "u", "p", Tls())
    assert StreamUri.parse("rabbitmq-stream://u:p@a").at("b", 1).tls is None


@pytest.mark.parametrize(
    ("parse", "plain", "tls"),
    [
        (StreamUri.parse, "rabbitmq-stream", "rabbitmq-stream+tls"),
        (Management.parse, "http", "https"),
    ],
)
def test_what_a_uri_cannot_say_is_refused_without_its_password(
    parse: Callable[[str], object], plain: str, tls: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("")

    for uri, why in (
        (f"{tls}://u:secret@h?verify=verify_none", "no parameter 'verify'"),
        (f"{tls}://u:secret@h?cacertfile={tmp_path / 'none.pem'}", "cannot be read"),
        (f"{tls}://u:secret@h?cacertfile={tmp_path / 'empty.pem'}", "no certificate"),
        (f"{plain}://u:secret@h?cacertfile=/etc/ssl/ca.pem", "without TLS"),
    ):
        with pytest.raises(InvalidInputError, match=why) as caught:
            parse(uri)
        assert "secret" not in str(caught.value)


def agent(uri: StreamUri) -> None:
    Connection(uri, "/", seconds=60)


def gateway(uri: StreamUri) -> None:
    asyncio.run(Upstream.connect(uri, "/", seconds=60))


@pytest.mark.parametrize("connect", [agent, gateway])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_listener_that_wants_a_certificate_of_its_clients_is_said_to(
    connect: Callable[[StreamUri], None], version: ssl.TLSVersion, tmp_path: Path
) -> None:
    """With TLS 1.3 it refuses after the handshake: the gateway said that it hung up."""
    ours, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate(ours, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours, key)
    context.load_verify_locations(ours)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version

    def serve() -> None:
        taken = context.wrap_socket(
            listener.accept()[0], server_side=True, do_handshake_on_connect=False
        )
        with contextlib.suppress(ssl.SSLError):
            taken.do_handshake()
        with socket.socket(fileno=taken.detach()) as raw:  # what is sent by now is taken
            while raw.recv(1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve)
        thread.start()
        uri = StreamUri.parse(f"rabbitmq-stream+tls://u:p@localhost:{port}?cacertfile={ours}")
        with pytest.raises(UnavailableError, match="certificate of its clients"):
            connect(uri)
        thread.join(60)
