"""Offsets that consumers store.

Where there is a broker they are the broker's: a consumer that changes the port finds what it has
stored, and may go back. Without one, the gateway has no right to write anywhere (it reads the
remote tier, and nothing else), so storing is refused; a client keeps its offsets itself then.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import PermissionDeniedError
from coldstream.gateway.broker_tier import BrokerTier


@dataclass(frozen=True, slots=True)
class Offsets:
    """Stores and finds offsets.

    Attributes:
        broker: that keeps them; None if nobody does.
    """

    broker: BrokerTier | None

    async def store(self, vhost: str, reference: str, stream: str, offset: int) -> None:
        """Remember an offset; the broker says nothing of it.

        Raises:
            PermissionDeniedError: nobody keeps offsets here.
            UnavailableError, NotFoundError: the broker does not answer.
        """
        if self.broker is None:
            raise PermissionDeniedError(
                "there is no broker that keeps offsets; start the gateway with --stream-uri",
                stream=stream,
                offset=offset,
            )
        await (await self.broker.asked(vhost)).store_offset(reference, stream, offset)

    async def query(self, vhost: str, reference: str, stream: str) -> int | None:
        """The offset that was stored; None if there is none.

        Raises:
            UnavailableError, PermissionDeniedError: nobody can say.
        """
        if self.broker is None:
            return None
        return await self.broker.query_offset(vhost, reference, stream)
