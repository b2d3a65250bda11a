"""The connection to a stream port, against a peer that answers as a test says."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.broker.answers import NoMemberError
from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.frames import (
    RESPONSE,
    Code,
    Fields,
    Key,
    OffsetType,
    frame,
    string,
    subscribe,
)
from coldstream.broker.tls import Tls
from coldstream.errors import (
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream_devkit.generator import build_chunk
from tests.support.peer import Answer, Peer, deliver, logging_in, reply

CHUNK = build_chunk(60, 3, 1_790_000_000_000, [b"m" * 100] * 50)


def serving(key: int, body: bytes) -> list[bytes]:
    """A broker with one stream, `orders`."""
    if key == Key.SUBSCRIBE:
        if string("orders") not in body:
            return [reply(Key.SUBSCRIBE, body, code=Code.NO_STREAM)]
        return [reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
    return logging_in(key, body)


@pytest.fixture
def peers() -> Iterator[Callable[[Answer], Peer]]:
    made: list[Peer] = []

    def make(answer: Answer) -> Peer:
        made.append(Peer(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def connect(peers: Callable[[Answer], Peer]) -> Iterator[Callable[[Answer], Connection]]:
    made: list[Connection] = []

    def make(answer: Answer) -> Connection:
        uri = StreamUri("127.0.0.1", peers(answer).port, "u", "secret")
        made.append(Connection(uri, "/", seconds=60))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_header_of_a_chunk_comes_back_as_it_is_and_its_data_is_not_kept(
    connect: Callable[[Answer], Connection],
) -> None:
    connection = connect(serving)

    for _ in range(300):  # more than there are numbers for subscriptions
        assert connection.header("orders", OffsetType.LAST) == CHUNK[:48]


def test_a_late_chunk_of_an_earlier_subscription_is_not_taken_for_this_one(
    connect: Callable[[Answer], Connection],
) -> None:
    other = build_chunk(10, 1, 1_790_000_000_000, [b"old"])

    def late(key: int, body: bytes) -> list[bytes]:
        answers = serving(key, body)
        if key == Key.SUBSCRIBE:
            answers.insert(0, deliver(body[4] - 1, other))
        return answers

    assert connect(late).header("orders", OffsetType.LAST) == CHUNK[:48]


def test_a_stream_without_a_chunk_gives_none_and_the_connection_stays(
    connect: Callable[[Answer], Connection],
) -> None:
    connection = connect(
        lambda key, body: serving(key, body)[:1] if key == 7 else serving(key, body)
    )
    connection._seconds = 0.5  # not before: a slow machine logs in slowly

    assert connection.header("orders", OffsetType.LAST) is None
    assert not connection.broken


def test_a_stream_that_is_not_there_is_told_and_the_connection_stays(
    connect: Callable[[Answer], Connection],
) -> None:
    connection = connect(serving)

    with pytest.raises(NotFoundError, match="invoices"):
        connection.header("invoices", OffsetType.LAST)

    assert connection.header("orders", OffsetType.LAST) == CHUNK[:48]


def test_a_node_without_a_member_of_a_stream_is_no_broken_connection(
    connect: Callable[[Answer], Connection],
) -> None:
    def refusing(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body, code=Code.NOT_AVAILABLE)]
        return serving(key, body)

    connection = connect(refusing)

    with pytest.raises(NoMemberError, match="code 6"):
        connection.header("orders", OffsetType.LAST)
    assert not connection.broken


def test_what_the_broker_sends_by_itself_is_taken_at_any_time(
    connect: Callable[[Answer], Connection],
) -> None:
    update = struct.pack(">IHHH", 14, 16, 1, 6) + string("orders")  # MetadataUpdate

    def chatty(key: int, body: bytes) -> list[bytes]:
        return [frame(Key.HEARTBEAT, b""), update, *serving(key, body)]

    connection = connect(chatty)

    assert connection.header("orders", OffsetType.LAST) == CHUNK[:48]
    connection.poll()
    assert not connection.broken


def test_who_hears_whether_a_broker_has_sent_something_waits_for_nothing(
    connect: Callable[[Answer], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millisecond for each of hundreds of virtual hosts, twice a second, and all streams wait."""
    connection = connect(serving)
    monkeypatch.setattr(connection, "_frame", lambda: pytest.fail("it waits for a frame"))

    connection.poll()

    assert not connection.broken


