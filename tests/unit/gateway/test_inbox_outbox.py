"""Bytes in and out of a client's socket: every frame once, every byte in order."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import weakref

import pytest

from coldstream.gateway.inbox import FrameTooLargeError, Inbox
from coldstream.gateway.outbox import HIGH_WATER, outbox_of


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_were_sent_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    frames = [rng.randbytes(rng.choice((0, 1, 5, 300))) for _ in range(50)]
    data = b"".join(struct.pack(">I", len(each)) + each for each in frames)
    inbox, found = Inbox(), []
    while data:
        size = rng.choice((1, 3, 4, 100, 1000))
        inbox.put(data[:size])
        data = data[size:]
        while (frame := inbox.next(300)) is not None:
            found.append(frame)
    assert found == frames


def test_a_frame_that_is_too_large_is_told_by_its_size_alone() -> None:
    inbox = Inbox()
    inbox.put(struct.pack(">I", 301))
    with pytest.raises(FrameTooLargeError):
        inbox.next(300)


@pytest.mark.parametrize("seed", range(3))
def test_every_byte_goes_out_in_order_whatever_the_socket_takes(seed: int) -> None:
    rng = random.Random(seed)
    parts = [rng.randbytes(rng.choice((0, 1, 17, 3000, 300_000))) for _ in range(200)]
    taken = bytearray()

    async def run() -> int:
        here, there = socket.socketpair()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**14)
        reader, other = await asyncio.open_connection(sock=there)
        _, writer = await asyncio.open_connection(sock=here)
        outbox, most = outbox_of(writer), 0

        async def read() -> None:
            while block := await reader.read(rng.choice((10, 10_000, 10**6))):
                taken.extend(block)

        reading = asyncio.create_task(read())
        for number in range(0, len(parts), 3):
            await outbox.room()
            outbox.write(parts[number : number + 3])
            most = max(most, outbox.size)
        await outbox.close()
        await reading
        other.close()
        return most

    assert asyncio.run(run()) <= HIGH_WATER + 3 * 300_000
    assert bytes(taken) == b"".join(parts)


class Fetched(bytearray):
    """Bytes of which it can be seen when they go."""


def test_what_waits_for_a_client_that_stands_still_keeps_nothing_of_what_was_fetched_with_it() -> (
    None
):
    """The few bytes that it was to get held ranges of 4 MiB, which no budget counted any more."""

    async def run() -> bytes:
        here, there = socket.socketpair()
        reader, other = await asyncio.open_connection(sock=there)
        _, writer = await asyncio.open_connection(sock=here)
        outbox = outbox_of(writer)
        fetched = Fetched(bytes(range(256)) * 2**15)
        watched = weakref.ref(fetched)
        for at in range(0, 2**22, 2**20):
            outbox.write([memoryview(fetched)[at : at + 2**20]])
        del fetched
        assert outbox.size
        assert watched() is not None

        outbox.settle()

        assert watched() is None
        outbox.write([b"end"])
        taken = await reader.readexactly(2**22 + 3)
        await outbox.close()
        other.close()
        return taken

    assert asyncio.run(run()) == bytes(range(256)) * 2**14 + b"end"


def test_who_waits_for_room_is_told_that_the_client_is_gone() -> None:
    async def run() -> None:
        here, there = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=here)
        outbox = outbox_of(writer)
        outbox.write([bytes(8 * HIGH_WATER)])
        waiting = asyncio.create_task(outbox.room())
        await asyncio.sleep(0)
        there.close()
        with pytest.raises(ConnectionError):
            await waiting
        outbox.write([b"more"])
        assert not outbox.size
        await outbox.close()

    asyncio.run(run())


def test_what_nobody_takes_is_dropped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.gateway.outbox._CLOSE_SECONDS", 0.01)

    async def run() -> None:
        here, there = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=here)
        outbox = outbox_of(writer)
        outbox.write([bytes(8 * HIGH_WATER)])
        await outbox.close()
        assert (outbox.size, writer.is_closing()) == (0, True)
        there.close()

    asyncio.run(run())
