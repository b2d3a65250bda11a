"""How the agent has a stream claimed and committed: by the function `claim`, which it asks.

An answer only says what to do next. What holds is read from the bucket and the catalog, so an
answer that is lost changes nothing: the next look finds what was done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from coldstream.errors import (
    InternalError,
    NotFoundError,
    RefusedFragmentError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.plans import agent_requests as asking
from coldstream.plans.claim import LocalChunk, LocalHistory
from coldstream.plans.told_log import MAX_QUESTIONS, Question, Subject, ToldLog
from coldstream.plans.truncate import Truncation
from coldstream.ports import ClaimFunction
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.usecases.claim import Claimed, check_history, check_not_fenced
from coldstream.usecases.commit_runs import CommitReport
from coldstream.usecases.divergence import Alone
from coldstream.usecases.holes import ChainGap

_MAX_LOOKS = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Claim:
    """What an answer says of a claim; see `Claimed`."""

    truncated: Truncation | None = None
    rooted: bool = False


@dataclass(frozen=True, slots=True)
class Commits:
    """One stream's claims and commits.

    Args:
        context: where; read only.
        function: that has the rights.
        stream: directory name.
        pause: called with the number of the look before the next one.
    """

    context: Context
    function: ClaimFunction
    stream: str
    pause: Callable[[int], None]

    def claim(
        self,
        epoch: int,
        anchor: int,
        name: QueueName,
        log: LocalHistory,
        alone: Alone,
        *,
        shift: int = 0,
    ) -> Claimed:
        """Have the stream claimed for `epoch`, unless it is.

        Args:
            epoch: of a committed chunk that the log holds, and the shift.
            anchor: where the log begins, for a stream that has no item.
            name: which queue it belongs to.
            log: the committed part of the local log.
            alone: asked where the log does not reach far enough down to be compared.
            shift: of the root, as it was when `epoch` was made of it.

        Raises:
            As `usecases.claim.land_claim` and `check_history`, and UnavailableError if the function
            did not answer.
        """
        made = _Claim()
        loaded = self._claimed(epoch, name)
        if loaded is None:
            made = self._open(epoch, shift, anchor, name, log, alone)
            loaded = load(self.context, self.stream)
            check_not_fenced(loaded, epoch)
        return Claimed(
            loaded,
            made.truncated,
            rooted=made.rooted,
            held=check_history(self.context, self.stream, loaded.root, log),
        )

    def _claimed(self, epoch: int, name: QueueName) -> Snapshot | None:
        """The stream if `epoch` has claimed it, and nothing else is to be done for it."""
        item = self.context.catalog.get(self.stream)
        if item is None or item.epoch != epoch or item.ledger.floor(epoch) is None:
            return None
        if name.queue and item.name.key != name.key:
            return None
        if name.super_stream and not item.name.super_stream:
            return None
        try:
            loaded = load(self.context, self.stream)
        except NotFoundError:
            return None  # the function says what that means
        return loaded if loaded.item.epoch == epoch else None

    def _open(
        self,
        epoch: int,
        shift: int,
        anchor: int,
        name: QueueName,
        log: LocalHistory,
        alone: Alone,
    ) -> _Claim:
        item = self.context.catalog.get(self.stream)
        end = anchor if item is None else item.next_offset
        said = _what_is_asked_first(log, end)
        for _ in range(MAX_QUESTIONS):
            begin = anchor if item is None else None
            request = asking.Open(self.stream, epoch, begin, name, said, shift)
            question, claimed = self._ask(request, _claimed_or_asked)
            if question is None:
                return claimed
            chunks = _look(log, question, alone)
            first = log.first_offset()
            # What was looked for where the log had begun was perhaps not found for being retired.
            said = (
                said.with_answer(question, chunks)
                if first == said.first
                else _what_is_asked_first(log, end)
            )
            item = item or self.context.catalog.get(self.stream)
        raise InternalError("the function asks without end", stream=self.stream)

    def shift(self, item: CatalogItem | None) -> int:
        """What is to be added to the broker's epoch; 0 where there is no root, or none yet.

        Raises:
            CorruptDataError: the root is damaged.
            UnavailableError: S3 or DynamoDB did not answer.
        """
        if item is None or not item.root_key:
            return 0
        try:
            return load(self.context, item.stream).root.shift
        except NotFoundError:
            return 0  # the function says what that means

    def commit(self, *, thorough: bool = False) -> CommitReport:
        """Have all committed that follows the manifest; what its root is then.

        Raises:
            As `usecases.commit_runs.commit_runs`, and UnavailableError if the function did not
            answer.
        """
        commits = fragments = 0
        for attempt in range(1, _MAX_LOOKS + 1):
            request = asking.Commit(self.stream, thorough)
            done = self._ask(request, lambda row: asking.Committed.from_json(row["committed"]))
            commits += done.commits
            fragments += done.fragments
            loaded = load(self.context, self.stream)
            if done.more or loaded.root.next_offset != done.next_offset:
                self.pause(attempt)
                continue
            return CommitReport(
                stream=self.stream,
                commits=commits,
                conflicts=0,
                fragments=fragments,
                bytes=0,
                version=loaded.item.version,
                next_offset=loaded.root.next_offset,
                root=loaded.root,
                refused=tuple(e for e in done.refused if isinstance(e, RefusedFragmentError)),
                waiting=done.waiting,
            )
        raise UnavailableError(
            "the manifest moves on at every look; it is looked at again", stream=self.stream
        )

    def declare(self, gap: ChainGap, *, log_first: int) -> Sequence[str]:
        """Have a gap declared lost; the keys of the holes, none if it was declared before.

        Raises:
            ConflictError: it is another gap now.
            UnavailableError: the function did not answer.
        """
        request = asking.Declare(
            self.stream, gap.epoch, gap.first_offset, gap.next_offset, log_first
        )
        return self._ask(request, lambda row: [str(key) for key in row["declared"]])

    def _ask(self, request: asking.Request, read: Callable[[dict[str, Any]], T]) -> T:
        """The answer to a request, read by `read`.

        Raises:
            ColdstreamError: that the answer tells.
            UnavailableError: there was no answer, or one that cannot be read.
        """
        data = self.function.invoke(asking.encode(request))
        try:
            answer = json.loads(data)
            if "error" not in answer:
                return read(answer)
            error = asking.error_from_json(answer["error"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise UnavailableError(
                f"the claim function's answer cannot be read: {data[:200]!r}", stream=self.stream
            ) from exc
        raise error


def _claimed_or_asked(row: dict[str, Any]) -> tuple[Question | None, _Claim]:
    question = asking.question_of(row)
    if question is not None:
        return question, _Claim()
    claimed = row["claimed"]
    return None, _Claim(
        asking.truncation_from_json(claimed["truncated"]), rooted=bool(claimed["rooted"])
    )


def _what_is_asked_first(log: LocalHistory, end: int) -> ToldLog:
    """A log as it is told before anything is asked: enough for most claims.

    Args:
        log: it.
        end: where the manifest ends, as far as is known.
    """
    first = log.first_offset()
    said = ToldLog(first).with_answer(Question(Subject.NEAR, end), log.chunks_near(end))
    if first is None:
        return said
    begin = Question(Subject.BETWEEN, first, first + 1)
    said = said.with_answer(begin, log.chunks_between(first, first + 1))
    return said if log.first_offset() == first else ToldLog(log.first_offset())


def _look(log: LocalHistory, question: Question, alone: Alone) -> Sequence[LocalChunk]:
    match question.subject:
        case Subject.NEAR:
            return log.chunks_near(question.first)
        case Subject.BETWEEN:
            return log.chunks_between(question.first, question.next_offset)
        case Subject.ALONE:
            alone(question.first, question.next_offset)
            return ()
