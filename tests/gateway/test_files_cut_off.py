"""The cluster loses committed messages while their reader waits at the end of the files."""

from __future__ import annotations

import asyncio
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.errors import DivergedError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.local_tier import LocalStream
from coldstream.gateway.parcel import Parcel, parcel_of
from coldstream.gateway.stream import TieredStream
from coldstream.osiris.chunk import iter_chunks
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream_devkit.generator import write_stream
from tests.gateway.test_hand_over import ALL, NAME, Broker


def written(path: Path, messages: int, epochs: tuple[tuple[int, int], ...]) -> list:
    write_stream(path, messages=messages, message_size=10, chunk_messages=1, epochs=epochs)
    (file,) = path.glob("*.segment")
    return list(iter_chunks(file.read_bytes(), SEGMENT_HEADER_SIZE))


@pytest.mark.parametrize("seen_short", [False, True])
def test_files_that_were_cut_off_and_written_anew_while_they_are_read_end_the_read(
    tmp_path: Path, seen_short: bool
) -> None:
    path, other = tmp_path / NAME, tmp_path / "new"
    log = written(path, 20, ((1, 0),))  # 0..19 in epoch 1
    found: list[tuple[int, int]] = []
    told: list[str] = []

    class Node(Broker):
        async def own_last(self, vhost: str, stream: str) -> Parcel:
            return parcel_of(log[-1])

        def generation(self, vhost: str) -> int:
            return 1  # the connection for questions lives on: only a replica was started anew

        async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
            return parcel_of(log[offset]) if offset < len(log) else None

    node = cast(BrokerTier, Node(random.Random(4)))

    def grow() -> None:
        nonlocal log
        log = written(other, 30, ((1, 0), (2, 12)))
        shutil.rmtree(path)
        other.rename(path)

    async def read() -> None:
        nonlocal log
        with ThreadPoolExecutor(4) as pool:
            local = LocalStream(StreamLog(path), node, "/", "s", pool, poll_seconds=0.01)
            stream = TieredStream(
                "/", "s", None, node, local, lambda *each: told.append(str(each)), 0.001
            )
            async for batch in stream.follow(0, ALL):
                found.extend((each.chunk_id, each.epoch) for each in batch.parcels)
                if len(found) == 20:
                    # 12..19 are lost, and the new leader of epoch 2 has written on to 29.
                    if seen_short:
                        log = written(other, 12, ((1, 0),))
                        shutil.rmtree(path)
                        other.rename(path)
                        asyncio.get_running_loop().call_later(0.3, grow)
                    else:
                        grow()
                if len(found) >= 30:
                    return

    with pytest.raises(DivergedError):
        asyncio.run(asyncio.wait_for(read(), 20))
