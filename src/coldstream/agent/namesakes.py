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

from coldstream.agent.files import DISK
from coldstream.agent.log import StreamLog
from coldstream.agent.own_broker import Delivers
from coldstream.broker.answers import NoMemberError
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
        header: of its last chunk, which the directory has; b"" if the broker delivers none.
        limit: offset after that chunk; 0 if there is none.
    """

    queue: StreamQueue
    header: bytes = b""
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """What is known of a directory's queue.

    Attributes:
        proof: the queue, and what proves how much is committed; of an unsettled one that of the
            queue of which least is.
        unsettled: queues that it may be; none if it is settled.
    """

    proof: Candidate
    unsettled: tuple[StreamQueue, ...] = ()

    @property
    def doubt(self) -> str:
        """Why it is not settled; "" if it is."""
        names = [repr(f"{each.vhost}/{each.queue}"[:200]) for each in self.unsettled[:3]]
        if not names:
            return ""
        return f"it may be that of {' or '.join(names)}: another directory has the same last chunks"


def owner(
    log: StreamLog,
    candidates: Sequence[Candidate],
    others: Sequence[StreamLog],
    settled: Mapping[str, StreamQueue],
    broker: Delivers,
) -> Owner:
    """To which of `candidates` a directory belongs.

    Args:
        log: of the directory.
        candidates: all queues that its name fits and that it may be; at least one.
        others: the other directories on this node whose names fit some of them.
        settled: the queues of some of these, by directory.
        broker: is asked for older chunks.

    Raises:
        UnavailableError: it does not answer.
        CorruptDataError, OSError: the files of this directory change just now.
    """
    newest, left = log.segments()[-1:], []
    for each in candidates:
        if each.limit:
            rivals = [
                other
                for other in others
                if _fits(each.queue, other.stream)
                and settled.get(other.stream, each.queue) == each.queue
                and _may_have(other, parse_chunk_header(each.header).chunk_id, each.header)
            ]
            rivals, possible = _compared(log, each, rivals, newest, broker)
            if not rivals and possible:
                return Owner(each)
            if not possible:
                continue
        left.append(each)
    if not left or log.segments()[-1:] != newest:  # retention may have taken what a broker had not
        left = list(candidates)
    least = min(left, key=lambda each: each.limit)
    return Owner(least, tuple(each.queue for each in left))


def _compared(
    log: StreamLog,
    candidate: Candidate,
    rivals: list[StreamLog],
    newest: Sequence[int],
    broker: Delivers,
) -> tuple[list[StreamLog], bool]:
    """The rivals that have older chunks of a queue, too, and whether this directory has them."""
    queue = candidate.queue
    for chunk_id in _newest_chunks(log, newest, candidate.limit) if rivals else ():
        try:
            header = broker.header_at(queue.vhost, queue.queue, chunk_id)
        except (NotFoundError, NoMemberError, PermissionDeniedError):
            break
        if header is None:
            break
        if log.header_at(chunk_id) != header:
            return rivals, False
        rivals = [each for each in rivals if _may_have(each, chunk_id, header)]
        if not rivals:
            break
    return rivals, True


def _may_have(log: StreamLog, chunk_id: int, header: bytes) -> bool:
    """Whether another directory has a chunk, or had it before retention, or nobody can say."""
    try:
        if log.header_at(chunk_id) == header:
            return True
        segments = log.segments()
        return bool(segments) and chunk_id < segments[0]
    except FileNotFoundError:
        return False  # it is removed just now, and its queue with it
    except (CorruptDataError, OSError):
        return True


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

    def of(self, stream: str) -> Sequence[str]:
        """The other directories with a name like this one's.

        Raises:
            OSError: the data directory cannot be read.
        """
        stamp = DISK.stamp(self.data_dir, "")
        if stamp != self._stamp:
            self._alike = {}
            for each in os.listdir(self.data_dir):  # noqa: PTH208 - names, not paths: 3x faster
                self._alike.setdefault(kept_in(each), []).append(each)
            self._stamp = None if stamp.fresh else stamp
        return [each for each in self._alike.get(kept_in(stream), ()) if each != stream]
