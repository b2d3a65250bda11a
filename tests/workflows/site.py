"""The deployed app, its machines, and streams to play with."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from coldstream import deployment, names
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.plans.claim import NO_HISTORY
from coldstream.plans.policy import PolicySet, Rule
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream.reader.verify import verify_stream
from coldstream.remote.context import Context
from coldstream.remote.nodes import NodeCache
from coldstream.remote.roots import RootCache, Snapshot, load
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.bucket import compare, listed
from coldstream_devkit.claims import claim
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.fragments import SyntheticFragment, build_fragment
from tests.support.probe_stack import eventually
from tests.support.remote import no_pause

#: Branching factor, grace time and fragment size that are small enough to be seen at work.
M = 4
GRACE_SECONDS = 3
SETTINGS = {
    "coldstream:branching": str(M),
    "coldstream:fragment-size-mib": "1",
    "coldstream:grace-seconds": str(GRACE_SECONDS),
    "coldstream:undelete-seconds": "1",
    "coldstream:testing": "true",
    # Nothing is to run by the clock while a test looks.
    "coldstream:reconcile-interval-minutes": "1440",
    "coldstream:retention-interval-minutes": "1440",
    "coldstream:consolidate-interval-minutes": "1440",
}


@dataclass(frozen=True)
class Site:
    """The deployed app."""

    emulator: Emulator
    outputs: dict[str, str]
    context: Context

    @property
    def machines(self) -> Any:
        return self.emulator.client("stepfunctions")

    @property
    def policies(self) -> DynamoPolicies:
        return DynamoPolicies(
            client=self.emulator.client("dynamodb"),
            table=self.outputs[deployment.OUTPUT_TABLE],
            prefix=self.context.prefix,
        )

    def arn(self, workflow: str) -> str:
        return self.outputs[deployment.OUTPUT_WORKFLOWS] + workflow

    def execution(self, workflow: str, name: str) -> str:
        """ARN of an execution by its name."""
        return f"{self.arn(workflow).replace(':stateMachine:', ':execution:')}:{name}"

    def function(self, step: str) -> str:
        """Name of the function whose handler is `functions.<step>.handler`."""
        (found,) = [
            each["FunctionName"]
            for page in self.emulator.client("lambda").get_paginator("list_functions").paginate()
            for each in page["Functions"]
            if each["Handler"] == f"functions.{step}.handler"
        ]
        return str(found)

    # --- machines ---

    def start(self, workflow: str, **document: Any) -> str:
        """Begin an execution; give its ARN."""
        answer = self.machines.start_execution(
            stateMachineArn=self.arn(workflow), input=json.dumps(document)
        )
        return str(answer["executionArn"])

    def ended(self, arn: str, *, seconds: float = 180) -> dict[str, Any]:
        """What became of an execution."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.machines.describe_execution(executionArn=arn)
            return None if found["status"] == "RUNNING" else found

        ended = eventually(look, seconds=seconds)
        assert ended is not None, "still running"
        return ended

    def succeeded(self, arn: str) -> dict[str, Any]:
        """The output of an execution; it, its batches and its streams must have succeeded."""
        ended = self.ended(arn)
        assert ended["status"] == "SUCCEEDED", ended
        for run in self.machines.list_map_runs(executionArn=arn)["mapRuns"]:
            counts = self.machines.describe_map_run(mapRunArn=run["mapRunArn"])["itemCounts"]
            assert counts["failed"] == 0
        output: dict[str, Any] = json.loads(ended["output"])
        assert not total(output.get("failed", 0)), output
        return output

    def run(self, workflow: str, *streams: str, **document: Any) -> dict[str, Any]:
        """Run an execution to its end, on `streams` if there are any."""
        if streams:
            document["work"] = [{"stream": stream} for stream in streams]
        return self.succeeded(self.start(workflow, **document))

    # --- streams ---

    def claimed(self, name: QueueName | None = None) -> str:
        """A new stream without data."""
        stream = f"__w{uuid.uuid4().hex[:8]}_{time.time_ns()}"
        anchor(self.context, stream, 0, name or QueueName())
        claim(self.context, stream, 1, log=NO_HISTORY, pause=no_pause)
        return stream

    def stream(self, fragments: int = 3, **more: Any) -> str:
        """A new stream whose manifest holds `fragments` neighbours, of ten records each."""
        stream = self.claimed()
        self.upload(neighbours(stream, fragments, **more))
        self.commit(stream)
        return stream

    def upload(self, fragments: Iterable[SyntheticFragment]) -> list[str]:
        def put(each: SyntheticFragment) -> str:
            path = each.path(self.context.prefix)
            self.context.store.put(path, each.data, write_id=path)
            return path

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(put, fragments))

    def commit(self, stream: str) -> None:
        """Here and now: how soon an event leads to this is for tests/e2e to see."""
        commit_runs(self.context, stream, pause=no_pause)

    def item(self, stream: str) -> CatalogItem:
        item = self.context.catalog.get(stream)
        assert item is not None
        return item

    def load(self, stream: str) -> Snapshot:
        """The stream, as one sees it who has seen nothing before."""
        return load(self.fresh(), stream)

    def fresh(self) -> Context:
        return replace(self.context, roots=RootCache(), nodes=NodeCache())

    def rules(self, *rules: Rule) -> None:
        """These, and no others."""
        assert self.policies.save(PolicySet(rules), self.policies.load()[1])

    # --- what is there ---

    def keys(self, stream: str) -> set[str]:
        under = names.stream_prefix(self.context.prefix, stream)
        return {row.key for row in listed(self.context.store, under)}

    def reader(self, stream: str) -> StreamReader:
        context = self.context
        return StreamReader(
            context.store, context.catalog, context.prefix, stream, nodes=NodeCache()
        )

    def bodies(self, stream: str) -> list[tuple[int, bytes]]:
        """Offset and wire bytes of every message, read from the remote tier."""
        return [(each.offset, bytes(each.body)) for each in self.reader(stream).messages(First())]

    def collected(self, *streams: str) -> None:
        """Collect until what was garbage before is gone.

        Twice, a grace time apart, when all of it is old enough; and again for what only a root has
        named that lost the race for its version: such a root goes first.
        """
        for _ in range(4):
            time.sleep(GRACE_SECONDS + 0.2)
            self.run("collect", *streams)
            if not any(map(self.wrong, streams)):
                return

    def wrong(self, stream: str) -> Sequence[object]:
        """What is missing of a stream or too much, but for records of `collect` and erasures."""
        context, loaded = self.fresh(), self.load(stream)
        return compare(
            context.store,
            context.prefix,
            loaded.item,
            loaded.root,
            context.fetch(stream),
            accounted_for={
                key for key in self.keys(stream) if key.endswith(".marks") or "/erasure." in key
            },
        )

    def assert_sound(self, *streams: str) -> None:
        """All that a stream should have is there and reads back; the rest is records."""
        for stream in streams:
            wrong, context = self.wrong(stream), self.fresh()
            assert not wrong, wrong
            report = verify_stream(
                context.store, context.catalog, context.prefix, stream, deep=True
            )
            assert report.sound, report.violations


