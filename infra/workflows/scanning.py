"""The workflows that look at all streams by the clock: one definition, and a row for each.

A run asks `scan` for the streams that are worth a look, a page at a time, and calls its step for
batches of them in a Distributed Map (`scanning.asl.json`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import rights, workflow
from infra.commit import COMMIT_KINDS, commit_rights
from infra.config import PUBLISHING_TIMEOUT_SECONDS, Settings
from infra.steps import Scan, SharedSteps, Site

#: The definition of all of them.
DEFINITION = "scanning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRow:
    """What one of these workflows has of its own.

    Attributes:
        description: one sentence for the console.
        statements: what its step may do.
        every_minutes: how often it starts.
        batch: streams for one call of its step.
        max_concurrency: batches at once.
        kinds: the kinds of keys in `statements`.
        starts: the workflows that its step may start.
        timeout_seconds: the longest run.
        memory_mib: of its step, at least.
    """

    description: str
    statements: Callable[[Site], list[iam.PolicyStatement]]
    every_minutes: Callable[[Settings], int]
    batch: int
    max_concurrency: int
    kinds: tuple[str, ...] = ("data", "metadata")
    starts: tuple[str, ...] = ()
    timeout_seconds: int = PUBLISHING_TIMEOUT_SECONDS
    memory_mib: int = 0


def _retention_rights(site: Site) -> list[iam.PolicyStatement]:
    bucket, prefix = site.bucket, site.settings.prefix
    return [
        rights.read_metadata(bucket=bucket, prefix=prefix),
        rights.write_metadata(bucket=bucket, prefix=prefix),
        rights.list_streams(bucket=bucket, prefix=prefix),
        *rights.commit_to_catalog(table=site.table, prefix=prefix),
        rights.read_policies(table=site.table),
    ]


def _consolidate_rights(site: Site) -> list[iam.PolicyStatement]:
    bucket, prefix = site.bucket, site.settings.prefix
    return [
        rights.read_objects(bucket=bucket, prefix=prefix),
        rights.write_metadata(bucket=bucket, prefix=prefix),
        rights.compose_data(bucket=bucket, prefix=prefix),
        rights.list_streams(bucket=bucket, prefix=prefix),
        *rights.commit_to_catalog(table=site.table, prefix=prefix),
        rights.read_policies(table=site.table),
    ]


def _collect_rights(site: Site) -> list[iam.PolicyStatement]:
    bucket, prefix = site.bucket, site.settings.prefix
    return [
        rights.read_objects(bucket=bucket, prefix=prefix),
        rights.write_metadata(bucket=bucket, prefix=prefix),
        rights.delete_objects(bucket=bucket, prefix=prefix),
        rights.list_streams(bucket=bucket, prefix=prefix),
        *rights.commit_to_catalog(table=site.table, prefix=prefix),
        rights.read_policies(table=site.table),
    ]


WORKFLOWS: Mapping[str, ScanRow] = MappingProxyType(
    {
        # The safety net under the events, for uploads that no manifest has yet: all live streams.
        # A batch of five hundred streams is one LIST each, and a commit for few of them. It starts
        # every few minutes whether the last run has ended or not. Two at once would do no harm,
        # only work twice, so a run gets an hour and not the six of the others.
        "reconcile": ScanRow(
            description="Commits uploads whose events were lost",
            statements=commit_rights,
            every_minutes=lambda settings: settings.reconcile_interval_minutes,
            batch=500,
            max_concurrency=10,
            kinds=COMMIT_KINDS,
            starts=("delete", "rebalance"),
            timeout_seconds=3600,
        ),
        # What is older or more than a rule allows leaves the manifest: all streams whose rules may
        # be due. It deletes nothing. A batch of a hundred streams is a few GETs and one commit
        # each. Ten batches at once keep far below what the table and the account's functions can
        # do, and 100,000 streams below an hour.
        "retention": ScanRow(
            description="Moves the beginning of streams forward, as their rules say",
            statements=_retention_rights,
            every_minutes=lambda settings: settings.retention_interval_minutes,
            batch=100,
            max_concurrency=10,
            kinds=("metadata",),
        ),
        # Small neighbouring fragments become one, so that reads cost fewer requests: all streams
        # with many small fragments. It deletes nothing. Each copies up to gigabytes within S3 for
        # one stream, and no reader waits for it: a few at once leave the bucket's request rate to
        # those who upload and read. A part that is too small to be copied by S3 goes through
        # memory.
        "consolidate": ScanRow(
            description="Makes large fragments out of small neighbours",
            statements=_consolidate_rights,
            every_minutes=lambda settings: settings.consolidate_interval_minutes,
            batch=10,
            max_concurrency=8,
            memory_mib=1024,
        ),
        # Deletes garbage, after a proof (docs/workflows.md), and alone touches live streams: all
        # that are live or gone for good. Each lists a whole stream and deletes up to a thousand
        # keys a request. S3 answers some 3,500 deletes and 5,500 reads a second below one prefix,
        # and nothing here is urgent.
        "collect": ScanRow(
            description="Records garbage, and deletes what has been garbage for the grace time",
            statements=_collect_rights,
            every_minutes=lambda settings: settings.collect_interval_minutes,
            batch=25,
            max_concurrency=4,
        ),
    }
)


def definition(name: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    """The definition of any workflow by its name, with `numbers` in their places.

    Raises:
        KeyError: there is no placeholder for one of them.
    """
    row = WORKFLOWS.get(name)
    if row is None:
        return workflow.definition(name, numbers, {})
    return workflow.definition(DEFINITION, {**_numbers(row), **numbers}, _words(name, row))


def looked_at_minutes(settings: Settings) -> dict[str, int]:
    """How often a workflow looks at one and the same stream, by its name, where that is known.

    `reconcile` takes streams at rest in turns. A stream whose root stays crowded has `rebalance`
    started once an hour, as long as there are commits.
    """
    every = {name: row.every_minutes(settings) for name, row in WORKFLOWS.items()}
    idle = settings.reconcile_idle_interval_minutes
    return {**every, "reconcile": max(every["reconcile"], idle), "rebalance": 60}


def _numbers(row: ScanRow) -> dict[str, int]:
    return {"MaxItemsPerBatch": row.batch, "MaxConcurrency": row.max_concurrency}


def _words(name: str, row: ScanRow) -> dict[str, str]:
    return {"Workflow": name, "Description": row.description}


class ScanWorkflow(Construct):
    """One of the `WORKFLOWS`, with its step.

    Args:
        scope: where it belongs.
        id: its name there.
        name: of the workflow.
        site: what it is made for.
        shared: what all workflows call.

    Attributes:
        machine: the state machine.
        function: what it calls for each piece of work.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        name: str,
        site: Site,
        shared: SharedSteps,
    ) -> None:
        super().__init__(scope, id)
        row = WORKFLOWS[name]
        self.function = site.step(
            self,
            name,
            statements=row.statements(site),
            kinds=row.kinds,
            starts=row.starts,
            memory_mib=max(row.memory_mib, site.settings.step_memory_mib),
            description=row.description,
        )
        self.machine = shared.workflow(
            self,
            name,
            step=self.function,
            timeout_seconds=row.timeout_seconds,
            description=row.description,
            numbers=_numbers(row),
            scanned=Scan(DEFINITION, _words(name, row), row.every_minutes(site.settings)),
        )
