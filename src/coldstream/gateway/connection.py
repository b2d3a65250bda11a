"""One client: its frames in, ours out. What is decided about them is in `session`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence

from coldstream.broker.frames import Code, FrameError, Key
from coldstream.errors import (
    ColdstreamError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.gateway import answers
from coldstream.gateway.inbox import FrameTooLargeError, Inbox
from coldstream.gateway.lookups import Lookups, code_of
from coldstream.gateway.offsets import Bookmarks
from coldstream.gateway.outbox import HIGH_WATER, outbox_of
from coldstream.gateway.requests import (
    AnyRequest,
    Authenticate,
    Named,
    Request,
    Store,
    Subscribe,
    TurnTaken,
    parse,
)
from coldstream.gateway.session import (
    HEARTBEAT_SECONDS,
    Action,
    Detach,
    Grant,
    Perform,
    Phase,
    Send,
    Session,
)
from coldstream.gateway.site import Site
from coldstream.gateway.stores import Stores
from coldstream.gateway.subscriptions import Subscriptions
from coldstream.gateway.users import Rights

#: Who has not opened a virtual host within this time is hung up on.
LOGIN_SECONDS = 15.0
#: Bytes that are read at once; as many frames are taken before others have their turn.
_BLOCK = 2**14
#: Bytes of answers that may wait for a client; who asks on and takes none is hung up on.
_MAX_UNTAKEN = 2**23
#: What a client has stored last is written within this time when it leaves.
LEAVE_SECONDS = 10.0
#: How long frames may take to come that a client has sent before the gateway ends.
_LAST_FRAMES_SECONDS = 0.05
#: Between two looks whether a client has opened a virtual host.
_LOGIN_POLL_SECONDS = 1.0
#: A client may be silent for so many heartbeats.
_SILENT_HEARTBEATS = 3
#: How long a client that takes nothing is waited for before its next frame is read.
_PATIENCE_SECONDS = float(HEARTBEAT_SECONDS)


class Connection:
    """Serves one client until it leaves.

    Args:
        site: what all clients share.
        reader: of its socket.
        writer: of its socket.
    """

    def __init__(
        self, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # A client without heartbeats may vanish with its machine.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._site, self._reader = site, reader
        self._inbox, self._outbox = Inbox(), outbox_of(writer)
        self._session = Session(version=site.version)
        self._bookmarks = Bookmarks(site.offsets, self._lost)
        here = site.advertised((writer.get_extra_info("sockname") or ("127.0.0.1", 0))[:2])
        self._lookups = Lookups(site, self._session, *here, self._bookmarks)
        self._subscriptions = Subscriptions(site, self._session, self._lookups, self)
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._untaken = 0
        self._stores = Stores(self._store)
        self._saving: asyncio.Task[None] | None = None  # while the client leaves
        self._cut_short = False
        self._shut = ""  # why the client is hung up on before its next frame
        self._wait: asyncio.Timeout | None = None  # for that
        self._open_by = self._loop.time() + LOGIN_SECONDS
        self.peer = str((writer.get_extra_info("peername") or ("?",))[0])

    async def serve(self) -> None:
        """Until the client leaves, breaks the protocol, or falls silent."""
        beat = asyncio.create_task(self._beat())
        self._site.guests.add(self)
        try:
            while await self._serve_one():
                pass
        except FrameError as exc:
            self._site.metrics.broken_frames += 1
            self._site.say(f"{self.peer} sends what is no frame: {exc.reason}")
            self._answer(answers.closing(Code.UNKNOWN_FRAME, exc.reason))
            await self._flush()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # clients come and go
        except TimeoutError:
            self._site.say(f"{self.peer} {self._shut or 'has fallen silent'}")
        except asyncio.CancelledError:
            self._cut_short = True  # the gateway ends
            raise
        finally:
            self._site.guests.discard(self)
            beat.cancel()
            await self._leave()

    async def _serve_one(self) -> bool:
        """Take one frame; whether the client stays."""
        try:
            data = await self._frame()
        except FrameTooLargeError:
            self._answer(answers.closing(Code.FRAME_TOO_LARGE, "the frame is too large"))
            await self._flush()
            return False
        action = self._session.decide(parse(data))
        if isinstance(action, Perform):
            action = await self._perform(action.request)
        return await self._act(action)

    async def _frame(self) -> bytes:
        """The next frame behind its size; raises as `Inbox.next`."""
        session = self._session
        seconds = session.heartbeat * _SILENT_HEARTBEATS
        until = self._loop.time() + seconds if seconds else None
        if session.phase is not Phase.OPEN:
            until = self._open_by
        while not self._shut:
            if (frame := self._inbox.next(session.max_frame)) is not None:
                return frame
            async with asyncio.timeout_at(until) as self._wait:
                block = await self._reader.read(_BLOCK)
            if not block:
                raise ConnectionResetError("the client has hung up")
            self._inbox.put(block)
            if len(block) == _BLOCK:
                await asyncio.sleep(0)  # more has come already, and others have their turn
        raise TimeoutError

    async def _act(self, action: Action) -> bool:
        match action:
            case Send(data, end):
                self._answer(data)
                if end:
                    await self._flush()
                    return False
            case Grant(subscription, credit):
                self._subscriptions.grant(subscription, credit)
            case Detach(subscription, data):
                await self._subscriptions.stop(subscription)
                self._answer(data)
        if not await self.drained(_PATIENCE_SECONDS) and self._untaken > _MAX_UNTAKEN:
            self._site.say(f"{self.peer} takes none of {self._untaken} bytes of answers: hung up")
            return False
        return True

    async def _perform(self, request: AnyRequest) -> Action:
        if isinstance(request, Authenticate):
            return await self._log_in(request)
        if isinstance(request, Named) and request.key is Key.OPEN:
            return self._enter(request)
        if isinstance(request, Subscribe):
            await self._subscriptions.begin(request)
            return None
        if isinstance(request, TurnTaken):
            await self._subscriptions.take_turn(request)
            return None
        if isinstance(request, Store):
            await self._stores.put(request)
            return None
        if isinstance(request, Request):
            if request.key is Key.QUERY_OFFSET:
                await self._stores.settled()  # it may be about one of them
            return Send(await self._answered(request, lambda: self._lookups.answer(request)))
        return None

    async def _log_in(self, request: Authenticate) -> Action:
        site = self._site
        try:
            rights = await site.log_in(request.user, request.password, self._waits)
        except ColdstreamError as error:
            site.say(f"{self.peer} cannot log in: {error}")
            return Send(answers.response(request.key, request.correlation, Code.INTERNAL_ERROR))
        if rights is None:
            site.metrics.refused_logins += 1
            site.say(f"{self.peer} does not log in as {request.user[:100]!r}: wrong password")
            await asyncio.sleep(site.penalty_seconds)
            refused = answers.response(request.key, request.correlation, Code.AUTHENTICATION_FAILED)
            return Send(refused)
        self._session.logged_in(request.user, rights)
        answer = answers.response(request.key, request.correlation)
        return Send(answer + answers.tune(HEARTBEAT_SECONDS))

    def _waits(self) -> bool:
        return self._loop.time() < self._open_by and not self._reader.at_eof()

    def _enter(self, request: Named) -> Action:
        rights = self._session.rights
        if rights is None or not rights.may_enter(request.name):
            refused = answers.response(request.key, request.correlation, Code.NO_VHOST)
            return Send(refused, end=True)
        self._session.opened(request.name)
        return Send(answers.opened(request.correlation, self._lookups.host, self._lookups.port))

    @property
    def user(self) -> str:
        """As `Guest` says."""
        return self._session.user

    @property
    def rights(self) -> Rights | None:
        """As `Guest` says."""
        return self._session.rights

    def changed(self, rights: Rights | None) -> None:
        """As `Guest` says: what may not be read any more ends now."""
        self._session.changed(rights)
        if rights is None:
            self._shut = f"is hung up on: {self.user[:100]!r} would have to log in anew"
            self._subscriptions.cut()
            if self._wait is not None and not self._wait.expired():
                with contextlib.suppress(RuntimeError):  # it waits for no frame just now
                    self._wait.reschedule(self._loop.time())
            return
        self._subscriptions.judge()

    async def _answered(self, request: Request, answer: Callable[[], Awaitable[bytes]]) -> bytes:
        """An answer, or the code that says why there is none."""
        try:
            return await answer()
        except ColdstreamError as error:
            return self._refusal(request, error)

    def _refusal(self, request: Request, error: ColdstreamError) -> bytes:
        if not isinstance(error, PermissionDeniedError | NotFoundError):
            self._site.say(f"{request.key.name} of {self.peer} is not answered: {error}")
        return answers.response(request.key, request.correlation, code_of(error))

    async def _store(self, request: Store) -> None:
        try:
            await self._lookups.store(request)
        except ColdstreamError as error:
            self._lost(error)

    def _lost(self, error: ColdstreamError) -> None:
        """An offset could not be stored; the client is not told, as by a broker."""
        self._site.metrics.lost_offsets += 1
        self._site.say(f"an offset of {self.peer} is not stored: {error}")

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """As `Line` says."""
        self._write(parts)

    async def drained(self, seconds: float) -> bool:
        """As `Line` says."""
        if self._outbox.size > HIGH_WATER:
            try:
                async with asyncio.timeout(seconds):
                    await self._outbox.room()
            except TimeoutError:
                self._outbox.settle()
                return False
        self._untaken = 0
        return True

    def settle(self) -> None:
        """As `Line` says."""
        self._outbox.settle()

    def answer(self, data: bytes) -> None:
        """As `Client` says."""
        self._answer(data)

    def refuse(self, request: Request, error: ColdstreamError) -> None:
        """As `Client` says."""
        self._answer(self._refusal(request, error))

    async def settled(self, seconds: float) -> None:
        """As `Client` says."""
        if self._saving is None:
            await self._stores.settled(seconds)
        else:
            await asyncio.wait({self._saving}, timeout=seconds)

    def _answer(self, data: bytes) -> None:
        self._untaken += len(data)
        self._write([data])

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        self._written_at = self._loop.time()
        self._outbox.write(parts)

    async def _flush(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self.drained(1.0)

    async def _beat(self) -> None:
        """Say that we live, when nothing else does; how often, the client says on its way in."""
        while self._session.phase is not Phase.OPEN:
            await asyncio.sleep(_LOGIN_POLL_SECONDS)
        while seconds := self._session.heartbeat:
            await asyncio.sleep(seconds / 2)
            if self._loop.time() - self._written_at >= seconds / 2:
                self._write([answers.heartbeat()])

    async def _leave(self) -> None:
        self._saving = self._site.leave(self._save())
        try:
            await self._subscriptions.close()
            await asyncio.shield(self._saving)
        finally:
            await self._outbox.close()

    async def _save(self) -> None:
        """Write what the client has stored."""
        now = self._loop.time()
        try:
            async with asyncio.timeout_at(now + LEAVE_SECONDS / 2):
                await self._stores.settled()
                if self._cut_short:
                    await self._last_stores()
        except TimeoutError:
            self._stores.cancel()
            self._lost(UnavailableError("the last one is not looked at in time"))
        finally:
            await self._bookmarks.close(now + LEAVE_SECONDS)

    async def _last_stores(self) -> None:
        """Of the frames that the client has sent by now, those that store offsets."""
        last = self._loop.time() + _LAST_FRAMES_SECONDS
        looks = 2  # what came at the very moment at which the first one ended is there by then
        # A client that hangs up, or breaks the protocol, sends no more.
        with contextlib.suppress(ConnectionError, FrameError, FrameTooLargeError):
            while looks:
                try:
                    async with asyncio.timeout_at(last):
                        data = await self._frame()
                except TimeoutError:
                    looks, last = looks - 1, self._loop.time() + _LAST_FRAMES_SECONDS
                    continue
                action = self._session.decide(parse(data))
                if isinstance(action, Perform) and isinstance(action.request, Store):
                    await self._store(action.request)