def deployed(emulator: Emulator) -> Site:
    """Deploy the app. Events lead nowhere until a test turns them on."""
    outputs = emulator.deploy_app(SETTINGS).outputs
    prefix = outputs[deployment.OUTPUT_PREFIX]
    context = Context(
        store=BotoObjectStore(
            client=emulator.client("s3"), bucket=outputs[deployment.OUTPUT_BUCKET]
        ),
        catalog=DynamoCatalog(
            client=emulator.client("dynamodb"),
            table=outputs[deployment.OUTPUT_TABLE],
            prefix=prefix,
        ),
        prefix=prefix,
        new_uid=lambda: secrets.randbits(64),
    )
    site = Site(emulator, outputs, context)
    switch_events(site, on=False)
    return site


def switch_events(site: Site, *, on: bool) -> None:
    """Whether the commit function gets its messages; those that wait are thrown away before."""
    functions = site.emulator.client("lambda")
    (mapping,) = functions.list_event_source_mappings(
        FunctionName=site.outputs[deployment.OUTPUT_COMMIT_FUNCTION]
    )["EventSourceMappings"]
    site.emulator.client("sqs").purge_queue(QueueUrl=site.outputs[deployment.OUTPUT_QUEUE_URL])
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)


def neighbours(
    stream: str, count: int, *, begin: Sequence[SyntheticFragment] = (), **more: Any
) -> list[SyntheticFragment]:
    """`count` fragments of ten records that join byte for byte in one segment.

    Args:
        stream: directory name.
        count: how many.
        begin: those that they follow.
        more: as `build_fragment`.
    """
    made: list[SyntheticFragment] = []
    last = begin[-1].trailer if begin else None
    position = 8 if last is None else last.segment_position + last.data_size
    first = 0 if last is None else last.next_offset
    for number in range(count):
        at = first + 10 * number
        made.append(
            build_fragment(
                at,
                at + 10,
                stream=stream,
                uid=secrets.randbits(64),
                segment_offset=0,
                segment_position=position,
                **more,
            )
        )
        position += made[-1].trailer.data_size
    return made


def total(failed: Any) -> int:
    """Of how many streams a machine says that they failed: a list for each page and batch."""
    return sum(map(total, failed)) if isinstance(failed, list) else int(failed)
