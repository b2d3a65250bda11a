"""Scrub as a worker does it, against plain range GETs of the same objects by obstore.

The plain side GETs every byte of the stream's fragments in 8 MiB ranges and looks at none. Ours
reads the listing and the indexes, GETs the same bytes, and checks every trailer, index record,
chunk header, CRC, entry, filter and tracking value, and the CRC over all. Both have as many GETs in
flight and talk HTTP to the embedded AWS on this machine.

Measured twice: as fast as loopback goes, where both sides and the server fight for the same cores;
and with each connection held to 40 MB/s, which is what one of S3's gives. What the
checks alone cost is measured on one core, on objects in memory.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.report import megabytes_per_second, quick, ratio
from bench.site import context, site, tier
from coldstream import deployment
from coldstream.adapters.s3 import S3ObjectStore
from coldstream.jobs.scrub.objects import Ages
from coldstream.jobs.scrub.reading import Effort
from coldstream.jobs.scrub.schedule import packed, units_of
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.tree import read_tree
from coldstream.jobs.scrub.work import ScrubTask, scrub
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.soundness.fragment import holds
from coldstream.soundness.notes import Subject
from coldstream_devkit.generator import write_stream

ROUNDS = 7
SIZE = 1_000_000_000
EFFORT = Effort()
S3_BYTES_PER_SECOND = 40e6


class Slow:
    """A store whose GETs take at least as long as one of S3's connections would.

    Args:
        store: the real one.
        rate: bytes a second of one GET; None for no limit.
    """

    def __init__(self, store: Any, rate: float | None) -> None:
        self._store = store
        self._rate = rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str, start: int, end: int) -> Any:
        began = time.perf_counter()
        data = self._store.get(key, start, end)
        if self._rate is not None:
            time.sleep(max(0.0, (end - start) / self._rate - (time.perf_counter() - began)))
        return data


def open_store() -> Any:
    """As a worker has it: its clients, which are made once in its life, are there."""
    store = S3ObjectStore(bucket=os.environ[deployment.ENV_BUCKET])
    store.list("", limit=1)
    return store


def plain(store: Any, keys: Sequence[tuple[str, int]], rate: float | None) -> float:
    """Seconds to GET every byte of the objects."""
    store, step = Slow(store, rate), EFFORT.range_size
    jobs = [(key, at, min(at + step, size)) for key, size in keys for at in range(0, size, step)]
    began = time.perf_counter()
    with ThreadPoolExecutor(EFFORT.in_flight) as pool:
        total = sum(pool.map(lambda job: len(store.get(*job)), jobs))
    seconds = time.perf_counter() - began
    assert total == sum(size for _, size in keys)
    return seconds


def ours(store: Any, there: Context, stream: str, rate: float | None) -> float:
    """Seconds to scrub the stream."""
    store = Slow(store, rate)
    item = there.catalog.get(stream)
    assert item is not None
    began = time.perf_counter()
    tree, findings = read_tree(store, item)
    [units] = packed(units_of(tree, ScrubState(), lambda *_: ()), task_bytes=2**40)
    task = ScrubTask(tuple(units), {stream: tree})
    done = scrub(store, there.prefix, task, EFFORT, Ages(0, 1))
    seconds = time.perf_counter() - began
    assert not findings, findings
    assert not done.findings, done.findings
    assert done.bytes == item.total_size
    return seconds


def checks(there: Context, stream: str, keys: Sequence[tuple[str, int]]) -> float:
    """Seconds of one core for the checks of fragments that are in memory."""
    root = load(there, stream).root
    seconds = 0.0
    for (key, size), entry in zip(keys, root.entries, strict=True):
        data = memoryview(bytes(there.store.get(key, 0, size)))
        subject = Subject(entry.data_key(stream), key, entry, root.ledger.floor(entry.epoch))
        began = time.perf_counter()
        assert holds(data, subject)
        seconds += time.perf_counter() - began
    return seconds


def compare(there: Context, stream: str, what: str, *, rounds: int) -> tuple[float, float]:
    """Print the figures of one stream; plain seconds by ours, unlimited and as S3."""
    root = load(there, stream).root
    keys = [(each.data_key(stream).path(there.prefix), each.size) for each in root.entries]
    size = sum(each for _, each in keys)
    print(
        f"{what}: {size / 1e6:.0f} MB in {len(keys)} fragments, {EFFORT.in_flight} GETs in flight"
    )
    ratios, store = [], open_store()
    for rate, how in ((None, "loopback"), (S3_BYTES_PER_SECOND, "40 MB/s a connection")):
        sides: dict[str, Callable[[], float]] = {
            "plain GETs": partial(plain, store, keys, rate),
            "scrub": partial(ours, store, there, stream, rate),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                seconds[name].append(sides[name]())
        for name, each in seconds.items():
            print(f"  {how:<22}{name:<12}{megabytes_per_second(size, each)}")
        plain_s, ours_s = (statistics.median(seconds[name]) for name in sides)
        ratios.append(plain_s / ours_s)
    alone = [checks(there, stream, keys) for _ in range(3)]
    print(f"  {'in memory, one core':<22}{'the checks':<12}{megabytes_per_second(size, alone)}")
    return ratios[0], ratios[1]


def main() -> None:
    size, rounds = (SIZE // 20, 1) if quick(__doc__) else (SIZE, ROUNDS)
    with site() as work:
        for stream, message_size in (("__bench_1k", 1000), ("__bench_100", 100)):
            write_stream(
                work / "data" / stream,
                messages=size // (message_size + 12),
                message_size=message_size,
            )
        there = context()
        tier(there, work / "data")
        results = {
            "1k": compare(context(), "__bench_1k", "1 kB messages", rounds=rounds),
            "100b": compare(context(), "__bench_100", "100 B messages", rounds=rounds),
        }
    for name, (loopback, as_s3) in results.items():
        ratio(f"scrub-{name}", as_s3, ">= 0.95")
        ratio(f"scrub-{name}-loopback", loopback, ">= 0.95")


if __name__ == "__main__":
    main()