def test_members_are_the_leader_and_its_replicas_and_one_without_a_node_is_an_error(
    connect: Callable[[Answer], Connection],
) -> None:
    nodes = struct.pack(">i", 2) + b"".join(
        struct.pack(">H", number) + string(f"h{number}") + struct.pack(">I", 5552)
        for number in (1, 2)
    )
    replicas = [2]

    def metadata(key: int, body: bytes) -> list[bytes]:
        if key != Key.METADATA:
            return serving(key, body)
        listed = struct.pack(f">i{len(replicas)}H", len(replicas), *replicas)
        row = string("orders") + struct.pack(">HH", Code.OK, 1) + listed
        return [frame(Key.METADATA, body[:4] + nodes + struct.pack(">i", 1) + row, response=True)]

    connection = connect(metadata)
    assert connection.members("orders") == [("h1", 5552), ("h2", 5552)]

    replicas.append(3)
    with pytest.raises(UnavailableError, match="not every member"):
        connection.members("orders")


@pytest.mark.parametrize(
    ("key", "code", "expected"),
    [
        (Key.SASL_AUTHENTICATE, Code.AUTHENTICATION_FAILED, PermissionDeniedError),
        (Key.OPEN, Code.NO_VHOST, NotFoundError),
        (Key.OPEN, Code.ACCESS_REFUSED, PermissionDeniedError),
        (Key.OPEN, 13, UnavailableError),
    ],
)
def test_why_nobody_can_log_in_is_told_without_the_password(
    connect: Callable[[Answer], Connection], key: Key, code: int, expected: type[ColdstreamError]
) -> None:
    def refusing(asked: int, body: bytes) -> list[bytes]:
        return [reply(key, body, code=code)] if asked == key else logging_in(asked, body)

    with pytest.raises(expected) as refused:
        connect(refusing)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "odd",
    [
        struct.pack(">I", 2),  # too small to be a frame
        struct.pack(">IHH", 2**31, 15, 1),  # too large to be one
        struct.pack(">IHH", 400, 8, 1) + b"torn",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(Key.CLOSE, struct.pack(">IH", 1, 13) + string("unknown frame")),
        b"",
    ],
)
def test_a_peer_that_is_no_broker_breaks_the_connection_and_nothing_else(
    connect: Callable[[Answer], Connection], odd: bytes
) -> None:
    def speaks(key: int, body: bytes) -> list[bytes]:
        return [odd] if key == Key.SUBSCRIBE else logging_in(key, body)

    connection = connect(speaks)
    connection._seconds = 0.5

    with pytest.raises(UnavailableError):
        connection.header("orders", OffsetType.LAST)

    assert connection.broken


class _Drip(list[bytes]):
    """They come one by one."""

    def __iter__(self) -> Iterator[bytes]:
        for each in super().__iter__():
            time.sleep(0.1)
            yield each


def test_an_answer_of_which_a_byte_comes_now_and_then_has_a_deadline_all_the_same(
    connect: Callable[[Answer], Connection],
) -> None:
    """All streams wait for it, and so does whoever ends the agent."""
    odd = struct.pack(">IHH", 400, Key.SUBSCRIBE | RESPONSE, 1) + bytes(100)

    def speaks(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return _Drip(odd[at : at + 1] for at in range(len(odd)))
        return logging_in(key, body)

    connection = connect(speaks)
    connection._seconds = 0.5

    began = time.monotonic()
    with pytest.raises(UnavailableError, match="stops in a frame"):
        connection.header("orders", OffsetType.LAST)

    assert time.monotonic() - began < 8


def test_nobody_at_the_port_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])

    with pytest.raises(UnavailableError, match="does not answer"):
        Connection(StreamUri("127.0.0.1", port, "u", "p"), "/", seconds=0.5)


@given(st.binary(max_size=200))
def test_fields_of_any_bytes_end_in_an_error_or_a_value(data: bytes) -> None:
    def read(fields: Fields) -> tuple[str, int]:
        return fields.string(), fields.number("H")

    try:
        found = Fields(data).array(read)
    except UnavailableError:
        return
    assert len(found) * 4 <= len(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rabbitmq-stream://u:p%40ss@h:1", StreamUri("h", 1, "u", "p@ss")),
        ("rabbitmq-stream://h", StreamUri("h", 5552, "guest", "guest")),
        ("rabbitmq-stream+tls://u:p@h", StreamUri("h", 5551, "u", "p", tls=Tls())),
    ],
)
def test_a_uri_says_where_and_as_whom(text: str, expected: StreamUri) -> None:
    assert StreamUri.parse(text) == expected
    assert "p@ss" not in repr(StreamUri.parse(text))


@pytest.mark.parametrize("text", ["", "http://u:secret@h", "rabbitmq-stream://u:secret@h:x"])
def test_what_is_no_uri_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        StreamUri.parse(text)

    assert "secret" not in str(refused.value)


def test_a_subscription_asks_for_one_chunk() -> None:
    body: Any = subscribe(7, "orders", OffsetType.OFFSET, offset=60)

    assert body == b"\x07" + string("orders") + struct.pack(">HQH", 4, 60, 1)
