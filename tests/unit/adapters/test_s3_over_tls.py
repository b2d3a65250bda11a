"""What a PUT over TLS says of its body: a checksum that S3 compares, and no hash of it."""

from __future__ import annotations

import base64
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.adapters.s3 import S3ObjectStore, open_store

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
#: Of b"123456789", as the catalogue of CRCs has it.
CHECK = bytes.fromhex("ae8b14860a799888")


class Recorder:
    """Answers each PUT with 200, and keeps its headers."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._trust = trust
        self.headers: list[dict[str, str]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        with self._trust.wrap_socket(plain, server_side=True) as connection:
            got = b""
            while not got.endswith(b"123456789"):
                got += connection.recv(65536)
            rows = got.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
            headers = dict(row.split(": ", 1) for row in rows)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n')

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes")
    authority, signing = tmp_path / "ca.pem", tmp_path / "ca.key"
    certificate, key, request = (tmp_path / f"leaf.{each}" for each in ("pem", "key", "csr"))
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "req", "-x509", *new, "-days", "2", "-subj", "/CN=ca",
        "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", signing, "-out", authority,
    )  # fmt: skip
    openssl("req", *new, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    openssl(
        "x509", "-req", "-days", "2", "-in", request, "-CA", authority, "-CAkey", signing,
        "-CAcreateserial", "-extfile", tmp_path / "names", "-out", certificate,
    )  # fmt: skip
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    made = Recorder(trust)
    yield made
    made.close()


def test_a_body_over_tls_has_a_checksum_for_s3_to_compare_and_is_not_hashed(
    recorder: Recorder,
) -> None:
    inner = open_store("bucket", endpoint=f"https://localhost:{recorder.port}", environment=KEYS)

    S3ObjectStore(bucket="bucket", store=inner).put("key", b"123456789", write_id="1")

    (headers,) = recorder.headers
    assert base64.b64decode(headers["x-amz-checksum-crc64nvme"]) == CHECK
    assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert "x-amz-checksum-crc64nvme" in headers["authorization"]  # it is signed


def test_without_tls_the_signature_covers_the_body() -> None:
    plain = open_store("bucket", endpoint="http://127.0.0.1:1", environment=KEYS)
    aws = open_store("bucket", environment=KEYS)

    assert plain.config["unsigned_payload"] in (False, "false")
    assert aws.config["unsigned_payload"] in (True, "true")
