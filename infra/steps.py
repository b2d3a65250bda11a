"""The functions that the state machines call, and what all of them are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra import rights
from infra.config import Settings
from infra.function import Function
from infra.nag import accept_executions, accept_keys, accept_marks
from infra.workflow import Workflow

# A page is one Query and a few reads; a report is a line in a log.
SCAN_TIMEOUT_SECONDS = 120
REPORT_TIMEOUT_SECONDS = 30

# How much longer than the function's own time-out a state machine waits for its answer: the
# function's is the one that should strike, because its log says what happened.
_ANSWER_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What every workflow is made for.

    Attributes:
        settings: of the deployment.
        bucket: where fragments and manifests lie.
        table: the catalog.
        code: the bundle.
        environment: what every handler reads.
    """

    settings: Settings
    bucket: s3.IBucket
    table: dynamodb.ITable
    code: lambda_.Code
    environment: Mapping[str, str]

    def step(
        self,
        scope: Construct,
        name: str,
        *,
        statements: Sequence[iam.PolicyStatement],
        kinds: Sequence[str] = (),
        starts: Sequence[str] = (),
        description: str,
        timeout_seconds: int | None = None,
        memory_mib: int | None = None,
    ) -> lambda_.IFunction:
        """The function `functions.<name>`.

        Args:
            scope: where it belongs.
            name: of its module.
            statements: what its role may do.
            kinds: the kinds of keys in these ("data", "metadata").
            starts: the workflows that it may start.
            description: one sentence for the console.
            timeout_seconds: the longest run; by default that of the settings.
            memory_mib: its memory; by default that of the settings.
        """
        made = Function(
            scope,
            "Step",
            handler=f"functions.{name}.handler",
            code=self.code,
            timeout=Duration.seconds(timeout_seconds or self.settings.step_timeout_seconds),
            environment=self.environment,
            rights=[
                *statements,
                *(each for start in starts for each in rights.start_workflow(scope, start)),
            ],
            log_retention_days=self.settings.log_retention_days,
            description=description,
            tracing=self.settings.tracing,
            memory_mib=memory_mib or self.settings.step_memory_mib,
        )
        accept_keys(made.role, bucket=self.bucket, prefix=self.settings.prefix, kinds=kinds)
        for start in starts:
            accept_executions(made.role, start)
        return made.function


@dataclass(frozen=True, slots=True)
class Scan:
    """How a workflow goes over all streams that the scan finds.

    Attributes:
        definition: its name, shared by these workflows.
        words: placeholders of the definition.
        every_minutes: how often it starts.
    """

    definition: str
    words: Mapping[str, str]
    every_minutes: int


class SharedSteps(Construct):
    """The two functions that all state machines call.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what it is made for.

    Attributes:
        scan: finds the streams that a workflow should look at, a page at a time.
        report: logs and counts what a state machine gave up.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
    ) -> None:
        super().__init__(scope, id)
        self._site = site
        self.scan = site.step(
            Construct(self, "Survey"),  # its name in deployed stacks
            "scan",
            statements=[
                rights.scan_catalog(table=site.table),
                rights.read_policies(table=site.table),
                # For `reconcile`, which finds streams that a restored table lacks.
                rights.list_streams(bucket=site.bucket, prefix=site.settings.prefix),
                rights.mark_complete(bucket=site.bucket, prefix=site.settings.prefix),
            ],
            timeout_seconds=SCAN_TIMEOUT_SECONDS,
            description="Finds the streams that a workflow should look at",
        )
        accept_marks(self, bucket=site.bucket, prefix=site.settings.prefix)
        self.report = site.step(
            Construct(self, "Report"),
            "report",
            statements=[],
            timeout_seconds=REPORT_TIMEOUT_SECONDS,
            description="Logs and counts what a state machine gave up",
        )

    def workflow(
        self,
        scope: Construct,
        name: str,
        *,
        step: lambda_.IFunction,
        timeout_seconds: int,
        description: str,
        numbers: Mapping[str, int] | None = None,
        scanned: Scan | None = None,
    ) -> sfn.StateMachine:
        """A state machine that calls `step` for work that it is given, or that a scan finds.

        Args:
            scope: where it belongs.
            name: of the workflow.
            step: what it calls.
            timeout_seconds: the longest run.
            description: one sentence for the console.
            numbers: placeholders of the definition that it has besides the time-outs.
            scanned: how it goes over all streams; None if something else gives it its work.
        """
        scan = {} if scanned is None else {"Scan": self.scan}
        numbers = {
            "StepTimeoutSeconds": self._site.settings.step_timeout_seconds + _ANSWER_SECONDS,
            "ReportTimeoutSeconds": REPORT_TIMEOUT_SECONDS + _ANSWER_SECONDS,
            **(numbers or {}),
        }
        if scanned is not None:
            numbers["ScanTimeoutSeconds"] = SCAN_TIMEOUT_SECONDS + _ANSWER_SECONDS
        return Workflow(
            scope,
            "Workflow",
            name=name,
            functions={"Step": step, **scan, "Report": self.report},
            numbers=numbers,
            timeout_seconds=timeout_seconds,
            log_retention_days=self._site.settings.log_retention_days,
            tracing=self._site.settings.tracing,
            distributed=scanned is not None,
            description=description,
            every_minutes=None if scanned is None else scanned.every_minutes,
            file="" if scanned is None else scanned.definition,
            words={} if scanned is None else scanned.words,
        ).machine
