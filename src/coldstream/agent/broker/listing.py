"""Which streams a broker has, as its management API lists them: asked by whoever needs to know.

The API may hang: only who asks it waits, and all others go on with what is known. The first answer
is waited for, without which nothing goes on, but not for longer than it may take; from then on it
is told that it does not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from coldstream.broker.limits import Limits
from coldstream.broker.management import Partition, StreamQueue
from coldstream.errors import ColdstreamError
from coldstream.manifest.queue_name import QueueName, kept_in

#: While a directory's queue is not known, the API is asked this often; else now and then, because
#: what retention keeps may be changed by a policy at any time.
_SOON_SECONDS, _SELDOM_SECONDS = 5.0, 300.0
#: How long it may take to say that it does not answer.
_HANGS_SECONDS = 10.0
_NEVER = float("-inf")


class Lists(Protocol):
    """Whoever knows the streams."""

    def streams(self) -> Sequence[StreamQueue]:
        """All streams of the broker; none if nobody says where its management API is."""
        ...

    def super_streams(self) -> Mapping[tuple[str, str], Partition]:
        """What each partition is, by (vhost, queue); none if nobody says."""
        ...


@dataclass(slots=True)
class Listing:
    """What was answered last; threads may use it.

    Args:
        broker: is asked.
        clock: monotonic seconds.

    Attributes:
        queues: all streams.
        trouble: why the last answer did not come; "" if it did.
    """

    broker: Lists
    clock: Callable[[], float] = time.monotonic
    queues: Sequence[StreamQueue] = ()
    trouble: str = ""
    _limits: Mapping[tuple[str, str], Limits] = field(default_factory=dict)
    _kept: Mapping[str, Sequence[StreamQueue]] = field(default_factory=dict)  # by what is kept
    _supers: Mapping[tuple[str, str], Partition] = field(default_factory=dict)
    _listed_at: float = _NEVER
    _supers_at: float = _NEVER
    _asked_at: float | None = None  # start of the request that is under way; None without one
    _asking: Lock = field(default_factory=Lock)

    def learn(self, now: float, *, settled: bool) -> bool:
        """Ask, if it is time to; whether what is known now is enough for a stream.

        Args:
            now: monotonic seconds.
            settled: whether the queue of the stream is known.
        """
        every = _SELDOM_SECONDS if settled else _SOON_SECONDS
        if now - self._listed_at < every:
            return True
        if not self._asking.acquire(timeout=0.0 if settled else self._patience(now)):
            return settled
        try:
            if now - self._listed_at >= every:  # nobody else has meanwhile
                self._asked_at = now
                self._ask(now)
        finally:
            self._asked_at = None
            self._asking.release()
        return True

    def silence(self, now: float) -> str:
        """Says that the request under way gets no answer; "" before its time is over.

        Args:
            now: monotonic seconds.
        """
        asked_at = self._asked_at
        if asked_at is None or now - asked_at < _HANGS_SECONDS:
            return ""
        return "the management API does not say which streams there are: its answer does not come"

    def _patience(self, now: float) -> float:
        """Seconds to wait for the first answer, which another thread has asked for."""
        if self._listed_at != _NEVER:
            return 0.0
        asked_at = self._asked_at
        return max(0.0, _HANGS_SECONDS - (0.0 if asked_at is None else now - asked_at))

    def fitting(self, stream: str) -> Iterator[StreamQueue]:
        """Queues to which a directory may belong; of ten thousand only a few are compared.

        Args:
            stream: name of the directory.
        """
        for each in self._kept.get(kept_in(stream), ()):
            if QueueName("", each.vhost, each.queue).fits(stream):
                yield each

    def limits(self, queue: StreamQueue) -> Limits:
        """What local retention keeps of a stream, as far as is known."""
        return self._limits.get((queue.vhost, queue.queue), Limits())

    def partition(self, queue: StreamQueue) -> Partition:
        """Of which super stream a stream is a partition; of none, too, if nobody knows."""
        return self._supers.get((queue.vhost, queue.queue), Partition())

    def _ask(self, now: float) -> None:
        try:
            self.queues = self.broker.streams()
            kept: dict[str, list[StreamQueue]] = {}
            for each in self.queues:
                for part in QueueName("", each.vhost, each.queue).kept:
                    kept.setdefault(part, []).append(each)
            self._kept, known = kept, self._limits.keys()
            self._limits = {(each.vhost, each.queue): each.limits for each in self.queues}
            # A new stream may be a partition, and its name is told once, when it is claimed.
            if now - self._supers_at >= _SELDOM_SECONDS or self._limits.keys() - known:
                self._supers_at, self._supers = now, self.broker.super_streams()
        except ColdstreamError as exc:
            self.trouble, self._listed_at = exc.reason, self.clock() + _HANGS_SECONDS
            self._supers_at = _NEVER  # ask again: new partitions are not known
        else:
            self.trouble, self._listed_at = "", self.clock()  # it may have taken long


class Names(Mapping[str, QueueName]):
    """Queues of directories, as a mapping that is looked up when it is needed.

    Args:
        asked: directories that have been asked about.
        name: queue of one; None if it is not settled.
    """

    def __init__(
        self, asked: Callable[[], list[str]], name: Callable[[str], QueueName | None]
    ) -> None:
        self._asked, self._name = asked, name

    def __getitem__(self, stream: str) -> QueueName:
        name = self._name(stream)
        if name is None:
            raise KeyError(stream)
        return name

    def __iter__(self) -> Iterator[str]:
        return (each for each in self._asked() if self._name(each) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
