"""What people may do: policies to attach to the roles that they assume."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from coldstream.deployment import WORKFLOWS
from infra import operating, rights
from infra.arns import map_run_arns, map_runs_arn
from infra.commit import CommitQueue
from infra.nag import accept, accept_arn, accept_executions, accept_keys
from infra.steps import Site

_READ = ("data", "metadata")
_WRITTEN = ("data/*.fragment", "data/*.hole")


class People(Construct):
    """Managed policies: for those who read streams, for gateways, for those who operate the tier,
    and for those who look at it in the console, as who operates it also must.

    None may delete an object. An operator may change whatever the catalog says, so a stream can
    be deleted through its state: by the workflow, a grace time after that began, or later.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what they work with.
        commit_queue: whose dead letters an operator brings back.
        missed: where records of deletions are that nobody started.
        jobs: names of the Glue jobs that an operator starts.
        mapping: the workflows that have a Distributed Map.

    Attributes:
        readers: for `coldstream read`, `list`, `describe`, `verify`, for Spark and for jobs of
            one's own.
        gateways: for `coldstream gateway`, which also keeps offsets of consumers.
        operators: for all commands, and what the runbook has them do in the console.
        consoles: to look at alarms, executions and runs of jobs in the console.
        logs: to read logs, also by the saved queries.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
        commit_queue: CommitQueue,
        missed: sqs.IQueue,
        jobs: Sequence[str],
        mapping: Collection[str],
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        bucket, table, prefix = site.bucket, site.table, site.settings.prefix
        reading = [
            rights.read_objects(bucket=bucket, prefix=prefix),
            rights.list_streams(bucket=bucket, prefix=prefix),
            rights.read_catalog(table=table),
        ]
        self.readers = self._policy("Readers", reading, "Reads streams that are tiered to S3")
        self.gateways = self._policy(
            "Gateways",
            [*reading, rights.store_offsets(table=table, prefix=prefix)],
            "Serves streams that are tiered to S3, and keeps offsets of consumers",
        )
        self.operators = self._policy(
            "Operators",
            [
                *reading,
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.compose_data(bucket=bucket, prefix=prefix),
                rights.write_holes(bucket=bucket, prefix=prefix),
                rights.operate_catalog(table=table),
                *operating.run_workflows(stack),
                *operating.redrive_messages(
                    queue=commit_queue.queue, kept=[commit_queue.dead_letters, missed]
                ),
                operating.run_jobs(stack, jobs),
            ],
            "Operates a tier of streams: rules, holds, deletion, repair, workflows",
        )
        self.consoles = self._policy(
            "Consoles",
            operating.look(stack, jobs=jobs, mapping=mapping),
            "Looks at alarms, executions and runs of jobs of a tier of streams",
        )
        # A policy of their own: they are many, and a policy may have 6,144 characters.
        groups = [each for each in stack.node.find_all() if isinstance(each, logs.LogGroup)]
        self.logs = self._policy(
            "Logs", operating.read_logs(groups), "Reads the logs of a tier of streams"
        )
        accept_keys(self.readers, bucket=bucket, prefix=prefix, kinds=_READ)
        accept_keys(self.gateways, bucket=bucket, prefix=prefix, kinds=_READ)
        accept_keys(self.operators, bucket=bucket, prefix=prefix, kinds=(*_READ, *_WRITTEN))
        for name in WORKFLOWS:
            accept_executions(self.operators, name)
            accept_executions(self.consoles, name)
        for name in mapping:
            for arn in (map_runs_arn(stack, name), map_run_arns(stack, name)):
                accept_arn(
                    self.consoles,
                    arn,
                    "All runs of one state machine's maps: their names are made up as they start",
                )
        for policy in (self.consoles, self.logs):
            accept(
                policy,
                "IAM5[Resource::*]",
                "Alarms, metrics, results of queries and lists of names: AWS knows no resources for"
                " them, or shows them to the console only all together",
            )

    def _policy(
        self, name: str, statements: Sequence[iam.PolicyStatement], description: str
    ) -> iam.ManagedPolicy:
        return iam.ManagedPolicy(
            self, name, statements=[*statements], description=f"{description}, with coldstream"
        )
