"""One HTTP request on a socket, for as long as its bytes move.

A deadline for a whole PUT is wrong for some size and some link. So there is none: a request is
given up when nothing has moved for a while, and an answer that does not come has its own limit,
which begins once the other end has everything.

What the kernel has taken has not moved yet: it buffers some MB, which are a minute of a slow link.
So it is asked how much of it the other end has not acknowledged (Linux; elsewhere what the kernel
takes counts).
"""

from __future__ import annotations

import fcntl
import http.client
import io
import select
import socket
import ssl
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from coldstream.fragment import Buffer

_PIECE = 256 * 2**10
_MOST_OF_AN_ANSWER = 2**20
#: Servers and what lies between drop a silent connection after a while, some without a word.
_IDLE_SECONDS = 15.0
#: Where `struct tcp_info` of Linux has tcpi_bytes_acked.
_BYTES_ACKED = 120
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long nothing may happen, seconds.

    Attributes:
        connect: until there is a connection.
        stall: while bytes wait and none moves.
        answer: from when the other end has all of a request until its answer is here.
    """

    connect: float = 5.0
    stall: float = 30.0
    answer: float = 60.0


class Pace(Protocol):
    """How fast bodies may go, all together."""

    def grant(self, most: int) -> int:
        """How many bytes may go now, at least 1 and at most `most`; waits until some may."""
        ...


class Unpaced:
    """As fast as the link takes them."""

    def grant(self, most: int) -> int:
        """All."""
        return most


class BrokenWireError(Exception):
    """A connection ended, or is given up, before the answer was here.

    Args:
        words: what happened.
        sent: bytes of the body that the other end has acknowledged, about.
        whole: whether it may have all of the request.
    """

    def __init__(self, words: str, *, sent: int = 0, whole: bool = False) -> None:
        super().__init__(words)
        self.sent, self.whole = sent, whole


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    closes: bool


class _GaveUpError(Exception):
    """Nothing moved for too long, or the process ends."""


@dataclass(slots=True)
class _Sent:
    """How far a request is. Sizes in bytes.

    Attributes:
        size: of all of it.
        head: of its head.
        all: that the kernel has taken.
    """

    size: int
    head: int
    all: int = 0

    @property
    def whole(self) -> bool:
        """Whether the other end may have all of it."""
        return self.all == self.size

    @property
    def body(self) -> int:
        """Bytes of the body that the kernel has taken."""
        return max(0, self.all - self.head)


class Wire:
    """A connection. One thread uses it at a time.

    Args:
        connected: a socket, with TLS or without.
        waits: how long nothing may happen.
        pace: of bodies.
        ended: whether all requests are to be given up.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        connected: socket.socket,
        waits: Waits,
        pace: Pace,
        ended: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        connected.setblocking(False)
        self._socket, self._waits, self._pace = connected, waits, pace
        self._ended, self._clock = ended, clock
        self._slice = min(1.0, waits.stall / 4, waits.answer / 4)  # of waiting, seconds
        self._poll = select.poll()
        self._came = bytearray()  # what nobody has read yet
        self._used_at = clock()

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self._socket.close()

    def is_fresh(self) -> bool:
        """Whether another request may go this way: it was used just now, and nobody has closed."""
        if self._clock() - self._used_at > _IDLE_SECONDS:
            return False
        try:
            return self._receive() and not self._came
        except OSError:
            return False

    def exchange(self, head: bytes, body: Buffer) -> Answer:
        """Send a request, get its answer.

        Args:
            head: request line and headers.
            body: as many bytes as the headers say.

        Raises:
            BrokenWireError: there is no answer.
        """
        acked = self._acked()
        sent = _Sent(len(head) + len(body), len(head))
        try:
            self._send(memoryview(head), sent, Unpaced())
            self._send(memoryview(body), sent, self._pace)
            answer = self._answer()
        except (OSError, http.client.HTTPException, _GaveUpError) as exc:
            words = str(exc) or type(exc).__name__
            raise BrokenWireError(
                f"{words}; {sent.body} of {len(body)} bytes were sent",
                sent=min(max(0, self._acked() - acked - len(head)), len(body)),
                whole=sent.whole,
            ) from exc
        self._used_at = self._clock()
        return Answer(answer.status, answer.headers, answer.body, answer.closes or not sent.whole)

    def _send(self, data: memoryview, sent: _Sent, pace: Pace) -> None:
        """Send all, unless an answer comes before."""
        at = 0
        while at < len(data) and not self._came:
            piece = data[at : at + pace.grant(min(_PIECE, len(data) - at))]
            at += len(piece)
            moved = _Moved(self._clock(), self._waits.stall)
            while piece and not self._came:
                self._check_ended()
                try:
                    count = self._socket.send(piece)
                except _BLOCKED as exc:
                    reads = isinstance(exc, ssl.SSLWantReadError)
                    seen = self._await(select.POLLIN if reads else select.POLLIN | select.POLLOUT)
                    if not seen:
                        moved.look((sent.all, self._queued()), self._clock())
                    elif seen != select.POLLOUT and not self._receive() and not self._came:
                        raise ConnectionResetError("the other end has closed") from None
                except OSError:
                    with suppress(OSError):  # it may have said why before it closed
                        self._receive()
                    if not self._came:
                        raise
                else:
                    sent.all += count
                    piece = piece[count:]

    def _answer(self) -> Answer:
        response = http.client.HTTPResponse(_Readable(self), method="PUT")  # type: ignore[arg-type]
        response.begin()
        body = response.read(_MOST_OF_AN_ANSWER)
        return Answer(
            response.status, response.getheaders(), body, response.will_close or len(self._came) > 0
        )

    def read_into(self, buffer: Any, since: _Waited) -> int:
        """Bytes of the answer, waiting for them; 0 where the other end has closed.

        Raises:
            OSError: the connection broke.
        """
        while not self._came:
            open_still = self._receive()
            if self._came or not open_still:
                break
            since.look(self._queued(), self._clock(), self._waits)
            self._check_ended()
            self._await(select.POLLIN)
        count = min(len(buffer), len(self._came))
        buffer[:count] = self._came[:count]
        del self._came[:count]
        return count

    def waited(self) -> _Waited:
        """What watches an answer come."""
        now = self._clock()
        return _Waited(_Moved(now, self._waits.stall))

    def _receive(self) -> bool:
        """Take what has come, without waiting; whether more may come."""
        while len(self._came) < _MOST_OF_AN_ANSWER:
            try:
                data = self._socket.recv(2**16)
            except _BLOCKED:
                return True
            if not data:
                return False
            self._came += data
        raise ConnectionResetError("the other end talks without being asked")

    def _await(self, events: int) -> int:
        """Wait for one of `events`, for a while; which have come."""
        self._poll.register(self._socket.fileno(), events)
        return sum(came for _, came in self._poll.poll(self._slice * 1000))

    def _check_ended(self) -> None:
        if self._ended():
            raise _GaveUpError("the agent ends")

    def _acked(self) -> int:
        """Bytes that the other end has acknowledged, ever; 0 where nobody says."""
        try:
            found = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 2**8)
            return int(struct.unpack_from("=Q", found, _BYTES_ACKED)[0])
        except (OSError, struct.error):
            return 0

    def _queued(self) -> int:
        """Bytes that the kernel has taken and the other end has not acknowledged."""
        try:
            found = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, b"\0" * 4)
        except (OSError, ValueError):
            return 0
        return int(struct.unpack("i", found)[0])


