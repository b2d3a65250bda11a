"""A blocking connection to the stream port of one broker node, with a deadline for every answer.

It asks for one chunk at a time and keeps of it the header only, however large it is.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from coldstream.broker import answers
from coldstream.broker.frames import (
    MAX_FRAME,
    RESPONSE,
    Fields,
    Key,
    OffsetType,
    frame,
    properties,
    string,
    subscribe,
)
from coldstream.broker.tls import Tls, refused
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE

_PORT, _TLS_PORT = 5552, 5551
_SCHEMES = {"rabbitmq-stream": False, "rabbitmq-stream+tls": True}
#: A Deliver of version 1 has the subscription before the chunk.
_BEFORE_CHUNK = 1
_BLOCK = 2**16
_INSTANT = 0.001  # seconds


@dataclass(frozen=True, slots=True)
class StreamUri:
    """Where the stream port of a node is, and as whom to ask.

    Attributes:
        host: name or address.
        port: of the stream listener.
        user: name.
        password: of the user; never part of a message.
        tls: how to trust it; None where the listener wants no TLS.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: Tls | None = None

    @classmethod
    def parse(cls, text: str) -> StreamUri:
        """From `rabbitmq-stream://USER:PASSWORD@HOST:PORT`, or `rabbitmq-stream+tls://`.

        Raises:
            InvalidInputError: it is none; the message does not repeat it, it may have a password.
                Or as `Tls.parse`.
        """
        try:
            parts = urlsplit(text)
            tls, port = _SCHEMES[parts.scheme], parts.port
        except (KeyError, ValueError):
            raise InvalidInputError(
                "a stream URI is rabbitmq-stream://USER:PASSWORD@HOST:PORT"
            ) from None
        return cls(
            parts.hostname or "localhost",
            port or (_TLS_PORT if tls else _PORT),
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            Tls.parse(parts.query, tls=tls),
        )

    def at(self, host: str, port: int) -> StreamUri:
        """Another node of the same cluster, as the same user; its certificate is its own host's."""
        tls = None if self.tls is None else replace(self.tls, name="")
        return replace(self, host=host, port=port, tls=tls)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection:
    """Logged in to one virtual host of one node.

    Args:
        uri: where.
        vhost: virtual host.
        seconds: for each answer.

    Attributes:
        broken: whether it is of no use any more.
        properties: what the broker says of itself: `product`, `version`, `platform` and others.
        advertised: host and port of the listener as this node advertises them; None if it does not.

    Raises:
        UnavailableError: no answer in time, none that a broker gives, or a certificate that is not
            trusted.
        InvalidInputError: the file of authorities cannot be used any more.
        PermissionDeniedError: user, password or rights.
        NotFoundError: there is no such virtual host.
    """

    def __init__(self, uri: StreamUri, vhost: str, *, seconds: float = 10.0) -> None:
        self._where, self._seconds = str(uri), seconds
        self._correlation = self._subscription = self._subscribed = 0
        self._deadline = time.monotonic() + seconds
        self._sent_at = time.monotonic()
        self.broken = False
        context = uri.tls and uri.tls.context()
        self.properties: dict[str, str] = {}
        self.advertised: tuple[str, int] | None = None
        try:
            self._socket = socket.create_connection((uri.host, uri.port), timeout=seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if uri.tls and context:
                name = uri.tls.name or uri.host
                self._socket = context.wrap_socket(self._socket, server_hostname=name)
        except OSError as exc:
            raise answers.BrokerUnavailableError(
                f"the broker at {self._where} {refused(exc)}"
            ) from exc
        try:
            self._log_in(uri, vhost)
        except BaseException:
            self.close()
            raise

    def _log_in(self, uri: StreamUri, vhost: str) -> None:
        own = properties({"product": "coldstream", "version": "1"})
        self.properties = dict(self._ask(Key.PEER_PROPERTIES, own).array(answers.pair))
        self._ask(Key.SASL_HANDSHAKE, b"")
        self._ask(Key.SASL_AUTHENTICATE, answers.plain(uri.user, uri.password), user=uri.user)
        self._await(Key.TUNE, 0)
        self._send(answers.tuned())
        opened = self._ask(Key.OPEN, string(vhost), vhost=vhost)
        told = dict(opened.array(answers.pair))
        if "advertised_host" in told and told.get("advertised_port", "").isdecimal():
            self.advertised = told["advertised_host"], int(told["advertised_port"])

    def close(self) -> None:
        """Leave; safe to call twice."""
        self.broken = True
        self._socket.close()

    @property
    def worn(self) -> bool:
        """Whether the broker holds too many files for it, so that it must be replaced."""
        return answers.worn(self.properties.get("version", ""), self._subscribed)

    def poll(self) -> None:
        """Take what the broker has sent by itself, without waiting; and show that this end lives.

        Raises:
            UnavailableError: the connection is broken.
        """
        if time.monotonic() - self._sent_at > answers.HEARTBEAT_SECONDS / 2:
            self._send(frame(Key.HEARTBEAT, b""))
        while self._has_come():
            self._deadline = time.monotonic() + _INSTANT
            try:
                key, data, left = self._frame()
            except TooLateError:
                return
            self._skip(left)
            self._take(key, data)

    def _has_come(self) -> bool:
        """Whether there is something to read: to wait for it would cost a millisecond each time,
        and there is a connection for each virtual host.
        """
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(0))

    def header(
        self, stream: str, where: OffsetType, offset: int = 0, *, patience: float = 1.0
    ) -> bytes | None:
        """The header of the first or last committed chunk of messages that this node has, or of
        that with an offset or the next one behind it; 48 bytes.

        Tracking chunks are never delivered. None if there is no chunk yet, or none came in
        `patience` seconds: both look the same.

        Raises:
            NotFoundError: the node knows no such stream.
            NoMemberError: the node has no running member of it.
            UnavailableError: the connection failed; make another one then.
            PermissionDeniedError: the user may not read it.
        """
        self._subscription = (self._subscription + 1) % 256
        self._subscribed += 1
        body = subscribe(self._subscription, stream, where, offset=offset)
        self._ask(Key.SUBSCRIBE, body, stream=stream)
        try:
            header = self._await_chunk(self._subscription, patience)
        finally:
            # What is on its way for this subscription is passed over: the next has another number.
            if not self.broken:
                self._ask(Key.UNSUBSCRIBE, struct.pack(">B", self._subscription), stream=stream)
        return header

    def members(self, stream: str) -> list[tuple[str, int]]:
        """Host and port of the stream listener of every member, as the nodes advertise them.

        Raises:
            NotFoundError: there is no such stream.
            UnavailableError: a member is on a node that does not say where it is, or as `header`.
        """
        found = self._placed(stream)
        if not found or None in found:
            raise UnavailableError(f"not every member of {stream!r} has a node that can be asked")
        return [each for each in found if each is not None]

    def leads(self, stream: str) -> bool | None:
        """Whether the stream's writer is on this node; None if nobody can say just now.

        It may have moved when the answer is read: good for dividing work, and for nothing else.

        Raises:
            NotFoundError: there is no such stream.
            UnavailableError: as `header`.
        """
        leader = self.leader(stream)
        if leader is None or self.advertised is None:
            return None
        return leader == self.advertised

    def leader(self, stream: str) -> tuple[str, int] | None:
        """Where the stream's writer is, as that node advertises it; None if that is not known.

        Raises:
            As `leads`.
        """
        return next(iter(self._placed(stream)), None)

    def _placed(self, stream: str) -> list[tuple[str, int] | None]:
        """Where the writer and then the replicas are, None for one that does not say; [] if nobody
        knows the members.
        """
        self._correlation += 1
        self._deadline = time.monotonic() + self._seconds
        body = struct.pack(">Ii", self._correlation, 1) + string(stream)
        self._send(frame(Key.METADATA, body))
        fields = self._await(Key.METADATA, self._correlation)
        return answers.placed(fields, stream, self._where)

    def _await_chunk(self, subscription: int, patience: float) -> bytes | None:
        """The header of the next chunk; None if none comes in `patience` seconds."""
        self._deadline = time.monotonic() + min(patience, self._seconds)
        while True:
            try:
                key, data, left = self._frame()
            except TooLateError:
                return None
            if key != Key.DELIVER:
                self._take(key, data)
                continue
            self._skip(left)
            if data[:1] == struct.pack(">B", subscription):
                header = data[_BEFORE_CHUNK : _BEFORE_CHUNK + CHUNK_HEADER_SIZE]
                return header if len(header) == CHUNK_HEADER_SIZE else None

    def _ask(self, key: Key, body: bytes, **about: str) -> Fields:
        """Send a request; the fields of its response behind the code.

        Raises:
            As the class, and as `header`.
        """
        self._correlation += 1
        self._deadline = time.monotonic() + self._seconds
        self._send(frame(key, struct.pack(">I", self._correlation) + body))
        fields = self._await(key, self._correlation)
        what = ", ".join(f"{name} {value!r}" for name, value in about.items())
        return answers.checked(fields, f"the broker at {self._where} answers {key.name}", what)

    def _await(self, key: Key, correlation: int) -> Fields:
        """The response to a request, or, with correlation 0, a command of the broker."""
        wanted = key | RESPONSE if correlation else key
        while True:
            try:
                found, data, left = self._frame()
            except TooLateError:
                raise self._gone(f"does not answer {key.name}") from None
            self._skip(left)
            fields = Fields(data)
            if found == wanted and (not correlation or fields.number("I") == correlation):
                return fields
            self._take(found, data)

    def _take(self, key: int, data: bytes) -> None:
        """A command that the broker sends by itself; of a stream nothing is wanted."""
        if key == Key.HEARTBEAT:
            self._send(frame(Key.HEARTBEAT, b""))
        elif key == Key.CLOSE:
            fields = Fields(data)
            fields.number("I")
            code, reason = fields.number("H"), fields.string()
            raise self._gone(f"closes the connection: {code} {reason[:200]}")

    def _gone(self, words: str) -> UnavailableError:
        """The error of a connection that is of no use any more."""
        self.broken = True
        return answers.BrokerUnavailableError(f"the broker at {self._where} {words}")

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._seconds)
            self._socket.sendall(data)
        except OSError as exc:
            raise self._gone(f"hung up: {exc}") from exc
        self._sent_at = time.monotonic()

    def _frame(self) -> tuple[int, bytes, int]:
        """Key and fields of the next frame, and how many bytes of a Deliver are left to be read.

        Raises:
            TooLateError: none came before the deadline, not even its begin.
            UnavailableError: the connection is of no use any more.
        """
        size = struct.unpack(">I", self._read(4, first=True))[0]
        if size < 4:
            raise self._gone(f"sends a frame of {size} bytes")
        key = struct.unpack(">HH", self._read(4))[0]
        size -= 4
        keep = min(size, _BEFORE_CHUNK + CHUNK_HEADER_SIZE) if key == Key.DELIVER else size
        if keep > MAX_FRAME:
            raise self._gone(f"sends a frame of {size} bytes")
        return key, self._read(keep), size - keep

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._read(min(size, _BLOCK)))

    def _read(self, size: int, *, first: bool = False) -> bytes:
        """Exactly `size` bytes; `first`: of a frame that may not have begun."""
        data, end = bytearray(), time.monotonic() + self._seconds
        while len(data) < size:
            idle = first and not data
            # Not as long for every byte: they may come one by one, and others wait to ask.
            wait = (self._deadline if idle else end) - time.monotonic()
            try:
                if wait <= 0:
                    raise TimeoutError
                self._socket.settimeout(wait)
                block = self._socket.recv(size - len(data))
            except TimeoutError:
                if idle:
                    raise TooLateError from None
                raise self._gone("stops in a frame") from None
            except OSError as exc:
                words = refused(exc) if isinstance(exc, ssl.SSLError) else f"hung up: {exc}"
                raise self._gone(words) from exc
            if not block:
                raise self._gone("hung up")
            if idle:
                end = time.monotonic() + self._seconds
            data += block
        return bytes(data)


class TooLateError(Exception):
    """No frame came in time; nothing of one was read."""
