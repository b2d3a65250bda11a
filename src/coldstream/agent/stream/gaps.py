"""Go on where the local log begins above what is remote: declare lost what nobody has any more.

The order keeps data: first everything that is uploaded is committed, then the bucket is looked at
once more for fragments above, then the other members are asked, then the own log is looked at
again, and only then a hole is uploaded. While other agents are waited for, the own log is uploaded
behind the gap: each of them may have more than the next, and none may declare lost what one has.
A hole ends where the next data begins, in the bucket or in the local log, whichever comes first.
Killed anywhere, the next agent finds the same gap, and the hole if there is one already.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain

from coldstream.agent.broker.members import (
    LastCopy,
    Members,
    NoStreamError,
    OfDeleted,
    check_alone,
    check_lost,
)
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import LostLocallyError
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.state import Missed
from coldstream.agent.telling.progress import Notices, of_beginning, of_left_out
from coldstream.errors import ColdstreamError, LostRangeError, UnavailableError
from coldstream.manifest.catalog import CatalogItem
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import CommitReport
from coldstream.usecases.holes import ChainGap, find_gap

_NAMED = 3
#: A stream that its broker does not know, for so long after its directory was gone, is deleted;
#: before that the broker may boot, or have declared the queue again. Seconds.
_DELETED_SECONDS = 300.0
#: Of the time between two looks so much counts: the store may have answered nobody. Seconds.
_COUNTED_SECONDS = 60.0
#: Stands for the epoch of what is missed before the claim. It is missed anew once there is one:
#: who could not claim for the same reason can upload only then.
_UNCLAIMED = 0


@dataclass(slots=True)
class Bridged:
    """Where a stream can go on.

    Attributes:
        next_offset: of the manifest.
        epoch: of the manifest.
        position: where the local log goes on.
        waiting: whether a hole that ends at `position` waits for a fragment behind it, or will.
        missed: why it is not there yet; None if it is.
    """

    next_offset: int
    epoch: int
    position: int
    waiting: bool = False
    missed: Missed | None = None


@dataclass(slots=True)
class Gaps:
    """Bridges the gaps of one stream.

    Args:
        context: where.
        commits: of this stream.
        log: the directory.
        members: asked what they still have; None if nobody can say.
        pause: sleeps after a lost commit.
        holes: ranges [first, next) that were declared lost, oldest first.
        notices: what there is to tell of each.

    Attributes:
        now: monotonic seconds of the look.
        vanished_at: when the directory was seen to be gone; None while it is there.
        patience: for how long another node's agent may still upload what is missed, seconds,
        turn: and for how much longer before a claim, which may have to wait for its own first.
    """

    context: Context
    commits: Commits
    log: StreamLog
    members: Members | None
    pause: Callable[[int], None]
    holes: list[tuple[int, int]] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)
    now: float = 0.0
    vanished_at: float | None = None
    patience: float = 0.0
    turn: float = 0.0
    #: Since when, by epoch and first offset.
    _missed_at: dict[tuple[int, int], float] = field(default_factory=dict)
    #: What no member had when all were asked: none of them gets it any more.
    _nobodys: set[tuple[int, int]] = field(default_factory=set)
    _looked_at: float = 0.0  # when something was missed last
    _meant: tuple[int, int] | None = None  # a hole whose PUT has not been answered
    #: What was seen in the log, [first, next), while nobody has claimed the stream.
    _seen: tuple[int, int] | None = None
    #: No member's log has anything below, as all of them have said; 0 if they have not.
    _nobody_below: int = 0

    def bridge(self, epoch: int, begin: int, *, committed: int, to_log: bool) -> Bridged:
        """Declare holes until the chain reaches the local log, or until nothing more is lost.

        Args:
            epoch: of the claim under which it is done; nothing is declared under another one.
            begin: where the local log begins.
            committed: all local offsets below this are committed.
            to_log: whether to declare the last gap too, behind which only the local log has data.

        Raises:
            LostRangeError: it is not certain that a gap is lost, or nothing committed can follow.
            ColdstreamError: as `Commits`.
        """
        declared: set[tuple[int, int]] = set()
        while True:
            report, gap = find_gap(
                self.context,
                self.log.stream,
                local_first=begin,
                commit=lambda: self.commits.commit(thorough=True),
                pause=self.pause,
            )
            there = Bridged(report.next_offset, report.root.epoch, report.next_offset)
            if gap is None or gap.epoch != epoch or not (gap.fragment_follows or to_log):
                return there
            missing = epoch if to_log else _UNCLAIMED, gap.first_offset
            with self._anew_if_refused(missing):
                check_lost(self._asked(missing), self.log.stream, gap, local_first=begin)
            self._check_own(gap, begin)
            if not gap.fragment_follows:
                self._check_begin(gap, committed)
            if not gap.declared:
                self._check_counts(gap, declared)
                there.missed = self._missed(missing, f"{gap} are in no member's log", begin)
                if there.missed is not None and gap.fragment_follows:
                    raise there.missed.error
                if there.missed is None:
                    self._declare(gap, begin)
                    declared.add((gap.first_offset, gap.next_offset))
            elif self._meant == (gap.first_offset, gap.next_offset):
                self._tell(gap, "it was uploaded although no answer came")
            if not gap.fragment_follows:
                there.position, there.waiting = gap.next_offset, True
                return there

    def pending(self, report: CommitReport) -> int | None:
        """Where the first fragment begins that waits, behind something missing, for a commit.

        Args:
            report: of the commit that has just taken all that joins.
        """
        refused = {each.key for each in report.refused}
        # Whole pages may be nothing of ours.
        listed = self.context.data_pages(self.log.stream, report.next_offset + 1)
        for each in chain.from_iterable(listed):
            key = each.data_key
            if (
                key.kind == "fragment"
                and each.path not in refused
                and report.root.ledger.accepts(key.epoch, key.first_offset, key.next_offset)
            ):
                return key.first_offset
        return None

    def check_alone(self, begin: int, end: int) -> None:
        """Return if no member can compare more of its log with the manifest than this one.

        Args:
            begin: where the local log begins.
            end: next offset of the manifest.

        Raises:
            LostRangeError: one can, or may.
        """
        missing = _UNCLAIMED, end
        with self._anew_if_refused(missing):
            check_alone(self._asked(missing), self.log.stream, begin=begin, end=end)
        if 0 < end < begin:
            lacking = f"offsets {end} to {begin - 1} are in no member's log"
            self._check_patience(missing, lacking, begin)
        elif begin < end:
            shown = f"shows nothing that could be compared with what the manifest has up to {end}"
            self._check_patience(missing, f"{shown}, and no member's begins below", begin)

    def check_first(self, begin: int) -> None:
        """Return if a stream without a manifest may begin with the local log, which begins above 0.

        What lies below would never be uploaded, and no hole would tell of it.

        Args:
            begin: where the local log begins.

        Raises:
            LostRangeError: a member has a longer one, or another node's agent may hold one.
        """
        missing = _UNCLAIMED, 0  # retention moves `begin` on
        self._nobody_below = 0
        with self._anew_if_refused(missing):
            asked = self._asked(missing)
            others = check_alone(asked, self.log.stream, begin=begin, end=begin)
        if self.members is not None and not isinstance(self.members, LastCopy):
            self._nobody_below = begin
        lacking = f"offsets 0 to {begin - 1} are in no member's log"
        # Who holds more than the logs have may be all that does, and goes before who holds less.
        more = 0 if others is None else bisect_left(self.log.segments(), others)
        share = 0.25 + 0.25 / more if more else 1.0
        missed = self._missed(missing, lacking, begin, share)
        if missed is not None:
            raise missed.error

    def see_first(self, item: CatalogItem | None) -> None:
        """Tell what the first claim of a stream has left out of what was here.

        Args:
            item: the stream's, as it was read just now; None while nobody has claimed it.
        """
        if item is not None and self._seen is None:
            return
        seen, self._seen = self._seen_by_now(), None
        if item is None:
            self._seen = seen
        elif seen is not None and seen[0] < item.first_offset:
            begin, end = seen[0], min(seen[1], item.first_offset)
            asked = end <= self._nobody_below
            self.notices.append(of_left_out(self.log.stream, begin, end, nobodys=asked))

    def tell_beginning(self, first_offset: int) -> None:
        """Tell of what lies below a manifest that this agent has begun, unless it was told.

        Args:
            first_offset: of the manifest.
        """
        if first_offset:
            asked = first_offset <= self._nobody_below
            self.notices.append(of_beginning(self.log.stream, first_offset, nobodys=asked))

    def _seen_by_now(self) -> tuple[int, int] | None:
        """What this log has or had, from its first look on and without a gap."""
        seen = self._seen
        with suppress(ColdstreamError, OSError):  # a look says so
            segments = self.log.segments()
            if segments and (seen is None or segments[0] <= seen[1]):
                first, end = segments[0], max(segments[-1], self.log.end())
                seen = (first, end) if seen is None else (min(seen[0], first), max(seen[1], end))
        return seen

    def _asked(self, missing: tuple[int, int]) -> Members | None:
        """Who is asked of what is missing from an offset on.

        A broker that does not know the stream has deleted it if the directory has been gone for so
        long. What is missing here, another node's agent may hold: it has as long to upload it, once
        the store answers.
        """
        silent = max(0.0, self.now - self._looked_at - _COUNTED_SECONDS)
        self._missed_at = {each: at + silent for each, at in self._missed_at.items()}
        self._looked_at = self.now
        missed_at = self._missed_at.setdefault(missing, self.now)
        if self.members is None or self.vanished_at is None:
            return self.members
        since = max(self.vanished_at, missed_at)
        return OfDeleted(self.members) if self.now - since >= _DELETED_SECONDS else self.members

    @contextmanager
    def _anew_if_refused(self, missing: tuple[int, int]) -> Iterator[None]:
        """What a member's log has, or may have, is missed once that is over: from then on its agent
        may be all that has it.
        """
        try:
            yield
        except (LostRangeError, UnavailableError) as exc:
            has = isinstance(exc, LostRangeError)
            if self.vanished_at is None and (has or self._may_have(missing, exc)):
                self._missed_at.pop(missing, None)
                self._nobodys.discard(missing)
            raise
        self._nobodys.add(missing)

    def _may_have(self, missing: tuple[int, int], error: Exception) -> bool:
        """Whether a member that does not answer may have it in its log."""
        return missing not in self._nobodys and not isinstance(error, NoStreamError)

    def in_vain(self, now: float) -> bool:
        """Whether the directory has been gone for long, and what is missing missed for as long.

        Args:
            now: monotonic seconds.
        """
        if self.vanished_at is None:
            return False
        return now - max([self.vanished_at, *self._missed_at.values()]) >= _DELETED_SECONDS

    def _missed(
        self, missing: tuple[int, int], lacking: str, begin: int, share: float = 1.0
    ) -> Missed | None:
        """Until when another node's agent has time: it may hold open what no log has any more.

        It acts for this one where the manifest stands still (`division`).
        """
        if self.members is None:
            return None
        patience = self.patience * share
        epoch, offset = missing
        if epoch == _UNCLAIMED and offset:  # of a new stream others may have no more than this one
            patience += self.turn
        if self.vanished_at is not None:
            patience = min(patience, _DELETED_SECONDS / 2)  # before it is given up (`in_vain`)
        until = self._missed_at[missing] + patience
        if until <= self.now or self._lone():
            return None
        error = LostLocallyError(
            f"the local log begins at {begin}, and {lacking}; another node's agent may hold"
            " more open, and is waited for",
            remedy=f"nothing: in {until - self.now:.0f} s the agent goes on by itself",
            stream=self.log.stream,
            offset=offset,
            until=until,
        )
        return Missed(until, error)

    def _check_patience(self, missing: tuple[int, int], lacking: str, begin: int) -> None:
        missed = self._missed(missing, lacking, begin)
        if missed is not None:
            raise missed.error

    def _lone(self) -> bool:
        with suppress(UnavailableError):
            return self.members is not None and self.members.lone(self.log.stream)
        return False

    def _check_own(self, gap: ChainGap, begin: int) -> None:
        """This log still begins where it did: it may follow a writer with a longer one by now."""
        segments = self.log.segments()
        if not segments or segments[0] < begin:
            where = f"begins at {segments[0]} now" if segments else "is gone now"
            raise UnavailableError(
                f"the local log {where}, and began at {begin} when {gap} were missed; nothing is"
                " declared lost, and it is looked at again",
                stream=self.log.stream,
                offset=gap.first_offset,
            )

    def _check_begin(self, gap: ChainGap, committed: int) -> None:
        """A committed chunk begins where the gap ends, so that the hole will not wait for ever."""
        near = self.log.chunks_near(gap.next_offset + 1, committed=committed)
        if not near or near[0].chunk_id != gap.next_offset:
            raise LostLocallyError(
                f"the local log begins at {gap.next_offset}, where nothing is committed yet; {gap}"
                " are in no member's log; they are declared lost once something can follow them,"
                " unless another node's agent uploads them before",
                remedy="nothing: once a chunk is committed there, the agent goes on by itself",
                stream=self.log.stream,
                offset=gap.first_offset,
            )

    def _check_counts(self, gap: ChainGap, declared: set[tuple[int, int]]) -> None:
        """A hole over the gap can count: it is never uploaded again and again."""
        if not gap.parts or (gap.first_offset, gap.next_offset) in declared:
            raise LostLocallyError(
                f"{gap} are in no log, and the ledger lets no hole in over them",
                remedy="rebuild the manifest (`coldstream rebuild`), and look what it says of them",
                stream=self.log.stream,
                offset=gap.first_offset,
            )

    def _declare(self, gap: ChainGap, begin: int) -> None:
        self._meant = (gap.first_offset, gap.next_offset)
        keys = self.commits.declare(gap, log_first=begin)
        named = ", ".join(keys) or "of an earlier request"
        self._tell(gap, f"key {named}" if len(keys) == 1 else f"keys {named}")

    def _tell(self, gap: ChainGap, key: str) -> None:
        self._meant = None
        said = isinstance(self.members, LastCopy)
        nobody = "by --last-copy no other member has them" if said else "no member has them"
        words = (
            f"{gap} are lost: local retention took them before they were uploaded, and {nobody};"
            f" declared as a hole (stream {self.log.stream}, {key})"
        )
        if gap.holding:
            named = [f"{key} ({why})" for key, why in zip(gap.holding, gap.why, strict=True)]
            words += (
                f"; {len(named)} objects in the bucket may still hold some of them, such as"
                f" {', '.join(named[:_NAMED])}: `coldstream repair` puts in place what the"
                " ledger accepts"
            )
        self.holes.append((gap.first_offset, gap.next_offset))
        self.notices.append(words)
