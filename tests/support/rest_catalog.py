"""An Iceberg REST catalog on loopback: the protocol's routes in front of pyiceberg's SqlCatalog.

No package of PyPI serves one that is kept. Its conditional commit is real: SqlCatalog checks every
requirement on the metadata that it then moves by a conditional UPDATE in SQLite. As those of AWS it
takes no table in two steps (stage-create).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

_STATUS: dict[type[Exception], int] = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}
HANG_UP = 0
#: The status of an answer that says 200 and has no body any more.
CUT = -1


@dataclass
class RestServer:
    """What a test says to the server, and what the server has seen.

    Attributes:
        open_catalog: the catalog behind it.
        uri: of it.
        token: that it wants; "" for none.
        credential: id:secret that it changes for `token`.
        instead: statuses that the next commits are answered with although they landed; HANG_UP for
            no answer at all, CUT for one that a proxy has cut.
        refused: statuses that the next commits are answered with, and do not land.
        config: that comes with each table.
        asked: (method, path, Authorization) of all requests.
    """

    open_catalog: Callable[[], SqlCatalog]
    uri: str = ""
    token: str = ""
    credential: str = ""
    instead: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    def paths(self, method: str) -> list[str]:
        return [path for each, path, _ in self.asked if each == method]


@contextmanager
def rest_server(directory: Path, warehouse: str, **properties: str) -> Iterator[RestServer]:
    """A server with an empty catalog.

    Args:
        directory: for its database.
        warehouse: URL below which it places tables that say no place themselves.
        properties: of its file access.
    """

    def open_catalog() -> SqlCatalog:
        uri = f"sqlite:///{directory}/rest.db"
        return SqlCatalog("rest", uri=uri, warehouse=warehouse, **properties)

    open_catalog().close()
    made = RestServer(open_catalog)
    handler = type("Handler", (_Handler,), {"told": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    made.uri = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request after another of a client."""

    told: RestServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        authorization = self.headers.get("Authorization") or ""
        self.told.asked.append((method, path, authorization))
        parts = [unquote(each) for each in path.strip("/").split("/")]
        if parts == ["v1", "oauth", "tokens"]:
            self._token(parse_qs(body.decode()))
            return
        if self.told.token and authorization != f"Bearer {self.told.token}":
            self._answer(401, _error(401, "NotAuthorizedException", "who are you?"))
            return
        try:
            with closing(self.told.open_catalog()) as catalog:
                status, said = _route(catalog, self.told, method, parts, body)
        except tuple(_STATUS) as exc:
            status = _STATUS[type(exc)]
            said = _error(status, type(exc).__name__, str(exc))
        self._answer(status, said)

    def _token(self, form: dict[str, list[str]]) -> None:
        given = ":".join(form.get(each, [""])[0] for each in ("client_id", "client_secret"))
        if given != self.told.credential:
            self._answer(401, json.dumps({"error": "invalid_client"}))
            return
        self._answer(200, json.dumps({"access_token": self.told.token, "token_type": "bearer"}))

    def _answer(self, status: int, said: str) -> None:
        if status == HANG_UP:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if status == CUT:
            status, said = 200, ""
        data = said.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _route(
    catalog: SqlCatalog, told: RestServer, method: str, parts: list[str], body: bytes
) -> tuple[int, str]:
    match method, parts[1:]:
        case "GET", ["config"]:
            return 200, json.dumps({"defaults": {}, "overrides": {}})
        case "POST", ["namespaces"]:
            wanted = json.loads(body)
            catalog.create_namespace(tuple(wanted["namespace"]))
            return 200, json.dumps({"namespace": wanted["namespace"], "properties": {}})
        case "POST", ["namespaces", namespace, "tables"]:
            # pyiceberg's client leaves out what is null, and its own model of it wants it there.
            absent = dict.fromkeys(("location", "partition-spec", "write-order"))
            new = CreateTableRequest.model_validate({**absent, **json.loads(body)})
            if new.stage_create:
                return 400, _error(400, "BadRequestException", "Stage create is not supported")
            made = catalog.create_table(
                (namespace, new.name),
                new.table_schema,
                new.location,
                **({"partition_spec": new.partition_spec} if new.partition_spec else {}),
                **({"sort_order": new.write_order} if new.write_order else {}),
                properties=new.properties,
            )
            return 200, _table(made, told.config)
        case "GET", ["namespaces", namespace, "tables", name]:
            return 200, _table(catalog.load_table((namespace, name)), told.config)
        case "POST", ["namespaces", namespace, "tables", name]:
            if told.refused:
                status = told.refused.pop(0)
                return status, _error(status, "Refused", "as the test wants it")
            change = CommitTableRequest.model_validate_json(body)
            there = catalog.load_table((namespace, name))
            done = catalog.commit_table(there, change.requirements, change.updates)
            if told.instead:
                status = told.instead.pop(0)
                return status, _error(status, "InternalServerError", "though it landed")
            return 200, done.model_dump_json()
    return 404, _error(404, "NoSuchRoute", "/".join(parts))


def _table(table: Table, config: dict[str, str]) -> str:
    place, metadata = json.dumps(table.metadata_location), table.metadata.model_dump_json()
    given = json.dumps(config)
    return f'{{"metadata-location": {place}, "metadata": {metadata}, "config": {given}}}'


def _error(status: int, kind: str, message: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": status}})
