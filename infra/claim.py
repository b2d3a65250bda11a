"""The function `claim`, which alone moves items and writes manifests for the agents."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from coldstream.deployment import CLAIM_TIMEOUT_SECONDS, ENV_CLUSTER
from infra import rights
from infra.function import Function
from infra.nag import accept_executions, accept_keys
from infra.steps import Site

KINDS = ("data", "metadata", "data/*.fragment", "data/*.hole")


class Claim(Construct):
    """What an agent invokes to have its stream claimed and committed, and its losses declared.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what it is made for.

    Attributes:
        function: the function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
    ) -> None:
        super().__init__(scope, id)
        bucket, prefix = site.bucket, site.settings.prefix
        made = Function(
            self,
            "Claim",
            handler="functions.claim.handler",
            code=site.code,
            timeout=Duration.seconds(CLAIM_TIMEOUT_SECONDS),
            environment={**site.environment, ENV_CLUSTER: site.settings.stack_name},
            rights=[
                rights.read_objects(bucket=bucket, prefix=prefix),
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.write_fragments(bucket=bucket, prefix=prefix),
                rights.write_holes(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                *rights.anchor_and_commit(table=site.table, prefix=prefix),
                *rights.start_workflow(self, "rebalance"),
            ],
            log_retention_days=site.settings.log_retention_days,
            tracing=site.settings.tracing,
            memory_mib=site.settings.commit_memory_mib,
            reserved=site.settings.claim_concurrency or None,
            description="Claims streams and commits for the agents, which have no right to",
        )
        accept_keys(made.role, bucket=bucket, prefix=prefix, kinds=KINDS)
        accept_executions(made.role, "rebalance")
        self.function: lambda_.IFunction = made.function