@dataclass(slots=True)
class _Moved:
    """Sees whether anything moves.

    Args:
        at: when something last did, monotonic seconds.
        limit: seconds.
    """

    at: float
    limit: float
    _mark: object = None

    def look(self, mark: object, now: float) -> None:
        """See whether `mark` is another one than at the last look.

        Raises:
            _GaveUpError: it has been the same for too long.
        """
        if mark != self._mark:
            self._mark, self.at = mark, now
        elif now - self.at >= self.limit:
            raise _GaveUpError(f"no byte has moved for {self.limit:g} s")


@dataclass(slots=True)
class _Waited:
    """Sees how long an answer takes, from when the other end has all of the request."""

    moved: _Moved
    begun: float | None = None

    def look(self, queued: int, now: float, waits: Waits) -> None:
        """See whether there is still hope.

        Raises:
            _GaveUpError: there is none.
        """
        if queued and self.begun is None:
            self.moved.look(queued, now)
            return
        self.begun = now if self.begun is None else self.begun
        if now - self.begun >= waits.answer:
            raise _GaveUpError(f"no answer for {waits.answer:g} s")


class _Reader(io.RawIOBase):
    def __init__(self, wire: Wire) -> None:
        self._wire, self._waited = wire, wire.waited()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.read_into(buffer, self._waited)


class _Readable:
    """What `http.client` takes for a socket."""

    def __init__(self, wire: Wire) -> None:
        self._reader = _Reader(wire)

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode
        return io.BufferedReader(self._reader)
