"""Brokers with Osiris's semantics, and their files as an agent sees them.

A writer has an epoch and appends chunks. A replica copies them in order. What a majority holds is
committed; a replica hears of that a little later. An election takes the best log (last epoch, then
offset) of some majority. Whoever joins a new writer cuts its log back to the last chunk that both
have, in place: the same file names, and chunk ids that are written again. Nobody syncs: a node that
loses power may come back without its latest chunks, and if enough of them do, committed messages
are gone. As Osiris does, a writer counts chunks of earlier epochs as committed once a majority has
them, so such chunks can be overwritten later by a log with a higher last epoch
(docs/architecture/correctness.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from struct import Struct

from coldstream.agent.disk.files import LogFile, Stamp
from coldstream.names import INDEX_SUFFIX, SEGMENT_SUFFIX
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.index import INDEX_HEADER
from coldstream.osiris.segment import SEGMENT_HEADER
from coldstream_devkit.generator import build_chunk

_INDEX_RECORD = Struct(">QqQIB")
_CHUNK_ID = attrgetter("chunk_id")
#: Identity of a chunk: its id and the epoch of its writer, which writes each id once.
ChunkId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SimChunk:
    """A chunk as its writer made it, and the one before it in that writer's log."""

    chunk_id: int
    next_offset: int
    epoch: int
    timestamp: int
    data: bytes
    previous: ChunkId | None

    @property
    def identity(self) -> ChunkId:
        """What tells it from all others."""
        return self.chunk_id, self.epoch


class Segment:
    """One segment of a replica: its chunks, and the bytes of its two files."""

    __slots__ = ("chunks", "data", "first", "index", "names", "torn")

    def __init__(self, first: int) -> None:
        self.first = first
        self.names = (f"{first:020d}{SEGMENT_SUFFIX}", f"{first:020d}{INDEX_SUFFIX}")
        self.chunks: list[SimChunk] = []
        self.data = bytearray(SEGMENT_HEADER)
        self.index = bytearray(INDEX_HEADER)
        self.torn = False

    def copy(self) -> Segment:
        """The same, on its own; chunks never change."""
        other = Segment(self.first)
        other.chunks, other.data, other.index = self.chunks[:], self.data[:], self.index[:]
        other.torn = self.torn
        return other

    def append(self, chunk: SimChunk) -> None:
        """Add a chunk and its index record."""
        if self.torn:
            self.tear(b"")
            self.torn = False
        self.index += _INDEX_RECORD.pack(
            chunk.chunk_id, chunk.timestamp, chunk.epoch, len(self.data), 0
        )
        self.data += chunk.data
        self.chunks.append(chunk)

    def tear(self, more: bytes) -> None:
        """A chunk is half written: its data is there in part, its index record is not."""
        del self.data[self._end :]
        self.data += more
        self.torn = bool(more)

    @property
    def _end(self) -> int:
        """Byte after the last chunk; what follows is half written."""
        return len(SEGMENT_HEADER) + sum(len(each.data) for each in self.chunks)

    def restore(self) -> None:
        """The data as its writers made it."""
        self.data[:] = SEGMENT_HEADER + b"".join(each.data for each in self.chunks)
        self.torn = False

    def cut(self, offset: int) -> None:
        """Truncate both files in place, so that `offset` is the next."""
        self.torn = False
        keep = [each for each in self.chunks if each.next_offset <= offset]
        del self.data[len(SEGMENT_HEADER) + sum(len(each.data) for each in keep) :]
        del self.index[len(INDEX_HEADER) + _INDEX_RECORD.size * len(keep) :]
        self.chunks = keep


