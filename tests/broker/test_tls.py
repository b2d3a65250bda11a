"""Stream port and management API over TLS: what is trusted is tiered, anything else refused."""

from __future__ import annotations

import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.management import Management, StreamQueue
from coldstream.broker.node import Node
from coldstream.errors import UnavailableError
from coldstream_devkit.broker import BrokerNode, Certificate
from coldstream_devkit.broker_release import Release

from .conftest import ANSWER_SECONDS, END_SECONDS, Publisher, Site, earliest_once_known
from .test_single_node import caught_up


def openssl(*arguments: str | Path) -> None:
    """Run it."""
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(directory: Path, name: str) -> tuple[Path, Path]:
    """Certificate and key of somebody who signs."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
        "-addext", "basicConstraints=critical,CA:TRUE",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", key, "-out", certificate,
    )  # fmt: skip
    return certificate, key


@pytest.fixture(scope="module")
def trusted(base: Path) -> Certificate:
    """For the name localhost, and no address."""
    directory = base / secrets.token_hex(4)
    directory.mkdir()
    signer, signing = authority(directory, "ca")
    request, key = directory / "node.csr", directory / "node.key"
    names, certificate = directory / "names", directory / "node.pem"
    openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=node", "-keyout", key, "-out", request
    )
    names.write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "x509", "-req", "-days", "2", "-in", request, "-CA", signer, "-CAkey", signing,
        "-CAcreateserial", "-extfile", names, "-out", certificate,
    )  # fmt: skip
    return Certificate(signer, certificate, key)


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Somebody else who signs."""
    return authority(tmp_path, "stranger")[0]


@pytest.fixture
def tls_node(base: Path, release: Release, trusted: Certificate) -> Iterator[BrokerNode]:
    """A node that listens with TLS as well."""
    made = BrokerNode(base / secrets.token_hex(4), release=release, tls=trusted)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def uris(node: BrokerNode, host: str, query: str) -> tuple[str, str]:
    """Of the stream port and the management API."""
    return (
        f"rabbitmq-stream+tls://guest:guest@{host}:{node.ports.stream_tls}{query}",
        f"https://guest:guest@{host}:{node.ports.management_tls}{query}",
    )


def asked(node: BrokerNode, host: str, query: str) -> Node:
    """A connection over TLS to both."""
    stream, management = uris(node, host, query)
    api = replace(Management.parse(management), seconds=ANSWER_SECONDS)
    return Node(StreamUri.parse(stream), api, seconds=ANSWER_SECONDS)


def last_header(node: Node) -> bytes:
    """Of the stream `a`; a chunk that comes late is none."""
    end = time.monotonic() + END_SECONDS
    while (found := node.last_header("/", "a")) is None:
        assert time.monotonic() < end
    return found


def test_an_agent_that_trusts_the_authority_tiers_over_tls(
    site: Site,
    tls_node: BrokerNode,
    trusted: Certificate,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    stream = f"secret{secrets.token_hex(3)}"
    stream_uri, management_uri = uris(tls_node, "localhost", f"?cacertfile={trusted.authority}")
    with Publisher(tls_node, stream) as publisher:
        wait_for(lambda: publisher.confirmed)
        process = site.start(
            "agent", "run", "--data-dir", tls_node.data_dir, "--committed", "broker",
            "--stream-uri", stream_uri, "--management-uri", management_uri, "--flush", "1s",
        )  # fmt: skip
        wait_for(lambda: caught_up(site, stream, set()))
    try:
        wait_for(lambda: caught_up(site, stream, publisher.confirmed))
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, err.decode()
    assert site.run("verify", f"//{stream}", "--deep").returncode == 0


def test_authority_and_name_are_checked_and_a_refusal_says_which(
    tls_node: BrokerNode, trusted: Certificate, stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Publisher(tls_node, "a") as publisher:
        while len(publisher.confirmed) < 100:
            time.sleep(0.1)
    good = asked(tls_node, "localhost", f"?cacertfile={trusted.authority}")
    header = last_header(good)
    assert list(good.streams()) == [StreamQueue("/", "a")]
    # Members are asked over TLS too, at the name that each advertises for it.
    assert earliest_once_known(good, "a") == 0
    good.close()

    for host, query, why in (
        ("localhost", "", "not trusted: .*(self-signed|issuer)"),
        ("localhost", f"?cacertfile={stranger}", "not trusted: .*(self-signed|issuer|signature)"),
        ("127.0.0.1", f"?cacertfile={trusted.authority}", "not trusted: IP address mismatch"),
    ):
        refused = asked(tls_node, host, query)
        with pytest.raises(UnavailableError, match=why):
            refused.last_header("/", "a")
        with pytest.raises(UnavailableError, match=why):
            refused.streams()
    named = f"?cacertfile={trusted.authority}&server_name_indication=localhost"
    by_address = asked(tls_node, "127.0.0.1", named)
    assert last_header(by_address) == header
    assert earliest_once_known(by_address, "a") == 0
    assert by_address.streams()
    by_address.close()

    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.authority))
    by_system = asked(tls_node, "localhost", "")
    assert last_header(by_system) == header
    assert by_system.streams()
    by_system.close()

    plain = StreamUri.parse(tls_node.stream_uri)
    wrong = replace(plain, tls=StreamUri.parse(uris(tls_node, "localhost", named)[0]).tls)
    with pytest.raises(UnavailableError, match=r"does not speak TLS|does not answer"):
        Node(wrong, seconds=2).last_header("/", "a")
