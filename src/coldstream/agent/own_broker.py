"""What an agent asks of the broker of its own node."""

from __future__ import annotations

from typing import Protocol

from coldstream.agent.listing import Lists


class Delivers(Protocol):
    """Whoever gives the headers of chunks that are committed."""

    def header_at(self, vhost: str, queue: str, offset: int) -> bytes | None:
        """As `broker.connection.Connection.header`, of the chunk with an offset.

        Raises:
            As it, and NotFoundError if there is no such stream or virtual host.
        """
        ...


class Broker(Lists, Delivers, Protocol):
    """The node's own broker."""

    def last_header(self, vhost: str, queue: str) -> bytes | None:
        """As `broker.connection.Connection.last_header`.

        Raises:
            As it, and NotFoundError if there is no such stream or virtual host.
        """
        ...

    def leads(self, vhost: str, queue: str) -> bool | None:
        """As `broker.connection.Connection.leads`; raises as `last_header`."""
        ...

    def keep_up(self) -> None:
        """Show every now and then that this end lives."""
        ...

    def generation(self) -> int:
        """A number that rises whenever a connection to it had to be made anew."""
        ...

    def close(self) -> None:
        """Leave."""
        ...
