"""What people may do: policies to attach to the roles that they assume."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from coldstream.names import WORKFLOWS
from infra import rights
from infra.arns import executions_arn, machine_arn
from infra.nag import accept_executions, accept_keys
from infra.steps import Site

_READ = ("data", "metadata")
_WRITTEN = ("data/*.fragment", "data/*.hole")


class People(Construct):
    """Managed policies: for those who read streams, for gateways, for those who operate the tier.

    None may delete an object. An operator may change whatever the catalog says, so a stream can
    be deleted through its state: after the undelete time, by the workflow.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what they work with.

    Attributes:
        readers: for `coldstream read`, `list`, `describe`, `verify`, for Spark and for jobs of
            one's own.
        gateways: for `coldstream gateway`, which also keeps offsets of consumers.
        operators: for all commands.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
    ) -> None:
        super().__init__(scope, id)
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
                *self._workflows(),
            ],
            "Operates a tier of streams: rules, holds, deletion, repair, workflows",
        )
        accept_keys(self.readers, bucket=bucket, prefix=prefix, kinds=_READ)
        accept_keys(self.gateways, bucket=bucket, prefix=prefix, kinds=_READ)
        accept_keys(self.operators, bucket=bucket, prefix=prefix, kinds=(*_READ, *_WRITTEN))
        for name in WORKFLOWS:
            accept_executions(self.operators, name)

    def _policy(
        self, name: str, statements: Sequence[iam.PolicyStatement], description: str
    ) -> iam.ManagedPolicy:
        return iam.ManagedPolicy(
            self, name, statements=[*statements], description=f"{description}, with coldstream"
        )

    def _workflows(self) -> list[iam.PolicyStatement]:
        stack = Stack.of(self)
        return [
            iam.PolicyStatement(
                sid="StartWorkflows",
                actions=["states:StartExecution"],
                resources=[machine_arn(stack, name) for name in WORKFLOWS],
            ),
            iam.PolicyStatement(
                sid="SeeWorkflows",
                actions=["states:DescribeExecution", "states:StopExecution"],
                resources=[executions_arn(stack, name) for name in WORKFLOWS],
            ),
        ]
