"""What AWS answers an agent: who it is, and that it may do what it has to, and reach it all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from coldstream.agent.doctor.findings import Check, Finding, failed, ok, warning
from coldstream.agent.doctor.machine import of_difference
from coldstream.errors import UnavailableError
from coldstream.names import FRAGMENT_SUFFIX
from coldstream.plans import agent_requests as asking
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.probe import choose
from coldstream.ports import ClaimFunction
from coldstream.remote.context import Context

_POLICY = "attach the stack's output AgentPolicyArn to the role of this machine"
_REACH = "check the network, AWS_REGION and AWS_ENDPOINT_URL"
_EITHER = f"{_POLICY}, or, where nothing answers at all, {_REACH}"
_FUNCTION_SECONDS = 60.0
#: S3 that asks for fewer requests is asked six times, with pauses of 50 s in all at the most, and
#: only then anybody is told what it says.
_BUCKET_SECONDS = 60.0


class Rights(Protocol):
    """Requests that show what the credentials are and allow, and change nothing."""

    def credentials(self) -> str | None:
        """Where they were found, in words; None if there are none.

        Raises:
            UnavailableError: nobody can say.
        """
        ...

    def clock(self) -> tuple[float, float]:
        """Seconds by which this machine is ahead of AWS, and by which that may be wrong.

        Raises:
            UnavailableError: there was no answer that has a date.
        """
        ...

    def may_beat(self, node: str) -> Heartbeat | None:
        """Ask for the right to write a node's heartbeat, without writing one; what is there.

        Raises:
            PermissionDeniedError, NotFoundError, UnavailableError: it is not there.
        """
        ...

    def may_ask(self) -> None:
        """Send the commit queue a message that nothing is done for.

        Raises:
            PermissionDeniedError, UnavailableError: it was not taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class RightsChecks:
    """The checks of what an agent is and may, beside bucket, table and function.

    Args:
        rights: of this process.
        node: what the agent calls this machine.
        queue: whether a commit queue is given.
    """

    rights: Rights
    node: str
    queue: bool

    def checks(self) -> list[Check]:
        """All of them."""
        return [
            Check("credentials", self.credentials, _REACH),
            Check("clock and AWS", self.clock, _REACH),
            Check("heartbeat", self.heartbeat, _EITHER),
            Check("commit queue", self.asks, f"set --queue-url to CommitQueueUrl; {_EITHER}"),
        ]

    def credentials(self) -> Iterator[Finding]:
        """Whether there are any, and from where."""
        about, found = "credentials", self.rights.credentials()
        if found is None:
            remedy = "give this machine a role with AgentPolicyArn, or set AWS_PROFILE"
            yield failed(about, "there are none", remedy)
        else:
            yield ok(about, f"found: {found}")

    def clock(self) -> Iterator[Finding]:
        """This machine's clock against AWS's."""
        yield of_difference(*self.rights.clock())

    def heartbeat(self) -> Iterator[Finding]:
        """Whether the agent's heartbeat could be written."""
        last = self.rights.may_beat(self.node)
        yield ok("heartbeat", f"may be written for {self.node!r}; none was")
        if last is not None and last.shared:
            remedy = "give each node's agent a name of its own (`node`, by default the host name)"
            said = f"more than one agent tells under the name {self.node!r}, as the last word says"
            yield warning("heartbeat", said, remedy)

    def asks(self) -> Iterator[Finding]:
        """Whether the commit queue takes a message."""
        about = "commit queue"
        if not self.queue:
            remedy = "set --queue-url to the stack's output CommitQueueUrl"
            said = "not given: where an event is lost, nobody asks for the commit"
            yield warning(about, said, remedy)
            return
        self.rights.may_ask()
        yield ok(about, "takes messages")


@dataclass(frozen=True, slots=True)
class TierChecks:
    """The checks of bucket, table and function.

    Args:
        context: bucket, table and prefix.
        node: what the agent calls this machine.
        function: that claims; None if the agent does so itself.
    """

    context: Context
    node: str
    function: ClaimFunction | None

    def checks(self) -> list[Check]:
        """All of them."""
        return [
            Check("bucket", self.bucket, _EITHER, _BUCKET_SECONDS),
            Check("table", self.table, _EITHER),
            Check("claim function", self.claims, _EITHER, _FUNCTION_SECONDS),
        ]

    def bucket(self) -> Iterator[Finding]:
        """LIST below the prefix, and GET of an object if there is one."""
        context, about = self.context, "bucket"
        under = f"{context.prefix}stream/"
        rows = context.store.list(under, limit=100)
        yield ok(about, f"may be listed below {under}")
        sample = next((each for each in rows if each.key.endswith(FRAGMENT_SUFFIX)), None)
        if sample is not None:
            context.store.get_suffix(sample.key, 1)
            yield ok(about, "objects can be read")

    def table(self) -> Iterator[Finding]:
        """The table's id, and an item of the prefix."""
        catalog = self.context.catalog
        catalog.table_id()
        choose(catalog.get, self.node)
        yield ok("table", "answers, and items can be read")

    def claims(self) -> Iterator[Finding]:
        """Whether the function answers, asked for a commit of the probe stream."""
        about = "claim function"
        if self.function is None:
            remedy = "set --claim-function to the stack's output ClaimFunctionName"
            said = "not given: the agent claims and commits itself, with an operator's rights"
            yield warning(about, said, remedy)
            return
        stream, _ = choose(self.context.catalog.get, self.node)
        data = self.function.invoke(asking.encode(asking.Commit(stream)))
        try:
            answer = json.loads(data)
            answered = isinstance(answer, dict) and bool(answer.keys() & {"committed", "error"})
        except ValueError:
            answered = False
        if not answered:
            raise UnavailableError(f"the answer cannot be read: {data[:200]!r}")
        yield ok(about, "answers")
