"""A hundred readers of one stream at once: bytes that leave the bucket for each that is delivered.

Library readers are threads of one process, each with a `StreamReader` of its own; they begin at the
same time at the first chunk and go as fast as they can. Clients of the gateway are connections to
one gateway in another process' stead: it runs here, in a thread, as `coldstream gateway` does, so
that the bytes can be counted where they leave the store. Nothing else is counted twice: what one of
them fetches and throws away counts.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

from bench.gateway import RawReader, logged_in
from bench.memory import peak
from bench.report import quick, ratio
from bench.site import MESSAGE_SIZE, MESSAGES, context, site, stream, tier
from coldstream.fragment import Buffer
from coldstream.gateway.metrics import GatewayMetrics
from coldstream.gateway.offsets import Offsets
from coldstream.gateway.server import Server
from coldstream.gateway.site import Site
from coldstream.gateway.streams import Streams
from coldstream.gateway.users import parse_users
from coldstream.reader import First, MemoryBudget, ReaderSettings, StreamReader
from coldstream.reader.pool import SharedPool
from coldstream.remote.context import Context

READERS = 100
STREAM = "__bench_readers"
_BUDGET = 128 * 2**20


class Counting:
    """Passes calls on to an object store and counts what it gives.

    Attributes:
        fetched: bytes of objects.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.fetched = 0

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As `ObjectStore.get`."""
        return self._counted(self._store.get(key, start, end))

    def get_suffix(self, key: str, length: int) -> bytes:
        """As `ObjectStore.get_suffix`."""
        return bytes(self._counted(self._store.get_suffix(key, length)))

    def get_all(self, key: str, *, limit: int) -> bytes:
        """As `ObjectStore.get_all`."""
        return bytes(self._counted(self._store.get_all(key, limit=limit)))

    def _counted(self, data: Buffer) -> Buffer:
        with self._lock:
            self.fetched += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def library(there: Context, budget: MemoryBudget, readers: int) -> tuple[int, int, float]:
    """Bytes fetched, bytes delivered, and seconds."""
    store: Any = Counting(context().store)

    def read(_: int) -> int:
        reader = StreamReader(store, there.catalog, there.prefix, STREAM, budget=budget)
        return sum(chunk.header.size for chunk in reader.chunks(First()))

    began = time.perf_counter()
    with ThreadPoolExecutor(readers) as pool:
        delivered = sum(pool.map(read, range(readers)))
    return store.fetched, delivered, time.perf_counter() - began


@contextmanager
def gateway(there: Context, store: Any, budget: MemoryBudget) -> Iterator[int]:
    """A gateway in a thread, with the settings of the command; gives its port."""
    ready, ports, ends = threading.Event(), [0], []

    async def serve() -> None:
        gets, end = SharedPool(32), asyncio.Event()
        ends.append((asyncio.get_running_loop(), end))
        with ThreadPoolExecutor(64) as pool:
            settings = ReaderSettings(in_flight=16, pool=gets.view)
            streams = Streams(
                store, there.catalog, there.prefix, settings, budget, pool, None, None, print
            )
            site = Site(
                streams,
                Offsets(None),
                parse_users("guest:guest:.*\n"),
                GatewayMetrics(budget),
                pool,
                print,
                "bench",
            )
            async with Server(site, 2 * READERS).listening("127.0.0.1", 0) as ports[0]:
                ready.set()
                await end.wait()
        gets.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield ports[0]
    finally:
        loop, end = ends[0]
        loop.call_soon_threadsafe(end.set)
        thread.join()


def clients(
    there: Context, budget: MemoryBudget, readers: int, size: int
) -> tuple[int, int, float]:
    """The same for clients of a gateway, each of which takes `size` bytes of chunks."""
    store: Any = Counting(context().store)

    def read(reader: RawReader) -> float:
        with closing(reader):
            return reader.read(STREAM, size)

    with gateway(there, store, budget) as port, ThreadPoolExecutor(readers) as pool:
        connected = list(pool.map(lambda _: logged_in(port), range(readers)))
        began = time.perf_counter()
        list(pool.map(read, connected))
        return store.fetched, size * readers, time.perf_counter() - began


def main() -> None:
    small = quick(__doc__)
    messages, readers = (MESSAGES // 10, 20) if small else (MESSAGES, READERS)
    with site() as work:
        stream(work / "data", STREAM, messages=messages)
        there = context()
        tier(there, work / "data")
        size = messages * (MESSAGE_SIZE + 4)
        before = peak()
        for name, each in (("library", library), ("gateway", clients)):
            budget = MemoryBudget(_BUDGET)
            extra = (size,) if each is clients else ()
            fetched, delivered, seconds = each(there, budget, readers, *extra)  # type: ignore[operator]
            print(
                f"{name}: {readers} readers of {size / 1e6:.0f} MB took {delivered / 1e9:.1f} GB in"
                f" {seconds:.1f} s, {fetched / 1e6:.0f} MB were fetched; at most"
                f" {budget.peak / 1e6:.0f} MB were held of {budget.total / 1e6:.0f}, the process"
                f" grew by {(peak() - before) / 1e6:.0f} MB"
            )
            suffix = "" if each is library else "-gateway"
            ratio(f"readers-100-fetched{suffix}", fetched / delivered, "<= 0.05")
            assert budget.held == 0 or each is clients


if __name__ == "__main__":
    main()
