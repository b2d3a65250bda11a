"""A connection to the broker's own stream port, for the tail: asyncio, many requests at once.

`broker.connection` is the agent's: it blocks, and keeps only headers. This one hands on whole
chunks and takes no more of them than it has given credit for.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Mapping

from coldstream.broker import answers
from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import (
    RESPONSE,
    Code,
    Fields,
    Key,
    OffsetType,
    frame,
    properties,
    string,
    subscribe,
)
from coldstream.broker.tls import refused
from coldstream.errors import (
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from coldstream.gateway.feed import Feed
from coldstream.gateway.hang_up import hang_up
from coldstream.gateway.membership import SINCE, Membership, as_member
from coldstream.gateway.numbers import Numbers
from coldstream.gateway.parcel import Parcel

#: The largest chunk that was seen has 10.5 MB; a batch cannot have more messages than 65,535.
MAX_CHUNK = 2**27
_BLOCK = 2**20
#: How long a chunk may take that is there: if none comes, there is none.
_CHUNK_SECONDS = 1.0
_DELIVER_V2 = 2
_STATISTICS_SINCE = (3, 11, 0)


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
        self._numbers = Numbers()
        self._version, self._subscribed = "", 0
        self._tuned: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._releasing: set[asyncio.Task[None]] = set()
        self._versions: frozenset[int] = frozenset()
        self.broken = ""

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
        self._version = dict(told.array(answers.pair)).get("version", "")
        await self.ask(Key.SASL_HANDSHAKE, b"")
        secret = answers.plain(self._uri.user, self._uri.password)
        await self.ask(Key.SASL_AUTHENTICATE, secret)
        await self._in_time(self._tuned, "Tune")
        self._send(answers.tuned())
        await self.ask(Key.OPEN, string(vhost), about=vhost)
        if answers.version(self._version) >= _STATISTICS_SINCE:  # an older one hangs up
            body = struct.pack(">iHHH", 1, Key.DELIVER, 1, _DELIVER_V2)
            rows = (await self.ask(Key.COMMAND_VERSIONS, body)).array(answers.command)
            self._versions = frozenset(rows)
        self._tasks.append(asyncio.create_task(self._beat()))

    @property
    def worn(self) -> bool:
        """Whether the broker holds too many files for it, so that it must be replaced."""
        return answers.worn(self._version, self._subscribed)

    async def retire(self) -> None:
        """Leave as soon as whoever has asked has his answer."""
        try:
            while (self._numbers or self._waiting) and not self.broken:
                await asyncio.sleep(_CHUNK_SECONDS)
        finally:
            await self.close()

    async def close(self) -> None:
        """Leave; safe to call twice."""
        self._fail("was left")
        for task in self._tasks:
            task.cancel()
        await hang_up(self._writer)

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
        fields = await self._metadata(stream)
        found = answers.placed(fields, stream, str(self._uri))
        return list(dict.fromkeys(each for each in found if each is not None))

    async def _metadata(self, stream: str) -> Fields:
        return await self._request(Key.METADATA, struct.pack(">i", 1) + string(stream))

    async def first_offset(self, stream: str) -> int | None:
        """Where the node's log of a stream begins; None if it is empty, or nobody can say.

        A broker before 3.11 tells the first chunk of messages, which may be later.
        """
        if Key.STREAM_STATS in self._versions:
            first = (await self.statistics(stream)).get("first_chunk_id", -1)
            return first if first >= 0 else None  # it says -1 of a log that is empty
        header = await self.header(stream, OffsetType.FIRST)
        return None if header is None else header.chunk_id

    async def statistics(self, stream: str) -> Mapping[str, int]:
        """What the node tells of a stream; nothing before 3.11."""
        if Key.STREAM_STATS not in self._versions:
            return {}
        fields = await self.ask(Key.STREAM_STATS, string(stream), about=stream)
        return dict(fields.array(answers.statistic))

    async def header(self, stream: str, where: OffsetType, value: int = 0) -> Parcel | None:
        """The first committed chunk of messages from there on; None if none came in a second.

        Raises:
            As `subscribe`.
        """
        feed = await self.subscribe(stream, where, value)
        try:
            try:
                async with asyncio.timeout(_CHUNK_SECONDS):
                    await feed.arrival()
            except TimeoutError:
                # A broker under load is late with all: what is there comes before this answer.
                await self._metadata(stream)
                if feed.empty():
                    return None
            return (await feed.next()).parcel
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
        feed = await self._numbers.take(lambda number: Feed(self, number, stream, credit))
        self._subscribed += 1
        body = subscribe(feed.number, stream, where, offset=value, credit=credit, more=more)
        try:
            await self.ask(Key.SUBSCRIBE, body, about=stream)
        except ColdstreamError:
            self._numbers.free(feed.number)
            raise
        except BaseException:
            # Who asked waits no longer, but the broker may deliver under this number.
            self._release(feed)
            raise
        return feed

    async def join(self, stream: str, group: Mapping[str, str]) -> Membership:
        """Have a place among the single active consumers of a name; nothing is delivered here.

        Args:
            stream: name.
            group: properties of the client's subscription.

        Raises:
            InvalidInputError: this broker knows no such groups.
            As `subscribe`.
        """
        if answers.version(self._version) < SINCE:
            raise InvalidInputError(f"the broker at {self._uri} is older than 3.11")
        member = await self._numbers.take(lambda number: Membership(self, number, stream))
        body = subscribe(member.number, stream, OffsetType.NEXT, credit=0, more=as_member(group))
        await self.ask(Key.SUBSCRIBE, body, about=stream)
        return member

    def take_turn(self, correlation: int) -> None:
        """Answer a ConsumerUpdate, as whoever reads nothing."""
        body = struct.pack(">IHH", correlation, Code.OK, OffsetType.NEXT)
        self._send(frame(Key.CONSUMER_UPDATE, body, response=True))

    async def unsubscribe(self, feed: Feed) -> None:
        """End a subscription; never raises for a connection that is broken."""
        await asyncio.shield(self._release(feed))

    def _release(self, feed: Feed) -> asyncio.Task[None]:
        """Free the number of a feed, in a task of its own: nobody's end may stop it."""
        task = asyncio.create_task(self._released(feed))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        return task

    async def _released(self, feed: Feed) -> None:
        if not self.broken:
            with contextlib.suppress(ColdstreamError):
                await self.ask(Key.UNSUBSCRIBE, struct.pack(">B", feed.number), about=feed.stream)
        # Not before: what the broker delivers under this number is this feed's until it answers.
        self._numbers.free(feed.number)

    def give_credit(self, number: int) -> None:
        """One more chunk."""
        self._send(frame(Key.CREDIT, struct.pack(">BH", number, 1)))

    async def store_offset(self, reference: str, stream: str, offset: int) -> None:
        """Have the broker remember an offset; it answers nothing.

        Raises:
            UnavailableError: the connection is broken, or the broker takes nothing.
        """
        body = string(reference) + string(stream) + struct.pack(">Q", offset)
        self._send(frame(Key.STORE_OFFSET, body))
        try:
            async with asyncio.timeout(self._seconds):
                await self._writer.drain()  # else a client's offsets would pile up here
        except (OSError, TimeoutError) as exc:
            self._fail("takes nothing")
            raise self.gone() from exc

    async def ask(self, key: Key, body: bytes, *, about: str = "") -> Fields:
        """The fields of a response behind its code.

        Raises:
            As `subscribe`; UnavailableError for any other code.
        """
        fields = await self._request(key, body)
        who = f"the broker at {self._uri} answers {key.name}"
        return answers.checked(fields, who, repr(about[:300]))

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
        self._numbers.end(self.gone())

    async def _beat(self) -> None:
        while not self.broken:
            await asyncio.sleep(answers.HEARTBEAT_SECONDS / 2)
            with contextlib.suppress(UnavailableError):
                self._send(frame(Key.HEARTBEAT, b""))

    async def _receive(self) -> None:
        try:
            while True:
                # A broker that lives says so twice a minute.
                async with asyncio.timeout(2 * answers.HEARTBEAT_SECONDS):
                    size = struct.unpack(">I", await self._reader.readexactly(4))[0]
                    if not 4 <= size <= MAX_CHUNK:
                        self._fail(f"sends a frame of {size} bytes")
                        return
                    data = await self._reader.readexactly(size)
                self._take(data)
        except ssl.SSLError as exc:
            self._fail(refused(exc))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self._fail("hung up")
        except UnavailableError as exc:
            self._fail(exc.reason)
        except Exception as exc:  # whoever waits must not wait for ever because of our bug
            self._fail(f"is not understood: {exc!r}"[:300])
            raise

    def _take(self, data: bytes) -> None:
        fields = Fields(data)
        key, _ = fields.number("H"), fields.number("H")
        if key == Key.DELIVER:
            feed = self._numbers.of(fields.number("B"))
            if feed is not None and not feed.put(data):
                self._fail(f"delivers more of {feed.stream!r} than it was given credit for")
        elif key == Key.CONSUMER_UPDATE:
            self._turn(fields.number("I"), fields.number("B"), fields.number("B"))
        elif key == Key.CREDIT | RESPONSE:
            pass  # only where the subscription has ended: whoever reads it is told in another way
        elif key & RESPONSE:
            answer = self._waiting.get((key & ~RESPONSE, fields.number("I")))
            if answer is not None and not answer.done():
                answer.set_result(fields)
        elif key == Key.TUNE and not self._tuned.done():
            self._tuned.set_result(fields)
        elif key == Key.METADATA_UPDATE:
            # The node has ended its subscriptions to a stream; those to others go on.
            _, stream = fields.number("H"), fields.string()
            words = f"the broker at {self._uri} says that the stream has changed"
            self._numbers.lost(stream, UnavailableError(words, stream=stream))
        elif key == Key.CLOSE:
            fields.number("I")
            code, reason = fields.number("H"), fields.string()
            self._fail(f"closes the connection: {code} {reason[:200]}")

    def _turn(self, correlation: int, number: int, active: int) -> None:
        member = self._numbers.of(number)
        if not isinstance(member, Membership) or not member.turn(correlation, active=bool(active)):
            self._fail(f"gives turns that nobody asked for (subscription {number})")
