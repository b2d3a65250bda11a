"""Where the log of a broker ends, as one of its members says.

`last` of a subscription means the last chunk of messages that a member has. While it is alone, or
has just come back, that chunk is not committed, and nothing is delivered: as of a log that has no
messages. Whoever took it for one would begin at offset 0, and read all of it once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from coldstream.broker.frames import OffsetType
from coldstream.errors import UnavailableError
from coldstream.gateway.parcel import Parcel

_UNKNOWN = "the end of the stream is not committed just now"


class Member(Protocol):
    """A connection to a node with a member of the stream; `Upstream` is one."""

    async def header(self, stream: str, where: OffsetType, value: int = 0) -> Parcel | None:
        """The first committed chunk of messages from there on; None if none comes."""
        ...

    async def statistics(self, stream: str) -> Mapping[str, int]:
        """What the node tells of a stream; nothing before 3.11."""
        ...


class End(NamedTuple):
    """Where the committed part of a log ends.

    Attributes:
        offset: after it; 0 if there are no messages.
        last: its last chunk of messages; None if there is none, or nobody can say which it is.
    """

    offset: int
    last: Parcel | None


async def end_of(member: Member, stream: str) -> End:
    """The end of a log.

    Raises:
        UnavailableError: it has messages, and this member does not say which are committed.
        As `Upstream.header`.
    """
    found = await member.header(stream, OffsetType.LAST)
    if found is not None:
        return End(found.next_offset, found)
    numbers = await member.statistics(stream)
    last, committed = numbers.get("last_chunk_id"), numbers.get("committed_chunk_id", -1)
    if last is None:  # before 3.11
        if await member.header(stream, OffsetType.FIRST) is None:
            return End(0, None)
        found = await member.header(stream, OffsetType.LAST)  # the first may have come just now
    elif committed >= last:
        # All of it by now, perhaps only since a moment; still none is there of tracking data alone.
        found = await member.header(stream, OffsetType.LAST) if last >= 0 else None
        if found is None and (last < 0 or await _ends_with(member, stream, last)):
            return End(0, None)
    elif committed >= 0:
        found = await member.header(stream, OffsetType.OFFSET, committed)
        if found is None:
            return End(committed + 1, None)  # tracking data, which takes one offset
    if found is None:
        raise UnavailableError(_UNKNOWN, stream=stream)
    return End(found.next_offset, found)


async def _ends_with(member: Member, stream: str, last: int) -> bool:
    """Whether this is still the last chunk: else a newer one, not committed, was looked for."""
    return (await member.statistics(stream)).get("last_chunk_id") == last


async def last_chunk(member: Member, stream: str) -> Parcel | None:
    """The last committed chunk of messages; None if the log has none. Raises as `end_of`."""
    end = await end_of(member, stream)
    if end.offset and end.last is None:
        raise UnavailableError(_UNKNOWN, stream=stream)
    return end.last
