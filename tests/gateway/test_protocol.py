"""What a gateway answers on the wire, frame by frame."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from coldstream.broker.frames import Code, Key, properties, string
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.root import LastChunk
from coldstream.osiris.bloom import encode_bloom
from coldstream.osiris.chunk import CHUNK_HEADER, CHUNK_HEADER_SIZE, ChunkHeader, ChunkType
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk

FIRST, LAST, NEXT = (struct.pack(">H", each) for each in (1, 2, 3))


def offset(value: int) -> bytes:
    return struct.pack(">HQ", 4, value)


def timestamp(value: int) -> bytes:
    return struct.pack(">Hq", 5, value)


@pytest.fixture
def tier(gateway: Gateway) -> Tier:
    """Offsets 10 to 69 in six chunks of ten messages, then three chunks of tracking data."""
    tens = [
        chunk(first, *(b"%d" % n for n in range(first, first + 10)), timestamp=first * 100)
        for first in range(10, 70, 10)
    ]
    tracking = [chunk(70 + n, b"", kind=ChunkType.TRACKING_DELTA, timestamp=7000) for n in range(3)]
    name = QueueName("test", "/", "orders")
    gateway.tier.add("__orders_1", [tens[:2], tens[2:4], tens[4:], tracking], name=name)
    gateway.tier.add("o_1", [[chunk(0, b"o")]], name=QueueName("test", "/", "other"))
    gateway.tier.add("x_orders_1", [[chunk(0, b"other")]], name=QueueName("test", "x", "orders"))
    return gateway.tier


@pytest.fixture
def client(gateway: Gateway, tier: Tier) -> Iterator[RawClient]:
    del tier
    with RawClient(gateway.port) as made:
        yield made.log_in()


def first_id(data: bytes) -> int:
    return int(struct.unpack_from(">Q", data, 24)[0])


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        (FIRST, 10),
        (offset(0), 10),
        (offset(10), 10),
        (offset(29), 20),
        (offset(30), 30),
        (timestamp(-1), 10),
        (timestamp(1001), 20),
        (timestamp(6000), 60),
        (LAST, 60),
    ],
)
def test_a_subscription_begins_where_a_broker_would_begin_it(
    client: RawClient, spec: bytes, first: int
) -> None:
    assert client.subscribe("orders", spec) == Code.OK
    assert first_id(client.chunk()) == first


@pytest.mark.parametrize("spec", [NEXT, offset(73), offset(2**63), timestamp(2**60)])
def test_a_subscription_beyond_the_end_waits(client: RawClient, spec: bytes) -> None:
    assert client.subscribe("orders", spec) == Code.OK
    assert client.silent()


def test_what_is_published_later_comes_by_itself(client: RawClient, tier: Tier) -> None:
    assert client.subscribe("orders", NEXT) == Code.OK
    assert client.silent()
    fresh = chunk(73, b"new", timestamp=9000)
    root = tier.reader("__orders_1").snapshot().root
    entry = tier.upload("__orders_1", [fresh], epoch=1, floor=10)
    tier.commit("__orders_1", root.appended([entry], LastChunk(73, 1)))
    assert client.chunk() == fresh


def test_a_chunk_goes_out_byte_for_byte(client: RawClient) -> None:
    client.subscribe("orders")
    expected = chunk(10, *(b"%d" % n for n in range(10, 20)), timestamp=1000)
    assert client.chunk() == expected


def test_no_chunk_goes_out_without_credit(client: RawClient) -> None:
    client.subscribe("orders", credit=0)
    assert client.silent()
    client.credit(2)
    assert [first_id(client.chunk()) for _ in range(2)] == [10, 20]
    assert client.silent()
    client.credit(10)
    assert [first_id(client.chunk()) for _ in range(4)] == [30, 40, 50, 60]
    assert client.silent(), "tracking data is never delivered"


def test_credit_for_no_subscription_is_answered(client: RawClient) -> None:
    client.credit(1, number=9)
    key, fields = client.frame()
    assert (key, fields.number("H"), fields.number("B")) == (0x8009, Code.NO_SUBSCRIPTION, 9)


def test_after_an_unsubscribe_nothing_comes(client: RawClient) -> None:
    client.subscribe("orders", credit=0)
    assert client.ask(Key.UNSUBSCRIBE, b"\1")[0] == Code.OK
    assert client.ask(Key.UNSUBSCRIBE, b"\1")[0] == Code.NO_SUBSCRIPTION
    client.subscribe("orders", LAST)
    assert first_id(client.chunk()) == 60


def test_a_number_in_use_and_a_stream_that_is_not_there_are_refused(client: RawClient) -> None:
    assert client.subscribe("orders", credit=0) == Code.OK
    assert client.subscribe("orders", credit=0) == Code.SUBSCRIPTION_EXISTS
    assert client.subscribe("nothing", number=2) == Code.NO_STREAM


def test_a_single_active_consumer_is_refused_and_never_ignored(client: RawClient) -> None:
    alone = properties({"name": "app", "single-active-consumer": "true"})
    assert client.subscribe("orders", more=alone) == Code.PRECONDITION_FAILED


def test_version_2_of_deliver_tells_what_is_committed(client: RawClient) -> None:
    code, _ = client.ask(Key.COMMAND_VERSIONS, struct.pack(">iHHH", 1, Key.DELIVER, 1, 2))
    assert code == Code.OK
    client.subscribe("orders")
    key, fields = client.frame()
    assert (key, client.version) == (Key.DELIVER, 2)
    assert (fields.number("B"), fields.number("Q")) == (1, 72)
    assert first_id(fields.rest()) == 10


def test_metadata_names_the_gateway_for_what_it_has(client: RawClient, gateway: Gateway) -> None:
    names = ("orders", "nothing")
    body = struct.pack(">i", 2) + b"".join(string(each) for each in names)
    fields = client.request(Key.METADATA, body)
    nodes = fields.array(lambda each: (each.number("H"), each.string(), each.number("I")))
    assert nodes == [(0, "127.0.0.1", gateway.port)]
    rows = fields.array(
        lambda each: (
            each.string(), each.number("H"), each.number("H"), each.array(lambda x: x.number("H"))
        )
    )  # fmt: skip
    assert rows == [("orders", Code.OK, 0, [0]), ("nothing", Code.NO_STREAM, 0xFFFF, [])]


def test_a_virtual_host_has_its_own_streams(gateway: Gateway, tier: Tier) -> None:
    del tier
    with RawClient(gateway.port).log_in(vhost="x") as client:
        client.subscribe("orders")
        assert client.chunk() == chunk(0, b"other")
        assert client.subscribe("__orders_1", number=2) == Code.NO_STREAM


def test_who_may_not_read_a_stream_is_refused(gateway: Gateway, tier: Tier) -> None:
    del tier
    with RawClient(gateway.port).log_in("few", "secret") as client:
        assert client.subscribe("orders") == Code.ACCESS_REFUSED
        assert client.subscribe("__orders_1") == Code.ACCESS_REFUSED, "by its directory's name"
        body = string("ref") + string("orders")
        assert client.ask(Key.QUERY_OFFSET, body)[0] == Code.ACCESS_REFUSED
        assert client.ask(Key.STREAM_STATS, string("orders"))[0] == Code.ACCESS_REFUSED


def test_a_wrong_password_is_refused(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        assert client.authenticate("guest", "wrong") == Code.AUTHENTICATION_FAILED
        assert client.authenticate("nobody", "guest") == Code.AUTHENTICATION_FAILED
    assert gateway.metrics.refused_logins == 2


@pytest.mark.parametrize(
    ("key", "body", "code"),
    [
        (Key.DECLARE_PUBLISHER, b"\0" + string("") + string("orders"), Code.ACCESS_REFUSED),
        (Key.CREATE, string("new") + struct.pack(">i", 0), Code.ACCESS_REFUSED),
        (Key.DELETE, string("orders"), Code.ACCESS_REFUSED),
        (Key.DELETE_PUBLISHER, b"\0", Code.NO_PUBLISHER),
        (Key.CREATE_SUPER_STREAM, string("new"), Code.ACCESS_REFUSED),
        (Key.PARTITIONS, string("orders"), Code.NO_STREAM),
    ],
)
def test_whatever_would_write_is_refused_with_its_code(
    client: RawClient, key: Key, body: bytes, code: Code
) -> None:
    assert client.ask(key, body)[0] == code


def test_each_message_that_is_published_is_refused(client: RawClient) -> None:
    batch = struct.pack(">QBHII", 8, 0x90, 2, 30, 3) + b"abc"
    body = struct.pack(">Bi", 7, 2) + struct.pack(">QI", 7, 2) + b"hi" + batch
    client.send(Key.PUBLISH, body)
    key, fields = client.frame()
    assert key == Key.PUBLISH_ERROR
    assert fields.number("B") == 7
    refused = fields.array(lambda each: (each.number("Q"), each.number("H")))
    assert refused == [(7, Code.NO_PUBLISHER), (8, Code.NO_PUBLISHER)]


def test_statistics_and_resolved_offsets_are_those_of_the_manifest(client: RawClient) -> None:
    code, fields = client.ask(Key.STREAM_STATS, string("orders"))
    numbers = dict(fields.array(lambda each: (each.string(), each.number("q"))))
    assert code == Code.OK
    assert numbers == {
        "first_chunk_id": 10, "last_chunk_id": 60, "committed_chunk_id": 60, "committed_offset": 72
    }  # fmt: skip
    code, fields = client.ask(Key.RESOLVE_OFFSET, string("orders") + LAST)
    assert (code, fields.number("H"), fields.number("Q")) == (Code.OK, 4, 60)


@pytest.mark.parametrize(
    ("asked", "chunk_id"), [(0, 10), (10, 10), (29, 20), (69, 60), (71, 71), (73, 73), (500, 73)]
)
def test_an_offset_is_resolved_to_the_chunk_that_has_it_as_by_a_broker(
    client: RawClient, asked: int, chunk_id: int
) -> None:
    code, fields = client.ask(Key.RESOLVE_OFFSET, string("orders") + offset(asked))
    assert (code, fields.number("H"), fields.number("Q")) == (Code.OK, 4, chunk_id)


def test_chunks_that_a_filter_rules_out_are_skipped(gateway: Gateway) -> None:
    chunks = []
    for number in range(30):
        plain = chunk(number, b"%d" % number)
        bloom = encode_bloom([b"red" if number % 10 == 3 else b"blue"])
        header = ChunkHeader(*_fields(plain)[:-1], len(bloom))
        chunks.append(header.encode() + bloom + plain[CHUNK_HEADER_SIZE:])
    gateway.tier.add("__colours_1", [chunks], name=QueueName("test", "/", "colours"))
    with RawClient(gateway.port).log_in() as client:
        client.subscribe("colours", credit=100, more=properties({"filter.0": "red"}))
        found = [first_id(client.chunk()) for _ in range(3)]
        assert client.silent()
    assert found == [3, 13, 23]


def _fields(data: bytes) -> tuple[int, ...]:
    return CHUNK_HEADER.unpack_from(data)[1:]


def test_what_comes_too_early_or_is_no_command_ends_the_connection(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        client.send(Key.METADATA, struct.pack(">Ii", 1, 0))
        key, fields = client.frame()
        fields.skip(4)
        assert (key, fields.number("H")) == (Key.CLOSE, Code.UNKNOWN_FRAME)
        assert client.hung_up()
    with RawClient(gateway.port).log_in() as client:
        client.send(99, b"")
        assert client.frame()[0] == Key.CLOSE
        assert client.hung_up()


def test_a_frame_that_is_too_large_is_not_even_read(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        client.socket.sendall(struct.pack(">I", 2**14 + 1))
        key, fields = client.frame()
        fields.skip(4)
        assert (key, fields.number("H")) == (Key.CLOSE, Code.FRAME_TOO_LARGE)
        assert client.hung_up()


def test_a_client_says_goodbye(client: RawClient) -> None:
    assert client.ask(Key.CLOSE, struct.pack(">H", 1) + string("bye"))[0] == Code.OK
    assert client.hung_up()


def test_damage_ends_the_subscription_after_all_that_is_good(
    gateway: Gateway, tier: Tier, client: RawClient
) -> None:
    root = tier.reader("__orders_1").snapshot().root
    tier.flip(tier.key(root, "__orders_1", 1), 200)
    client.subscribe("orders", credit=100)
    found = []
    while (frame := client.frame())[0] == Key.DELIVER:
        frame[1].skip(1)
        found.append(first_id(frame[1].rest()))
    key, fields = frame
    assert key == Key.METADATA_UPDATE
    assert (fields.number("H"), fields.string()) == (Code.NOT_AVAILABLE, "orders")
    assert found in ([10, 20], [10, 20, 30])
    assert any("CRC" in each for each in gateway.said)


def test_whoever_is_told_that_a_stream_is_gone_gets_no_chunk_of_it_any_more(
    gateway: Gateway, tier: Tier, client: RawClient
) -> None:
    """As of a broker: a client takes all its subscriptions to the stream for ended."""
    root = tier.reader("__orders_1").snapshot().root
    tier.flip(tier.key(root, "__orders_1", 1), 200)
    assert client.subscribe("orders", LAST, number=2, credit=0) == Code.OK
    assert client.subscribe("orders", number=3, credit=0) == Code.OK
    assert client.subscribe("other", number=4, credit=0) == Code.OK
    assert client.subscribe("orders", number=1, credit=100) == Code.OK
    while (frame := client.frame())[0] == Key.DELIVER:
        pass
    assert frame[0] == Key.METADATA_UPDATE
    for number in (1, 2, 3):
        assert client.ask(Key.UNSUBSCRIBE, bytes([number]))[0] == Code.NO_SUBSCRIPTION
    client.credit(1, number=4)
    assert first_id(client.chunk()) == 0, "another stream goes on"
    assert client.subscribe("orders", LAST, number=2) == Code.OK
    assert first_id(client.chunk()) == 60
    assert gateway.metrics.subscriptions == 2


def test_a_hole_is_passed_over_and_told(gateway: Gateway) -> None:
    tier = gateway.tier
    groups = [[chunk(0, b"a")], tier.hole(1, 50), [chunk(50, b"b")]]
    tier.add("__holes_1", groups, name=QueueName("test", "/", "holes"))
    with RawClient(gateway.port).log_in() as client:
        client.subscribe("holes", credit=10)
        assert [first_id(client.chunk()) for _ in range(2)] == [0, 50]
    assert any("1 to 49 were lost" in each for each in gateway.said)


def test_a_client_that_takes_nothing_holds_no_memory_and_stops_nobody(gateway: Gateway) -> None:
    big = [chunk(n, b"x" * 200_000) for n in range(40)]
    gateway.tier.add("__big_1", [big], name=QueueName("test", "/", "big"))
    with RawClient(gateway.port).log_in() as slow, RawClient(gateway.port).log_in() as quick:
        slow.subscribe("big", credit=100)
        quick.subscribe("big", credit=100)
        assert [first_id(quick.chunk()) for _ in range(40)] == list(range(40))


def test_one_client_too_many_is_hung_up_on() -> None:
    with Gateway(Tier(), most=1) as gateway, RawClient(gateway.port).log_in():
        with RawClient(gateway.port) as other:
            assert other.hung_up()
        assert gateway.metrics.turned_away == 1


@pytest.mark.parametrize(
    ("key", "body", "answer"),
    [
        (Key.QUERY_OFFSET, string("nobody") + string("orders"), "0013 0000000000000000"),
        (Key.QUERY_OFFSET, string("nobody") + string("none"), "0002 0000000000000000"),
        (Key.QUERY_PUBLISHER_SEQUENCE, string("p") + string("orders"), "0010 0000000000000000"),
        (Key.PARTITIONS, string("none"), "0002 00000000"),
        (Key.ROUTE, string("key") + string("none"), "0002 00000000"),
        (Key.STREAM_STATS, string("none"), "0002 00000000"),
        (Key.RESOLVE_OFFSET, string("none") + FIRST + bytes(4), "0002 0004 0000000000000000"),
        (Key.SUBSCRIBE, b"\1" + string("none") + FIRST + b"\0\1", "0002"),
        (Key.UNSUBSCRIBE, b"\7", "0004"),
    ],
)
def test_a_refusal_has_all_that_a_client_reads_of_it(
    client: RawClient, key: Key, body: bytes, answer: str
) -> None:
    """As captured from 4.3.6. The JavaScript client broke off where nothing followed the code."""
    assert client.request(key, body).rest() == bytes.fromhex(answer)
