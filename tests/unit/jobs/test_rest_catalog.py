"""Tables in a catalog that speaks the Iceberg REST protocol, over HTTP on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.table import CommitTableRequest

from coldstream.adapters.place import Place
from coldstream.errors import (
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import rest_catalog
from coldstream.jobs.materialise.iceberg.catalog_answers import answers
from coldstream.jobs.materialise.iceberg.catalog_ref import RestCatalogRef, TablePlace
from coldstream.jobs.materialise.iceberg.open_tables import file_properties, open_tables
from coldstream.jobs.materialise.iceberg.rest_catalog import (
    ENV_CREDENTIAL,
    ENV_TOKEN,
    open_rest_catalog,
)
from coldstream.jobs.materialise.iceberg.table import IcebergTable
from coldstream.jobs.materialise.rules import TablePartition, TableRule
from coldstream.jobs.materialise.table import AppendOutcome, Table
from coldstream_devkit.suites.table import (
    COLUMNS,
    SCHEMA,
    TableSite,
    TableSuite,
    append_of,
    offsets,
)
from tests.support.rest_catalog import CUT, HANG_UP, RestServer, rest_server

HERE = Place("", "", "", "us-east-1", "")
Open = Callable[[], RestCatalog]


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENV_TOKEN, ENV_CREDENTIAL):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with rest_server(tmp_path, f"file://{tmp_path}/warehouse") as made:
        yield made


@pytest.fixture
def catalog(server: RestServer) -> Open:
    return lambda: opened(server)


def opened(server: RestServer, **more: str) -> RestCatalog:
    return open_rest_catalog(RestCatalogRef(server.uri, **more), HERE, file_properties(HERE))


@pytest.fixture
def site(tmp_path: Path, server: RestServer) -> TableSite:
    ids = count(10**6)

    def open_table(name: str) -> Table:
        return IcebergTable(
            opened(server),
            name,
            location=f"file://{tmp_path}/warehouse/{name}",
            partition=TablePartition.DAY,
            columns=COLUMNS,
            files=StoredFiles(),
            new_id=lambda: f"{next(ids):016x}",
        )

    def rows(name: str) -> pa.Table:
        with closing(server.open_catalog()) as catalog:
            return catalog.load_table(name).scan().to_arrow()

    return TableSite(open_table, StoredFiles(), rows)


@pytest.mark.slow
class TestIcebergTableOfARestCatalog(TableSuite):
    """The whole promise; what a server has a say in is below, always."""


@pytest.mark.parametrize("answer", [500, 502, 503, 504, HANG_UP, CUT])
def test_a_commit_that_landed_without_its_answer_is_found_and_not_done_twice(
    site: TableSite, server: RestServer, answer: int
) -> None:
    table = site.open("db.t")
    append = append_of(site, table.load(SCHEMA), 0, 10)
    server.instead = [answer]
    waited: list[int] = []

    commit(table, append, first_schema=SCHEMA, pause=waited.append)

    assert (offsets(site, "db.t"), waited) == (list(range(10)), [1])


@pytest.mark.parametrize("status", [400, 404, 406, 422])
def test_an_answer_that_refuses_a_commit_is_no_open_question(
    site: TableSite, server: RestServer, status: int
) -> None:
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    append = append_of(site, loaded, 0, 10)
    server.refused = [status]

    with pytest.raises(NotFoundError if status == 404 else InvalidInputError):
        table.append(loaded, append)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_answer_that_settles_nothing_is_an_open_question(
    site: TableSite, server: RestServer, status: int
) -> None:
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    append = append_of(site, loaded, 0, 10)
    server.refused = [status]

    with pytest.raises(UnknownOutcomeError):
        table.append(loaded, append)


@pytest.mark.parametrize("text", ["", '{"metadata": {', "{}", "<html>"])
def test_an_answer_that_is_cut_or_something_else_is_none(text: str) -> None:
    with pytest.raises(UnavailableError, match=r"no proper answer about db\.t"), answers("db.t"):
        TableResponse.model_validate_json(text)


def test_a_value_of_ours_that_no_catalog_was_asked_about_is_no_answer_of_one() -> None:
    with pytest.raises(ValidationError), answers("db.t"):
        CommitTableRequest.model_validate({})


def test_of_two_writers_the_second_is_refused_by_the_server(site: TableSite) -> None:
    first, second = site.open("db.t"), site.open("db.t")
    loaded = second.load(SCHEMA)
    late = append_of(site, loaded, 0, 10)
    commit(
        first, append_of(site, first.load(SCHEMA), 0, 5), first_schema=SCHEMA, pause=lambda _: None
    )

    assert second.append(loaded, late) is AppendOutcome.CONFLICT
    assert offsets(site, "db.t") == list(range(5))


def test_a_version_is_not_forgotten_where_a_person_goes_back_to_it_at_this_moment(
    site: TableSite, catalog: Open
) -> None:
    table = site.open("db.t")
    for first in (0, 10, 20):
        append = append_of(site, table.load(SCHEMA), first, first + 10)
        commit(table, append, first_schema=SCHEMA, pause=lambda _: None)
    loaded = table.load(SCHEMA)
    oldest = loaded.handle.metadata.snapshots[0].snapshot_id
    with catalog().load_table("db.t").manage_snapshots() as change:
        change.set_current_snapshot(oldest)

    assert table.forget(loaded, 2**42) is None
    assert len(catalog().load_table("db.t").metadata.snapshots) == 3


def _rule(server: RestServer, place: TablePlace) -> TableRule:
    return TableRule(".*", "shop.orders", catalog=RestCatalogRef(server.uri, place=place))


def test_a_table_whose_place_the_catalog_gives_has_its_state_where_nobody_sweeps(
    server: RestServer, tmp_path: Path
) -> None:
    pair = open_tables(_rule(server, TablePlace.CATALOG), HERE, f"file://{tmp_path}/ours/")
    loaded = pair.rows.load(SCHEMA)

    assert loaded.location.startswith(f"file://{tmp_path}/warehouse/")
    append = append_of(TableSite(lambda _: pair.rows, StoredFiles(), lambda _: None), loaded, 0, 5)
    commit(pair.rows, append, first_schema=SCHEMA, pause=lambda _: None)
    states = list(tmp_path.rglob("state-*.json"))
    assert len(states) == 1
    uuid = str(loaded.handle.metadata.table_uuid)
    assert states[0].parent == tmp_path / "ours" / "shop" / "orders-states" / uuid
    again = open_tables(_rule(server, TablePlace.CATALOG), HERE, f"file://{tmp_path}/ours/")
    assert again.rows.load(SCHEMA).state.of(append_stream(append)).offsets == 5


def append_stream(append: Any) -> str:
    (stream,) = append.covered
    return str(stream)


def test_a_table_is_made_by_one_request(server: RestServer, tmp_path: Path) -> None:
    pair = open_tables(_rule(server, TablePlace.WAREHOUSE), HERE, f"file://{tmp_path}/ours/")
    loaded = pair.rows.load(SCHEMA)

    made = [path for path in server.paths("POST") if path.endswith("/tables")]
    assert len(made) == 2  # the first finds no namespace
    assert loaded.location.startswith(f"file://{tmp_path}/ours/shop/orders-")
    metadata = loaded.handle.metadata
    assert [field.name for field in metadata.spec().fields] == [
        "stream_identity", "timestamp_day",
    ]  # fmt: skip
    assert len(metadata.sort_orders[-1].fields) == 2


def test_a_catalog_that_brings_file_access_which_deletes_is_refused(
    site: TableSite, server: RestServer
) -> None:
    table = site.open("db.t")
    table.load(SCHEMA)
    server.config = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}

    with pytest.raises(InvalidInputError, match="other file access"):
        table.load(SCHEMA)


def test_a_token_of_the_environment_is_sent(
    server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "t"
    with pytest.raises(PermissionDeniedError):
        opened(server)
    monkeypatch.setenv(ENV_TOKEN, "t")
    opened(server)


def test_a_credential_is_changed_for_a_token(
    server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token, server.credential = "t", "me:secret"
    monkeypatch.setenv(ENV_CREDENTIAL, "me:secret")
    opened(server)
    assert ("GET", "/v1/config", "Bearer t") in server.asked


class Secrets:
    """AWS Secrets Manager, as far as it is asked."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self, **which: str) -> dict[str, str]:
        assert which == {"SecretId": "catalog"}
        return {"SecretString": self._text}


