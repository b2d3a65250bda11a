"""A broker node with the real agent beside it, for known histories (see `retold`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.agent.broker.gate import Gate
from coldstream.agent.broker.members import Members
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import fragment_size, upload
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.follower import Job, StreamFollower
from coldstream.errors import ColdstreamError, ConflictError, NotFoundError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import QueueName
from coldstream.usecases.claim_function import OwnRights
from coldstream_devkit.fragments import START_MS
from coldstream_devkit.simulation.cluster import Replica, ReplicaFiles, SimChunk
from coldstream_devkit.simulation.nodes import DATA_DIR, SimBroker
from tests.simulation.retold import Run, Stream
from tests.support.stage import CHUNK, PREFIX, STREAM, chunk, no_pause


class Node:
    """A broker node: its replica of the stream, and the real agent beside it.

    Args:
        stream: that it writes.
        runs: chunks that its log has.
        committed: offsets below this are committed as far as it knows; all of it if None.
        members: that its agent may ask.
        last_copy: whether its agent was told that no other member has more.
        segment_chunks: in a full segment.
    """

    def __init__(
        self,
        stream: Stream,
        *runs: Run,
        committed: int | None = None,
        members: Members | None = None,
        last_copy: bool = False,
        segment_chunks: int = 4,
    ) -> None:
        self._segment_chunks = segment_chunks
        self._stream = stream
        self._now = 0.0
        self._members = members
        self._last_copy = last_copy
        self.replica = Replica("n")
        self.replica.leads = True  # in a story each node believes so: the worst that can be
        self.write(*runs, committed=committed)
        self.restart()

    def restart(self) -> None:
        """The agent dies, and another one begins."""
        self.context = self._stream.context()
        self.follower = StreamFollower(
            context=self.context,
            function=OwnRights(self.context, no_pause, lambda: 0),
            log=StreamLog(DATA_DIR / STREAM, ReplicaFiles(self.replica)),
            committed=Gate(
                DATA_DIR,
                SimBroker({STREAM: self.replica}),
                alike=lambda *_: (),
                files=ReplicaFiles(self.replica),
                clock=lambda: self._now,
            ),
            settings=AgentSettings(
                target_size=2 * len(chunk(0, 1)),
                flush_ms=0,
                nudge_seconds=0.1,
                takeover_seconds=0.1,  # stories are short
                rescan_seconds=0.5,
                last_copy=self._last_copy,
            ),
            requests=None,
            names={STREAM: QueueName("cluster", "/", "orders")},
            pause=no_pause,
            started=0.0,
            members=self._members,
        )

    def write(self, *runs: Run, committed: int | None = None) -> None:
        """Append chunks."""
        for first, next_offset, epoch in runs:
            if not any(segment.chunks for segment in self.replica.segments):
                self.replica.begin_anew(first)
            for at in range(first, next_offset, CHUNK):
                self.replica.append(
                    SimChunk(
                        chunk_id=at,
                        next_offset=at + CHUNK,
                        epoch=epoch,
                        timestamp=START_MS + at,
                        data=chunk(at, epoch),
                        previous=self.replica.last_chunk,
                    ),
                    most=self._segment_chunks,
                )
        self.replica.committed = self.replica.tail if committed is None else committed

    def retire(self, segments: int) -> None:
        """Local retention takes the oldest segments."""
        del self.replica.segments[:segments]

    def cut(self) -> list[Job]:
        """One look of the agent; the uploads that it wants."""
        self._now += 1
        return self.follower.step(self._now, START_MS + 10**6, most=3)

    def finish(self, job: Job) -> None:
        """An upload goes through, or fails."""
        try:
            done = upload(
                self.context.store,
                job.log,
                job.piece,
                job.placement,
                prefix=PREFIX,
                uid=self.context.new_uid(),
                buffer=bytearray(fragment_size(job.piece)),
            )
        except ColdstreamError as exc:
            self.follower.failed(job.piece, exc, self._now)
        else:
            self.follower.finished(done, self._now)

    def begin(self, job: Job) -> Callable[[], None]:
        """An upload that has read its file; gives what makes it land."""
        held = _Held()
        done = upload(
            held,
            job.log,
            job.piece,
            job.placement,
            prefix=PREFIX,
            uid=self.context.new_uid(),
            buffer=bytearray(fragment_size(job.piece)),
        )

        def lands() -> None:
            self.context.store.put(held.key, held.body, write_id="late")
            self.follower.finished(done, self._now)

        return lands

    def look(self, times: int = 12, *, commit: bool = True) -> None:
        """The agent looks, uploads, and commits follow."""
        for _ in range(times):
            for job in self.cut():
                self.finish(job)
            if commit:
                with suppress(ConflictError, NotFoundError):
                    self._stream.commit()


class _Held(MemoryObjectStore):
    """A store that keeps what is on its way."""

    key = ""
    body = b""

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """As the port says."""
        del write_id, crc
        self.key, self.body = key, bytes(body)


@dataclass(frozen=True)
class Others:
    """Other members, the oldest offset of which is known."""

    first: int | None

    def earliest(self, stream: str) -> int | None:
        """As `Members` says."""
        del stream
        return self.first

    def lone(self, stream: str) -> bool:
        """As `Members` says."""
        del stream
        return False
