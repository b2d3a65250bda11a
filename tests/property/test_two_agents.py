"""Two agents with different cuts, local retention and commits in any order: a hole is only where no
object that had landed, and no member, has anything; and in the end all else is readable."""

from __future__ import annotations

import random
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.agent.broker.committed import AllCommitted
from coldstream.agent.disk.files import LogFile, Stamp
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import Uploaded, fragment_size, upload
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.follower import StreamFollower
from coldstream.fragment import HEADER, TRAILER_SIZE, parse_trailer
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.names import DataKey, parse_data_key
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.chunk import iter_chunks
from coldstream.osiris.index import INDEX_HEADER
from coldstream.osiris.segment import SEGMENT_HEADER
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.generator import build_chunk
from tests.support.examples import examples

PREFIX, STREAM = "rabbitmq/", "__orders_1"
DIRECTORY = Path("/data") / STREAM
CHUNK = 5
START_MS = 1_700_000_000_000
_RECORD = struct.Struct(">QqQIB")


@cache
def chunk(first: int, epoch: int) -> bytes:
    bodies = [encode_data(b"%d" % (first + n)) for n in range(CHUNK)]
    return build_chunk(first, epoch, START_MS + first, bodies)


def nothing(attempt: int) -> None:
    del attempt


class _File:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]

    def read_into(self, start: int, into: memoryview) -> int:
        found = self._data[start : start + len(into)]
        into[: len(found)] = found
        return len(found)


class Files:
    """A broker's files of one stream, in memory. Segments have a number of chunks."""

    def __init__(self, per_segment: int) -> None:
        self._per_segment = per_segment
        self.segments: dict[int, list[tuple[int, int]]] = {}  # chunks: first offset, epoch

    def append(self, first: int, epoch: int) -> None:
        if not self.segments or len(self.segments[max(self.segments)]) >= self._per_segment:
            self.segments[first] = []
        self.segments[max(self.segments)].append((first, epoch))

    def retire(self, count: int) -> None:
        """The oldest segments go; the newest never does."""
        for first in sorted(self.segments)[: min(count, len(self.segments) - 1)]:
            del self.segments[first]

    @property
    def begin(self) -> int:
        return min(self.segments)

    def names(self, directory: Path) -> Sequence[str]:
        del directory
        return [f"{each:020d}{end}" for each in self.segments for end in (".segment", ".index")]

    def stamp(self, directory: Path, name: str) -> Stamp:
        if name and int(name[:20]) not in self.segments:
            raise FileNotFoundError(2, "No such file", str(directory / name))
        return Stamp(tuple(self.segments), len(self.segments.get(int(name[:20]), ())))

    @contextmanager
    def open(self, directory: Path, name: str) -> Generator[LogFile, None, None]:
        first = int(name[:20])
        if first not in self.segments:
            raise FileNotFoundError(2, "No such file", str(directory / name))
        data, index = SEGMENT_HEADER, INDEX_HEADER
        for offset, epoch in self.segments[first]:
            index += _RECORD.pack(offset, START_MS + offset, epoch, len(data), 0)
            data += chunk(offset, epoch)
        yield _File(data if name.endswith(".segment") else index)


