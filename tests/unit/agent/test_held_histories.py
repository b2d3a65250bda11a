"""Random histories of one stream's files: nothing that was cut off counts, nothing held is lost.

A model broker writes, rolls, retires, is deposed, cuts its tail off, or loses its directory and is
made anew, on a real disk; in the end the stream may be deleted. What the agent may read is compared
with what was committed, after every act; and what it held, and knew to be committed, must be there.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coldstream.agent.disk.files import DISK, LogFile, Stamp
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER_SIZE
from coldstream_devkit.generator import append_chunks, build_chunk

STREAM = "__orders_1745252105682952932"
_MESSAGES = 2  # of each chunk
_SEGMENTS = 3  # that retention keeps
Chunk = tuple[int, int]  # its id and epoch


@dataclass
class Broker:
    """One member of a stream, and what the cluster has committed."""

    directory: Path
    committed: list[Chunk] = field(default_factory=list)
    segments: dict[int, list[Chunk]] = field(default_factory=dict)  # on disk, oldest first
    epoch: int = 1
    deposed: bool = False
    size: int = 3  # chunks of a segment
    dying: int | None = None  # a segment whose index is removed already
    ends: dict[int, int] = field(default_factory=dict)  # of segments that are or were there

    @property
    def committed_end(self) -> int:
        return _end(self.committed)

    @property
    def end(self) -> int:
        return max([_end(each) for each in self.segments.values()], default=self.committed_end)

    def publish(self) -> None:
        self.append((self.end, self.epoch - self.deposed))

    def append(self, chunk: Chunk) -> None:
        newest = next(reversed(self.segments.values()), None)
        roll = newest is None or len(newest) >= self.size
        if roll:
            self.segments[chunk[0]] = newest = []
        assert newest is not None
        newest.append(chunk)
        self.ends[next(reversed(self.segments))] = _end(newest)
        data = build_chunk(chunk[0], chunk[1], 1_790_000_000_000, [b"x" * 20] * _MESSAGES)
        append_chunks(self.directory, [data], roll=roll)
        while roll and len(self.segments) > _SEGMENTS:
            self.retire()

    def retire(self) -> None:
        """The oldest goes, its index first."""
        self.bury()
        first = next(iter(self.segments))
        if len(self.segments) > 1:
            del self.segments[first]
            self.log.index_path(first).unlink()
            self.dying = first

    def bury(self) -> None:
        """What the broker has begun to remove is gone."""
        if self.dying is not None:
            self.log.segment_path(self.dying).unlink(missing_ok=True)
            self.dying = None

    def commit(self, chunks: int) -> None:
        """What followers have of a leader's log is committed."""
        if not self.deposed:
            mine = [each for of in self.segments.values() for each in of]
            new = [each for each in mine if each[0] >= self.committed_end]
            if new and new[0][0] == self.committed_end:
                self.committed += new[:chunks]

    def depose(self, chunks: int) -> None:
        """Others elect another leader, which writes over what is not committed."""
        self.epoch += not self.deposed
        self.deposed = True
        for _ in range(chunks):
            self.committed.append((self.committed_end, self.epoch))

    def rejoin(self) -> None:
        """What the cluster has not is cut off from the top, and replaced."""
        known = set(self.committed)
        for first in reversed(list(self.segments)):
            kept = [each for each in self.segments[first] if each in known]
            if not kept:
                del self.segments[first]
                self.log.index_path(first).unlink()
                self.log.segment_path(first).unlink()
                continue
            if len(kept) < len(self.segments[first]):
                self.cut(first, len(kept))
                self.segments[first] = kept
            break
        end = max([_end(each) for each in self.segments.values()], default=-1)
        if not self.segments:
            self.bury()
        for each in self.committed:
            if each[0] >= end:
                self.append(each)
        self.deposed = False

    def cut(self, first: int, chunks: int) -> None:
        index, segment = self.log.index_path(first), self.log.segment_path(first)
        at = INDEX_HEADER_SIZE + chunks * INDEX_DTYPE.itemsize
        record = index.read_bytes()[at : at + INDEX_DTYPE.itemsize]
        os.truncate(index, at)
        os.truncate(segment, int(np.frombuffer(record, INDEX_DTYPE)["position"][0]))

    def make_anew(self, back: int, size: int) -> None:
        """The member loses its files, and gets others from its writer, whose log begins higher."""
        if not self.committed:
            return
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.segments, self.dying, self.size, self.deposed = {}, None, size, False
        for each in self.committed[-back:]:
            self.append(each)

    @property
    def log(self) -> StreamLog:
        return StreamLog(self.directory)


@dataclass
class Counted:
    """The disk, and how many files are open."""

    open_files: int = 0

    def names(self, directory: Path) -> Sequence[str]:
        return DISK.names(directory)

    def stamp(self, directory: Path, name: str) -> Stamp:
        return DISK.stamp(directory, name)

    @contextmanager
    def open(self, directory: Path, name: str) -> Iterator[LogFile]:
        with DISK.open(directory, name) as file:
            self.open_files += 1
            yield file
            self.open_files -= 1


def _end(chunks: list[Chunk]) -> int:
    return chunks[-1][0] + _MESSAGES if chunks else 0


