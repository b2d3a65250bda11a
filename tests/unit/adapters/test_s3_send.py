"""A PUT goes on while its bytes move, and is given up when they do not."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from coldstream.adapters.s3 import open_store
from coldstream.adapters.s3_send import Sender, SendingObjectStore
from coldstream.adapters.wire import Pace, Waits
from coldstream.crc import crc32
from coldstream.errors import AlreadyExistsError, UnavailableError, UnknownOutcomeError
from coldstream.ports.objects import CutShortError
from tests.support.probe_stack import eventually
from tests.unit.adapters.links import NONE, OK, Conversation, Server, certified, polite

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
QUICK = Waits(connect=5.0, stall=1.5, answer=1.5)
BIG = bytes(range(256)) * 2**15  # 8 MiB: more than sockets buffer

Speak = Callable[[Server, Conversation], None]
Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[Server] = []

    def start(speak: Speak, **more: Any) -> Server:
        made.append(Server(speak, **more))
        return made[-1]

    yield start
    for each in made:
        each.close()


opened: list[SendingObjectStore] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def store_at(
    server: Server,
    waits: Waits | None = None,
    pace: Pace | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> SendingObjectStore:
    def make_client(options: dict[str, object]) -> object:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=server.url,
            region_name="eu-west-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=Config(read_timeout=2).merge(Config(**options)),  # type: ignore[arg-type]
        )

    made = SendingObjectStore(
        bucket="bucket",
        make_client=make_client,  # type: ignore[arg-type]
        sender=Sender(waits, pace, ended),
        store=open_store("bucket", endpoint=server.url, environment=KEYS),
    )
    opened.append(made)
    return made


def test_a_put_arrives_whole_with_its_checksum_and_its_condition(serve: Serve) -> None:
    server = serve(polite)

    store_at(server).put("a/b c", memoryview(BIG), write_id="17")

    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("PUT", "/bucket/a/b%20c", BIG)
    assert base64.b64decode(request.headers["x-amz-checksum-crc32"]) == crc32(BIG).to_bytes(
        4, "big"
    )
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-meta-write-id"] == "17"
    assert "expect" not in request.headers


def test_s3_gets_the_checksum_of_what_was_checked_whatever_the_body_is_by_now(
    serve: Serve,
) -> None:
    server = serve(polite)

    store_at(server).put("key", b"changed", write_id="1", crc=crc32(b"checked"))

    told = base64.b64decode(server.requests[0].headers["x-amz-checksum-crc32"])
    assert int.from_bytes(told, "big") == crc32(b"checked")


def test_a_connection_serves_many_puts(serve: Serve) -> None:
    server = serve(polite)
    store = store_at(server)

    for number in range(5):
        store.put(f"key{number}", b"x", write_id="1")

    assert (len(server.requests), server.connections) == (5, 1)


def test_a_slow_link_takes_longer_than_any_limit_and_the_put_lands(serve: Serve) -> None:
    def slow(server: Server, talk: Conversation) -> None:
        request = talk.head()
        assert request is not None
        talk.body(request, pause=0.06, piece=8192)
        server.requests.append(request)
        talk.answer(OK)

    body = BIG[: 2**19]
    server = serve(slow, small=True)
    began = time.monotonic()

    store_at(server, QUICK).put("key", body, write_id="1")

    assert time.monotonic() - began > QUICK.stall + QUICK.answer  # else it shows nothing
    assert server.requests[0].body == body


def test_a_server_that_hangs_in_the_middle_of_a_body_is_given_up_and_nothing_landed(
    serve: Serve,
) -> None:
    def hang(server: Server, talk: Conversation) -> None:
        request = talk.head()
        assert request is not None
        talk.body(request, most=100_000)
        server.over.wait()

    with pytest.raises(CutShortError, match=r"no byte has moved for 1\.5 s") as caught:
        store_at(serve(hang), QUICK).put("key", BIG, write_id="1")

    assert 100_000 <= caught.value.sent < len(BIG)


def test_a_server_that_takes_all_and_says_nothing_leaves_the_outcome_unknown(serve: Serve) -> None:
    def silent(server: Server, talk: Conversation) -> None:
        while (request := talk.head()) is not None:
            talk.body(request)
            server.requests.append(request)
            if request.method == "PUT":
                server.over.wait()
            talk.answer(NONE)

    server = serve(silent)

    with pytest.raises(UnknownOutcomeError):
        store_at(server, QUICK).put("key", b"body", write_id="1")

    puts = [each for each in server.requests if each.method == "PUT"]
    assert len(puts) == 2
    assert (puts[0].path, puts[0].body) == (puts[1].path, puts[1].body)
    assert puts[0].headers["x-amz-meta-write-id"] == puts[1].headers["x-amz-meta-write-id"]


def test_a_put_whose_answer_was_lost_is_found_by_its_write_id(serve: Serve) -> None:
    def forgetful(server: Server, talk: Conversation) -> None:
        while (request := talk.head()) is not None:
            talk.body(request)
            server.requests.append(request)
            if request.method == "PUT":
                talk.reset()
                return
            talk.answer(
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nx-amz-meta-write-id: 1\r\n"
                b"Connection: close\r\n\r\n"
            )

    server = serve(forgetful)

    store_at(server).put("key", b"body", write_id="1")

    assert [each.method for each in server.requests] == ["PUT", "HEAD"]


def test_a_key_of_another_write_is_not_taken_for_ours(serve: Serve) -> None:
    def taken(server: Server, talk: Conversation) -> None:
        while (request := talk.head()) is not None:
            talk.body(request)
            if request.method == "PUT":
                talk.answer(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")
            else:
                talk.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")

    with pytest.raises(AlreadyExistsError):
        store_at(serve(taken)).put("key", b"body", write_id="1")


def test_bytes_that_s3_finds_changed_are_not_sent_again(serve: Serve) -> None:
    refusal = b"<Error><Code>BadDigest</Code><Message>other bytes</Message></Error>"

    def refuse(server: Server, talk: Conversation) -> None:
        while (request := talk.head()) is not None:
            talk.body(request)
            server.requests.append(request)
            head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(refusal)
            talk.answer(head + refusal)

    server = serve(refuse)

    with pytest.raises(UnavailableError, match="no longer those that were checked"):
        store_at(server).put("key", b"changed", write_id="1", crc=crc32(b"checked"))

    assert [each.method for each in server.requests] == ["PUT"]


def test_a_reset_in_the_middle_of_a_body_means_that_nothing_landed(serve: Serve) -> None:
    def reset(server: Server, talk: Conversation) -> None:
        request = talk.head()
        assert request is not None
        talk.body(request, most=100_000)
        server.requests.append(request)
        talk.reset()

    server = serve(reset)

    with pytest.raises(CutShortError):
        store_at(server).put("key", BIG, write_id="1")

    assert len(server.requests) == 1  # neither sent again at once, nor asked for


def test_a_refusal_in_the_middle_of_a_body_is_heard(serve: Serve) -> None:
    refusal = b"<Error><Code>SlowDown</Code><Message>less</Message></Error>"

    def refuse(server: Server, talk: Conversation) -> None:
        request = talk.head()
        assert request is not None
        talk.answer(
            b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (len(refusal), refusal)
        )
        server.over.wait()

    with pytest.raises(UnavailableError, match="refused the object for now: SlowDown"):
        store_at(serve(refuse, small=True)).put("key", BIG, write_id="1")


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used_again(serve: Serve) -> None:
    def once(server: Server, talk: Conversation) -> None:
        request = talk.head()
        assert request is not None
        talk.body(request)
        server.requests.append(request)
        talk.answer(OK)  # and nothing says that it is closed

    server = serve(once)
    store = store_at(server)
    store.put("key1", b"x", write_id="1")
    assert eventually(lambda: server.closed)
    store.put("key2", b"x", write_id="1")

    assert [each.path for each in server.requests] == ["/bucket/key1", "/bucket/key2"]


def test_no_server_is_no_answer(serve: Serve) -> None:
    server = serve(polite)
    server.close()
    store = store_at(server)

    with pytest.raises(UnavailableError, match="no connection to"):
        store.put("key", b"x", write_id="1")


def test_what_is_under_way_is_given_up_when_the_agent_must_end(serve: Serve) -> None:
    def hang(server: Server, talk: Conversation) -> None:
        request = talk.head()
        assert request is not None
        talk.body(request, most=100_000)
        ended.append(True)
        server.over.wait()

    ended: list[bool] = []
    patient = Waits(stall=1000.0, answer=1000.0)
    store = store_at(serve(hang), patient, ended=partial(bool, ended))

    with pytest.raises(UnavailableError, match="the agent ends"):
        store.put("key", BIG, write_id="1")


class Counted:
    """Lets a few bytes go at a time."""

    def __init__(self) -> None:
        self.grants: list[int] = []

    def grant(self, most: int) -> int:
        self.grants.append(min(most, 10))
        return self.grants[-1]


def test_every_byte_of_a_body_is_asked_for_and_none_of_a_head(serve: Serve) -> None:
    server, pace = serve(polite), Counted()

    store_at(server, pace=pace).put("key", BIG[:1005], write_id="1")

    assert server.requests[0].body == BIG[:1005]
    assert sum(pace.grants) == 1005
    assert len(pace.grants) == 101


@pytest.fixture
def trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    authority, made = certified(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    return made


def test_over_tls_a_body_has_a_signed_checksum_and_is_not_hashed(
    serve: Serve, trust: ssl.SSLContext
) -> None:
    server = serve(polite, trust=trust)
    store = store_at(server)

    for number in range(3):
        store.put(f"key{number}", BIG, write_id="1")

    assert [bytes(each.body) for each in server.requests] == [BIG] * 3
    assert server.connections == 1
    headers = server.requests[0].headers
    assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert "x-amz-checksum-crc32" in headers["authorization"]


def test_without_tls_the_signature_covers_the_body(serve: Serve) -> None:
    server = serve(polite)
    store_at(server).put("key", b"x", write_id="1")

    assert len(server.requests[0].headers["x-amz-content-sha256"]) == 64


def test_a_slow_link_with_tls_lands_a_put_and_one_that_hangs_is_given_up(
    serve: Serve, trust: ssl.SSLContext
) -> None:
    def slow(server: Server, talk: Conversation) -> None:
        while (request := talk.head()) is not None:
            if request.path.endswith("slow"):
                talk.body(request, pause=0.12, piece=8192)
                talk.answer(OK)
            else:
                talk.body(request, most=50_000)
                server.over.wait()

    store = store_at(serve(slow, small=True, trust=trust), QUICK)
    began = time.monotonic()
    store.put("slow", BIG[: 2**18], write_id="1")

    assert time.monotonic() - began > QUICK.stall + QUICK.answer  # else it shows nothing
    with pytest.raises(CutShortError, match="no byte has moved"):
        store.put("hangs", BIG, write_id="1")


def test_a_server_that_nobody_trusts_gets_nothing(
    serve: Serve, trust: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(polite, trust=trust)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certified(tmp_path / "other")[0]))
    monkeypatch.delenv("SSL_CERT_FILE")

    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        store_at(server).put("key", b"x", write_id="1")

    assert not server.requests
