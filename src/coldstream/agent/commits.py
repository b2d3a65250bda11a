"""How the agent has a stream claimed and committed: by the function `claim`, which it asks.

An answer only says what to do next. What holds is read from the bucket and the catalog, so an
answer that is lost changes nothing: the next look finds what was done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coldstream.errors import (
    ColdstreamError,
    InternalError,
    NotFoundError,
    RefusedFragmentError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.plans import agent_requests as asking
from coldstream.plans.claim import LocalChunk, LocalHistory
from coldstream.plans.testimony import MAX_QUESTIONS, Question, Subject, Testimony
from coldstream.ports import ClaimFunction
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.usecases.claim import Claimed, check_history, check_not_fenced
from coldstream.usecases.commit_runs import CommitReport
from coldstream.usecases.divergence import Alone
from coldstream.usecases.holes import ChainGap

_MAX_LOOKS = 8


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
        self, epoch: int, anchor: int, name: QueueName, log: LocalHistory, alone: Alone
    ) -> Claimed:
        """Have the stream claimed for `epoch`, unless it is.

        Args:
            epoch: of a committed chunk that the log holds.
            anchor: where the log begins, for a stream that has no item.
            name: which queue it belongs to.
            log: the committed part of the local log.
            alone: asked where the log does not reach far enough down to be compared.

        Raises:
            As `usecases.claim.land_claim` and `check_history`, and UnavailableError if the function
            did not answer.
        """
        said: dict[str, Any] = {}
        loaded = self._claimed(epoch, name)
        if loaded is None:
            said = self._open(epoch, anchor, name, log, alone)
            loaded = load(self.context, self.stream)
            check_not_fenced(loaded, epoch)
        return Claimed(
            loaded,
            asking.truncation_from_json(said.get("truncated")),
            rooted=bool(said.get("rooted")),
            held=check_history(self.context, self.stream, loaded.root, log),
        )

    def _claimed(self, epoch: int, name: QueueName) -> Snapshot | None:
        """The stream if `epoch` has claimed it, and nothing else is to be done for it."""
        item = self.context.catalog.get(self.stream)
        if item is None or item.epoch != epoch or item.ledger.floor(epoch) is None:
            return None
        if name.queue and item.name != name:
            return None
        try:
            loaded = load(self.context, self.stream)
        except NotFoundError:
            return None  # the function says what that means
        return loaded if loaded.item.epoch == epoch else None

    def _open(
        self, epoch: int, anchor: int, name: QueueName, log: LocalHistory, alone: Alone
    ) -> dict[str, Any]:
        said = Testimony(log.first_offset())
        for _ in range(MAX_QUESTIONS):
            known = self.context.catalog.get(self.stream) is not None
            request = asking.Open(self.stream, epoch, None if known else anchor, name, said)
            answer = self._ask(request)
            question = asking.question_of(answer)
            if question is None:
                return dict(answer["claimed"])
            chunks = _look(log, question, alone)
            first = log.first_offset()
            # What was looked for where the log had begun was perhaps not found for being retired.
            said = said.with_answer(question, chunks) if first == said.first else Testimony(first)
        raise InternalError("the function asks without end", stream=self.stream)

    def commit(self, *, thorough: bool = False) -> CommitReport:
        """Have all committed that follows the manifest; what its root is then.

        Raises:
            As `usecases.commit_runs.commit_runs`, and UnavailableError if the function did not
            answer.
        """
        commits = fragments = 0
        for attempt in range(1, _MAX_LOOKS + 1):
            answer = self._ask(asking.Commit(self.stream, thorough))
            done = asking.Committed.from_json(answer["committed"])
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
        answer = self._ask(
            asking.Declare(self.stream, gap.epoch, gap.first_offset, gap.next_offset, log_first)
        )
        return [str(key) for key in answer["declared"]]

    def _ask(self, request: asking.Request) -> dict[str, Any]:
        error: ColdstreamError | None = None
        try:
            answer = json.loads(self.function.invoke(asking.encode(request)))
            if "error" in answer:
                error = asking.error_from_json(answer["error"])
        except (ValueError, KeyError, TypeError) as exc:
            if isinstance(exc, ColdstreamError):
                raise
            raise UnavailableError(
                f"the claim function's answer cannot be read: {exc!r}", stream=self.stream
            ) from exc
        if error is not None:
            raise error
        return dict(answer)


def _look(log: LocalHistory, question: Question, alone: Alone) -> Sequence[LocalChunk]:
    match question.subject:
        case Subject.NEAR:
            return log.chunks_near(question.first)
        case Subject.BETWEEN:
            return log.chunks_between(question.first, question.next_offset)
        case Subject.ALONE:
            alone(question.first, question.next_offset)
            return ()
