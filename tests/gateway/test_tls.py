"""Clients that speak TLS, or should, or do not come to an end with it."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coldstream.broker.frames import Key, frame
from coldstream.cli.gateway_options import GatewayOptions
from coldstream.manifest.catalog import QueueName
from tests.support.certificate import certificate
from tests.support.gateway import Gateway
from tests.support.probe_stack import eventually
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk

MOST = 4

AT_A_TERMINAL = """
import os, pty, sys
from pathlib import Path
from coldstream.cli.gateway_options import GatewayOptions
from coldstream.errors import InvalidInputError

place = Path(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    try:
        GatewayOptions(tls_cert=place / "cert", tls_key=place / "key").tls()
    except InvalidInputError as error:
        print(error.reason, flush=True)
    os._exit(0)
said = b""
try:
    while more := os.read(terminal, 1000):
        said += more
except OSError:
    pass  # the terminal's other end is closed
print(said.decode().replace("\\r\\n", "\\n"), end="")
"""


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of a client that trusts it."""
    place: Path = tmp_path_factory.mktemp("tls")
    trusted = certificate(place / "cert", place / "key")
    options = GatewayOptions(tls_cert=place / "cert", tls_key=place / "key")
    server = options.tls()
    assert server is not None
    return server, ssl.create_default_context(cadata=trusted)


@pytest.fixture
def gateway(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Gateway]:
    tier = Tier()
    chunks = [chunk(10 * n, *[bytes(5000)] * 10) for n in range(20)]
    tier.add("__orders_1", [chunks], name=QueueName("test", "/", "orders"))
    with Gateway(tier, tls=contexts[0], most=MOST) as made:
        yield made


def test_a_stream_is_read_over_tls(
    gateway: Gateway, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with RawClient(gateway.port, tls=contexts[1]).log_in() as client:
        assert client.subscribe("orders", credit=20) == 1
        assert [int.from_bytes(client.chunk()[24:32], "big") for _ in range(20)] == [
            10 * n for n in range(20)
        ]


def test_who_stands_still_in_the_handshake_counts_among_the_clients(
    gateway: Gateway, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """Each held 300 KiB for 15 seconds, and there was no bound to how many."""
    with ExitStack() as ends:
        still = [
            ends.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
            for _ in range(MOST)
        ]
        assert eventually(lambda: gateway.metrics.connections == MOST, seconds=60)
        more = ends.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
        assert more.recv(1) == b"", "it is hung up on"
        still.pop().close()
        assert eventually(lambda: gateway.metrics.connections == MOST - 1, seconds=60)
        with RawClient(gateway.port, tls=contexts[1]).log_in() as client:
            assert client.subscribe("orders") == 1


@pytest.mark.parametrize(
    "sent", [frame(Key.PEER_PROPERTIES, bytes(8)), b"\x16\x03\x01\x00\x05abcde"]
)
def test_who_does_not_speak_tls_is_hung_up_on_and_no_trouble(gateway: Gateway, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as client:
        client.sendall(sent)
        while client.recv(100):
            pass  # an alert, perhaps
    assert eventually(lambda: not gateway.metrics.connections, seconds=60)
    assert not gateway.said


def test_who_stands_still_in_the_handshake_does_not_hold_up_the_end(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as client:
        assert eventually(lambda: gateway.metrics.connections == 1, seconds=60)
        gateway.end()
        assert client.recv(1) == b""


@pytest.mark.parametrize("kind", [("pkcs8", "-topk8"), ("rsa", "-aes256", "-traditional")])
def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, kind: tuple[str, ...]
) -> None:
    """OpenSSL asked at the terminal: at SIGHUP that stops all clients until somebody types."""
    plain, key = tmp_path / "plain", tmp_path / "key"
    certificate(tmp_path / "cert", plain)
    subprocess.run(
        ["openssl", *kind, "-in", plain, "-out", key, "-passout", "pass:secret"],
        check=True, capture_output=True,
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", AT_A_TERMINAL, tmp_path],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert done.stdout.splitlines() == [
        f"--tls-key {key} has a passphrase, which nobody can give here"
    ]