@dataclass(slots=True)
class Replica:
    """One node's copy of the stream.

    Attributes:
        name: of the node.
        skew: ms by which its clock is wrong.
        up: whether the broker runs.
        segments: of its log, oldest first; never empty.
        epoch: that it follows or leads.
        leads: whether it is, or believes to be, the writer of that epoch.
        joined: whether its log is a prefix of that writer's, so that it counts for a majority.
        committed: offsets below this are committed, as far as it has heard.
        synced: offsets below this would survive a loss of power.
        cut_off: whether it can reach nobody.
        reachable_since: when it last became reachable again, ms.
        ends: how often it has ended.
        segment_chunks: in a full segment of its own; None for as many as the cluster says.
    """

    name: str
    skew: int = 0
    up: bool = True
    segments: list[Segment] = field(default_factory=lambda: [Segment(0)])
    epoch: int = 0
    leads: bool = False
    joined: bool = False
    committed: int = 0
    synced: int = 0
    cut_off: bool = False
    reachable_since: int = -1
    ends: int = 0
    segment_chunks: int | None = None

    @property
    def tail(self) -> int:
        """Offset after its last chunk."""
        last = self.segments[-1]
        return last.chunks[-1].next_offset if last.chunks else last.first

    @property
    def begin(self) -> int:
        """Its first offset."""
        return self.segments[0].first

    @property
    def last_chunk(self) -> ChunkId | None:
        """Its last chunk, None if it has none."""
        for segment in reversed(self.segments):
            if segment.chunks:
                return segment.chunks[-1].identity
        return None

    @property
    def last_epoch(self) -> int:
        """Epoch of its last chunk, 0 if it has none."""
        last = self.last_chunk
        return 0 if last is None else last[1]

    def chunks(self) -> Iterable[SimChunk]:
        """All of its chunks, oldest first."""
        return (chunk for segment in self.segments for chunk in segment.chunks)

    def chunk_at(self, offset: int) -> SimChunk | None:
        """The chunk that begins at `offset`."""
        at = bisect_right(self.segments, offset, key=lambda each: each.first) - 1
        if at < 0:
            return None
        chunks = self.segments[at].chunks
        near = bisect_left(chunks, offset, key=_CHUNK_ID)
        return chunks[near] if near < len(chunks) and chunks[near].chunk_id == offset else None

    def append(self, chunk: SimChunk, *, most: int) -> None:
        """Add a chunk; a segment of `most` chunks is full."""
        if len(self.segments[-1].chunks) >= most:
            self.segments.append(Segment(chunk.chunk_id))
        self.segments[-1].append(chunk)

    def cut(self, offset: int) -> None:
        """Truncate the log so that `offset` is the next one."""
        while len(self.segments) > 1 and self.segments[-1].first >= offset:
            self.segments.pop()
        self.segments[-1].cut(offset)
        self.committed = min(self.committed, self.tail)
        self.synced = min(self.synced, self.tail)

    def restore_files(self) -> None:
        """A person mends the disk: every chunk is as it was written."""
        for segment in self.segments:
            segment.restore()

    def begin_anew(self, offset: int) -> None:
        """Throw the log away; the next chunk is at `offset`."""
        self.segments = [Segment(offset)]
        self.committed = self.synced = offset


