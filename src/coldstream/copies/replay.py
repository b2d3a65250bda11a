"""History published into another broker, exactly once, whatever is killed meanwhile.

The broker remembers the last publishing id of each named publisher and drops what is not above it
(`plans.replay` says which ids there are). So every session asks it where to go on. A session ends
with its connection; the next one begins there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from coldstream.copies.runs import HistoryChangedError, fetched
from coldstream.errors import ConflictError, InvalidInputError, LostRangeError, UnavailableError
from coldstream.osiris.chunk import Buffer
from coldstream.plans.replay import Row, first_offset, rows
from coldstream.reader import Gap, GapReason, Offset, StreamReader
from coldstream.reader.follow import RangeRead
from coldstream.soundness.chunks import USER

#: Not confirmed yet, at most.
_MAX_WAITING, _MAX_WAITING_BYTES = 20_000, 16 * 2**20
_FRAME_BYTES, _FRAME_ROWS = 256 * 2**10, 2000
#: A rate is kept to in steps of this many seconds.
_STEP = 0.1
#: Without a confirmation for so long, nothing is waited for any more.
_SILENCE = 60.0
_PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)


class Publishing(Protocol):
    """A publisher with a name; `broker.publishing.Publisher` is one."""

    waiting: dict[int, int]
    confirmed: int

    def sequence(self) -> int:
        """The last publishing id that the broker has of this name, 0 for none."""
        ...

    def publish(self, rows: list[tuple[int, Buffer]]) -> None:
        """Send entries under rising publishing ids."""
        ...

    def take(self, seconds: float) -> None:
        """Take what the broker has sent, and wait so long for the first of it."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


_SKIP = "look at what is missing; --skip-gaps goes on behind it"
_THERE = "the target has them, but says not whether they are committed; --skip-gaps relies on it"
_BEGIN = "begin with what there is, --from first, or go on behind what is missing, --skip-gaps"


class OtherHistoryError(ConflictError):
    """The publisher's name stands for something else in the target."""

    why = "another history"
    remedy = "give the replay a name of its own with --publisher, or another target"


@dataclass(slots=True)
class Replayed:
    """How far a replay is.

    Attributes:
        first: where it began.
        next_offset: up to which all is confirmed.
        messages: that were sent; in a session that went on, one entry is sent twice.
        bytes: of their entries.
        found: last publishing id that the first session found, 0 for none.
        sessions: how many connections it took.
    """

    first: int
    next_offset: int
    messages: int = 0
    bytes: int = 0
    found: int = 0
    sessions: int = 0


