"""What keeps the data besides bucket and catalog: requests, rules, workflows, metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from coldstream.errors import CorruptDataError
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.policy import PolicySet
from coldstream.plans.stream_words import WordsPage


class CommitRequests(Protocol):
    """A way to ask for a look at a stream when its events seem to be lost."""

    def ask(self, stream: str) -> None:
        """Ask once; the answer is the manifest that moves.

        Raises:
            UnavailableError, PermissionDeniedError: the request did not go out.
        """
        ...


class ClaimFunction(Protocol):
    """The function that claims and commits for agents (usecases/claim_function.py)."""

    def invoke(self, request: bytes) -> bytes:
        """Its answer to a request; both are JSON objects, of at most 6,000,000 bytes.

        Raises:
            UnavailableError: no answer; what was asked for may be done, or be done later.
            PermissionDeniedError: the function may not be invoked.
            InvalidInputError: the request is too large.
        """
        ...


class Heartbeats(Protocol):
    """The last word of every agent of a cluster, about itself and about its streams.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def beat(self, heartbeat: Heartbeat) -> Heartbeat | None:
        """Put a word in the place of the node's last one, and give that; None if nobody knows it.

        Raises:
            InvalidInputError: no node can be called so.
        """
        ...

    def all(self) -> list[Heartbeat | CorruptDataError]:
        """All of them, in no order; an error for each that cannot be read."""
        ...

    def tell(self, page: WordsPage) -> None:
        """Put a page in the place of the node's last one of this number and count.

        Raises:
            InvalidInputError: no node can be called so.
        """
        ...

    def told(
        self, node: str, count: int, number: int | None = None
    ) -> list[WordsPage | CorruptDataError]:
        """The pages of a node that has `count`, those that are there; all, or one of them.

        An error for each that cannot be read.
        """
        ...


class Policies(Protocol):
    """The operator's rules, one document for a cluster.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def load(self) -> tuple[PolicySet, int]:
        """The rules and their revision; no rules and revision 0 where nobody has written any.

        Raises:
            CorruptDataError: there are rules that this release cannot read.
        """
        ...

    def save(self, policies: PolicySet, read_revision: int) -> bool:
        """Put `policies` in the place of revision `read_revision`, as the next revision.

        True if they are in force now. False if another document is: another writer was first, read
        again and decide again.

        Raises:
            UnknownOutcomeError: no answer; they may still come into force.
        """
        ...


class ExecutionStatus(StrEnum):
    """How far an execution of a workflow is."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a workflow.

    Attributes:
        status: how far it is.
        output: what it gave, a JSON value; None unless it succeeded.
        error: name of the error that ended it, "" if none has.
        cause: the error in words, "" if none was given.
    """

    status: ExecutionStatus
    output: Any = None
    error: str = ""
    cause: str = ""


class Workflows(Protocol):
    """State machines that can be started by name.

    Every method may raise UnavailableError (try again), PermissionDeniedError, and NotFoundError
    where there is no such workflow.
    """

    def start(self, workflow: str, name: str, document: Mapping[str, Any]) -> bool:
        """Start an execution with an input; False if one of that name exists, running or ended.

        The machine may find fields in its input beside those of `document`.

        Raises:
            InvalidInputError: the name or the input is none that a workflow takes.
            UnknownOutcomeError: no answer; it may have been started.
        """
        ...

    def describe(self, workflow: str, name: str) -> Execution:
        """How far an execution is.

        Raises:
            NotFoundError: there is no execution of that name.
        """
        ...


class MetricUnit(StrEnum):
    """What a metric counts, in CloudWatch's words."""

    COUNT = "Count"
    BYTES = "Bytes"
    SECONDS = "Seconds"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Metric:
    """One value of a metric, now.

    Attributes:
        name: one of deployment.METRIC_*.
        value: finite.
        unit: of the value.
        dimensions: (name, value) pairs; each combination is a metric of its own.
    """

    name: str
    value: float
    unit: MetricUnit = MetricUnit.COUNT
    dimensions: tuple[tuple[str, str], ...] = ()


class MetricSink(Protocol):
    """Where a job's metrics go; alarms look at them."""

    def put(self, metrics: Sequence[Metric]) -> None:
        """Record values. When this returns, all of them are; a metric sent twice counts twice.

        Raises:
            InvalidInputError: one is none that a sink takes; nothing was recorded.
            UnavailableError, PermissionDeniedError: some may be recorded, and some not.
        """
        ...
