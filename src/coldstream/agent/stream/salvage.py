"""What brokers had committed and have lost: uploaded from what is held, before a claim cuts it off.

A committed chunk is on most members, so a later epoch goes on from it, unless they have lost their
disks, or with their power what was not on them yet. The next claim then cuts off what the remote
tier has in the place of the new history, and keeps that in quarantine. What still waited for its
upload would be nowhere. So it is uploaded first, under the claim that still stands, as it would
have been a moment earlier; and what cannot be is told. That takes the way of all uploads, and ends:
where nothing comes of it, the new history waits no longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from errno import ENOENT
from pathlib import Path

import numpy as np

from coldstream.agent.disk.files import LogFile, Stamp
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import Job
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.cutting import Cutter, Look, OwnClaim
from coldstream.agent.telling.progress import Notices, of_lost, of_salvaged
from coldstream.errors import ColdstreamError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.names import MAX_OFFSET
from coldstream.osiris.segment import index_name
from coldstream.remote.context import Context
from coldstream.usecases.quarantine import current_record

_NOT_HELD = "this agent does not hold them"
#: So often something is uploaded from one offset on; then what is behind it is given up.
_TRIES = 10
#: Epochs that are remembered until a claim: the first, which has one, and the last.
_EPOCHS = 4


@dataclass(frozen=True, slots=True)
class Proved:
    """What a broker has proved to be committed in one epoch.

    Attributes:
        epoch: of its chunks; 0 for nothing.
        limit: all offsets below this were committed.
        begin: where its own chunks begin; 0 if unknown.
    """

    epoch: int = 0
    limit: int = 0
    begin: int = 0


@dataclass(slots=True)
class Salvage:
    """Of one stream.

    Args:
        context: where.
        commits: of the stream.
        log: the directory.
        cutter: makes one, as settings and link say now.
        held: what stays readable although it was removed; None if nothing does.
        notices: takes what a person should know.
    """

    context: Context
    commits: Commits
    log: StreamLog
    cutter: Callable[[], Cutter]
    held: Held | None
    notices: Notices
    _last: Proved = field(default_factory=Proved)
    _earlier: list[Proved] = field(default_factory=list)
    _first: int | None = None  # what is uploaded begins here
    _end: int = MAX_OFFSET  # nothing from here on can be read
    _why: str = _NOT_HELD
    _tried: tuple[int, int] = (-1, 0)  # from where, and how often
    _sent: bool = False  # something was uploaded that is not committed yet

    def note(self, epoch: int, limit: int) -> None:
        """Take what is proved now.

        Args:
            epoch: of the last chunk that is proved to be committed; 0 if unknown.
            limit: all offsets below this are.
        """
        if epoch > self._last.epoch:
            begin = 0
            if self._last.epoch:  # of the first epoch nobody asks, and its log may be long
                self._earlier = [*self._earlier[: _EPOCHS - 1], self._last]
                with suppress(CorruptDataError, OSError):
                    begin = begin_of(self.log, epoch)
            self._last = Proved(epoch, limit, begin)
        elif epoch and epoch == self._last.epoch and limit > self._last.limit:
            self._last = replace(self._last, limit=limit)

    def cut(self, look: Look, jobs: list[Job]) -> bool:
        """Cut what a claim would leave behind; whether the claim has to wait for its upload.

        Args:
            look: what of the log of the new epoch is committed, and how many slices may be cut.
            jobs: takes the slices.

        Raises:
            ColdstreamError, OSError: the log, or what was uploaded, could not be looked at.
        """
        if self.held is None or not any(self._lost(each, look.limit) for each in self._earlier):
            return False  # as nearly always; nobody was asked
        if look.most <= 0:
            return True
        item = self.context.catalog.get(self.log.stream)
        if item is None:
            return False
        if self._sent:
            self.commits.commit(thorough=True)
            self._sent, item = False, self.context.catalog.get(self.log.stream)
        shift = self.commits.shift(item)
        old = self._of(item, shift)
        if item is None or old is None:
            return False
        lost = self._lost(old, look.limit, item.next_offset)
        # Where the log begins above the manifest it cannot be compared with what is uploaded.
        if not lost or next(iter(self.log.segments()), MAX_OFFSET) > item.next_offset:
            return False
        self._first = min(lost.start, MAX_OFFSET if self._first is None else self._first)
        at, times = self._tried
        self._tried = item.next_offset, times + 1 if at == item.next_offset else 1
        if self._tried[1] > _TRIES:
            return False
        self._cut(self.held, item, shift, old, look, jobs)
        self._sent = bool(jobs)
        return self._sent

    def failed(self, first: int, error: ColdstreamError) -> None:
        """An upload has failed for good.

        Args:
            first: offset of its slice.
            error: why.
        """
        if self._first is None:
            return
        self._why = f"what this agent holds could not be uploaded ({error.reason})"
        if isinstance(error, CorruptDataError):
            self._end = min(self._end, max(first, error.offset or first))

    def claims(self, item: CatalogItem | None, shift: int, *, limit: int) -> Sequence[str]:
        """What there is to say of what a claim leaves behind, once it is made.

        Args:
            item: of the stream as it is before; None if it was never claimed.
            shift: by which the epochs of its claims are above those of the broker's chunks.
            limit: all local offsets below this are committed.

        Raises:
            ColdstreamError, OSError: nobody can say.
        """
        return [words for each in self._earlier for words in self._words(each, item, shift, limit)]

    def claimed(self, words: Sequence[str]) -> None:
        """The epoch is claimed: nothing that an older one had can be put in any more."""
        for each in words:
            self.notices.append(each)
        if not self._earlier:
            return
        self._earlier, self._first, self._end = [], None, MAX_OFFSET
        self._why, self._tried, self._sent = _NOT_HELD, (-1, 0), False
        if self.held is not None:
            self.held.let_go(self.log.directory)

    def _lost(self, old: Proved, limit: int, durable: int = 0) -> range:
        """As `lost`; of a damaged log nobody can say it, and whoever cuts it tells the damage."""
        with suppress(CorruptDataError):
            return lost(self.log, old, committed=limit, durable=durable)
        return range(0)

    def _of(self, item: CatalogItem | None, shift: int) -> Proved | None:
        """What was proved in the epoch that has the claim."""
        claimed = [each for each in self._earlier if item and each.epoch + shift == item.epoch]
        return claimed[0] if claimed else None

    def _cut(
        self, held: Held, item: CatalogItem, shift: int, old: Proved, look: Look, jobs: list[Job]
    ) -> None:
        files = _Old(held, held.before(self.log.directory, old.epoch))
        log = StreamLog(self.log.directory, files)
        segments, claim = log.segments(), OwnClaim(item.epoch, shift, item.ledger)
        cutter = replace(self.cutter(), log=log)
        cutter.restart_at(item.next_offset)
        for segment in segments[max(0, bisect_right(segments, item.next_offset) - 1) :]:
            # What a file had above was perhaps never committed, and cut off later.
            limit = min(old.limit, self._end, files.once[index_name(segment)])
            with suppress(CorruptDataError):  # what is held goes on above, or is damaged
                cutter.cut([segment], claim, replace(look, limit=limit, flush=True), jobs)
            if len(jobs) >= look.most or cutter.position < limit:
                break

    def _words(
        self, old: Proved, item: CatalogItem | None, shift: int, limit: int
    ) -> Iterator[str]:
        stream, epoch = self.log.stream, self._last.epoch
        claimed = item is not None and item.epoch == old.epoch + shift
        durable = item.next_offset if item is not None and claimed else old.begin
        lost = self._lost(old, limit, durable)
        if item is not None and claimed and self._first is not None:
            end = min(item.next_offset, old.limit)
            if end > self._first:
                yield of_salvaged(stream, self._first, end, old.epoch, epoch)
        elif item is not None and item.epoch > old.epoch + shift and lost:
            lost = range(max(lost.start, self._kept_by_others(old.epoch + shift)), lost.stop)
        if lost:
            yield of_lost(stream, lost.start, lost.stop, old.epoch, epoch, self._why)

    def _kept_by_others(self, epoch: int) -> int:
        """Up to where a newer claim than `epoch` has kept what was uploaded, as far as is known."""
        try:
            _, record = current_record(self.context, self.log.stream)
        except (CorruptDataError, NotFoundError):
            return 0  # that is told where somebody reads it, and holds up no claim
        return max([each.next_offset for each in record.timelines if each.epoch > epoch], default=0)


def begin_of(log: StreamLog, epoch: int) -> int:
    """Where the first chunk of an epoch, or of a newer one, begins; MAX_OFFSET if there is none.

    Reads the indexes of the newest segments, one after the other, and of older ones no more.

    Raises:
        CorruptDataError, OSError: the log cannot be read.
    """
    begin = MAX_OFFSET
    for first in reversed(log.segments()):
        view = log.view(first, since=first, closed=False)
        if view is None:
            continue
        at = int(np.searchsorted(view.records["epoch"], np.uint64(epoch)))
        if at < len(view.records):
            begin = int(view.records["offset"][at])
        if at:
            break
    return begin


def lost(log: StreamLog, before: Proved, *, committed: int, durable: int) -> range:
    """The offsets that an earlier epoch had committed, and whose place in the log a newer one has.

    Empty if all of that is durable, or if the log does not show it: it may begin above.

    Args:
        log: the directory.
        before: what the earlier epoch had.
        committed: all offsets of the log below this are committed.
        durable: all offsets below this are in the manifest.

    Raises:
        CorruptDataError, OSError: the log cannot be read.
    """
    near = log.chunks_near(before.limit, committed=committed)
    if not near or near[-1].epoch <= before.epoch:
        return range(0)
    if near[0].epoch <= before.epoch and near[0].next_offset >= before.limit:
        return range(0)  # the log goes on from it, as nearly all do
    return range(max(durable, begin_of(log, before.epoch + 1)), before.limit)


@dataclass(frozen=True, slots=True)
class _Old:
    """`LogFiles` of what is held of the log that was there before.

    Attributes:
        held: opens them.
        once: by name: all below was committed when the file was last there.
    """

    held: Held
    once: Mapping[str, int]

    def names(self, directory: Path) -> Sequence[str]:
        del directory
        return list(self.once)

    def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
        return self.held.open_before(directory, name)

    def stamp(self, directory: Path, name: str) -> Stamp:
        raise FileNotFoundError(ENOENT, "the broker has removed it", f"{directory}/{name}")
