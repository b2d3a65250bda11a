"""A publisher of one stream over a connection to a broker's stream port.

It has a name, under which the broker remembers the last publishing id and drops what is not above
it: so what is sent twice is there once. Source: rabbitmq-server, deps/rabbitmq_stream/docs/
PROTOCOL.adoc; a row of a Publish is a u64 publishing id and then the entry as chunks have it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from contextlib import suppress

from coldstream.broker.answers import BrokerDeniedError, BrokerUnavailableError
from coldstream.broker.connection import Connection, StreamUri, TooLateError
from coldstream.broker.frames import MAX_FRAME, Code, Fields, Key, frame, properties, string
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError
from coldstream.osiris.chunk import Buffer

#: Bytes of a Publish before its rows, and of a row before its entry.
_HEAD, _ROW = 13, 8
#: No entry is larger: a frame has to hold it.
MAX_ENTRY = MAX_FRAME - _HEAD - _ROW
_PUBLISHER = 0
#: Connections that are tried to reach the leader.
_LOOKS = 10


class Publisher(Connection):
    """Publishes to one stream; used by one thread.

    Args:
        uri: of any node of the cluster.
        vhost: virtual host.
        stream: queue's name.
        reference: name of the publisher, at most 255 bytes.
        create: make the stream, with the broker's defaults, if it is not there.
        seconds: for each answer.

    Attributes:
        waiting: bytes of the entries that are not confirmed yet, by publishing id.
        confirmed: the highest publishing id that was confirmed, 0 for none.

    Raises:
        NotFoundError: no such virtual host, or no such stream.
        As `Connection`.
    """

    def __init__(
        self,
        uri: StreamUri,
        vhost: str,
        stream: str,
        reference: str,
        *,
        create: bool = False,
        seconds: float = 30.0,
    ) -> None:
        self.waiting: dict[int, int] = {}
        self.confirmed = 0
        super().__init__(uri, vhost, seconds=seconds)
        self._stream, self._reference = stream, reference
        try:
            if create:
                self._create()
            body = struct.pack(">B", _PUBLISHER) + string(reference) + string(stream)
            self._ask(Key.DECLARE_PUBLISHER, body, stream=stream)
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        with suppress(UnavailableError):  # it is there already, or declaring will say more
            self._ask(Key.CREATE, string(self._stream) + properties({}), stream=self._stream)

    def sequence(self) -> int:
        """The last publishing id that the broker has of this name, 0 for none.

        It may not be committed yet: whoever goes on behind it sends it once more, and waits for its
        confirmation, which comes when what the broker has is committed.

        Raises:
            UnavailableError, NotFoundError: as the class.
        """
        body = string(self._reference) + string(self._stream)
        return self._ask(Key.QUERY_PUBLISHER_SEQUENCE, body, stream=self._stream).number("Q")

    def publish(self, rows: Sequence[tuple[int, Buffer]]) -> None:
        """Send entries under rising publishing ids; together at most `MAX_ENTRY` bytes of rows.

        Raises:
            UnavailableError: the connection, or the publisher on it, is of no use any more.
        """
        parts: list[Buffer] = [struct.pack(">Bi", _PUBLISHER, len(rows))]
        for number, entry in rows:
            parts += (struct.pack(">Q", number), entry)
            self.waiting[number] = len(entry)
        self._send(frame(Key.PUBLISH, b"".join(parts)))

    def take(self, seconds: float) -> None:
        """Take what the broker has sent, and wait so long for the first of it.

        Raises:
            UnavailableError: as `publish`.
        """
        before, deadline = len(self.waiting), time.monotonic() + seconds
        self.poll()
        while len(self.waiting) == before and (left := deadline - time.monotonic()) > 0:
            self._deadline = time.monotonic() + min(left, 1.0)
            try:
                key, data, size = self._frame()
            except TooLateError:
                self.poll()
                continue
            self._skip(size)
            self._take(key, data)

    def _take(self, key: int, data: bytes) -> None:
        if key == Key.PUBLISH_CONFIRM:
            fields = Fields(data)
            fields.number("B")
            for number in fields.array(lambda each: each.number("Q")):
                self.waiting.pop(number, None)
                self.confirmed = max(self.confirmed, number)
        elif key == Key.PUBLISH_ERROR:
            fields = Fields(data)
            fields.number("B")
            number, code = next(iter(fields.array(_refusal)), (0, 0))
            if code == Code.ACCESS_REFUSED:
                raise BrokerDeniedError(f"the broker at {self._where} refuses to publish")
            raise self._gone(f"refuses the publishing id {number} with code {code}")
        elif key == Key.METADATA_UPDATE:
            fields = Fields(data)
            fields.number("H")
            if fields.string() == self._stream:
                raise self._gone(f"says that the stream {self._stream!r} has moved, or is deleted")
        else:
            super()._take(key, data)


def leading_publisher(
    uri: StreamUri, vhost: str, stream: str, reference: str, *, create: bool = False
) -> Publisher:
    """A publisher on the node that has the stream's writer; arguments and errors as `Publisher`.

    Another node passes each message on as it comes, over a link between the nodes. Where that
    breaks and is mended, some are lost and later ones arrive, so that the last publishing id of the
    stream says nothing about those before it (seen on 4.3.6). A node that advertises no address
    cannot be told from the leader, and is taken as it is.

    Raises:
        UnavailableError: no node leads just now, or the leader cannot be reached.
    """
    at, told = uri, ""
    for _ in range(_LOOKS):
        try:
            publisher = Publisher(at, vhost, stream, reference, create=create and at == uri)
        except (UnavailableError, NotFoundError, PermissionDeniedError):
            if at == uri:
                raise
            at = uri  # the leader is not reached by its own address; a balancer may give it
            continue
        if publisher.advertised is None:
            return publisher
        try:
            leader = publisher.leader(stream)
        except BaseException:
            publisher.close()
            raise
        if leader == publisher.advertised:
            return publisher
        publisher.close()
        if leader is None:
            raise BrokerUnavailableError(f"no node is known to lead {stream!r} just now")
        at = uri if told else uri.at(*leader)
        told = f"{leader[0]}:{leader[1]}"
    raise BrokerUnavailableError(
        f"the node that leads {stream!r}, {told}, is not reached from here; through another node a"
        " message may be lost on its way: name that node"
    )


def _refusal(fields: Fields) -> tuple[int, int]:
    return fields.number("Q"), fields.number("H")