def _secret(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    made = Secrets(text)
    monkeypatch.setattr(rest_catalog, "client", lambda *_: made)


def test_a_secret_of_secrets_manager_is_used(
    server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "t"
    _secret(monkeypatch, '{"token": "t"}')
    opened(server, secret="catalog")


@pytest.mark.parametrize(
    "text", ["", "hunter2", "[]", "{}", '{"token": ""}', '{"token": "a", "credential": "b"}',
             '{"password": "hunter2"}', '{"token": 5}']
)  # fmt: skip
def test_a_secret_that_is_none_is_told_without_its_text(
    server: RestServer, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    _secret(monkeypatch, text)
    with pytest.raises(InvalidInputError, match="the secret catalog is no JSON") as caught:
        opened(server, secret="catalog")
    assert "hunter2" not in str(caught.value)


def test_no_secret_is_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_TOKEN, "t")
    far: Any = SimpleNamespace(uri="http://catalog.example:8181")
    with pytest.raises(InvalidInputError, match="in the clear"):
        opened(far)


def test_requests_are_signed_where_a_rule_says_so(
    server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    found = opened(server, sign="s3tables", region="eu-central-1")
    found.create_namespace("db")

    signed = server.asked[-1][2]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
    assert "/eu-central-1/s3tables/aws4_request" in signed


def test_a_catalog_that_is_nowhere_is_unavailable() -> None:
    nowhere: Any = SimpleNamespace(uri="http://127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"the catalog http://127\.0\.0\.1:1"):
        opened(nowhere)
