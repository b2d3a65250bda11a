"""A publisher with a name, against a peer that answers as a test says."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import Code, Key, frame, string
from coldstream.broker.publishing import Publisher
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError
from coldstream.osiris.entry import encode_simple
from tests.support.peer import Answer, Peer, logging_in, reply

from .test_connection import peers

__all__ = ["peers"]
Make = Callable[[Answer], Publisher]


@pytest.fixture
def make(peers: Callable[[Answer], Peer]) -> Iterator[Make]:
    made: list[Publisher] = []

    def connect(answer: Answer, *, create: bool = False) -> Publisher:
        uri = StreamUri("127.0.0.1", peers(answer).port, "u", "secret")
        made.append(Publisher(uri, "/", "orders", "me", create=create, seconds=60))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def confirming(*numbers: int) -> bytes:
    rows = b"".join(struct.pack(">Q", number) for number in numbers)
    return frame(Key.PUBLISH_CONFIRM, struct.pack(">Bi", 0, len(numbers)) + rows)


def answering(*published: bytes, declared: int = Code.OK) -> Answer:
    """A broker that has the publishing id 7 of `me`, and answers a Publish so."""

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.PUBLISH:
            return list(published)
        if key == Key.DECLARE_PUBLISHER:
            return [reply(Key.DECLARE_PUBLISHER, body, code=declared)]
        if key == Key.CREATE:
            return [reply(Key.CREATE, body, code=Code.STREAM_EXISTS)]
        if key == Key.QUERY_PUBLISHER_SEQUENCE:
            assert string("me") in body
            return [reply(Key.QUERY_PUBLISHER_SEQUENCE, body, rest=struct.pack(">Q", 7))]
        return logging_in(key, body)

    return answer


def test_what_is_confirmed_waits_no_more(make: Make) -> None:
    publisher = make(answering(confirming(8), confirming(9)))
    assert publisher.sequence() == 7

    publisher.publish([(8, encode_simple(b"a")), (9, encode_simple(b"b")), (10, b"\x00" * 4)])
    while len(publisher.waiting) > 1:
        publisher.take(60)

    assert (publisher.waiting, publisher.confirmed) == ({10: 4}, 9)


def test_rows_are_the_entries_of_a_chunk_behind_their_ids(
    make: Make,
) -> None:
    heard: list[bytes] = []

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.PUBLISH:
            heard.append(body)
            return [confirming(5)]
        return answering()(key, body)

    publisher = make(answer)
    publisher.publish([(5, encode_simple(b"abc"))])
    publisher.take(60)

    assert heard == [struct.pack(">BiQ", 0, 1, 5) + b"\x00\x00\x00\x03abc"]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (frame(Key.PUBLISH_ERROR, struct.pack(">BiQH", 0, 1, 8, 18)), UnavailableError),
        (frame(Key.PUBLISH_ERROR, struct.pack(">BiQH", 0, 1, 8, 16)), PermissionDeniedError),
        (frame(Key.PUBLISH_ERROR, struct.pack(">Bi", 0, 0)), UnavailableError),
        (frame(Key.METADATA_UPDATE, struct.pack(">H", 6) + string("orders")), UnavailableError),
        (frame(Key.PUBLISH_CONFIRM, struct.pack(">Bi", 0, 2**30)), UnavailableError),
        (frame(Key.CLOSE, struct.pack(">IH", 1, 14) + string("too large")), UnavailableError),
    ],
)
def test_a_publisher_that_is_of_no_use_any_more_says_so(
    make: Make, told: bytes, error: type[Exception]
) -> None:
    publisher = make(answering(told))

    publisher.publish([(8, encode_simple(b"a"))])
    with pytest.raises(error):
        publisher.take(60)


def test_no_stream_and_no_right_are_told_apart(make: Make) -> None:
    with pytest.raises(NotFoundError):
        make(answering(declared=Code.NO_STREAM))
    with pytest.raises(PermissionDeniedError):
        make(answering(declared=Code.ACCESS_REFUSED))
    with pytest.raises(UnavailableError):
        make(answering(declared=Code.NOT_AVAILABLE))


def test_a_stream_that_is_there_already_is_as_good_as_made(make: Callable[..., Publisher]) -> None:
    assert make(answering(), create=True).sequence() == 7
