"""A petabyte's tree by append and rebalance; groups in a file, looked up, and retained from."""

from __future__ import annotations

import os
import random
import tempfile
import time
from dataclasses import dataclass
from typing import IO

from bench import synthetic_stream as synthetic
from bench.memory import peak
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.node import Node, parse_node
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import fragments_reaching, leaf_at
from coldstream.plans.rebalance import rebalance
from coldstream.plans.retention import RetentionLimits, plan_retention


class GroupFile:
    """Encoded groups in an unnamed file; of each, memory holds its place only.

    What was read since `restart` is kept, as a cache would.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: dict[int, tuple[int, int]] = {}
        self.size = 0
        self._read: dict[Entry, Node] = {}
        self.read_bytes = 0

    @property
    def reads(self) -> int:
        return len(self._read)

    def __len__(self) -> int:
        return len(self._places)

    def put(self, node: Node) -> None:
        body = node.encode()
        self._places[node.uid] = (self.size, len(body))
        self.size += self._file.write(body)

    def fetch(self, entry: Entry) -> Node:
        if entry not in self._read:
            place, size = self._places[entry.uid]
            self._read[entry] = parse_node(os.pread(self._file.fileno(), size, place), entry)
            self.read_bytes += size
        return self._read[entry]

    def restart(self) -> None:
        self._file.flush()
        self._read.clear()
        self.read_bytes = 0


@dataclass(frozen=True, slots=True)
class Built:
    """Figures; times in seconds, sizes in bytes."""

    seconds: float
    groups: int
    group_bytes: int
    root_entries: int
    root_bytes: int
    look_ups: int
    offset_reads: int
    offset_seconds: float
    time_reads: int
    time_seconds: float
    retained: dict[str, tuple[int, int, int]]  # rule -> groups fetched, their bytes, root's bytes
    peak: int


def build(fragments: int, look_ups: int) -> Built:
    """Append all fragments, 1,024 at a time, with a rebalance after each append."""
    with tempfile.TemporaryFile(buffering=2**20) as file:
        groups = GroupFile(file)
        began = time.perf_counter()
        root = Root(0, 0, epoch=synthetic.EPOCH, ledger=synthetic.LEDGER)
        uids = synthetic.group_uids()
        for begin in range(0, fragments, synthetic.M):
            run = Entries(synthetic.entries(begin, min(fragments, begin + synthetic.M)))
            root = root.appended(run, LastChunk(run[-1].next_offset - 1, synthetic.EPOCH))
            change = rebalance(root, synthetic.M, uids)
            for node in change.nodes:
                groups.put(node)
            root = change.root
        seconds = time.perf_counter() - began
        assert (root.fragments, root.total_size) == (fragments, fragments * synthetic.SIZE)
        assert root.next_offset == synthetic.first_offset(fragments)
        assert len(root.entries) == len(synthetic.root(fragments).entries)
        most, spent = _look_up(root, groups, look_ups, fragments)
        retained = _retain(root, groups, fragments)
        return Built(
            seconds=seconds,
            groups=len(groups),
            group_bytes=groups.size,
            root_entries=len(root.entries),
            root_bytes=len(root.encode()),
            look_ups=look_ups,
            offset_reads=most["offset"],
            offset_seconds=spent["offset"] / look_ups,
            time_reads=most["time"],
            time_seconds=spent["time"] / look_ups,
            retained=retained,
            peak=peak(),
        )


def _look_up(
    root: Root, groups: GroupFile, look_ups: int, fragments: int
) -> tuple[dict[str, int], dict[str, float]]:
    """Most reads of one look-up and seconds of all, with nothing in memory but the root."""
    rng = random.Random(1)
    most = {"offset": 0, "time": 0}
    spent = {"offset": 0.0, "time": 0.0}
    for _ in range(look_ups):
        offset = rng.randrange(root.next_offset)
        timestamp = rng.randrange(fragments * synthetic.STEP_MS)
        groups.restart()
        began = time.perf_counter()
        found = leaf_at(root, offset, groups.fetch)
        spent["offset"] += time.perf_counter() - began
        most["offset"] = max(most["offset"], groups.reads)
        assert found is not None
        assert found.first_offset <= offset < found.next_offset
        groups.restart()
        began = time.perf_counter()
        found = next(fragments_reaching(root, timestamp, groups.fetch))
        spent["time"] += time.perf_counter() - began
        most["time"] = max(most["time"], groups.reads)
        right = synthetic.first_reaching(timestamp)
        assert found.first_offset == synthetic.first_offset(right)
    return most, spent


def _retain(root: Root, groups: GroupFile, fragments: int) -> dict[str, tuple[int, int, int]]:
    half = fragments // 2
    now = fragments * synthetic.STEP_MS
    age = now - half * synthetic.STEP_MS
    rules = {
        "max-bytes, half": (RetentionLimits(max_bytes=half * synthetic.SIZE), fragments - half),
        "max-age, half": (RetentionLimits(max_age_ms=age), synthetic.first_reaching(now - age)),
        "max-bytes, one fragment": (RetentionLimits(max_bytes=(fragments - 1) * synthetic.SIZE), 1),
    }
    found = {}
    for name, (rule, right) in rules.items():
        groups.restart()
        plan = plan_retention(root, rule, now_ms=now, fetch=groups.fetch)
        assert plan.root.first_offset == synthetic.first_offset(right)
        assert plan.root.fragments == fragments - right
        found[name] = (groups.reads, groups.read_bytes, len(plan.root.encode()))
    return found
