"""The broker of one node: a connection for each virtual host, made anew where one breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.frames import OffsetType
from coldstream.broker.management import Management, Partition, StreamQueue
from coldstream.errors import ColdstreamError, NotFoundError, UnavailableError
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

    def header_at(self, vhost: str, queue: str, offset: int) -> bytes | None:
        """As `Connection.header`, of the chunk with an offset."""
        return self._header(vhost, queue, OffsetType.OFFSET, offset=offset)

    def first_header(self, vhost: str, queue: str, *, patience: float = 1.0) -> bytes | None:
        """As `Connection.header`, of the first chunk; `patience` is in seconds."""
        return self._header(vhost, queue, OffsetType.FIRST, patience=patience)

    def _header(
        self, vhost: str, queue: str, where: OffsetType, *, offset: int = 0, patience: float = 1.0
    ) -> bytes | None:
        connection = self._connection(vhost)
        try:
            return connection.header(queue, where, offset, patience=patience)
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

        The stream port tells only of those that run just now; management says how many there are.

        Raises:
            UnavailableError: a member cannot be asked, or the number of members is unknown, or the
                user may not enter the virtual host: that looks as if there were none.
            NotFoundError: the broker has no such stream.
            As `Connection.members` and `Management.members`.
        """
        try:
            connection = self._connection(vhost)
        except NotFoundError as exc:
            raise UnavailableError(exc.reason) from exc
        try:
            found = connection.members(queue)
        finally:
            self._drop_if_broken(vhost, connection)
        if self.management is None:
            raise UnavailableError(
                f"the members of {queue!r} are not all known, the stream port leaves out those that"
                " do not run: give --management-uri, or --last-copy if this node has the only copy"
            )
        try:
            count = len(self.management.members(vhost, queue))
        except NotFoundError as exc:  # the broker has it: the user may not see it there
            raise UnavailableError(exc.reason) from exc
        if len(set(found)) < count:
            raise UnavailableError(
                f"only {len(set(found))} of the {count} members of {queue!r} can be asked: the"
                " others do not run, or nodes advertise one address; start them, or take them"
                " out of the stream's members"
            )
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
        if found is not None and not found.worn:
            return found
        try:
            made = Connection(self.uri, vhost, seconds=self.seconds)
        except ColdstreamError:
            if found is None:
                raise
            return found  # worn, but perhaps it works: a broker takes so many connections only
        self._connections[vhost] = made
        if found is not None:
            # If it has lived until the new one was made, no broker has come or gone in between.
            with suppress(UnavailableError):
                found.poll()
            self._broken += found.broken
            found.close()
        return made

    def _drop_if_broken(self, vhost: str, connection: Connection) -> None:
        if connection.broken:
            self._broken += 1
            self._connections.pop(vhost, None)
            connection.close()


@dataclass(frozen=True, slots=True)
class StreamMembers:
    """What every member of a stream still has, asked over their stream ports.

    Args:
        node: of this agent, and of nobody else; threads may ask, one after the other.
        patience: seconds for each member to begin to deliver.
    """

    node: Node
    patience: float = 10.0
    _asking: Lock = field(default_factory=Lock)

    def knows(self, vhost: str, queue: str) -> bool:
        """Whether the broker has a stream.

        Raises:
            As `Connection.leads`, but no NotFoundError.
        """
        try:
            with self._asking:
                self.node.keep_up()  # a broker leaves who is silent for minutes
                self.node.leads(vhost, queue)
        except NotFoundError:
            return False
        return True

    def lone(self, vhost: str, queue: str) -> bool:
        """Whether the only member of a stream is on this node.

        Raises:
            As `earliest`.
        """
        with self._asking:
            self.node.keep_up()  # as above
            members = self.node.members(vhost, queue)
            return len(members) == 1 and self.node.leads(vhost, queue) is True

    def earliest(self, vhost: str, queue: str) -> int | None:
        """The lowest offset at which a chunk of messages begins on any member; None without any.

        A member whose oldest chunk is a tracking chunk is taken to begin at the chunk of messages
        behind it: there is no message in between.

        One that delivers nothing may have nothing yet, or a slow disk and the only copy: nobody can
        tell. A new one has something as soon as it has copied the first chunk.

        Raises:
            UnavailableError: a member does not answer or delivers nothing, or nobody knows who the
                members are.
            NotFoundError: there is no such stream.
            PermissionDeniedError: the user may not read it.
        """
        found: list[int] = []
        with self._asking:
            self.node.keep_up()  # as above
            members = self.node.members(vhost, queue)
        for member in members:
            try:
                header = member.first_header(vhost, queue, patience=self.patience)
            except NotFoundError as exc:
                raise UnavailableError(exc.reason) from exc  # it was a member a moment ago
            finally:
                member.close()
            if header is None:
                raise UnavailableError(
                    f"the member of {queue!r} at {member.uri} has delivered nothing for"
                    f" {self.patience:g} s: it may be slow, or have no message yet"
                )
            found.append(parse_chunk_header(header).chunk_id)
        return min(found, default=None)
