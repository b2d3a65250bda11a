"""What a client has, and a claim has cut off since: other messages stand at its offsets by now."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from coldstream.errors import ColdstreamError, DivergedError
from coldstream.gateway.delivery import Delivery
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream, Wanted
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import LastChunk, Root
from tests.gateway.test_standing_still import Line, until
from tests.support.tier import SMALL, Tier, chunk

NAME, ALL = "__s_1", Wanted(None, {})


def claimed(tier: Tier, floor: int, upto: int, *, same: bool = False) -> Root:
    """What epoch 2 has made of a stream of one message a chunk: all from `floor` on is its own.

    Or, with `same`, it has uploaded the same chunks.
    """
    root = tier.reader(NAME).snapshot().root
    kept = [each for each in root.entries if each.next_offset <= floor]
    chunks = [
        chunk(n, b"old") if same else chunk(n, b"new" * 300, timestamp=2000, epoch=2)
        for n in range(floor, upto)
    ]
    fresh = [tier.upload(NAME, [each], epoch=2, floor=floor) for each in chunks]
    return tier.commit(
        NAME,
        replace(
            root,
            epoch=2,
            next_offset=upto,
            ledger=root.ledger.claimed(2, floor) if root.epoch < 2 else root.ledger,
            entries=Entries.of([*kept, *fresh]),
            last_chunk=LastChunk(upto - 1, 2 if fresh else 1),
        ),
    )


def test_who_waits_at_the_end_of_a_stream_is_told_that_what_he_has_was_cut_off() -> None:
    """Else he would go on in another history, and never know of 5 to 9 that he has not seen."""
    tier = Tier()
    tier.add(NAME, [[chunk(n, b"old")] for n in range(10)])
    found: list[int] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME), pool)
            stream = TieredStream("/", "s", remote, None, None, print, poll_seconds=0.001)
            async for batch in stream.follow(0, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if len(found) == 10:
                    claimed(tier, floor=5, upto=15)
                assert len(found) <= 10, "11 follows 10 of another history"

    with pytest.raises(DivergedError, match="read so far"):
        asyncio.run(asyncio.wait_for(read(), 60))


def test_what_a_claim_cuts_off_ahead_of_a_read_is_read_anew_and_not_passed_over() -> None:
    """Nothing of it was given, and other messages come in its place."""
    tier = Tier()
    tier.add(NAME, [[chunk(n, b"old" * 300)] for n in range(20)])
    found: list[tuple[int, int]] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            settings = replace(SMALL, refresh_seconds=0.0, in_flight=1)
            remote = RemoteStream(tier.reader(NAME, settings), pool)
            stream = TieredStream("/", "s", remote, None, None, told, poll_seconds=0.001)
            async for batch in stream.follow(0, ALL):
                found.extend((each.chunk_id, each.epoch) for each in batch.parcels)
                if len(found) == 5:
                    claimed(tier, floor=10, upto=10)
                if len(found) == 10 and not batch.parcels:
                    claimed(tier, floor=10, upto=25)
                if len(found) == 25:
                    return

    def told(_: str, words: str) -> None:
        said.append(words)

    said: list[str] = []
    asyncio.run(asyncio.wait_for(read(), 60))
    assert found == [(n, 1 if n < 10 else 2) for n in range(25)]
    assert any("cut off" in each for each in said)


def test_who_has_what_a_claim_cuts_off_during_the_read_is_told() -> None:
    tier = Tier()
    tier.add(NAME, [[chunk(n, b"old" * 300)] for n in range(20)])
    found: list[int] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            settings = replace(SMALL, refresh_seconds=0.0, in_flight=1)
            remote = RemoteStream(tier.reader(NAME, settings), pool)
            stream = TieredStream("/", "s", remote, None, None, print, poll_seconds=0.001)
            async for batch in stream.follow(0, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if len(found) == 15:
                    claimed(tier, floor=10, upto=25)
                assert len(found) < 20

    with pytest.raises(DivergedError, match="read so far"):
        asyncio.run(asyncio.wait_for(read(), 60))


def test_who_has_what_a_new_writer_has_uploaded_under_its_own_epoch_reads_on() -> None:
    """The tail came from the broker before it was uploaded: it is the very same chunk."""
    tier = Tier()
    tier.add(NAME, [[chunk(n, b"old")] for n in range(10)])
    found: list[int] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME), pool)
            stream = TieredStream("/", "s", remote, None, None, print, poll_seconds=0.001)
            async for batch in stream.follow(0, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if len(found) == 10:
                    claimed(tier, floor=5, upto=15, same=True)
                if len(found) == 15:
                    return

    asyncio.run(asyncio.wait_for(read(), 60))
    assert found == list(range(15))


def test_who_stands_still_among_chunks_that_were_fetched_together_is_told_of_a_claim_too() -> None:
    """He has only some of them; that nobody has taken all of them is no reason to forget him."""
    tier, line, told = Tier(), Line(), list[ColdstreamError]()
    tier.add(NAME, [[chunk(n, b"old") for n in range(2)], [chunk(n, b"old") for n in range(2, 10)]])
    line.open.set()

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME), pool)
            stream = TieredStream("/", "s", remote, None, None, print, poll_seconds=0.001)
            delivery = Delivery(
                1, stream, 0, ALL, 1, line, lambda *_: None, lambda _, e: told.append(e), idle=0.02
            )
            task = asyncio.create_task(delivery.run())
            delivery.grant(5)
            await until(lambda: line.settled)
            claimed(tier, floor=2, upto=15)
            delivery.grant(100)
            await until(lambda: told or len(line.sent) == 15)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert line.sent == list(range(5)), "2 to 4 are others by now, which he has not seen"
    assert isinstance(told[0], DivergedError)