@dataclass
class Node:
    """A member with its agent."""

    tier: Tier
    files: Files
    target: int
    other: Node | None = None
    held: list[tuple[MemoryObjectStore, Uploaded]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The agent dies with all its uploads, and another one begins."""
        self.held.clear()
        self.context = self.tier.context()
        self.follower = StreamFollower(
            context=self.context,
            function=OwnRights(self.context, nothing, lambda: 0),
            log=StreamLog(DIRECTORY, self.files),
            committed=AllCommitted(),
            settings=AgentSettings(
                takeover_seconds=2,  # peace lasts for a minute
                target_size=self.target,
                flush_ms=0,
                nudge_seconds=1.0,
                rescan_seconds=1.0,
            ),
            requests=None,
            names={},
            pause=nothing,
            started=0.0,
            members=self,
        )

    def earliest(self, stream: str) -> int | None:
        """As `Members` says."""
        del stream
        return self.other.files.begin if self.other else None

    def lone(self, stream: str) -> bool:
        """As `Members` says."""
        del stream
        return False

    def look(self) -> None:
        """Cut, and read what was cut: it is on its way then."""
        now = self.tier.tick()
        for job in self.follower.step(now, START_MS + 10**6, most=3 - len(self.held)):
            way = MemoryObjectStore()
            done = upload(
                way, job.log, job.piece, job.placement, prefix=PREFIX,
                uid=self.context.new_uid(), buffer=bytearray(fragment_size(job.piece)),
            )  # fmt: skip
            self.held.append((way, done))

    def land(self, count: int) -> None:
        for way, done in self.held[:count]:
            self.tier.store.objects |= way.objects
            self.follower.finished(done, self.tier.now)
        del self.held[:count]


class Tier:
    """The remote tier, and two nodes that write to it."""

    def __init__(self, targets: tuple[int, int]) -> None:
        self.store, self.catalog = MemoryObjectStore(), MemoryCatalog()
        self._ids = random.Random(1)
        self.now = 0.0
        self.end, self.epoch = 0, 1
        self.nodes = [Node(self, Files(6), targets[0]), Node(self, Files(4), targets[1])]
        self.nodes[0].other, self.nodes[1].other = self.nodes[1], self.nodes[0]

    def context(self) -> Context:
        return Context(self.store, self.catalog, PREFIX, lambda: self._ids.getrandbits(64))

    def tick(self) -> float:
        self.now += 1.5
        return self.now

    def write(self, chunks: int) -> None:
        for _ in range(chunks):
            for node in self.nodes:
                node.files.append(self.end, self.epoch)
            self.end += CHUNK

    def commit(self) -> None:
        if STREAM in self.catalog.items:
            commit_runs(self.context(), STREAM, pause=nothing)

    def entries(self) -> list[Entry]:
        if STREAM not in self.catalog.items:
            return []
        return list(load(self.context(), STREAM).root.entries)

    def landed(self) -> list[DataKey]:
        """Fragments in the bucket."""
        paths = [path for path in self.store.objects if path.endswith(".fragment")]
        return [parse_data_key(path, PREFIX) for path in paths]

    def accepted(self, keys: Iterable[DataKey]) -> Iterator[tuple[int, int]]:
        """Ranges of those that the ledger accepts."""
        ledger = self.catalog.items[STREAM].ledger
        for key in keys:
            if ledger.accepts(key.epoch, key.first_offset, key.next_offset):
                yield key.first_offset, key.next_offset


numbers = st.integers(0, 1)
Given = tuple[str, int, int]
one = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 9), numbers),
    st.tuples(st.just("look"), st.just(0), numbers),
    st.tuples(st.just("land"), st.integers(1, 3), numbers),
    st.tuples(st.just("retire"), st.integers(1, 9), numbers),
    st.tuples(st.just("commit"), st.just(0), numbers),
    st.tuples(st.just("restart"), st.just(0), numbers),
    st.tuples(st.just("elect"), st.just(0), numbers),
)
#: One agent has cut, the other is committed first, and local retention takes all before either
#: looks again; any of it may be left out.
storm: list[Given] = [
    ("write", 9, 0), ("look", 0, 0), ("look", 0, 1), ("land", 2, 1), ("commit", 0, 0),
    ("land", 3, 0), ("write", 9, 0), ("retire", 9, 0), ("retire", 9, 1),
]  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[Given]:
    found: list[Given] = []
    for _ in range(draw(st.integers(1, 4))):
        kept = draw(st.lists(st.integers(0, 9), min_size=len(storm), max_size=len(storm)))
        found += [step for step, drawn in zip(storm, kept, strict=True) if drawn]
        if draw(st.booleans()):  # its last uploads land late
            found += [("look", 0, 1), ("look", 0, 1), ("land", 3, 0), ("land", 3, 1)]
        found += draw(st.lists(one, max_size=6))
    return found


@examples(2)
@given(
    histories(),
    st.sampled_from([(900, 250), (1_500, 350), (10**6, 300), (400, 600)]),
)
def test_a_hole_is_only_where_no_object_and_no_member_has_anything(
    given_steps: list[Given], targets: tuple[int, int]
) -> None:
    tier = Tier(targets)
    tier.write(3)
    for what, count, number in [*given_steps, *_PEACE]:
        node = tier.nodes[number]
        before, landed = tier.entries(), tier.landed()
        begins = [each.files.begin for each in tier.nodes]
        match what:
            case "write":
                tier.write(count)
            case "look":
                node.look()
            case "land":
                node.land(count)
            case "retire":
                node.files.retire(count)
            case "commit":
                tier.commit()
            case "restart":
                node.restart()
            case "elect":
                tier.epoch += 1
                tier.write(1)
        after = tier.entries()
        assert after[: len(before)] == before
        for hole in after[len(before) :]:
            if hole.kind is EntryKind.HOLE:
                inside = [
                    each
                    for each in tier.accepted(landed)
                    if each[0] < hole.next_offset and hole.first_offset < each[1]
                ]
                assert not inside, f"{hole} over {inside}"
                assert min(begins) >= hole.next_offset, "a member has some of it"
    _all_is_readable(tier)


_PEACE = [("look", 0, 0), ("look", 0, 1), ("land", 3, 0), ("land", 3, 1), ("commit", 0, 0)] * 25


def _all_is_readable(tier: Tier) -> None:
    entries = tier.entries()
    assert [node.follower.progress.error for node in tier.nodes] == [None, None]
    assert entries[-1].next_offset == tier.end
    assert all(one.next_offset == two.first_offset for one, two in pairwise(entries))
    for entry in entries:
        if entry.kind is EntryKind.HOLE:
            continue
        data = tier.store.objects[entry.data_key(STREAM).path(PREFIX)]
        trailer = parse_trailer(data[-TRAILER_SIZE:])
        for each in iter_chunks(data, len(HEADER), trailer.index_position):
            header = each.header
            assert bytes(each.buffer) == chunk(header.chunk_id, header.epoch)