@dataclass(slots=True)
class Replay:
    """One replay of the offsets [start, end) of a stream.

    Args:
        reader: of the stream.
        connect: makes a publisher; called again where a connection broke.
        start: offset.
        end: offset.
        largest: bytes of an entry that the target takes.
        goes_on: where the target ends below `start`, begin there: it was meant as of another day.
        rate: messages a second; 0 for as many as the broker takes.
        skip_gaps: go on behind offsets that are lost, once `on_gap` was told.
        on_gap: told of them.
        tell: told how far it is.
        again: told why a session ended, and after how many seconds another one begins.
        clock: seconds, from any start, never falling.
        sleep: waits so many seconds.
    """

    reader: StreamReader
    connect: Callable[[], Publishing]
    start: int
    end: int
    largest: int
    goes_on: bool = False
    rate: float = 0
    skip_gaps: bool = False
    on_gap: Callable[[Gap], None] = lambda _: None
    tell: Callable[[Replayed], None] = lambda _: None
    again: Callable[[UnavailableError, float], None] = lambda *_: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _done: Replayed = field(default_factory=lambda: Replayed(0, 0))
    _due: float = 0.0
    _epoch: int = 0  # of the manifest that has all that is to be sent
    _sent: int = 0  # offset behind what was sent last

    def run(self) -> Replayed:
        """Publish all that the target does not have, and wait until it is confirmed.

        Raises:
            OtherHistoryError: the target has publishing ids that this stream cannot have given.
            LostRangeError: offsets are lost, unless they are to be passed over.
            HistoryChangedError: a claim has cut off what was sent before.
            InvalidInputError: a message is larger than the target takes.
            UnavailableError: the broker does not come back.
            As `StreamReader.chunks` and `connect`.
        """
        self._done = Replayed(self.start, self.start)
        self._epoch = self.reader.snapshot().root.epoch
        pauses = iter(_PAUSES)
        while True:
            before = self._done.next_offset
            try:
                with closing(self.connect()) as publisher:
                    self._session(publisher)
                return self._done
            except UnavailableError as error:
                if self._done.next_offset > before:
                    pauses = iter(_PAUSES)
                pause = next(pauses, None)
                if pause is None:
                    raise
                self.again(error, pause)
                self.sleep(pause)

    def _session(self, publisher: Publishing) -> None:
        done = self._done
        sequence = publisher.sequence()
        if sequence > self.reader.snapshot().root.next_offset:
            raise OtherHistoryError(
                f"the target has publishing ids up to {sequence} of this publisher, and the stream"
                " has no such offset",
                stream=self.reader.stream,
            )
        begin = self._begin(min(sequence, self.end))
        if not done.sessions:
            done.found = sequence
            done.first = done.next_offset = min(self.start, begin)
        done.sessions += 1
        self._due = self.clock()
        batch = _Batch()
        for row in self._rows(begin, sequence):
            if batch.is_full_with(row, self._most()):
                self._send(publisher, batch)
                batch = _Batch()
            batch.add(row)
        self._send(publisher, batch)
        self._wait(publisher, lambda: not publisher.waiting)
        self._confirmed(publisher)
        done.next_offset = max(done.next_offset, self.end)
        self.tell(done)

    def _begin(self, sequence: int) -> int:
        """Where to go on.

        Raises:
            LostRangeError: what lies before `start` would never be there, unless that may be so.
        """
        if not 0 < sequence < self.start:
            return first_offset(sequence, self.start)
        begin = self.start
        if self.goes_on:
            begin = max(sequence - 1, self.reader.glance().extent.first_offset)
        if begin > sequence and self._has_more(sequence, begin):
            if not self.skip_gaps:
                raise LostRangeError(
                    f"the target ends at offset {sequence} of this publisher, and the replay begins"
                    f" at {begin}: {begin - sequence} offsets would never be there",
                    stream=self.reader.stream,
                    offset=sequence,
                    remedy=_SKIP,
                )
            self.on_gap(Gap(sequence, begin, GapReason.RETENTION))
        return begin

    def _has_more(self, first: int, end: int) -> bool:
        """Whether there is, or was, a message in a range: tracking data has no publishing id."""
        read = self.reader.begin(Offset(first), Offset(end))
        if read.position > first:
            return True  # retention has taken what was there
        with closing(self.reader.events(read)) as found:
            return next(found, None) is not None

    def _rows(self, start: int, sequence: int) -> Iterator[Row]:
        read = self.reader.begin(Offset(start), Offset(max(start, self.end)))
        sent = self._sent
        self._check_uncut(read, sent)
        # What the target has is not missed, if something follows whose confirmation stands for it.
        due = max(start, sequence) if sequence < self.end else start

        def gap(found: Gap) -> None:
            if found.next_offset > due:
                missed = replace(found, first_offset=max(found.first_offset, due))
                # What a target has already, it has from before: only a new one may begin elsewhere.
                begins = missed.reason is GapReason.RETENTION and missed.first_offset == start
                there = _THERE if sequence >= self.end else _SKIP
                self._gap(missed, _BEGIN if begins and not sequence else there)

        end = read.end
        with closing(fetched(read, gap)) as pieces:
            for piece in pieces:
                # The read tells what was cut off of it, and nothing below its own beginning.
                self._check_uncut(read, sent)
                for chunk in piece.checked:
                    if chunk.header.chunk_type == USER:
                        yield from rows(chunk, max(start, read.position), end, largest=self.largest)
        if end < self.end:
            raise HistoryChangedError(
                f"the stream ends at offset {end} by now", stream=self.reader.stream, offset=end
            )

    def _check_uncut(self, read: RangeRead, sent: int) -> None:
        """See that what earlier sessions have sent, below `sent`, is still the stream's.

        Raises:
            HistoryChangedError: a claim has cut it off.
        """
        cut = read.ledger.ceiling(self._epoch)
        if cut < sent:
            raise HistoryChangedError(
                f"offsets from {cut} on have been cut off since they were sent",
                stream=self.reader.stream,
                offset=cut,
            )

    def _gap(self, gap: Gap, remedy: str) -> None:
        if not self.skip_gaps:
            raise LostRangeError(
                str(gap), stream=self.reader.stream, offset=gap.first_offset, remedy=remedy
            )
        self.on_gap(gap)

    def _most(self) -> int:
        """Messages in one frame."""
        return max(1, min(_FRAME_ROWS, int(self.rate * _STEP))) if self.rate else _FRAME_ROWS

    def _send(self, publisher: Publishing, batch: _Batch) -> None:
        if not batch.rows:
            return
        last = batch.rows[-1]
        if len(last.entry) > self.largest:
            raise InvalidInputError(
                f"a message of {len(last.entry)} bytes, and a frame of the stream protocol takes"
                f" {self.largest}",
                stream=self.reader.stream,
                offset=last.number - 1,
            )
        self._wait(
            publisher,
            lambda: (
                len(publisher.waiting) < _MAX_WAITING
                and sum(publisher.waiting.values()) < _MAX_WAITING_BYTES
            ),
        )
        self._keep_to_the_rate(publisher, batch.messages)
        self._sent = max(self._sent, last.number)
        publisher.publish([(row.number, row.entry) for row in batch.rows])
        self._done.messages += batch.messages
        self._done.bytes += batch.size
        self._confirmed(publisher)
        self.tell(self._done)

    def _wait(self, publisher: Publishing, enough: Callable[[], bool]) -> None:
        """Take confirmations until there are enough.

        Raises:
            UnavailableError: none came for a minute.
        """
        publisher.take(0)
        deadline = self.clock() + _SILENCE
        while not enough():
            before = len(publisher.waiting)
            publisher.take(1.0)
            if len(publisher.waiting) < before:
                deadline = self.clock() + _SILENCE
            elif self.clock() > deadline:
                raise UnavailableError("the broker confirms nothing any more")

    def _keep_to_the_rate(self, publisher: Publishing, messages: int) -> None:
        if not self.rate:
            return
        while (ahead := self._due - self.clock()) > 0:
            self.sleep(min(ahead, 1.0))
            publisher.take(0)
        # What was waited for in vain is not made up for in a burst.
        self._due = max(self._due, self.clock() - 1.0) + messages / self.rate

    def _confirmed(self, publisher: Publishing) -> None:
        """All below the lowest id that waits is confirmed: the log of a stream has no gaps."""
        if publisher.confirmed:
            waiting = min(publisher.waiting, default=publisher.confirmed + 1)
            upto = min(publisher.confirmed, waiting - 1)
            self._done.next_offset = max(self._done.next_offset, min(upto, self.end))


@dataclass(slots=True)
class _Batch:
    """Rows of one frame."""

    rows: list[Row] = field(default_factory=list)
    size: int = 0
    messages: int = 0

    def is_full_with(self, row: Row, most: int) -> bool:
        """Whether a row has to go into the next one."""
        more = self.size + len(row.entry) > _FRAME_BYTES or self.messages + row.messages > most
        return bool(self.rows) and (more or len(self.rows) >= _FRAME_ROWS)

    def add(self, row: Row) -> None:
        """Take a row."""
        self.rows.append(row)
        self.size += len(row.entry)
        self.messages += row.messages
