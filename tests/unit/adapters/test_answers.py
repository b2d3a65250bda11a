"""Answers with status 200 that none of AWS gives: a proxy's page, JSON of another, nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_heartbeats import DynamoHeartbeats
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.place import Patience, Place, client
from coldstream.adapters.rights import AwsRights
from coldstream.adapters.s3 import S3ObjectStore
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.s3_compose import S3Composer
from coldstream.adapters.s3_versions import S3Versions
from coldstream.adapters.sqs import QueueCommitRequests
from coldstream.errors import ColdstreamError, UnavailableError, UnknownOutcomeError
from coldstream.manifest.catalog import CatalogItem
from coldstream.ports import BytesPart, Unknown
from coldstream_devkit.suites.catalog_fixtures import next_commit
from tests.unit.adapters.links import Server, answering

PAGE = b"<html><body>log in</body></html>"
FOREIGN = [("text/html", PAGE), ("application/json", b'{"login": "please"}'), ("", b"")]
AMZ = "application/x-amz-json-1.0"


Starting = Callable[..., Place]


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starting]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    servers: list[Server] = []

    def start(*said: Any) -> Place:
        servers.append(answering(*said))
        return Place("bucket", "table", region="us-east-1", endpoint=servers[-1].url)

    yield start
    for each in servers:
        each.close()


def asking(service: str, place: Place) -> Any:
    return client(service, place, patience=Patience(2, 2, 1))


def catalog_at(place: Place) -> DynamoCatalog:
    return DynamoCatalog(client=asking("dynamodb", place), table="table", prefix="p/")


@pytest.mark.parametrize(("kind", "body"), FOREIGN)
def test_an_answer_that_is_not_dynamodbs_never_says_that_there_is_no_item(
    starting: Starting, kind: str, body: bytes
) -> None:
    place = starting(kind, body)
    catalog, table = catalog_at(place), asking("dynamodb", place)

    asked: list[Callable[[], object]] = [
        lambda: catalog.get("s"),
        catalog.table_id,
        lambda: catalog.page(None, 10),
        DynamoPolicies(client=table, table="table", prefix="p/").load,
        DynamoHeartbeats(client=table, table="table", prefix="p/").all,
    ]
    for ask in asked:
        with pytest.raises(UnavailableError, match="is not AWS's") as caught:
            ask()
        assert caught.value.may_retry
        assert "HTTPS_PROXY" in (caught.value.remedy or "")
    assert catalog.commit(next_commit(CatalogItem("s", "t"), uid=1)) == Unknown(None)


@pytest.mark.parametrize(
    ("kind", "headers"),
    [(AMZ, ""), (AMZ + "; charset=utf-8", ""), ("", "x-amzn-RequestId: 1\r\n")],
)
def test_an_empty_object_of_dynamodbs_says_that_there_is_none(
    starting: Starting, kind: str, headers: str
) -> None:
    assert catalog_at(starting(kind, b"{}", headers)).get("s") is None


@pytest.mark.parametrize("body", [b"", PAGE, b"[]", b'{"Item": {"a"', b"[" * 100_000])
def test_what_is_no_object_is_no_answer_whatever_its_headers_say(
    starting: Starting, body: bytes
) -> None:
    with pytest.raises(UnavailableError):
        catalog_at(starting(AMZ, body)).get("s")


@pytest.mark.parametrize(("kind", "body"), FOREIGN)
def test_an_answer_that_is_not_s3s_neither_lists_nothing_nor_takes_anything(
    starting: Starting, kind: str, body: bytes
) -> None:
    place = starting(kind, body)
    s3 = asking("s3", place)
    store = BotoObjectStore(client=s3, bucket="bucket", put_attempts=1)

    asked: list[Callable[[], object]] = [
        lambda: store.list("p/"),
        lambda: store.level("p/"),
        lambda: store.get_all("k", limit=100),
        lambda: store.get_suffix("k", 10),
        lambda: S3Versions(client=s3, bucket="bucket").versions("p/"),
    ]
    for ask in asked:
        with pytest.raises(UnavailableError):
            ask()
    with pytest.raises(UnknownOutcomeError):
        store.put("k", b"data", write_id="w")
    with pytest.raises(ColdstreamError):
        S3Composer(client=s3, bucket="bucket").compose("k", [BytesPart(b"data")], write_id="w")


@pytest.mark.parametrize(("kind", "body"), FOREIGN)
def test_nor_does_the_store_of_the_agents_and_readers(
    starting: Starting, kind: str, body: bytes
) -> None:
    place = starting(kind, body)
    store = S3ObjectStore(
        bucket="bucket", region="us-east-1", endpoint=place.endpoint, put_attempts=1
    )

    for ask in (
        lambda: store.list("p/"),
        lambda: store.get_all("k", limit=100),
        lambda: store.get("k", 0, 10),
        lambda: store.get_suffix("k", 10),
    ):
        with pytest.raises(UnavailableError):
            ask()
    with pytest.raises(UnknownOutcomeError):
        store.put("k", b"data", write_id="w")


@pytest.mark.parametrize(("kind", "body"), FOREIGN)
def test_a_queue_has_taken_a_message_only_if_it_says_so(
    starting: Starting, kind: str, body: bytes
) -> None:
    place = starting(kind, body)
    sqs, url = asking("sqs", place), f"{place.endpoint}/0/queue"
    rights = AwsRights(
        session=None, dynamodb=asking("dynamodb", place), sqs=sqs, table="table", prefix="p/",
        queue_url=url,
    )  # fmt: skip

    for ask in (
        lambda: QueueCommitRequests(client=sqs, queue_url=url).ask("s"),
        rights.may_ask,
        lambda: rights.may_beat("n"),
        rights.clock,
    ):
        with pytest.raises(UnavailableError, match="is not AWS's"):
            ask()
