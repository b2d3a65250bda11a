"""The subscriptions of one client: begun, given credit, ended.

A single active consumer has a place in its group at the broker as well (`membership`), and is
delivered to only in its turn: from where the client says when its turn comes, until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from coldstream.broker.frames import Code
from coldstream.errors import (
    ColdstreamError,
    DivergedError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.gateway import answers
from coldstream.gateway.delivery import MAX_CREDIT, Delivery, Line
from coldstream.gateway.lookups import Lookups, wanted
from coldstream.gateway.membership import Membership, Turn
from coldstream.gateway.requests import Request, Subscribe, TurnTaken
from coldstream.gateway.session import Session
from coldstream.gateway.site import Site
from coldstream.gateway.stream import TieredStream
from coldstream.reader.spec import OffsetSpec

#: Turns that a client has not answered, of all its subscriptions.
_MOST_TURNS = 1024
#: Seconds between the tries to find where a turn begins.
_TURN_TRIES = (0.5, 1.0, 2.0, 4.0, 8.0)
#: How long a turn waits for offsets that its client has stored.
_STORE_SECONDS = 5.0


class Client(Line, Protocol):
    """Whose subscriptions they are."""

    peer: str

    def answer(self, data: bytes) -> None:
        """Send a frame; does not wait."""
        ...

    def refuse(self, request: Request, error: ColdstreamError) -> None:
        """Answer with the code that says why there is nothing else; does not wait."""
        ...

    async def settled(self, seconds: float) -> None:
        """Wait until what the client has stored is stored, so long at the most."""
        ...


@dataclass(slots=True, eq=False)
class _Seat:
    """One subscription.

    Attributes:
        request: that began it.
        stream: that it reads.
        membership: its place in its group; None for a consumer that takes no turns.
        credit: of the client, while nothing is delivered.
        turn: the last one that the broker gave.
        delivery: what is delivered; None while it is not its turn.
        tasks: that deliver, and wait for turns.
    """

    request: Subscribe
    stream: TieredStream
    membership: Membership | None = None
    credit: int = 0
    turn: Turn | None = None
    delivery: Delivery | None = None
    delivering: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [each for each in (self.delivering, self.watching) if each is not None]


class Subscriptions:
    """Of one client; used by its connection, one request at a time.

    Args:
        site: what all clients share.
        session: of the client.
        lookups: of the client.
        client: whose they are.
    """

    def __init__(self, site: Site, session: Session, lookups: Lookups, client: Client) -> None:
        self._site, self._session = site, session
        self._lookups, self._client = lookups, client
        self._seats: dict[int, _Seat] = {}
        self._correlations = count(1)
        self._turns: dict[int, tuple[_Seat, Turn]] = {}

    async def begin(self, request: Subscribe) -> None:
        """Answer a Subscribe; where it says yes, what it asks for follows."""
        if self._is_one_too_many(request):
            return
        try:
            seat = _Seat(request, await self._lookups.readable(request.stream))
            position = 0
            if request.takes_turns:
                seat.membership = await self._joined(seat.stream, request)
            else:
                position = await seat.stream.locate(request.spec)
            if not self._may_read(seat.stream):
                if seat.membership is not None:
                    await seat.membership.close()
                raise PermissionDeniedError("the user may not read it any more")
        except ColdstreamError as error:
            self._client.refuse(request, error)
            return
        if self._is_one_too_many(request):  # others have come meanwhile
            if seat.membership is not None:
                await seat.membership.close()
            return
        number = request.subscription
        self._session.subscriptions[number] = request.stream
        self._seats[number] = seat
        self._site.metrics.subscriptions += 1
        # The response goes first: no chunk may come before it.
        self._answer(request, Code.OK)
        self._grant(seat, request.credit)
        if seat.membership is None:
            delivery = self._delivery(seat, position)
            seat.delivering = asyncio.create_task(delivery.run())
        else:
            seat.watching = asyncio.create_task(self._watch(seat, seat.membership))

    def _is_one_too_many(self, request: Subscribe) -> bool:
        """Whether there are as many as may be; the client is told."""
        site = self._site
        if site.metrics.subscriptions < site.subscriptions:
            return False
        site.say(f"{self._client.peer} is refused one more: there are {site.subscriptions}")
        self._answer(request, Code.NOT_AVAILABLE)
        return True

    def grant(self, subscription: int, credit: int) -> None:
        """So many more chunks may be sent."""
        if (seat := self._seats.get(subscription)) is not None:
            self._grant(seat, credit)

    async def take_turn(self, taken: TurnTaken) -> None:
        """The client knows of a turn: deliver, if it is still its own, and let the broker know."""
        seat, turn = self._turns.pop(taken.correlation, (None, None))
        if seat is None or turn is None or seat.membership is None:
            return
        if not turn.active:
            await self._client.settled(_STORE_SECONDS)  # the next one goes on behind it
        elif seat.turn is turn and self._is_here(seat):
            spec = taken.spec or seat.request.spec
            seat.delivering = asyncio.create_task(self._deliver_in_turn(seat, spec))
        with contextlib.suppress(UnavailableError):  # whoever waits for its turns hears it, too
            seat.membership.take(turn)

    async def stop(self, subscription: int) -> None:
        """End a subscription, as the client asks."""
        if (seat := self._seats.get(subscription)) is not None:
            await asyncio.shield(self._leave(seat))

    async def close(self) -> None:
        """End all of them; who stops waiting for it stops nothing."""
        if leaving := [self._leave(each) for each in list(self._seats.values())]:
            await asyncio.wait(leaving)

    def cut(self) -> None:
        """End all of them, now: the client is hung up on."""
        for seat in list(self._seats.values()):
            self._leave(seat)

    def judge(self) -> None:
        """End those whose streams the user may not read any more."""
        for subscription, seat in list(self._seats.items()):
            if subscription in self._seats and not self._may_read(seat.stream):
                error = PermissionDeniedError("the user may not read it any more")
                self.end(subscription, error.located(stream=seat.stream.name))

    def end(self, subscription: int, error: ColdstreamError) -> None:
        """One has ended by itself: the client is told that the stream is gone, so all of it end."""
        site = self._site
        if subscription not in self._session.subscriptions:
            return  # the client itself ends it just now
        site.say(f"a subscription of {self._client.peer} has ended: {error}")
        if isinstance(error, NotFoundError | DivergedError):
            site.streams.names.forget()
        stream, those = self._session.lost(subscription)
        for seat in [self._seats[each] for each in those if each in self._seats]:
            self._leave(seat)
            site.metrics.ended += 1
        gone = isinstance(error, NotFoundError) and error.key is None
        self._client.answer(answers.gone(stream, Code.NO_STREAM if gone else Code.NOT_AVAILABLE))

    async def _joined(self, stream: TieredStream, request: Subscribe) -> Membership:
        broker = self._site.streams.broker  # whatever the read policy takes of it
        if broker is None:
            raise InvalidInputError("who is the single active one, only a broker can say")
        try:
            return await broker.join(stream.vhost, stream.name, request.properties)
        except NotFoundError as exc:
            words = "the broker has no such queue (any more), so nobody is the single active one"
            raise InvalidInputError(words) from exc

    async def _watch(self, seat: _Seat, membership: Membership) -> None:
        """Tell the client of its turns; what is delivered ends before it hears that one is over."""
        subscription = seat.request.subscription
        try:
            while True:
                turn = seat.turn = await membership.next()
                await self._pause(seat)
                if len(self._turns) >= _MOST_TURNS:
                    raise UnavailableError("the client answers none of its turns")
                correlation = next(self._correlations)
                self._turns[correlation] = seat, turn
                self._client.answer(answers.turn(correlation, subscription, active=turn.active))
        except ColdstreamError as error:
            self.end(subscription, error)
        except Exception as exc:  # as in `Delivery.run`
            self.end(subscription, InternalError(f"a bug: {exc!r}"[:500]))
            raise

    async def _deliver_in_turn(self, seat: _Seat, spec: OffsetSpec) -> None:
        """Deliver until cancelled: the broker gives the turn to somebody else, or all ends."""
        subscription = seat.request.subscription
        try:
            # Found anew: it may have a history since the subscription began, and what another turn
            # has given says nothing of this one, which may begin below.
            seat.stream, position = await self._place(seat.request.stream, spec)
            delivery = self._delivery(seat, position)
        except ColdstreamError as error:
            self.end(subscription, error)
        except Exception as exc:  # as in `Delivery.run`
            self.end(subscription, InternalError(f"a bug: {exc!r}"[:500]))
            raise
        else:
            await delivery.run()

    async def _place(self, name: str, spec: OffsetSpec) -> tuple[TieredStream, int]:
        """Where a turn begins. While a broker elects a leader, nobody can say."""
        waits = iter(_TURN_TRIES)
        while True:
            try:
                stream = await self._lookups.readable(name)
                return stream, await stream.locate(spec)
            except UnavailableError:
                wait = next(waits, None)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    async def _pause(self, seat: _Seat) -> None:
        if seat.delivering is None:
            return
        seat.delivering.cancel()
        await asyncio.wait({seat.delivering})
        if seat.delivery is not None:
            seat.credit = seat.delivery.credit
        seat.delivery = seat.delivering = None

    def _delivery(self, seat: _Seat, position: int) -> Delivery:
        request = seat.request
        seat.delivery = Delivery(
            request.subscription,
            seat.stream,
            position,
            wanted(request.properties),
            self._session.deliver,
            self._client,
            self._site.metrics.delivered,
            self.end,
        )
        seat.delivery.grant(seat.credit)
        return seat.delivery

    def _grant(self, seat: _Seat, credit: int) -> None:
        if seat.delivery is None:
            seat.credit = min(seat.credit + credit, MAX_CREDIT)
        else:
            seat.delivery.grant(credit)

    def _is_here(self, seat: _Seat) -> bool:
        return self._seats.get(seat.request.subscription) is seat

    def _may_read(self, stream: TieredStream) -> bool:
        return self._session.may_read(stream.vhost, stream.name)

    def _leave(self, seat: _Seat) -> asyncio.Task[None]:
        """Deliver nothing more, now; the group hears it in a task of its own."""
        del self._seats[seat.request.subscription]
        self._site.metrics.subscriptions -= 1
        self._turns = {n: each for n, each in self._turns.items() if each[0] is not seat}
        for task in seat.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        return self._site.leave(self._left(seat))

    async def _left(self, seat: _Seat) -> None:
        if seat.tasks:
            await asyncio.wait(seat.tasks)  # what a bug raises there, the event loop tells
        if seat.membership is not None:
            await self._client.settled(_STORE_SECONDS)  # the next one goes on behind it
            await seat.membership.close()

    def _answer(self, request: Subscribe, code: Code) -> None:
        self._client.answer(answers.response(request.key, request.correlation, code))
