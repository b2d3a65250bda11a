"""Where a log ends while its last chunk is not committed: nowhere near offset 0."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import OffsetType
from coldstream.errors import UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.log_end import end_of, last_chunk
from coldstream.gateway.parcel import Parcel, parcel_of
from coldstream.osiris.chunk import ChunkType, chunk_at
from coldstream.reader import First, Last, Next, Offset, OffsetSpec
from tests.support.tier import chunk

_USER, _DELTA = ChunkType.USER, ChunkType.TRACKING_DELTA


@dataclass
class Member:
    """A member whose chunks have ten messages each, or are tracking data.

    Attributes:
        kinds: of its chunks.
        committed: how many of them are.
        tells: whether it is new enough to tell numbers.
    """

    kinds: list[ChunkType]
    committed: int
    tells: bool = True
    ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        at = 0
        for kind in self.kinds:
            self.ids.append(at)
            at += 10 if kind is _USER else 1

    async def header(self, stream: str, where: OffsetType, value: int = 0) -> Parcel | None:
        """As osiris: what is looked for is found in all of the log, and given once committed."""
        del stream
        users = [n for n, kind in enumerate(self.kinds) if kind is _USER]
        if where is OffsetType.LAST:
            users = users[-1:]
        elif where is OffsetType.OFFSET:
            users = [n for n in users if value < self.ids[n] + 10]
        return self._parcel(users[0]) if users and users[0] < self.committed else None

    async def first_offset(self, stream: str) -> int | None:
        first = await self.header(stream, OffsetType.FIRST)
        return None if first is None else first.chunk_id

    async def members(self, stream: str) -> list[tuple[str, int]]:
        del stream
        return []

    async def statistics(self, stream: str) -> Mapping[str, int]:
        del stream
        if not self.tells:
            return {}
        return {
            "first_chunk_id": self.ids[0] if self.ids else -1,
            "last_chunk_id": self.ids[-1] if self.ids else -1,
            "committed_chunk_id": self.ids[self.committed - 1] if self.committed else -1,
        }

    def _parcel(self, number: int) -> Parcel:
        data = memoryview(chunk(self.ids[number], *[b"x"] * 10))
        return parcel_of(chunk_at(data, 0, len(data)))


def last(member: Member) -> int | None:
    found = asyncio.run(last_chunk(member, "s"))
    return None if found is None else found.chunk_id


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize(
    ("kinds", "committed", "expected"),
    [([], 0, None), ([_DELTA], 1, None), ([_USER, _USER], 2, 10), ([_USER, _DELTA], 2, 0)],
)
def test_the_end_is_that_of_the_last_messages_and_a_log_may_have_none(
    kinds: list[ChunkType], committed: int, expected: int | None, tells: bool
) -> None:
    assert last(Member(kinds, committed, tells)) == expected


def test_a_log_whose_last_chunk_is_not_committed_ends_where_it_is() -> None:
    assert last(Member([_USER, _USER, _USER, _USER], 2)) == 10


def test_tracking_data_may_be_what_is_committed_last() -> None:
    member = Member([_USER, _DELTA, _USER], 2)

    assert asyncio.run(end_of(member, "s")) == (11, None)
    with pytest.raises(UnavailableError):
        last(member)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_what_is_committed_while_the_numbers_are_asked_for_is_no_empty_log(before: int) -> None:
    @dataclass
    class Quick(Member):
        async def statistics(self, stream: str) -> Mapping[str, int]:
            self.committed = len(self.kinds)
            return await super().statistics(stream)

    assert last(Quick([_USER, _USER, _USER], before)) == 20
    assert last(Quick([_USER, _DELTA, _DELTA], before)) == 0


def test_a_log_that_grows_while_it_is_asked_for_its_end_is_no_empty_one() -> None:
    """All was committed when the numbers were told; what has come since is not."""

    @dataclass
    class Busy(Member):
        async def statistics(self, stream: str) -> Mapping[str, int]:
            self.committed = len(self.kinds)
            told = await super().statistics(stream)
            self.ids.append(self.ids[-1] + 10)
            self.kinds.append(_USER)
            return told

    with pytest.raises(UnavailableError):
        last(Busy([_USER, _USER], 1))


@pytest.mark.parametrize(
    "member",
    [
        Member([_USER, _USER], 0),  # has just come back, and does not know
        Member([_USER, _USER, _USER], 2, tells=False),
    ],
)
def test_a_log_of_which_nobody_knows_the_end_is_not_taken_for_an_empty_one(member: Member) -> None:
    with pytest.raises(UnavailableError):
        last(member)


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("spec", [First(), Last(), Next(), Offset(3), Offset(10), Offset(99)])
def test_nobody_begins_below_what_he_asked_for_while_the_end_is_not_committed(
    spec: OffsetSpec, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member([_USER, _USER, _USER], 2, tells)

    async def asked(tier: BrokerTier, uri: StreamUri, vhost: str) -> Member:
        del tier, uri, vhost
        return member

    monkeypatch.setattr(BrokerTier, "_ask_at", asked)
    tier = BrokerTier(StreamUri("127.0.0.1", 5552, "u", "secret"))
    expected: dict[OffsetSpec, int] = {First(): 0, Offset(3): 3, Offset(10): 10}
    if tells:
        expected |= {Last(): 10, Next(): 20, Offset(99): 20}

    try:
        found: int | None = asyncio.run(tier.locate("/", "s", spec))
    except UnavailableError:
        found = None

    assert found == expected.get(spec)


def test_what_a_member_gives_whose_log_ends_below_an_offset_is_not_taken_for_the_chunk_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for what comes next, wherever that stands: here because a member is behind."""

    class Behind(Member):
        async def header(self, stream: str, where: OffsetType, value: int = 0) -> Parcel | None:
            del stream
            return self._parcel(1) if where is OffsetType.OFFSET else None

    async def asked(tier: BrokerTier, uri: StreamUri, vhost: str) -> Member:
        del tier, uri, vhost
        return Behind([_USER, _USER, _USER], 0)

    monkeypatch.setattr(BrokerTier, "_ask_at", asked)
    tier = BrokerTier(StreamUri("127.0.0.1", 5552, "u", "secret"))
    found = asyncio.run(tier.at("/", "s", 19))
    assert found is not None
    assert found.chunk_id == 10
    assert asyncio.run(tier.at("/", "s", 20)) is None
    with pytest.raises(UnavailableError):
        asyncio.run(tier.locate("/", "s", Offset(99)))
