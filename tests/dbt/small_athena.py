"""As much of Athena, Glue, S3 and STS on loopback as dbt-athena asks for; DuckDB runs the queries.

The embedded AWS runs no query, and its Glue keeps no versions of tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

_KINDS = {"TIMESTAMP WITH TIME ZONE": "timestamp with time zone", "TIMESTAMP": "timestamp"}
_IDENTITY = (
    "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>000000000000</Account>"
    "</GetCallerIdentityResult></GetCallerIdentityResponse>"
)
_EMPTY_BUCKET = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


def for_duckdb(query: str) -> str:
    """What Athena is asked for, in the words of DuckDB."""
    tree = sqlglot.parse_one(query, read="athena")
    if isinstance(tree, exp.Create):
        tree.set("properties", None)
    text = tree.sql("duckdb", comments=False)
    # What Athena calls `length` of bytes; sqlglot cannot know that the column has bytes.
    return re.sub(r"\bLENGTH\((\w+\.)?body\)", r"OCTET_LENGTH(\1body)", text)


@dataclass
class SmallAthena:
    """A database `shop`, and the queries that it was asked for.

    Attributes:
        uri: of all services.
        queries: as they came, without the comment that dbt writes in front.
    """

    uri: str = ""
    queries: list[str] = field(default_factory=list)
    _results: list[tuple[list[Any], list[Any]]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _database: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def __post_init__(self) -> None:
        self._database.execute(
            "SET TimeZone = 'UTC'; ATTACH ':memory:' AS awsdatacatalog; USE awsdatacatalog;"
            "CREATE SCHEMA shop"
        )

    def clear(self) -> None:
        """Forget all tables and queries."""
        self.queries.clear()
        self._results.clear()
        for name in self._names():
            self._run(f"DROP TABLE awsdatacatalog.shop.{name}")

    def put(self, name: str, rows: pa.Table) -> None:
        """Make a table what it is now."""
        with self._lock:
            self._database.register("given", rows)
            self._database.execute(
                f"CREATE OR REPLACE TABLE awsdatacatalog.shop.{name} AS FROM given"
            )

    def rows(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            found = self._database.sql(f"FROM awsdatacatalog.shop.{name}").to_arrow_table()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def answer(self, target: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What a service says, by the name of service and action."""
        match target.split("."):
            case ["AmazonAthena", "StartQueryExecution"]:
                query = re.sub(r"^-- .*\n", "", asked["QueryString"]).strip()
                self.queries.append(query)
                translated = for_duckdb(query)
                if reason := self._refused(translated):
                    return {"__type": "InvalidRequestException", "message": reason}
                self._results.append(self._run(translated))
                return {"QueryExecutionId": str(len(self.queries) - 1)}
            case ["AmazonAthena", "GetQueryExecution"]:
                status = {"State": "SUCCEEDED"}
                statistics = {"DataScannedInBytes": 0}
                return {"QueryExecution": {"Status": status, "Statistics": statistics}}
            case ["AmazonAthena", "GetQueryResults"]:
                return _result_set(*self._results[int(asked["QueryExecutionId"])])
            case ["AWSGlue", "GetDatabases"]:
                return {"DatabaseList": [{"Name": "shop"}]}
            case ["AWSGlue", "GetTables"]:
                return {"TableList": [self._glue_table(name) for name in self._names()]}
            case ["AWSGlue", "GetTable"] if asked["Name"] in self._names():
                return {"Table": self._glue_table(asked["Name"])}
            case ["AWSGlue", "GetTableVersions"]:
                return {"TableVersions": []}
            case ["AWSGlue", "DeleteTable"] if asked["Name"] in self._names():
                self._run(f"DROP TABLE awsdatacatalog.shop.{asked['Name']}")
                return {}
        return {"__type": "EntityNotFoundException", "message": f"{target} {asked}"}

    def _run(self, query: str) -> tuple[list[Any], list[Any]]:
        with self._lock:
            done = self._database.execute(query)
            return list(done.description or []), done.fetchall()

    def _refused(self, query: str) -> str:
        """Athena's documentation says so of CREATE TABLE; it reads all times."""
        made, _, rows = query.partition(" AS ")
        if made.startswith("CREATE TABLE"):
            kinds = [row[1] for row in self._run(f"DESCRIBE {rows}")[1]]
            if "TIMESTAMP WITH TIME ZONE" in kinds:
                return "Unsupported Hive type: timestamp(6) with time zone"
        return ""

    def _names(self) -> list[str]:
        query = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'awsdatacatalog'"
        return [name for (name,) in self._run(query)[1]]

    def _glue_table(self, name: str) -> dict[str, Any]:
        described = self._run(f"DESCRIBE awsdatacatalog.shop.{name}")[1]
        columns = [{"Name": row[0], "Type": row[1].lower()} for row in described]
        return {
            "Name": name,
            "DatabaseName": "shop",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "ICEBERG"},
            "StorageDescriptor": {"Columns": columns, "Location": f"s3://tables/shop/{name}"},
        }


def _result_set(described: list[Any], rows: list[Any]) -> dict[str, Any]:
    names, kinds = [each[0] for each in described], [str(each[1]) for each in described]
    columns = [
        {"Name": name, "Type": _KINDS.get(kind, "varchar")}
        for name, kind in zip(names, kinds, strict=True)
    ]
    cells = [names, *rows]
    return {
        "ResultSet": {
            "Rows": [{"Data": [_datum(value) for value in row]} for row in cells],
            "ResultSetMetadata": {"ColumnInfo": columns},
        }
    }


def _datum(value: Any) -> dict[str, str]:
    """As Athena writes it; times are in UTC."""
    if value is None:
        return {}
    if not isinstance(value, datetime):
        return {"VarCharValue": str(value)}
    return {"VarCharValue": f"{value:%Y-%m-%d %H:%M:%S.%f}" + (" UTC" if value.tzinfo else "")}


@contextmanager
def small_athena() -> Iterator[SmallAthena]:
    made = SmallAthena()
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
    told: SmallAthena
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, _EMPTY_BUCKET)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = self.headers.get("X-Amz-Target")
        if target is None:
            self._answer(200, _IDENTITY)
            return
        try:
            said = self.told.answer(target, json.loads(body))
        except Exception as exc:  # else the client waits for an answer
            said = {"__type": "InvalidRequestException", "message": repr(exc)}
        self._answer(400 if "__type" in said else 200, json.dumps(said))

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, said: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())
