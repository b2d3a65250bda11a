"""The second half of `make demo`: one stream through all that the state machines do to it.

A stream of many small fragments is grouped, trimmed by a rule, consolidated, deleted, undeleted,
and deleted for good, each time by the deployed machine, and read back after each step.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from rich.box import SIMPLE_HEAD
from rich.table import Table

from coldstream import deployment, names
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.stepfunctions import StepFunctionsWorkflows
from coldstream.agent.broker.committed import CommittedFile
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.cli.connect import claim_function
from coldstream.clock import now_ms
from coldstream.errors import UnavailableError
from coldstream.manifest.catalog import StreamState
from coldstream.osiris.chunk import ChunkType
from coldstream.osiris.entry import iter_messages
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import ExecutionStatus
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.delete_stream import delete_stream, undelete_stream
from coldstream.usecases.retention import retain
from coldstream_devkit.generator import write_stream

#: What the demo deploys instead of the values of cdk.json, so that little data is enough to see it.
SETTINGS = {
    "coldstream:branching": "4",
    "coldstream:fragment-size-mib": "4",
    "coldstream:undelete-seconds": "3",
}
_FRAGMENT = 128 * 2**10
_MESSAGES = 12_000
_LONGEST_WAIT = 60.0
_RULE = "demo-small"


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table."""

    step: str
    what: str
    result: str
    good: bool


