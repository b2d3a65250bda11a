"""Schemas from a registry over HTTP: what it answers, and what it fails with."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import create_server
from threading import Thread
from typing import Any, ClassVar

import pytest

from coldstream.bodies import registry as registries
from coldstream.bodies.registry import ENV_AUTH, HttpRegistry, open_registry
from coldstream.errors import (
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)


class Served(BaseHTTPRequestHandler):
    """Answers as a registry does."""

    answers: ClassVar[dict[str, Any]] = {}
    heads: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.heads.append(self.headers.get("Authorization"))
        status, body = self.answers.get(self.path, (404, {"error_code": 40403}))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", str(body))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[str]:
    """The address of a registry; its answers are `Served.answers`."""
    Served.answers.clear()
    Served.heads.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_schema_is_asked_for_once_with_the_secret_of_the_environment(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Served.answers["/schemas/ids/7"] = (200, {"schema": '"string"'})
    monkeypatch.setenv(ENV_AUTH, "me:secret")
    registry = HttpRegistry(served + "/")

    for _ in range(2):
        assert registry.schema("7") == registries.Schema("AVRO", '"string"')
    assert Served.heads == [f"Basic {base64.b64encode(b'me:secret').decode()}"]


def test_the_newest_schema_of_a_subject_is_found_whatever_it_is_called(served: str) -> None:
    Served.answers["/subjects/a%2Fb%20c/versions/latest"] = (
        200, {"schemaType": "JSON", "schema": "{}"},
    )  # fmt: skip

    assert HttpRegistry(served).latest("a/b c").kind == "JSON"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, {}), NotFoundError),
        ((401, {}), PermissionDeniedError),
        ((403, {}), PermissionDeniedError),
        ((500, {}), UnavailableError),
        ((200, b"no json"), UnavailableError),
        ((200, []), UnavailableError),
        ((200, {"schemaType": "XML", "schema": "x"}), UnavailableError),
        ((200, {"schema": 5}), UnavailableError),
        ((200, b"[" * 5_000_000), InvalidInputError),
    ],
)
def test_an_answer_that_is_no_schema_is_told_by_what_it_means(
    served: str, answer: Any, error: type[Exception]
) -> None:
    Served.answers["/schemas/ids/7"] = answer

    with pytest.raises(error):
        HttpRegistry(served).schema("7")


def test_a_registry_that_is_nowhere_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="registry at"):
        HttpRegistry("http://127.0.0.1:1").schema("7")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.7\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
    ],
)
def test_an_answer_that_is_cut_or_no_http_is_none(answer: bytes) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(4096)
            connection.sendall(answer)

    with closing(create_server(("127.0.0.1", 0))) as server:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(UnavailableError, match="registry at"):
            HttpRegistry(f"http://127.0.0.1:{server.getsockname()[1]}").schema("7")
        thread.join()


def test_references_that_never_end_are_refused() -> None:
    def forever(_: str) -> Any:
        return {"schema": "{}", "references": [{"name": "n", "subject": "s", "version": 1}]}

    with pytest.raises(InvalidInputError, match="more than 100 references"):
        HttpRegistry("http://r", forever).schema("1")


def test_a_process_opens_a_registry_once() -> None:
    assert open_registry("http://r:1") is open_registry("http://r:1")


def test_the_secret_is_not_handed_on_to_where_an_answer_leads(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Served.answers["/schemas/ids/7"] = (302, f"{served}/elsewhere")
    Served.answers["/elsewhere"] = (200, {"schema": '"string"'})
    monkeypatch.setenv(ENV_AUTH, "user:secret")

    HttpRegistry(served).schema("7")

    first, second = Served.heads
    assert first is not None
    assert second is None


@pytest.mark.parametrize(
    "references", [7, [7], [{"name": "a"}], [{"name": "a", "subject": "s", "version": "x"}]]
)
def test_references_that_are_none_are_an_answer_of_no_registry(
    served: str, references: object
) -> None:
    Served.answers["/schemas/ids/7"] = (200, {"schema": '"string"', "references": references})

    with pytest.raises(UnavailableError, match="references that are none"):
        HttpRegistry(served).schema("7")
