"""A connection to the broker's own stream port, for the tail: asyncio, many requests at once.

`broker.connection` is the agent's: it blocks, and keeps only headers. This one hands on whole
chunks and takes no more of them than it has given credit for.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import (
    MAX_FRAME,
    RESPONSE,
    Code,
    Fields,
    Key,
    OffsetType,
    binary,
    frame,
    properties,
    string,
    subscribe,
)
from coldstream.broker.tls import refused
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.gateway.parcel import Parcel, delivered

#: The largest chunk that was seen has 10.5 MB; a batch cannot have more messages than 65,535.
MAX_CHUNK = 2**27
_HEARTBEAT_SECONDS = 60
_BLOCK = 2**20
#: How long a chunk may take that is there: if none comes, there is none.
_CHUNK_SECONDS = 1.0
_V2 = 2


class NoMemberError(UnavailableError):
    """This node has no running member of the stream; another one may."""


@dataclass(frozen=True, slots=True)
class Fed:
    """A chunk as it was delivered.

    Attributes:
        parcel: header and data, whose CRC holds.
        committed: what the broker said of the commit offset; 0 where it says nothing.
        first_offset: asks the very node that gave it where its log begins.
    """

    parcel: Parcel
    committed: int
    first_offset: Callable[[], Awaitable[int | None]]


class Upstream:
    """One connection; made by `connect`. Of no use any more once something failed.

    Args:
        uri: where, and as whom.
        reader: of the socket.
        writer: of the socket.
        seconds: for each answer.
    """

    def __init__(
        self,
        uri: StreamUri,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        seconds: float,
    ) -> None:
        self._uri, self._reader, self._writer, self._seconds = uri, reader, writer, seconds
        self._correlation = 0
        self._waiting: dict[tuple[int, int], asyncio.Future[Fields]] = {}
        self._feeds: dict[int, asyncio.Queue[bytes | None]] = {}
        self._tuned: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._versions: frozenset[int] = frozenset()
        self.broken = ""
        self.changed: set[str] = set()

    @classmethod
    async def connect(cls, uri: StreamUri, vhost: str, *, seconds: float = 10.0) -> Upstream:
        """Connect and log in.

        Raises:
            UnavailableError: no answer in time, none that a broker gives, or a certificate that is
                not trusted.
            PermissionDeniedError: user, password or rights.
            NotFoundError: there is no such virtual host.
        """
        context = uri.tls and uri.tls.context()
        name = (uri.tls.name or uri.host) if uri.tls else None
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection(
                    uri.host, uri.port, ssl=context, server_hostname=name, limit=_BLOCK
                )
        except (OSError, TimeoutError) as exc:
            why = refused(exc) if isinstance(exc, OSError) and str(exc) else "does not answer"
            raise UnavailableError(f"the broker at {uri} {why}") from exc
        made = cls(uri, reader, writer, seconds)
        try:
            await made._log_in(vhost)
        except BaseException:
            await made.close()
            raise
        return made

    async def _log_in(self, vhost: str) -> None:
        self._tasks.append(asyncio.create_task(self._receive()))
        told = await self.ask(
            Key.PEER_PROPERTIES, properties({"product": "coldstream gateway", "version": "1"})
        )
        version = dict(told.array(_pair)).get("version", "")
        await self.ask(Key.SASL_HANDSHAKE, b"")
        secret = binary(f"\0{self._uri.user}\0{self._uri.password}".encode())
        await self.ask(Key.SASL_AUTHENTICATE, string("PLAIN") + secret)
        await self._in_time(self._tuned, "Tune")
        self._send(frame(Key.TUNE, struct.pack(">II", MAX_FRAME, _HEARTBEAT_SECONDS)))
        await self.ask(Key.OPEN, string(vhost), about=vhost)
        if _release(version) >= (3, 11):  # an older one hangs up
            body = struct.pack(">iHHH", 1, Key.DELIVER, 1, _V2)
            rows = (await self.ask(Key.COMMAND_VERSIONS, body)).array(_version)
            self._versions = frozenset(rows)
        self._tasks.append(asyncio.create_task(self._beat()))

    async def close(self) -> None:
        """Leave; safe to call twice."""
        self._fail("was left")
        for task in self._tasks:
            task.cancel()
        self._writer.close()
        with contextlib.suppress(Exception):
            await self._writer.wait_closed()

    async def exists(self, stream: str) -> bool:
        """Whether the broker has a stream of this name."""
        try:
            await self.members(stream)
        except NotFoundError:
            return False
        return True

    async def members(self, stream: str) -> list[tuple[str, int]]:
        """Host and port of every member that says where it is, the writer's first.

        Raises:
            NotFoundError: there is no such stream.
        """
        body = struct.pack(">i", 1) + string(stream)
        fields = await self._request(Key.METADATA, body)
        nodes = dict(fields.array(_node))
        for name, code, leader, replicas in fields.array(_metadata):
            if name == stream and code == Code.NO_STREAM:
                raise NotFoundError(f"the broker at {self._uri} has no stream {stream!r}")
            if name == stream:
                found = [nodes[each] for each in (leader, *replicas) if each in nodes]
                return list(dict.fromkeys(found))
        return []

    async def first_offset(self, stream: str) -> int | None:
        """Where the node's log of a stream begins; None if nobody can say.

        A broker before 3.11 tells the first chunk of messages, which may be later.
        """
        if Key.STREAM_STATS in self._versions:
            fields = await self.ask(Key.STREAM_STATS, string(stream), about=stream)
            return dict(fields.array(_number)).get("first_chunk_id")
        header = await self.header(stream, OffsetType.FIRST)
        return None if header is None else header.chunk_id

    async def statistics(self, stream: str) -> Mapping[str, int]:
        """What the node tells of a stream; nothing before 3.11."""
        if Key.STREAM_STATS not in self._versions:
            return {}
        fields = await self.ask(Key.STREAM_STATS, string(stream), about=stream)
        return dict(fields.array(_number))

    async def header(self, stream: str, where: OffsetType, value: int = 0) -> Parcel | None:
        """The first committed chunk of messages from there on; None if none came in a second.

        Raises:
            As `subscribe`.
        """
        feed = await self.subscribe(stream, where, value)
        try:
            async with asyncio.timeout(_CHUNK_SECONDS):
                return (await feed.next()).parcel
        except TimeoutError:
            return None
        finally:
            await feed.close()

    async def subscribe(
        self,
        stream: str,
        where: OffsetType,
        value: int = 0,
        *,
        credit: int = 1,
        more: Mapping[str, str] | None = None,
    ) -> Feed:
        """Have chunks delivered, no more than `credit` ahead of who takes them.

        Raises:
            NotFoundError: there is no such stream.
            NoMemberError: this node has no member of it.
            PermissionDeniedError: the user may not read it.
            UnavailableError: the connection is broken.
        """
        number = next((each for each in range(256) if each not in self._feeds), None)
        if number is None:
            raise UnavailableError("256 subscriptions on one connection to the broker")
        feed = Feed(self, number, stream, asyncio.Queue())
        self._feeds[number] = feed.queue
        body = subscribe(number, stream, where, offset=value, credit=credit, more=more)
        try:
            await self.ask(Key.SUBSCRIBE, body, about=stream)
        except BaseException:
            self._feeds.pop(number, None)
            raise
        return feed

    async def unsubscribe(self, feed: Feed) -> None:
        """End a subscription; never raises for a connection that is broken."""
        if not self.broken:
            with contextlib.suppress(ColdstreamError):
                await self.ask(Key.UNSUBSCRIBE, struct.pack(">B", feed.number), about=feed.stream)
        self._feeds.pop(feed.number, None)

    def give_credit(self, number: int) -> None:
        """One more chunk."""
        self._send(frame(Key.CREDIT, struct.pack(">BH", number, 1)))

    def store_offset(self, reference: str, stream: str, offset: int) -> None:
        """Have the broker remember an offset; it answers nothing."""
        body = string(reference) + string(stream) + struct.pack(">Q", offset)
        self._send(frame(Key.STORE_OFFSET, body))

    async def ask(self, key: Key, body: bytes, *, about: str = "") -> Fields:
        """The fields of a response behind its code.

        Raises:
            As `subscribe`; UnavailableError for any other code.
        """
        fields = await self._request(key, body)
        code = fields.number("H")
        if code == Code.OK:
            return fields
        words = f"the broker at {self._uri} answers {key.name} with code {code} ({about[:300]!r})"
        if code in (Code.AUTHENTICATION_FAILED, Code.ACCESS_REFUSED):
            raise PermissionDeniedError(words)
        if code in (Code.NO_STREAM, Code.NO_VHOST, Code.NO_OFFSET):
            raise NotFoundError(words)
        if code == Code.NOT_AVAILABLE:
            raise NoMemberError(words)
        raise UnavailableError(words)

    async def _request(self, key: Key, body: bytes) -> Fields:
        self._correlation += 1
        place = int(key), self._correlation
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._waiting[place] = answer
        try:
            self._send(frame(key, struct.pack(">I", self._correlation) + body))
            return await self._in_time(answer, key.name)
        finally:
            self._waiting.pop(place, None)

    async def _in_time(self, answer: asyncio.Future[Fields], what: str) -> Fields:
        try:
            async with asyncio.timeout(self._seconds):
                return await answer
        except TimeoutError:
            self._fail(f"does not answer {what}")
            raise self.gone() from None

    def gone(self) -> UnavailableError:
        """Why this connection is of no use any more."""
        return UnavailableError(f"the broker at {self._uri} {self.broken}")

    def _send(self, data: bytes) -> None:
        if self.broken:
            raise self.gone()
        self._writer.write(data)

    def _fail(self, words: str) -> None:
        """Everybody who waits for something of this connection is told."""
        if self.broken:
            return
        self.broken = words
        for answer in (self._tuned, *self._waiting.values()):
            if not answer.done():
                answer.set_exception(self.gone())
                answer.exception()  # whoever waits gets it; if nobody does, it is no news
        for queue in self._feeds.values():
            queue.put_nowait(None)

    async def _beat(self) -> None:
        while not self.broken:
            await asyncio.sleep(_HEARTBEAT_SECONDS / 2)
            with contextlib.suppress(UnavailableError):
                self._send(frame(Key.HEARTBEAT, b""))

    async def _receive(self) -> None:
        try:
            while True:
                # A broker that lives says so twice a minute.
                async with asyncio.timeout(2 * _HEARTBEAT_SECONDS):
                    size = struct.unpack(">I", await self._reader.readexactly(4))[0]
                    if not 4 <= size <= MAX_CHUNK:
                        self._fail(f"sends a frame of {size} bytes")
                        return
                    data = await self._reader.readexactly(size)
                self._take(data)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self._fail("hung up")
        except UnavailableError as exc:
            self._fail(exc.reason)

    def _take(self, data: bytes) -> None:
        fields = Fields(data)
        key, _ = fields.number("H"), fields.number("H")
        if key == Key.DELIVER:
            queue = self._feeds.get(fields.number("B"))
            if queue is not None:
                queue.put_nowait(data)
        elif key & RESPONSE:
            answer = self._waiting.get((key & ~RESPONSE, fields.number("I")))
            if answer is not None and not answer.done():
                answer.set_result(fields)
        elif key == Key.TUNE and not self._tuned.done():
            self._tuned.set_result(fields)
        elif key == Key.METADATA_UPDATE:
            fields.number("H")
            self._lost(fields.string())
        elif key == Key.CLOSE:
            fields.number("I")
            code, reason = fields.number("H"), fields.string()
            self._fail(f"closes the connection: {code} {reason[:200]}")

    def _lost(self, stream: str) -> None:
        """The node has ended its subscriptions to a stream."""
        del stream  # there is one on a connection that follows, and the others ask anew
        self._fail("says that the stream has changed")


class Feed:
    """The chunks of one subscription, in order.

    Args:
        connection: of it.
        number: of the subscription.
        stream: name.
        queue: what has come; None at the end.
    """

    def __init__(
        self, connection: Upstream, number: int, stream: str, queue: asyncio.Queue[bytes | None]
    ) -> None:
        self._connection = connection
        self.number, self.stream, self.queue = number, stream, queue

    async def next(self) -> Fed:
        """The next chunk; its credit is given back by `taken`.

        Raises:
            UnavailableError: the connection is broken.
            CorruptDataError: what came is no chunk, or its CRC does not hold.
        """
        data = await self.queue.get()
        if data is None:
            raise self._connection.gone()
        if len(data) < 5:
            raise CorruptDataError("the broker delivers less than a chunk")
        at, committed = 5, 0  # behind key, version and subscription
        if struct.unpack_from(">H", data, 2)[0] >= _V2 and len(data) >= 13:
            at, committed = 13, struct.unpack_from(">Q", data, 5)[0]
        view = memoryview(data)[at:]
        if len(view) > _BLOCK:
            parcel = await asyncio.to_thread(delivered, view)
        else:
            parcel = delivered(view)
        return Fed(parcel, committed, partial(self._connection.first_offset, self.stream))

    def taken(self) -> None:
        """The last chunk was handed on: another one may come."""
        self._connection.give_credit(self.number)

    async def close(self) -> None:
        """End the subscription."""
        await self._connection.unsubscribe(self)


def _release(version: str) -> tuple[int, int]:
    """Major and minor number; (0, 0) for what is none."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return 0, 0
    return int(parts[0][:6]), int(parts[1][:6])


def _pair(fields: Fields) -> tuple[str, str]:
    return fields.string(), fields.string()


def _number(fields: Fields) -> tuple[str, int]:
    return fields.string(), fields.number("q")


def _version(fields: Fields) -> int:
    key, _, _ = fields.number("H"), fields.number("H"), fields.number("H")
    return key


def _node(fields: Fields) -> tuple[int, tuple[str, int]]:
    return fields.number("H"), (fields.string(), fields.number("I"))


def _metadata(fields: Fields) -> tuple[str, int, int, list[int]]:
    name, code, leader = fields.string(), fields.number("H"), fields.number("H")
    return name, code, leader, fields.array(lambda each: each.number("H"))