class WorkflowsDemo:
    """The stream, and the machines that work on it.

    Args:
        context: of the deployment.
        work: directory for the segment files.
        step: told what happens.
    """

    def __init__(self, context: Context, work: Path, step: Callable[[str], None]) -> None:
        self._context = context
        self._step = step
        self._stream = f"__demo_small_{time.time_ns()}"
        self._directory = work / "small" / self._stream
        self._policies = DynamoPolicies(
            client=boto3.client("dynamodb"),
            table=os.environ[deployment.ENV_TABLE],
            prefix=context.prefix,
        )
        self._workflows = StepFunctionsWorkflows(
            client=boto3.client("stepfunctions"),
            arn_prefix=os.environ[deployment.ENV_WORKFLOWS],
        )
        self._bodies: list[tuple[int, str]] = []  # first offset and sha256 of each chunk

    def run(self) -> tuple[Table, bool]:
        """All steps; the table, and whether every one did what it should."""
        table = Table(title="what the state machines did", box=SIMPLE_HEAD, pad_edge=False)
        for column in ("step", "what happened", "read back"):
            table.add_column(column, overflow="fold")
        good = True
        for row in self._rows():
            table.add_row(row.step, row.what, row.result)
            good = good and row.good
        return table, good

    def _rows(self) -> Iterator[_Row]:
        self._step(f"tiering {self._stream} in fragments of {_FRAGMENT // 1024} KiB")
        yield self._tiered()
        self._step("rebalance: the commits have started it; once more, to be sure")
        yield self._rebalanced()
        self._step("retention: a rule by bytes, its plan, and the machine")
        yield from self._retained()
        self._step("consolidate: few fragments out of many")
        yield self._consolidated()
        self._step("delete, undelete, and delete for good")
        yield from self._deleted()

    def _tiered(self) -> _Row:
        shutil.rmtree(self._directory.parent, ignore_errors=True)
        write_stream(self._directory, messages=_MESSAGES, message_size=1000, chunk_messages=32)
        offsets = self._directory.parent / "committed.json"
        offsets.write_text(json.dumps({self._stream: "all"}))
        agent = Agent(
            context=self._context,
            function=claim_function(os.environ[deployment.ENV_CLAIM_FUNCTION]),
            data_dir=self._directory.parent,
            committed=CommittedFile(offsets),
            settings=AgentSettings(once=True, target_size=_FRAGMENT),
            requests=None,
            names={},
            pause=lambda attempt: time.sleep(0.02 * attempt),
        )
        agent.run()
        self._bodies = list(self._read())
        root = load(self._context, self._stream).root
        return self._row("agent", f"{root.fragments} fragments, {root.total_size:,} bytes")

    def _rebalanced(self) -> _Row:
        self._machine("rebalance")
        root = load(self._context, self._stream).root
        levels = [0] * 4
        for entry in root.entries:
            levels[entry.kind.level] += 1
        what = (
            f"{root.fragments} fragments below a root of {len(root.entries)} entries:"
            f" {levels[3]} mega-groups, {levels[2]} kilo-groups, {levels[1]} groups,"
            f" {levels[0]} fragments"
        )
        return self._row("rebalance", what, good=len(root.entries) < 4 * 2 * 4)

    def _retained(self) -> Iterator[_Row]:
        before = load(self._context, self._stream).root
        rule = Rule(_RULE, priority=1, directory=self._stream, max_bytes=before.total_size // 2)
        self._set_rule(rule)
        plan = retain(
            self._context,
            self._stream,
            self._policies.load()[0],
            now_ms=now_ms(),
            pause=lambda _: None,
            dry_run=True,
        )
        for each in plan.ranges:
            what = (
                f"plan: offsets {each.first_offset} to {each.next_offset - 1} go, {each.size:,}"
                f" bytes, {each.fragments} fragments: {each.reason} of rule {_RULE}"
            )
            yield _Row("retention", what, "-", good=True)
        self._machine("retention")
        root = load(self._context, self._stream).root
        what = (
            f"first offset {before.first_offset} -> {root.first_offset}, {root.total_size:,} bytes"
        )
        yield self._row("retention", what, good=root.first_offset == plan.first_offset)

    def _consolidated(self) -> _Row:
        before = load(self._context, self._stream).root
        self._machine("consolidate")
        root = load(self._context, self._stream).root
        what = f"{before.fragments} fragments -> {root.fragments}, {root.total_size:,} bytes"
        return self._row("consolidate", what, good=root.fragments < before.fragments)

    def _deleted(self) -> Iterator[_Row]:
        self._delete()
        item = undelete_stream(self._context, self._stream)
        yield self._row("delete, undelete", f"the stream is {item.state} again")
        self._delete()
        self._set_rule(None)
        under = names.stream_prefix(self._context.prefix, self._stream)
        self._until(lambda: not self._context.store.list(under, limit=1), "the objects to go")
        item = self._context.catalog.get(self._stream) or item
        yield _Row(
            "delete",
            f"{item.state} after the undelete time; no object is left, the tombstone stays",
            "-",
            good=item.state is StreamState.DELETED,
        )

    def _delete(self) -> None:
        delete_stream(
            self._context,
            self._stream,
            self._policies.load()[0],
            now_ms=now_ms(),
            undelete_ms=1000 * int(SETTINGS["coldstream:undelete-seconds"]),
        )

    def _set_rule(self, rule: Rule | None) -> None:
        """Put the demo's one rule in the place of its old one; all other rules stay."""
        while True:
            policies, revision = self._policies.load()
            rules = [each for each in policies.rules if each.name != _RULE]
            if self._policies.save(PolicySet((*rules, *([rule] if rule else []))), revision):
                return

    def _machine(self, workflow: str) -> None:
        """Run a machine on the stream, to its end."""
        name = deployment.execution_name(workflow, self._stream, f"demo-{secrets.token_hex(4)}")
        self._workflows.start(workflow, name, {"work": [{"stream": self._stream}]})
        self._until(
            lambda: self._workflows.describe(workflow, name).status is not ExecutionStatus.RUNNING,
            f"the {workflow} machine",
        )
        ended = self._workflows.describe(workflow, name)
        if ended.status is not ExecutionStatus.SUCCEEDED:
            raise UnavailableError(
                f"the {workflow} machine {ended.status}: {ended.error} {ended.cause[:500]}",
                stream=self._stream,
            )

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT
        while not holds():
            if time.monotonic() > deadline:
                raise UnavailableError(f"waited {_LONGEST_WAIT:.0f} s for {what} in vain")
            time.sleep(0.1)

    def _read(self) -> Iterator[tuple[int, str]]:
        context = self._context
        reader = StreamReader(context.store, context.catalog, context.prefix, self._stream)
        for chunk in reader.chunks(First()):
            if chunk.header.chunk_type == ChunkType.USER:
                digest = hashlib.sha256(b"".join(bytes(body) for body in iter_messages(chunk)))
                yield chunk.header.chunk_id, digest.hexdigest()

    def _row(self, step: str, what: str, **checks: Any) -> _Row:
        """A line, after the stream was read from its first offset and compared."""
        first = load(self._context, self._stream).root.first_offset
        wanted = [body for body in self._bodies if body[0] >= first]
        found = list(self._read())
        same = found == wanted and len(found) > 0
        result = f"identical, {len(found)} chunks" if same else "DIFFERENT"
        return _Row(step, what, result, good=same and checks.get("good", True))
