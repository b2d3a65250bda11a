"""Sequential read of a 1.2 GB stream against plain range GETs of the same objects by obstore.

The plain side GETs every byte of the stream's fragments in 8 MiB ranges, as many at once as our
reader has in flight, and looks at none. Ours resolves the manifest, checks trailers, indexes and
every chunk's CRC, and gives chunks in order. In between stand the same range GETs with one CRC over
each: no reader that checks its bytes can do less, and where S3 server and reader share processors
that are all busy, it takes time that nothing hides.

Then a link of 1 GB/s on which one connection gives 40 MB/s after 30 ms, simulated in this process:
what a read makes of it, from its first GET on. Where this machine reads no faster without any link,
the same with 400 MB/s.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore

from bench.links import PREFIX, Link, LinkedStore
from bench.links import STREAM as LINKED
from bench.report import megabytes_per_second, quick, ratio
from bench.site import LONG, context, site, stream, tier
from coldstream import deployment
from coldstream.adapters.s3 import open_store
from coldstream.crc import crc32
from coldstream.reader.allocation import keep_freed_memory
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream.remote.context import Context
from coldstream.remote.roots import load

ROUNDS = 7
STREAM = "__bench_read"
RANGE = ReaderSettings().range_size


def plain(keys: list[tuple[str, int]], parallel: int, *, checked: bool = False) -> float:
    """Seconds to GET every byte of the objects, perhaps with a CRC over each range."""
    store = open_store(os.environ[deployment.ENV_BUCKET])
    jobs = [
        (key, start, min(start + RANGE, size))
        for key, size in keys
        for start in range(0, size, RANGE)
    ]

    def get(job: tuple[str, int, int]) -> int:
        key, start, end = job
        data = memoryview(obstore.get_range(store, key, start=start, end=end))
        if checked:
            crc32(data)
        return len(data)

    began = time.perf_counter()
    with ThreadPoolExecutor(parallel) as pool:
        total = sum(pool.map(get, jobs))
    seconds = time.perf_counter() - began
    assert total == sum(size for _, size in keys)
    return seconds


def ours(there: Context) -> tuple[float, int]:
    """Seconds to read every chunk in order, and how many bytes of chunks there were."""
    reader = StreamReader(context().store, there.catalog, there.prefix, STREAM)
    size = 0
    began = time.perf_counter()
    for chunk in reader.chunks(First()):
        size += chunk.header.size
    return time.perf_counter() - began, size


def through(link: Link | None, fragments: int) -> float:
    """Bytes a second of one read of a stream through a link."""
    store: Any = LinkedStore(fragments, link)
    reader = StreamReader(store, store.catalog, PREFIX, LINKED)
    began = time.perf_counter()
    size = sum(chunk.header.size for chunk in reader.chunks(First()))
    assert size == store.size
    return size / (time.perf_counter() - began)


def linked(fragments: int) -> None:
    """How much of a link one read fills."""
    able = through(None, fragments)
    link = Link(1e9 if able > 1.05e9 else 400e6)
    rate = through(link, fragments)
    print(
        f"{fragments * 67} MB through a link of {link.total / 1e6:.0f} MB/s,"
        f" {link.connection / 1e6:.0f} a connection, {link.latency * 1000:.0f} ms:"
        f" {rate / 1e6:.0f} MB/s (without a link {able / 1e6:.0f} MB/s)"
    )
    ratio("read-link", rate / link.total, ">= 0.9")


def main() -> None:
    small = quick(__doc__)
    keep_freed_memory()  # as our commands do
    share, rounds = (20, 1) if small else (1, ROUNDS)
    linked(4 if small else 96)
    with site() as work:
        stream(work / "data", STREAM, messages=LONG // share)
        there = context()
        tier(there, work / "data")
        root = load(context(), STREAM).root
        keys = [(e.data_key(STREAM).path(there.prefix), e.size) for e in root.entries]
        plain_s: dict[int, deque[float]] = {2: deque(), 4: deque(), 16: deque()}
        checked_s: dict[int, deque[float]] = {2: deque(), 4: deque(), 16: deque()}
        ours_s = []
        size = 0
        for number in range(rounds):
            order = [*plain_s, 0] if number % 2 else [0, *plain_s]
            for parallel in order:
                if parallel:
                    plain_s[parallel].append(plain(keys, parallel))
                    checked_s[parallel].append(plain(keys, parallel, checked=True))
                else:
                    seconds, size = ours(there)
                    ours_s.append(seconds)
    print(f"{size / 1e6:.0f} MB in {len(keys)} fragments, {rounds} rounds in turn, median (range)")
    for what, side in (("plain range GETs", plain_s), ("and one CRC", checked_s)):
        for parallel, each in side.items():
            print(f"  {what:16}, {parallel:2} at once   {megabytes_per_second(size, each)}")
    print(f"  our reader, chunks in order  {megabytes_per_second(size, ours_s)}")
    best, floor = (
        min(statistics.median(each) for each in side.values()) for side in (plain_s, checked_s)
    )
    ratio("read", best / statistics.median(ours_s), ">= 0.95")
    ratio("read_to_checked", floor / statistics.median(ours_s), ">= 0.95")


if __name__ == "__main__":
    main()