@dataclass
class Owner:
    """Holds what is not durable, as a follower does."""

    broker: Broker
    held: Held
    limit: int = 0
    durable: int = 0
    epoch: int = 0  # of the chunk that proved the limit
    doubted: int = 0
    sure: dict[int, tuple[int, int]] = field(default_factory=dict)  # segment: its end, proved

    @property
    def log(self) -> StreamLog:
        return StreamLog(self.broker.directory, self.held)

    def look(self) -> None:
        self.ask()
        self.hold()

    def ask(self) -> None:
        """A look begins so, and may hang then."""
        if not self.broker.deposed:
            self.limit = max(self.limit, min(self.broker.committed_end, self.broker.end))
            below = [each for each in self.broker.committed if each[0] < self.limit]
            self.epoch = below[-1][1] if below else 0

    def hold(self) -> None:
        self.held.keep(self.log.directory, self.log.segments(), self.durable, proved=self.limit)
        for first, chunks in self.broker.segments.items():
            if _end(chunks) <= self.limit:
                self.sure[first] = _end(chunks), self.limit
            else:
                self.sure.pop(first, None)
        expected = self.expected()
        self.sure = {first: sure for first, sure in self.sure.items() if first in expected}

    def hold_new(self) -> None:
        """What a member that was made anew has in other segments is held in these."""
        self.held.keep_new(self.log.directory, proved=self.limit)
        there, since = self.broker.segments, self.held._all.stream(STREAM).since or 0
        begin = min(there, default=_end(self.broker.committed))
        self.sure = {f: sure for f, sure in self.sure.items() if f in there or f < begin}
        self.sure |= {
            first: (_end(chunks), self.limit)
            for first, chunks in there.items()
            if _end(chunks) <= self.limit and first >= since
        }
        expected = self.expected()
        self.sure = {first: sure for first, sure in self.sure.items() if first in expected}

    def claim(self) -> None:
        if not self.epoch or self.epoch != self.doubted:
            self.sure = {}
        self.doubted = self.epoch
        self.held.doubt(self.log.directory, epoch=self.epoch)
        self.look()

    def lose(self, back: int, size: int) -> None:
        """Of what reaches above where the new log begins, nothing is expected to count."""
        ends = dict(self.broker.ends)
        self.broker.make_anew(back, size)
        begin = next(iter(self.broker.segments), 0)
        self.sure = {first: sure for first, sure in self.sure.items() if ends[first] <= begin}

    def delete(self, rng: random.Random) -> None:
        """The stream is deleted: its files go in any order, and looks come meanwhile."""
        rng.choice((self.hold, self.hold_new))()
        paths = sorted(self.broker.directory.iterdir())
        for path in rng.sample(paths, len(paths)):
            path.unlink()
            proved = rng.choice((0, self.limit))  # the gate may find its proof no more
            with suppress(OSError):
                match rng.randrange(4):
                    case 0:
                        directory, segments = self.log.directory, self.log.segments()
                        self.held.keep(directory, segments, self.durable, proved=proved)
                    case 1:
                        self.held.keep_new(self.log.directory, proved=proved)
        self.broker.directory.rmdir()
        self.broker.segments = {}

    def upload(self, chunks: int) -> None:
        for each in self.readable()[:chunks]:
            self.durable = each[0] + _MESSAGES

    def readable(self) -> list[Chunk]:
        try:
            found = self.log.chunks_between(self.durable, self.limit, committed=self.limit)
        except FileNotFoundError:  # nothing is there, and nothing is held
            found = []
        return [(each.chunk_id, each.epoch) for each in found]

    def expected(self) -> set[int]:
        """Segments that are there, or were held, and are known to go on in what is there."""
        begin = next(iter(self.broker.segments), None)
        expected: set[int] = set(self.broker.segments)
        for first, (end, proved) in sorted(self.sure.items(), reverse=True):
            if begin is None or (end <= begin and (end in expected or begin <= proved)):
                expected.add(first)
        return expected

    def check(self) -> None:
        found, truth = set(self.readable()), self.broker.committed
        assert found <= set(truth), "what was never committed counts"
        expected = self.expected()
        missing = [
            each
            for each in truth
            for first in expected & self.sure.keys()
            if first <= each[0] < self.sure[first][0] and self.durable <= each[0] < self.limit
            if each not in found
        ]
        assert not missing, "what was held is lost"


def play(directory: Path, seed: int) -> None:
    rng, files = random.Random(seed), Counted()
    broker = Broker(directory / STREAM)
    owner = Owner(broker, Held(files, budget=2**30, most=1000))
    broker.publish()
    kinds = rng.choice((15, 19))  # of every other history all members are sound
    for _ in range(60):
        match rng.randrange(kinds):
            case 0 | 1 | 2 | 3 | 4:
                for _ in range(rng.randrange(1, 6)):
                    broker.publish()
            case 5 | 6 | 7:
                broker.commit(rng.randrange(1, 9))
            case 8 | 9 | 10:
                owner.look()
            case 11:
                broker.bury()
            case 12:
                owner.hold_new()
            case 13:
                owner.upload(rng.randrange(1, 9))
            case 14:
                owner.ask()
            case 15:
                broker.depose(rng.randrange(0, 6))
            case 16:
                broker.rejoin()
            case 17:
                owner.lose(rng.randrange(1, 15), rng.randrange(1, 4))
            case 18:
                owner.claim()
        owner.check()
    if rng.random() < 0.5:
        owner.delete(rng)
        owner.check()
    owner.held.close()
    assert (files.open_files, owner.held.unlinked_bytes, owner.held.lacking) == (0, 0, 0)


#: Beside these, some that have once found something.
_SEEDS = (*range(5), 39, 75, 132, 146, 257, 317, 371, 391)


def test_nothing_that_was_cut_off_counts_and_nothing_that_was_held_is_lost(
    tmp_path: Path,
) -> None:
    for seed in _SEEDS:
        play(tmp_path / str(seed), seed)
