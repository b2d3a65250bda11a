"""Answers to what clients ask about streams, after a look at their rights."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream.broker.frames import Code, Key
from coldstream.errors import (
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
)
from coldstream.gateway import answers
from coldstream.gateway.offsets import Bookmarks
from coldstream.gateway.requests import Metadata, Named, Request, Resolve, Store
from coldstream.gateway.session import Session
from coldstream.gateway.stream import TieredStream, Wanted
from coldstream.osiris.bloom import FilterMatcher
from coldstream.reader.spec import Last

if TYPE_CHECKING:
    from coldstream.gateway.site import Site

_FILTER = "filter."
_MATCH_UNFILTERED = "match-unfiltered"
#: Streams of one request for which the table and the broker are asked at the same time.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Lookups:
    """Of one client.

    Attributes:
        site: what all clients share.
        session: of the client.
        host: where clients find every stream.
        port: the same.
        bookmarks: offsets of the client's consumers.
    """

    site: Site
    session: Session
    host: str
    port: int
    bookmarks: Bookmarks

    async def answer(self, request: Request) -> bytes:
        """The frame that answers a request.

        Raises:
            NotFoundError: there is no such stream.
            PermissionDeniedError: the client may not read it.
            UnavailableError, CorruptDataError: nobody can say just now.
        """
        match request:
            case Metadata(_, correlation, names):
                unique = list(dict.fromkeys(names))
                # Many at once: a broker that stands still is waited for once. Not all: a client may
                # ask for a hundred thousand, and others use the same threads and connections.
                among = asyncio.Semaphore(_AT_ONCE)
                codes = await asyncio.gather(*(self._code_among(among, each) for each in unique))
                told = dict(zip(unique, codes, strict=True))
                return answers.metadata(correlation, self.host, self.port, told)
            case Resolve(_, correlation, stream, spec):
                found = await self.readable(stream)
                position = await found.locate(spec)
                return answers.resolved(correlation, await found.chunk_of(position))
            case Named(Key.STREAM_STATS, correlation, stream):
                return answers.statistics(correlation, await self._statistics(stream))
            case Named(Key.QUERY_OFFSET, correlation, stream, reference):
                found_offset = await self._stored(reference, stream)
                if found_offset is None:
                    return answers.response(Key.QUERY_OFFSET, correlation, Code.NO_OFFSET)
                return answers.stored_offset(correlation, found_offset)
            case Named(Key.PARTITIONS | Key.ROUTE as key, correlation, name, routing_key):
                words = (routing_key, name) if key is Key.ROUTE else (name,)
                return await self._partitions(key, correlation, words)
        raise NotFoundError(f"nobody answers {request.key.name}")

    async def store(self, request: Store) -> None:
        """Remember a consumer's offset; raises as `answer`."""
        stream = await self.readable(request.stream)
        await self.bookmarks.store(stream, request.reference, request.offset)

    async def _stored(self, reference: str, name: str) -> int | None:
        return await self.bookmarks.query(await self.readable(name), reference)

    async def _code_among(self, among: asyncio.Semaphore, name: str) -> Code:
        async with among:
            return await self._code(name)

    async def _code(self, name: str) -> Code:
        """What Metadata says of a stream; rights are looked at when it is read, as by a broker."""
        try:
            found = await self.site.streams.find(self.session.vhost, name)
        except PermissionDeniedError:
            return Code.ACCESS_REFUSED
        except ColdstreamError as error:
            self.site.say(f"the stream {name[:200]!r} cannot be found: {error}")
            return Code.NOT_AVAILABLE
        return Code.NO_STREAM if found is None else Code.OK

    async def readable(self, name: str) -> TieredStream:
        """A stream that the client may read; raises as `answer`."""
        found = await self.site.streams.find(self.session.vhost, name)
        if found is None:
            raise NotFoundError("there is no such stream", stream=name[:300])
        stream, vhost, known_as = found
        if not self.session.may_read(vhost, known_as):
            raise PermissionDeniedError("the user may not read the stream", stream=known_as)
        return stream

    async def _statistics(self, name: str) -> Mapping[str, int]:
        stream = await self.readable(name)
        numbers: dict[str, int] = {}
        if stream.broker is not None:
            try:
                numbers.update(await stream.broker.statistics(stream.vhost, stream.name))
            except NotFoundError:
                if stream.remote is None:
                    raise
        if stream.remote is None:
            return numbers
        root = (await stream.remote.snapshot()).root
        if root.first_offset < root.next_offset:
            # A broker says -1 of a log that is empty.
            first = numbers.get("first_chunk_id", -1)
            at = root.first_offset
            numbers["first_chunk_id"] = at if first < 0 else min(first, at)
            if numbers.get("last_chunk_id", -1) < 0:
                last = await stream.remote.locate(Last())
                numbers["last_chunk_id"] = numbers["committed_chunk_id"] = last
                numbers["committed_offset"] = root.next_offset - 1
        for each in ("first_chunk_id", "last_chunk_id", "committed_chunk_id", "committed_offset"):
            numbers.setdefault(each, -1)
        return numbers

    async def _partitions(self, key: Key, correlation: int, words: tuple[str, ...]) -> bytes:
        broker = self.site.streams.broker
        if broker is None:
            raise NotFoundError("super streams are known to a broker only", stream=words[-1])
        vhost = self.session.vhost
        found = await broker.names(vhost, key, *words)
        # The broker answers what the gateway's own user may know. Part of it would be a super
        # stream that misses some, so it is all or nothing.
        if not all(self.session.may_read(vhost, each) for each in found):
            raise PermissionDeniedError("the user may not read all its streams", stream=words[-1])
        return answers.names(key, correlation, found)


def wanted(properties: Mapping[str, str]) -> Wanted:
    """Which chunks the properties of a subscription ask for."""
    filters = {name: value for name, value in properties.items() if name.startswith(_FILTER)}
    if not filters:
        return Wanted(None, {})
    unfiltered = properties.get(_MATCH_UNFILTERED) == "true"  # a broker takes no other word
    values = tuple(value.encode() for value in filters.values())
    told = {**filters, _MATCH_UNFILTERED: "true" if unfiltered else "false"}
    return Wanted(FilterMatcher(values, unfiltered), told)


def code_of(error: ColdstreamError) -> Code:
    """What a client is told where there is no answer."""
    match error:
        case PermissionDeniedError():
            return Code.ACCESS_REFUSED
        case NotFoundError():
            return Code.NO_STREAM
        case InvalidInputError():
            return Code.PRECONDITION_FAILED
    return Code.NOT_AVAILABLE
