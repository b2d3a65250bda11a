"""Which of several queues a directory belongs to, where its name fits them all.

`a.b`, `a b` and `a_b` have directories of one name, but for the time in it. The node's own broker
tells them apart: the last chunk that it delivers of a queue is in that queue's directory. In
another one it is only if both have the very same header at the same id, and they have: one message
for both, by one exchange, has 7 of 8 times on 4.3.6. So a directory is a queue's if it has what the
broker delivers of the queue, and no other directory of a name that fits has the last chunk and
those before it as well, but for those that are other queues' already.

Until then its queue is not settled, and no more of it is committed than of each that it may be.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.broker.own_broker import Delivers
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.log import StreamLog
from coldstream.broker.answers import LogInError, NoMemberError
from coldstream.broker.management import StreamQueue
from coldstream.errors import CorruptDataError, NotFoundError, PermissionDeniedError
from coldstream.manifest.queue_name import QueueName, kept_in
from coldstream.osiris.chunk import ChunkType, parse_chunk_header

#: Chunks that are compared at most: of 64 pairs, made one by one, all were alike once in 5,000
#: times.
_MOST = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queue to which a directory may belong.

    Attributes:
        queue: it.
        header: of its last chunk, which the directory has; b"" if the broker gives none just now.
        limit: offset after that chunk; 0 likewise.
    """

    queue: StreamQueue
    header: bytes = b""
    limit: int = 0


def belongs(
    log: StreamLog,
    candidate: Candidate,
    others: Sequence[StreamLog],
    settled: Mapping[str, StreamQueue],
    broker: Delivers,
) -> bool | None:
    """Whether a directory that has the last chunk of a queue is the queue's; None if unknown.

    Args:
        log: of the directory.
        candidate: the queue, with that chunk.
        others: the other directories on this node whose names are alike.
        settled: the queues of some of these, by directory.
        broker: is asked for older chunks.

    Raises:
        UnavailableError, LogInError: it does not answer.
        CorruptDataError, OSError: the files of this directory change just now.
    """
    queue, newest = candidate.queue, log.segments()[-1:]
    chunk_id = parse_chunk_header(candidate.header).chunk_id
    rivals = [
        each
        for each in others
        if _fits(queue, each.stream)
        and settled.get(each.stream, queue) == queue
        and _may_have(each, chunk_id, candidate.header, last=True)
    ]
    for chunk_id in _newest_chunks(log, newest, candidate.limit) if rivals else ():
        try:
            header = broker.header_at(queue.vhost, queue.queue, chunk_id)
        except LogInError:
            raise
        except (NotFoundError, NoMemberError, PermissionDeniedError):
            return None
        if header is None:
            return None
        if log.header_at(chunk_id) != header:
            # Retention takes no newest segment: what the broker has not, was never in its log.
            return False if log.segments()[-1:] == newest else None
        rivals = [each for each in rivals if _may_have(each, chunk_id, header)]
        if not rivals:
            break
    return None if rivals else True


def doubt(left: Sequence[Candidate]) -> str:
    """Why it is not settled which of several queues a directory is."""
    names = " or ".join(repr(f"{each.queue.vhost}/{each.queue.queue}"[:200]) for each in left[:3])
    return f"it may be that of {names}: another directory has the same last chunks"


def _may_have(log: StreamLog, chunk_id: int, header: bytes, *, last: bool = False) -> bool:
    """Whether another directory has a chunk, or had it before retention, or nobody can say.

    Args:
        log: of the directory.
        chunk_id: of the chunk.
        header: of it.
        last: whether it is the last one of its queue, which no retention takes.
    """
    try:
        if log.header_at(chunk_id) == header:
            return True
        segments = log.segments()
        return not last and bool(segments) and chunk_id < segments[0]
    except FileNotFoundError:
        return _is_there(log)  # retention took a segment just now, or all of it was removed
    except (CorruptDataError, OSError):
        return True


def _is_there(log: StreamLog) -> bool:
    try:
        return bool(log.segments())
    except OSError:
        return False


def _newest_chunks(log: StreamLog, newest: Sequence[int], below: int) -> list[int]:
    """Ids of the last chunks of messages in the newest segment, the newest first."""
    view = log.view(newest[0], since=newest[0], closed=False) if newest else None
    if view is None:
        return []
    records = view.records
    wanted = (records["type"] == ChunkType.USER) & (records["offset"] < below)
    return [int(each) for each in records["offset"][wanted][: -_MOST - 1 : -1]]


def _fits(queue: StreamQueue, stream: str) -> bool:
    return QueueName("", queue.vhost, queue.queue).fits(stream)


@dataclass(slots=True)
class Neighbours:
    """The directories whose names are alike, but for the time; listed again when one comes or goes.

    Args:
        data_dir: holds one directory a stream.
    """

    data_dir: Path
    _stamp: object = None
    _alike: dict[str, list[str]] = field(default_factory=dict)

    def of(self, stream: str, queue: StreamQueue) -> Sequence[str]:
        """The other directories that have of their names what a broker may keep of a queue's.

        Args:
            stream: directory that is left out.
            queue: whose name.

        Raises:
            OSError: the data directory cannot be read.
        """
        stamp = DISK.stamp(self.data_dir, "")
        if stamp != self._stamp:
            self._alike = {}
            for each in os.listdir(self.data_dir):  # noqa: PTH208 - names, not paths: 3x faster
                self._alike.setdefault(kept_in(each), []).append(each)
            self._stamp = None if stamp.fresh else stamp
        kept = QueueName("", queue.vhost, queue.queue).kept
        alike = (each for part in kept for each in self._alike.get(part, ()))
        return [each for each in alike if each != stream]
