"""A probe: one message that goes the way of every upload, into a stream of this node's own.

It is claimed, PUT, announced by S3's event, committed by the function behind the queue, and read
back. What the stream is, and why it does not grow without bound: docs/decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from coldstream.agent.doctor.findings import Check, Finding, failed, ok, warning
from coldstream.agent.stream.commits import Commits
from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem
from coldstream.plans.probe import EPOCH, MOST, ProbeLog, choose, probe_name
from coldstream.plans.probe_fragment import probe_fragment
from coldstream.ports import ClaimFunction
from coldstream.remote.context import Context

#: An event waits for the batch window of the queue and for a function that starts cold.
WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_MOST_BYTES = 4096
_NO_RIGHT = (
    "attach the stack's output AgentPolicyArn to the role of this machine, and set"
    " --claim-function, --bucket and --table to outputs of one stack"
)
_NO_EVENT = (
    "compare --bucket and --prefix with the stack's outputs, then look at the dead letters of the"
    " commit queue, the log of the function commit_runs, and the notification of the bucket"
)


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe.

    Args:
        context: bucket, table, prefix, ids.
        function: that claims and commits.
        node: name of this machine.
        pause: as in `Commits`.
        now_ms: ms since the Unix epoch.
        wait_seconds: for an event.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    context: Context
    function: ClaimFunction
    node: str
    pause: Callable[[int], None]
    now_ms: Callable[[], int]
    wait_seconds: float = field(default_factory=lambda: WAIT_SECONDS)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def check(self) -> Check:
        """As a check."""
        return Check("probe", self.look, _NO_RIGHT, 120.0 + 2 * self.wait_seconds)

    def look(self) -> Iterator[Finding]:
        """Upload one message, see it arrive, read it back; a finding for each stage.

        Raises:
            ColdstreamError: a stage failed.
        """
        stream, item = choose(self.context.catalog.get, self.node)
        if _is_full(item):
            said = f"none was written: {stream} holds {MOST} messages of earlier probes"
            yield warning(
                "probe", said, f"`coldstream delete {stream}`; the next probe begins anew"
            )
            return
        end = item.next_offset if item is not None else 0
        commits = Commits(self.context, self.function, stream, self.pause)
        claimed = commits.claim(EPOCH, 0, probe_name(self.node), ProbeLog(end + 1), _nobody_else)
        offset = claimed.loaded.root.next_offset
        yield ok("probe: claim", f"{stream} is claimed, and ends at {offset}")

        floor = claimed.loaded.item.ledger.floor(EPOCH) or 0
        uid = self.context.new_uid()
        key, data = probe_fragment(stream, offset, floor=floor, timestamp=self.now_ms(), uid=uid)
        path = key.path(self.context.prefix)
        self.context.store.put(path, data, write_id=f"{uid:016x}")
        yield ok("probe: upload", f"{len(data)} bytes are in the bucket")

        yield from self._arrival(commits, stream, offset)
        if bytes(self.context.store.get_all(path, limit=_MOST_BYTES)) != data:
            raise CorruptDataError("the object is not what was uploaded", key=path)
        yield ok("probe: read", "the object is what was uploaded")

    def _arrival(self, commits: Commits, stream: str, offset: int) -> Iterator[Finding]:
        """Wait until the manifest has the message; where no event brings it, have it committed."""
        if self._arrives(stream, offset):
            yield ok("probe: event", "S3's event has reached the function, and it committed")
            return
        said = f"{self.wait_seconds:.0f} s after the upload no commit has come"
        yield failed("probe: event", said, _NO_EVENT)
        if commits.commit().next_offset > offset:
            yield ok("probe: commit", "the upload is in the manifest, as the agent asked")
        else:
            said = "the function answers, and has not committed the upload"
            yield failed("probe: commit", said, "see the log of the function claim")

    def _arrives(self, stream: str, offset: int) -> bool:
        end = self.clock() + self.wait_seconds
        while True:
            item = self.context.catalog.get(stream)
            if item is not None and item.next_offset > offset:
                return True
            if self.clock() > end:
                return False
            self.sleep(_LOOK_SECONDS)


def _is_full(item: CatalogItem | None) -> bool:
    return item is not None and item.next_offset - item.first_offset >= MOST


def _nobody_else(first: int, next_offset: int) -> None:
    """Nobody has an older log of a stream that this node makes up."""
    del first, next_offset
