"""Scrub as a worker does it, against plain range GETs of the same objects by obstore.

The plain side GETs every byte of the stream's fragments in 8 MiB ranges, as many at once as goes
fastest, and looks at none. Ours reads the groups and the listing, GETs the same bytes, and checks
every trailer, index record, chunk header, CRC, entry, filter and tracking value, and the CRC over
all. Both talk HTTP to the embedded AWS on this machine, which shares its cores; what the checks
alone cost is measured on one core, without any I/O, and stands for faster storage.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import obstore

from bench.report import megabytes_per_second, ratio
from bench.site import site, world
from coldstream import names
from coldstream.adapters.s3 import S3ObjectStore, open_store
from coldstream.agent.committed import AllCommitted
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.jobs.scrub.notes import Subject
from coldstream.jobs.scrub.objects import Ages
from coldstream.jobs.scrub.reading import Effort
from coldstream.jobs.scrub.schedule import packed, units_of
from coldstream.jobs.scrub.sound import holds
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.tree import read_tree
from coldstream.jobs.scrub.work import Task, scrub
from coldstream.testing.generator import write_stream
from coldstream.usecases.load import World, load

ROUNDS = 7
SIZE = 700_000_000
EFFORT = Effort()


def plain(keys: list[tuple[str, int]], parallel: int) -> float:
    """Seconds to GET every byte of the objects."""
    store = open_store(os.environ[names.ENV_BUCKET])
    step = EFFORT.range_size
    jobs = [(key, at, min(at + step, size)) for key, size in keys for at in range(0, size, step)]

    def get(job: tuple[str, int, int]) -> int:
        key, start, end = job
        return len(obstore.get_range(store, key, start=start, end=end))

    began = time.perf_counter()
    with ThreadPoolExecutor(parallel) as pool:
        total = sum(pool.map(get, jobs))
    seconds = time.perf_counter() - began
    assert total == sum(size for _, size in keys)
    return seconds


def ours(there: World, stream: str) -> float:
    """Seconds to scrub the stream."""
    store = S3ObjectStore(bucket=os.environ[names.ENV_BUCKET])
    item = there.catalog.get(stream)
    assert item is not None
    began = time.perf_counter()
    tree, findings = read_tree(store, item)
    units = units_of(tree, ScrubState(), lambda *_: ())
    [units_of_task] = packed(units, task_bytes=2**40)
    done = scrub(
        store, there.prefix, Task(tuple(units_of_task), {stream: tree}), EFFORT, Ages(0, 1)
    )
    seconds = time.perf_counter() - began
    assert not findings, findings
    assert not done.findings, done.findings
    assert done.bytes == item.total_size
    return seconds


def checks(there: World, stream: str, keys: list[tuple[str, int]]) -> float:
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


def compare(there: World, stream: str, what: str) -> float:
    """Print the figures of one stream; plain seconds divided by ours."""
    root = load(there, stream).root
    keys = [(each.data_key(stream).path(there.prefix), each.size) for each in root.entries]
    size = sum(each for _, each in keys)
    plain_s: dict[int, deque[float]] = {2: deque(), 4: deque(), 8: deque()}
    ours_s: list[float] = []
    for number in range(ROUNDS):
        for parallel in [*plain_s, 0] if number % 2 else [0, *plain_s]:
            if parallel:
                plain_s[parallel].append(plain(keys, parallel))
            else:
                ours_s.append(ours(there, stream))
    alone = [checks(there, stream, keys) for _ in range(3)]
    print(f"{what}: {size / 1e6:.0f} MB in {len(keys)} fragments, {ROUNDS} rounds in turn")
    for parallel, each in plain_s.items():
        print(f"  plain range GETs, {parallel} at once   {megabytes_per_second(size, each)}")
    print(f"  scrub                         {megabytes_per_second(size, ours_s)}")
    print(f"  the checks alone, one core    {megabytes_per_second(size, alone)}")
    best = min(statistics.median(each) for each in plain_s.values())
    return best / statistics.median(ours_s)


def main() -> None:
    with site() as work:
        for stream, message_size in (("__bench_1k", 1000), ("__bench_100", 100)):
            write_stream(
                work / "data" / stream,
                messages=SIZE // (message_size + 12),
                message_size=message_size,
            )
        there = world()
        Agent(
            world=there,
            data_dir=work / "data",
            committed=AllCommitted(),
            settings=AgentSettings(once=True),
            requests=None,
            names={},
            pause=lambda attempt: time.sleep(0.02 * attempt),
        ).run()
        large = compare(world(), "__bench_1k", "1 kB messages")
        small = compare(world(), "__bench_100", "100 B messages")
    ratio("scrub", large, ">= 0.9")
    ratio("scrub-100B", small, ">= 0.9")


if __name__ == "__main__":
    main()
