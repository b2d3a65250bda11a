"""The gateway as a process over the deployed app: TLS, users that change, metrics, its end."""

from __future__ import annotations

import secrets
import signal
import socket
import ssl
import struct
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.dynamodb_offsets import DynamoOffsets
from coldstream.broker.frames import Key, string
from coldstream_devkit.broker import free_ports
from coldstream_devkit.generator import write_stream
from tests.support.raw_client import RawClient

from .conftest import Site

pytestmark = pytest.mark.emulator


def certificate(place: Path) -> tuple[Path, Path]:
    """Of localhost, signed by itself, and its key."""
    made, key = place / "gateway.pem", place / "gateway.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", key, "-out", made),
        ],
        check=True,
        capture_output=True,
    )
    return made, key


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def page(port: int, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=60) as found:
        return str(found.read().decode())


def test_it_serves_over_tls_takes_its_users_again_and_ends_when_it_is_told(
    site: Site, tmp_path: Path, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    stream = f"__gateway_{secrets.randbelow(10**9)}"
    write_stream(tmp_path / "data" / stream, messages=500, message_size=50, chunk_messages=10)
    assert site.tier(tmp_path / "data").returncode == 0
    made, key = certificate(tmp_path)
    users = tmp_path / "users"
    users.write_text("app:secret:.*\n")
    port, metrics = free_ports(2)
    process = site.start(
        "gateway", "run", "--port", str(port), "--users", users, "--tls-cert", made, "--tls-key",
        key, "--metrics-port", str(metrics),
    )  # fmt: skip
    trusting = ssl.create_default_context(cafile=str(made))
    try:
        wait_for(lambda: listens(port))
        with RawClient(port, tls=trusting).log_in("app", "secret") as client:
            assert client.subscribe(stream, credit=50) == 1
            assert sum(int.from_bytes(client.chunk()[4:8], "big") for _ in range(50)) == 500
            assert page(metrics, "healthz") == "ok\n"
            told = page(metrics, "metrics")
            assert 'coldstream_gateway_chunks_total{tier="remote"} 50.0' in told
            assert "coldstream_gateway_connections 1.0" in told
        users.write_text("other:word:.*\n")
        process.send_signal(signal.SIGHUP)

        def taken_over() -> bool:
            with RawClient(port, tls=trusting) as client:
                return client.authenticate("other", "word") == 1

        wait_for(taken_over)
        users.write_text("broken\n")
        process.send_signal(signal.SIGHUP)
        assert taken_over(), "a broken file changes nothing"
        leaving = RawClient(port, tls=trusting).log_in("other", "word")
        stored = struct.pack(">Q", 41)
        leaving.send(Key.STORE_OFFSET, string("consumer") + string(stream) + stored)
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)

    assert process.returncode == 0, err.decode()
    assert "the old users stay: line 1" in err.decode()
    kept = DynamoOffsets(
        client=site.emulator.client("dynamodb"), table=site.environment["COLDSTREAM_TABLE"],
        prefix=site.environment["COLDSTREAM_PREFIX"],
    )  # fmt: skip
    assert kept.query(stream, "consumer") == 41, "it was sent right before the signal"
    leaving.socket.close()


def test_a_gateway_of_a_bucket_that_is_not_there_does_not_begin(site: Site, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("app:word:.*\n")
    done = site.run("gateway", "run", "--port", "0", "--users", users, "--bucket", "no-such-bucket")

    assert done.returncode == 78
    assert "there is no bucket 'no-such-bucket'" in done.stderr.decode()
