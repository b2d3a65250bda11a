"""The local tier as the broker's own stream port gives it, to whoever has no files of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from coldstream.broker.answers import UnmetError
from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import Fields, Key, OffsetType, string
from coldstream.errors import (
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from coldstream.gateway.feed import Fed
from coldstream.gateway.log_end import end_of, last_chunk
from coldstream.gateway.membership import Membership
from coldstream.gateway.parcel import Parcel
from coldstream.gateway.upstream import Upstream
from coldstream.names import MAX_NAME
from coldstream.reader.spec import First, Last, Next, Offset, OffsetSpec, Timestamp

T = TypeVar("T")
#: Virtual host, host and port.
_Place = tuple[str, str, int]
#: Chunks of one read that may be under way from the broker, or wait for the client.
_AHEAD = 2
_NO_MEMBER = "no member of the stream answers"


class SubscriptionEndedError(UnavailableError):
    """A subscription that the broker had taken has ended."""


@dataclass(slots=True)
class BrokerTier:
    """A cluster, asked at one node, and at others where that one has no member of a stream.

    Args:
        uri: of the stream port of a node; the one on this machine, if its files are read.
        others: of the same cluster, asked where that one does not answer.
        seconds: for each answer.
    """

    uri: StreamUri
    others: Sequence[StreamUri] = ()
    seconds: float = 10.0
    _asking: dict[_Place, Upstream] = field(default_factory=dict)
    _attempts: dict[_Place, asyncio.Task[Upstream]] = field(default_factory=dict)
    _retiring: set[asyncio.Task[None]] = field(default_factory=set)
    _made: int = 0  # connections so far, but for those that took the place of one that lived
    _first: StreamUri = field(init=False)  # asked first: it has answered last

    def __post_init__(self) -> None:
        self._first = self.uri

    async def exists(self, vhost: str, stream: str) -> bool:
        """Whether there is such a stream.

        Raises:
            UnavailableError, PermissionDeniedError: nobody can say.
        """
        if len(stream.encode()) > MAX_NAME:
            return False
        try:
            return await self._of_any(vhost, lambda at: at.exists(stream))
        except NotFoundError:
            return False  # not even the virtual host

    async def last(self, vhost: str, stream: str) -> Parcel | None:
        """The last committed chunk of messages; None if there is none."""
        return await self._of_member(vhost, stream, lambda at: last_chunk(at, stream))

    async def own_last(self, vhost: str, stream: str) -> Parcel | None:
        """The same, as the node of the URI itself delivers it (rule R2 of docs/architecture.md).

        Raises:
            NoMemberError: it has no running member.
        """
        connection = await self._ask_at(self.uri, vhost)
        return await connection.header(stream, OffsetType.LAST)

    async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
        """The chunk of messages that has `offset`, or the next one; None if there is none."""
        found = await self._of_member(
            vhost, stream, lambda at: at.header(stream, OffsetType.OFFSET, offset)
        )
        # A member whose log ends below gives what it is written next, wherever that stands.
        return found if found is not None and found.next_offset > offset else None

    def generation(self, vhost: str) -> int:
        """Another number whenever the connection to the node of the URI is another one, or gone."""
        found = self._asking.get((vhost, self.uri.host, self.uri.port))
        return -1 if found is None or found.broken else self._made

    async def first_offset(self, vhost: str, stream: str) -> int | None:
        """Where the log begins; None if nobody can say."""
        return await self._of_member(vhost, stream, lambda at: at.first_offset(stream))

    async def statistics(self, vhost: str, stream: str) -> Mapping[str, int]:
        """What a member tells of a stream."""
        return await self._of_member(vhost, stream, lambda at: at.statistics(stream))

    async def end(self, vhost: str, stream: str) -> int:
        """After the last committed message; tracking data may follow."""
        return (await self._of_member(vhost, stream, lambda at: end_of(at, stream))).offset

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        """Where the log begins, and the end of its last message; None if nobody can say."""
        first = await self.first_offset(vhost, stream)
        return None if first is None else (first, await self.end(vhost, stream))

    async def locate(self, vhost: str, stream: str, spec: OffsetSpec) -> int:
        """The offset at which a read of the local tier begins.

        Raises:
            NotFoundError: there is no such stream.
            UnavailableError, PermissionDeniedError: nobody can say.
        """
        match spec:
            case First():
                return await self.first_offset(vhost, stream) or 0
            case Offset(value):
                try:
                    return min(value, await self.end(vhost, stream))
                except UnavailableError:
                    if await self.at(vhost, stream, value) is None:
                        raise
                    return value  # it is there, wherever the end is
            case Next():
                return await self.end(vhost, stream)
            case Last():
                last = await self.last(vhost, stream)
                return last.chunk_id if last is not None else 0
            case Timestamp(value):
                end = await self.end(vhost, stream)  # before: what comes meanwhile is read, too
                found = await self._of_member(
                    vhost, stream, lambda at: at.header(stream, OffsetType.TIMESTAMP, value)
                )
                return found.chunk_id if found is not None else end

    async def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        """Committed chunks from the one that contains `position` on, for ever.

        Args:
            vhost: virtual host.
            stream: name of the queue.
            position: where to begin.
            more: properties of the subscription: filters.

        Raises:
            SubscriptionEndedError: it has begun, and ended.
            UnavailableError, NotFoundError, PermissionDeniedError: it has not begun.
            CorruptDataError: what came is no chunk.
        """
        feed, connection = await self._with_its_own(
            vhost,
            stream,
            lambda at: at.subscribe(stream, OffsetType.OFFSET, position, credit=_AHEAD, more=more),
        )
        try:
            while True:
                fed = await feed.next()
                yield fed
                feed.taken()
        except UnavailableError as exc:
            raise SubscriptionEndedError(exc.reason, stream=exc.stream) from exc
        finally:
            await connection.close()

    async def join(self, vhost: str, stream: str, group: Mapping[str, str]) -> Membership:
        """A place among the single active consumers of a name, until it is closed.

        Args:
            vhost: virtual host.
            stream: name of the queue.
            group: properties of the client's subscription.

        Raises:
            InvalidInputError: the broker knows no such groups, or does not take it into this one.
            UnavailableError, NotFoundError, PermissionDeniedError: there is no place to be had.
        """
        for each in ("name", "super-stream"):
            _check_name(group.get(each, ""), "a consumer, or its super stream,")
        member, _ = await self._with_its_own(vhost, stream, lambda at: _joined(at, stream, group))
        return member

    async def store_offset(self, vhost: str, reference: str, stream: str, offset: int) -> None:
        """Have the broker remember an offset; it does not say whether it does.

        Raises:
            InvalidInputError: no broker takes such a reference.
            UnavailableError, PermissionDeniedError, NotFoundError: it cannot be asked.
        """
        _check_name(reference, "a consumer")
        await self._of_any(vhost, lambda at: at.store_offset(reference, stream, offset))

    async def query_offset(self, vhost: str, reference: str, stream: str) -> int | None:
        """The offset that a consumer has stored; None if it has none. Raises as `store_offset`."""
        _check_name(reference, "a consumer")
        body = string(reference) + string(stream)
        try:
            fields = await self._of_any(
                vhost, lambda at: at.ask(Key.QUERY_OFFSET, body, about=stream)
            )
        except NotFoundError:
            return None
        return fields.number("Q")

    async def names(self, vhost: str, key: Key, *words: str) -> Sequence[str]:
        """The streams of a super stream, or those for a routing key.

        Raises:
            NotFoundError: there is no such super stream.
            InvalidInputError: no broker has such a name.
        """
        for each in words:
            _check_name(each, "a super stream, or of a key,")
        body = b"".join(string(each) for each in words)
        fields = await self._of_any(vhost, lambda at: at.ask(key, body, about=words[-1]))
        return fields.array(Fields.string)

    async def close(self) -> None:
        """Leave."""
        for task in (*self._attempts.values(), *self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for connection in list(self._asking.values()):
            await connection.close()
        self._asking.clear()

    async def _with_its_own(
        self, vhost: str, stream: str, ask: Callable[[Upstream], Awaitable[T]]
    ) -> tuple[T, Upstream]:
        """A connection of its own to a member: a client that is slow stops nobody else."""
        error = UnavailableError(_NO_MEMBER, stream=stream)
        for uri in await self._places(vhost, stream):
            try:
                connection = await Upstream.connect(uri, vhost, seconds=self.seconds)
            except UnavailableError as exc:
                error = exc  # another member may be well
                continue
            try:
                found = await ask(connection)
            except UnavailableError as exc:
                await connection.close()
                error = exc
            except BaseException:
                await connection.close()
                raise
            else:
                return found, connection
        raise error

    async def _of_member(
        self, vhost: str, stream: str, ask: Callable[[Upstream], Awaitable[T]]
    ) -> T:
        error = UnavailableError(_NO_MEMBER, stream=stream)
        for uri in await self._places(vhost, stream):
            try:
                return await ask(await self._ask_at(uri, vhost))
            except UnavailableError as exc:
                error = exc  # another member may be well
        raise error

    async def _places(self, vhost: str, stream: str) -> list[StreamUri]:
        """The node that has answered, then the others that may have a member."""
        members = await self._of_any(vhost, lambda at: at.members(stream))
        asked = self._first
        places = [asked, *(asked.at(host, port) for host, port in members)]
        unique = {(each.host, each.port): each for each in places}
        return list(unique.values())

    async def _of_any(self, vhost: str, ask: Callable[[Upstream], Awaitable[T]]) -> T:
        """Ask the node that has answered last, and the others only where it does not."""
        faults = []
        for uri in dict.fromkeys((self._first, self.uri, *self.others)):
            try:
                answer = await ask(await self._ask_at(uri, vhost))
            except UnavailableError as exc:
                faults.append(exc)
                continue
            self._first = uri
            return answer
        raise faults[0]

    async def _ask_at(self, uri: StreamUri, vhost: str) -> Upstream:
        """A connection for questions; many who want the same one share one attempt.

        So a node that does not answer costs each of them one timeout and not one behind the other,
        and stops nobody who asks another node.
        """
        place = vhost, uri.host, uri.port
        found = self._asking.get(place)
        if found is not None and not found.broken and not found.worn:
            return found
        attempt = self._attempts.get(place)
        if attempt is None:
            attempt = asyncio.create_task(self._connected(uri, vhost, place))
            self._attempts[place] = attempt
            attempt.add_done_callback(lambda done: self._attempted(place, done))
        return await asyncio.shield(attempt)

    async def _connected(self, uri: StreamUri, vhost: str, place: _Place) -> Upstream:
        old = self._asking.get(place)
        if old is not None and old.broken:
            await self._asking.pop(place).close()
        try:
            made = await Upstream.connect(uri, vhost, seconds=self.seconds)
        except ColdstreamError:
            if old is None or old.broken:
                raise
            return old  # worn, but it works: the broker may have all the connections that it takes
        self._asking[place] = made
        self._made += old is None or bool(old.broken)
        if old is not None:
            retiring = asyncio.create_task(old.retire())
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
        return made

    def _attempted(self, place: _Place, done: asyncio.Task[Upstream]) -> None:
        del self._attempts[place]
        if not done.cancelled():
            done.exception()  # it is no news if nobody waits for it any more


async def _joined(at: Upstream, stream: str, group: Mapping[str, str]) -> Membership:
    try:
        return await at.join(stream, group)
    except UnmetError as exc:  # no other member would say anything else
        raise InvalidInputError(exc.reason) from exc


def _check_name(name: str, whose: str) -> None:
    """See that a broker can have such a name; some hang up on all of us for one that is too long.

    Raises:
        InvalidInputError: it cannot.
    """
    if len(name.encode()) > MAX_NAME:
        raise InvalidInputError(f"the name of {whose} has more than {MAX_NAME} bytes")
