"""What brokers had committed and have lost: uploaded from what is held, before a claim cuts it off.

A committed chunk is on most members, so a later epoch goes on from it, unless they have lost their
disks, or with their power what was not on them yet. The next claim then cuts off what the remote
tier has in the place of the new history, and keeps that in quarantine. What still waited for its
upload would be nowhere. So it is uploaded first, under the claim that still stands, as it would
have been a moment earlier; and what is not held any more is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from errno import ENOENT
from pathlib import Path

from coldstream.agent.disk.files import LogFile, Stamp
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.disk.removed import Handle
from coldstream.agent.sending.slices import Job, fragment_size, upload
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.cutting import Cutter, Look, OwnClaim
from coldstream.agent.telling.progress import Notices, of_lost, of_salvaged
from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem
from coldstream.names import MAX_OFFSET
from coldstream.osiris.segment import index_name
from coldstream.remote.context import Context


@dataclass(frozen=True, slots=True)
class Proved:
    """What a broker has proved to be committed in one epoch.

    Attributes:
        epoch: of its chunks; 0 for nothing.
        limit: all offsets below this were committed.
    """

    epoch: int = 0
    limit: int = 0


@dataclass(slots=True)
class Salvage:
    """Of one stream.

    Args:
        context: where.
        commits: of the stream.
        log: the directory.
        settings: of the agent.
        held: what stays readable although it was removed; None if nothing does.
        notices: takes what a person should know.
    """

    context: Context
    commits: Commits
    log: StreamLog
    settings: AgentSettings
    held: Held | None
    notices: Notices
    _last: Proved = field(default_factory=Proved)
    _before: Proved = field(default_factory=Proved)  # of earlier epochs, the one that had most

    def note(self, epoch: int, limit: int) -> None:
        """Take what is proved now.

        Args:
            epoch: of the last chunk that is proved to be committed; 0 if unknown.
            limit: all offsets below this are.
        """
        if epoch > self._last.epoch:
            self._before = max(self._before, self._last, key=lambda each: each.limit)
            self._last = Proved(epoch, limit)
        elif epoch and epoch == self._last.epoch and limit > self._last.limit:
            self._last = Proved(epoch, limit)

    def before_claim(
        self, item: CatalogItem | None, shift: int, *, limit: int, now: float, now_ms: int
    ) -> bool:
        """Upload and commit what the log of a new epoch has no more, as far as it is held.

        Whether anything was.

        Args:
            item: of the stream; None if it was never claimed.
            shift: by which the epochs of its claims are above those of the broker's chunks.
            limit: all local offsets below this are committed.
            now: monotonic seconds.
            now_ms: the wall clock, ms since the Unix epoch.

        Raises:
            ColdstreamError, OSError: as `upload` and `Commits.commit`; nothing is given up yet.
        """
        durable = 0 if item is None else item.next_offset
        first = lost_from(self.log, self._before, committed=limit, durable=durable)
        if first is None:
            return False
        end = first
        # Where the log begins above the manifest it cannot be compared with what is uploaded.
        joins = self.log.segments()[0] <= durable
        if item is not None and item.epoch == self._before.epoch + shift and joins:
            end = max(end, min(self._upload(item, shift, now, now_ms), self._before.limit))
        before, last = self._before, self._last
        if end > first:
            self.notices.append(of_salvaged(self.log.stream, first, end, before.epoch, last.epoch))
        if end < before.limit:
            self.notices.append(
                of_lost(self.log.stream, end, before.limit, before.epoch, last.epoch)
            )
        return end > first

    def claimed(self) -> None:
        """The epoch is claimed: nothing that an older one had can be put in any more."""
        self._before = Proved()
        if self.held is not None:
            self.held.let_go(self.log.directory)

    def _upload(self, item: CatalogItem, shift: int, now: float, now_ms: int) -> int:
        """Up to which offset the manifest has the old history then."""
        if self.held is None:
            return item.next_offset
        cutter = Cutter(self.log, self.settings)
        cutter.restart_at(item.next_offset)
        claim = OwnClaim(item.epoch, shift, item.ledger)
        with self.held.kept(self.log.directory) as kept:
            cutter.log = log = StreamLog(self.log.directory, _Kept(kept))
            segments = log.segments()
            for segment in segments[max(0, bisect_right(segments, item.next_offset) - 1) :]:
                # What a file had above was perhaps never committed, and cut off later.
                limit = min(self._before.limit, kept[index_name(segment)].once)
                look = Look(now, now_ms, limit, most=1, flush=True, hole_end=None)
                try:
                    while job := _next(cutter, segment, claim, look):
                        self._put(job)
                except CorruptDataError:
                    break  # what is held goes on above
        report = self.commits.commit(thorough=True)
        # Who has claimed the new epoch meanwhile has shut out what was uploaded.
        return report.next_offset if report.root.epoch == item.epoch else item.next_offset

    def _put(self, job: Job) -> None:
        upload(
            self.context.store,
            job.log,
            job.piece,
            job.placement,
            prefix=self.context.prefix,
            uid=self.context.new_uid(),
            buffer=bytearray(fragment_size(job.piece)),
        )


def _next(cutter: Cutter, segment: int, claim: OwnClaim, look: Look) -> Job | None:
    jobs: list[Job] = []
    cutter.cut([segment], claim, look, jobs)
    return jobs[0] if jobs else None


def lost_from(log: StreamLog, before: Proved, *, committed: int, durable: int) -> int | None:
    """The first offset that an earlier epoch had committed, and that another one has in the log.

    None if all of that is durable, or if the log does not show it: it may begin above.

    Args:
        log: the directory.
        before: what the earlier epoch had.
        committed: all offsets of the log below this are committed.
        durable: all offsets below this are in the manifest.

    Raises:
        CorruptDataError, OSError: the log cannot be read.
    """
    newest = log.chunks_near(MAX_OFFSET, committed=committed)
    if not before.epoch or durable >= before.limit or not newest:
        return None
    if newest[-1].epoch <= before.epoch:
        return None
    for chunk in log.chunks_between(durable, before.limit, committed=committed):
        if chunk.epoch > before.epoch:
            return max(durable, chunk.chunk_id)
    return durable if newest[-1].chunk_id < before.limit else None


@dataclass(frozen=True, slots=True)
class _Kept:
    """`LogFiles` of nothing but what is held."""

    files: Mapping[str, Handle]

    def names(self, directory: Path) -> Sequence[str]:
        return list(self.files)

    def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
        if name not in self.files:
            raise FileNotFoundError(ENOENT, "it is not held", f"{directory}/{name}")
        return nullcontext(self.files[name].file)

    def stamp(self, directory: Path, name: str) -> Stamp:
        raise FileNotFoundError(ENOENT, "the broker has removed it", f"{directory}/{name}")
