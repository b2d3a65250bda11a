"""The broker of one node: a connection for each virtual host, made anew where one breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.frames import OffsetType
from coldstream.broker.management import Management, Partition, StreamQueue
from coldstream.errors import NotFoundError, UnavailableError
from coldstream.osiris.chunk import parse_chunk_header


@dataclass(slots=True)
class Node:
    """What the gate and the members ask; used by one thread, but for what management answers.

    Args:
        uri: of the stream port.
        management: of the broker; None if nobody says where it is.
        seconds: for each answer.
    """

    uri: StreamUri
    management: Management | None = None
    seconds: float = 10.0
    _connections: dict[str, Connection] = field(default_factory=dict)
    _broken: int = 0

    def last_header(self, vhost: str, queue: str) -> bytes | None:
        """As `Connection.header`, of the last chunk."""
        return self._header(vhost, queue, OffsetType.LAST)

    def first_header(self, vhost: str, queue: str) -> bytes | None:
        """As `Connection.header`, of the first chunk."""
        return self._header(vhost, queue, OffsetType.FIRST)

    def _header(self, vhost: str, queue: str, where: OffsetType) -> bytes | None:
        connection = self._connection(vhost)
        try:
            return connection.header(queue, where)
        finally:
            self._drop_if_broken(vhost, connection)

    def leads(self, vhost: str, queue: str) -> bool | None:
        """As `Connection.leads`."""
        connection = self._connection(vhost)
        try:
            return connection.leads(queue)
        finally:
            self._drop_if_broken(vhost, connection)

    def members(self, vhost: str, queue: str) -> list[Node]:
        """Every member of a stream, this node among them, to be asked as the same user.

        Raises:
            As `Connection.members`.
        """
        connection = self._connection(vhost)
        try:
            found = connection.members(queue)
        finally:
            self._drop_if_broken(vhost, connection)
        return [Node(self.uri.at(host, port), seconds=self.seconds) for host, port in found]

    def keep_up(self) -> None:
        """As `Connection.poll`, of each connection; a broken one is made anew when it is needed."""
        for vhost, connection in list(self._connections.items()):
            with suppress(UnavailableError):  # the generation tells of it
                connection.poll()
            self._drop_if_broken(vhost, connection)

    def streams(self) -> Sequence[StreamQueue]:
        """As `Management.streams`; none without one."""
        return self.management.streams() if self.management is not None else ()

    def super_streams(self) -> Mapping[tuple[str, str], Partition]:
        """As `Management.super_streams`; none without one."""
        return self.management.super_streams() if self.management is not None else {}

    def generation(self) -> int:
        """How many connections have broken so far."""
        return self._broken

    def close(self) -> None:
        """Leave."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connection(self, vhost: str) -> Connection:
        found = self._connections.get(vhost)
        if found is None:
            found = Connection(self.uri, vhost, seconds=self.seconds)
            self._connections[vhost] = found
        return found

    def _drop_if_broken(self, vhost: str, connection: Connection) -> None:
        if connection.broken:
            self._broken += 1
            self._connections.pop(vhost, None)
            connection.close()


@dataclass(frozen=True, slots=True)
class StreamMembers:
    """What every member of a stream still has, asked over their stream ports.

    Args:
        node: of this agent; not the one of another thread.
        seconds: for an answer of each member.
    """

    node: Node

    def earliest(self, vhost: str, queue: str) -> int | None:
        """The lowest offset at which a chunk of messages begins on any member; None if none has
        one.

        A member whose oldest chunk is a tracking chunk is taken to begin at the chunk of messages
        behind it: there is no message in between.

        Raises:
            UnavailableError: a member does not answer, or nobody knows who the members are.
            NotFoundError: there is no such stream.
            PermissionDeniedError: the user may not read it.
        """
        found: list[int] = []
        for member in self.node.members(vhost, queue):
            try:
                header = member.first_header(vhost, queue)
            except NotFoundError as exc:
                raise UnavailableError(exc.reason) from exc  # it was a member a moment ago
            finally:
                member.close()
            if header is not None:
                found.append(parse_chunk_header(header).chunk_id)
        return min(found, default=None)