class Cluster:
    """Some replicas of one stream.

    Args:
        names: of the nodes, an odd number.
        segment_chunks: in a full segment.
        skews: ms by which the clocks of the nodes are wrong, in turn.

    Attributes:
        epoch: of the latest election.
        written: every chunk that any writer ever made.
        committed: those that a majority held at some time.
        unseen_joins: neighbours in a manifest of two histories that no log shows any more.
    """

    def __init__(
        self, names: Sequence[str], *, segment_chunks: int, skews: Sequence[int] = (0,)
    ) -> None:
        self.replicas = [Replica(name, skews[n % len(skews)]) for n, name in enumerate(names)]
        self.segment_chunks = segment_chunks
        self.epoch = 0
        self.written: dict[ChunkId, SimChunk] = {}
        self.committed: set[ChunkId] = set()
        self.unseen_joins: set[tuple[ChunkId, ChunkId]] = set()

    def copy(self) -> Cluster:
        """The same cluster, on its own."""
        other = Cluster((), segment_chunks=self.segment_chunks)
        other.replicas = [
            replace(each, segments=[segment.copy() for segment in each.segments])
            for each in self.replicas
        ]
        other.epoch = self.epoch
        other.written, other.committed = dict(self.written), set(self.committed)
        return other

    @property
    def majority(self) -> int:
        """How many nodes are one."""
        return len(self.replicas) // 2 + 1

    @property
    def reachable(self) -> list[Replica]:
        """Nodes that run and reach one another."""
        return [each for each in self.replicas if each.up and not each.cut_off]

    @property
    def writer(self) -> Replica | None:
        """The writer of the latest epoch, if it runs."""
        return next((r for r in self.replicas if r.up and r.leads and r.epoch == self.epoch), None)

    def elect(self, among: Sequence[Replica]) -> Replica | None:
        """A new epoch, written by the best of a majority; None if there is no majority."""
        if len(among) < self.majority:
            return None
        self.epoch += 1
        best = max(among, key=lambda each: (each.last_epoch, each.tail))
        for each in among:
            each.epoch, each.leads, each.joined = self.epoch, each is best, each is best
        self._count(best)
        return best

    def write(self, writer: Replica, now: int, *, records: int) -> SimChunk:
        """The writer (or who believes to be it) appends a chunk."""
        first = writer.tail
        messages = [encode_data(b"%d/%d" % (first + n, writer.epoch)) for n in range(records)]
        timestamp = now + writer.skew
        data = build_chunk(first, writer.epoch, timestamp, messages)
        chunk = SimChunk(first, first + records, writer.epoch, timestamp, data, writer.last_chunk)
        self.written[chunk.identity] = chunk
        writer.append(chunk, most=writer.segment_chunks or self.segment_chunks)
        self._count(writer)
        return chunk

    def replicate(self, replica: Replica, *, chunks: int) -> bool:
        """A replica joins the writer, or copies some chunks; whether there was anything to do."""
        writer = self.writer
        if (
            writer is None
            or replica is writer
            or not replica.up
            or replica.cut_off
            or writer.cut_off
        ):
            return False
        if replica.epoch != writer.epoch or not replica.joined:
            replica.epoch, replica.leads, replica.joined = writer.epoch, False, True
            self._join(replica, writer)
            self._count(writer)
            return True
        if replica.tail < writer.begin:
            replica.begin_anew(writer.begin)
        heard = min(writer.committed, replica.tail)
        news = heard > replica.committed
        replica.committed = max(replica.committed, heard)
        for _ in range(chunks):
            chunk = writer.chunk_at(replica.tail)
            if chunk is None:
                break
            replica.append(chunk, most=replica.segment_chunks or self.segment_chunks)
            news = True
        self._count(writer)
        return news

    def _join(self, replica: Replica, writer: Replica) -> None:
        """Cut the replica's log back to the last chunk that both have."""
        common: int | None = None
        for segment in reversed(replica.segments):
            for chunk in reversed(segment.chunks):
                theirs = writer.chunk_at(chunk.chunk_id)
                if theirs is not None and theirs.identity == chunk.identity:
                    common = chunk.next_offset
                    break
            if common is not None:
                break
        if common is not None:
            if common < replica.tail:
                replica.cut(common)
        else:
            replica.begin_anew(writer.begin)

    def _count(self, writer: Replica) -> None:
        """Move the writer's commit offset to what a majority has."""
        tails = sorted(
            (r.tail for r in self.replicas if r.up and r.joined and r.epoch == writer.epoch),
            reverse=True,
        )
        if not writer.up or len(tails) < self.majority:
            return
        offset = min(tails[self.majority - 1], writer.tail)
        if offset <= writer.committed:
            return
        for segment in reversed(writer.segments):
            for chunk in reversed(segment.chunks):
                if writer.committed <= chunk.chunk_id < offset:
                    self.committed.add(chunk.identity)
            if segment.first <= writer.committed:
                break
        writer.committed = offset

    def stop(self, replica: Replica, *, keep: int | None) -> None:
        """A node ends. With `keep`, power fails too, and chunks from that offset on are gone."""
        replica.ends += replica.up
        replica.up = replica.leads = replica.joined = False
        if keep is not None and keep < replica.tail:
            begins = [c.chunk_id for c in replica.chunks() if c.chunk_id >= keep]
            replica.cut(begins[0] if begins else replica.tail)
        replica.committed = 0

    def start(self, replica: Replica, now: int) -> None:
        """A node begins again, and has heard of nothing yet."""
        if not replica.up:
            replica.up, replica.reachable_since = True, now

    def retire(self, replica: Replica) -> bool:
        """Local retention takes the oldest segment, committed and not the last, if there is one."""
        if len(replica.segments) < 2 or replica.segments[1].first > replica.committed:
            return False
        replica.segments.pop(0)
        return True


class _MemoryFile:
    __slots__ = ("_data",)

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def read_into(self, start: int, into: memoryview) -> int:
        found = self._data[start : start + len(into)]
        into[: len(found)] = found
        return len(found)


class ReplicaFiles:
    """The files of one replica, whatever they are at the moment.

    Args:
        replica: whose.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def names(self, directory: Path) -> Sequence[str]:
        """Names of all segments and indexes."""
        del directory
        return [name for segment in self._replica.segments for name in segment.names]

    def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
        """One of them.

        Raises:
            FileNotFoundError: there is none of that name now.
        """
        for segment in self._replica.segments:
            if name in segment.names:
                return _MemoryFile(segment.index if name == segment.names[1] else segment.data)
        raise FileNotFoundError(2, "no such file", str(directory / name))

    def stamp(self, directory: Path, name: str) -> Stamp:
        """Of all names, and of one of them.

        Raises:
            FileNotFoundError: there is none of that name now.
        """
        names = tuple(self.names(directory))
        for segment in self._replica.segments:
            if name in segment.names:
                index = name == segment.names[1]
                data = segment.index if index else segment.data
                return Stamp(names, (id(data), bytes(segment.index)), fresh=False)
        if name:
            raise FileNotFoundError(2, "no such file", str(directory / name))
        return Stamp(names, None, fresh=False)
