"""A profile with a `credential_process`, as of IAM Roles Anywhere, is what all clients sign by."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.place import Place, client, open_place
from coldstream.adapters.s3 import open_store
from coldstream.adapters.s3_send import Sender
from coldstream.errors import ColdstreamError

_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")


class Service:
    """Refuses every request, and keeps who has signed it."""

    def __init__(self) -> None:
        self.signed: list[tuple[str, str | None, str | None]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def _refuse(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                signature = self.headers.get("Authorization") or ""
                name = signature.partition("Credential=")[2].partition("/")[0]
                token = self.headers.get("X-Amz-Security-Token")
                service.signed.append((self.command, name, token))
                self.send_response(403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_PUT = do_POST = do_HEAD = _refuse  # noqa: N815 - the base's names

            def log_message(self, *_: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `aws_signing_helper credential-process` prints, good for twelve more minutes."""
    until = datetime.now(UTC) + timedelta(minutes=12)
    printed = {
        "Version": 1,
        "AccessKeyId": "AKIAANYWHERE",
        "SecretAccessKey": "secret",
        "SessionToken": "session",
        "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}",
    }
    helper, config = tmp_path / "helper.py", tmp_path / "config"
    helper.write_text(f"print('''{json.dumps(printed)}''')\n")
    config.write_text(
        f"[profile anywhere]\nregion = eu-west-1\ncredential_process = {sys.executable} {helper}\n"
    )
    for name in (*_VARIABLES, "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "anywhere")


def test_every_client_of_an_agent_signs_with_what_the_process_prints(service: Service) -> None:
    place = Place("bucket", "table", endpoint=service.url)
    remote = open_place(place, Sender())
    acts = {
        "PUT": lambda: remote.store.put("rabbitmq/key", b"x", write_id="1"),
        "GET": lambda: remote.store.get("rabbitmq/key", 0, 1),
        "POST": lambda: remote.catalog.get("__orders_1"),
    }

    for method, act in acts.items():
        service.signed.clear()
        with suppress(ColdstreamError):
            act()
        assert set(service.signed) == {(method, "AKIAANYWHERE", "session")}
    for name in ("sqs", "lambda"):
        credentials = client(name, place)._request_signer._credentials
        assert credentials.method == "custom-process"


def test_what_the_process_prints_is_not_used_for_longer_than_it_lasts() -> None:
    """obstore would keep it for half an hour, whatever it says itself."""
    store = open_store("bucket")

    provider: Any = store.credential_provider
    given = provider()

    assert given["access_key_id"] == "AKIAANYWHERE"
    assert given["expires_at"] <= datetime.now(UTC) + timedelta(minutes=12)
