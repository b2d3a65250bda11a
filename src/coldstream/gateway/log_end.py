"""Where the log of a broker ends, as one of its members says.

`last` of a subscription means the last chunk of messages that a member has. While it is alone, or
has just come back, that chunk is not committed, and nothing is delivered: as of a log that has no
messages. Whoever took it for one would begin at offset 0, and read all of it once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from coldstream.broker.frames import OffsetType
from coldstream.errors import UnavailableError
from coldstream.gateway.parcel import Parcel


class Member(Protocol):
    """A connection to a node with a member of the stream; `Upstream` is one."""

    async def header(self, stream: str, where: OffsetType, value: int = 0) -> Parcel | None:
        """The first committed chunk of messages from there on; None if none comes."""
        ...

    async def statistics(self, stream: str) -> Mapping[str, int]:
        """What the node tells of a stream; nothing before 3.11."""
        ...


async def last_chunk(member: Member, stream: str) -> Parcel | None:
    """The last committed chunk of messages; None if the log has no messages.

    Raises:
        UnavailableError: it has some, and this member does not say which are committed.
        As `Upstream.header`.
    """
    found = await member.header(stream, OffsetType.LAST)
    if found is not None:
        return found
    numbers = await member.statistics(stream)
    last, committed = numbers.get("last_chunk_id"), numbers.get("committed_chunk_id", -1)
    if last is None:  # before 3.11
        if await member.header(stream, OffsetType.FIRST) is None:
            return None
        found = await member.header(stream, OffsetType.LAST)  # the first may have come just now
    elif committed >= last:
        return None  # nothing at all, or tracking data alone
    elif committed >= 0:
        found = await member.header(stream, OffsetType.OFFSET, committed)
    if found is None:
        raise UnavailableError("the end of the stream is not committed just now", stream=stream)
    return found
